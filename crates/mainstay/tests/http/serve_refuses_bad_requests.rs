//! Which requests `serve` refuses, with which status, and which secrets it never shows.
//! guards: `serve` refuses requests without permission and never shows a token.

use crate::support::front::{self, Front, call, request, secret_file};
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use serde_json::json;

const JSON: [(&str, &str); 2] = [
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
];

#[test]
fn each_mistake_has_its_status() {
    let front = Front::start(&["--body-max", "2KiB"], &[]);
    let body = serde_json::to_vec(&request(1, "initialize", &json!({}))).unwrap();
    let large = vec![b' '; 4_096];
    let with = |more: &[(&'static str, &'static str)]| [&JSON[..], more].concat();
    for (method, headers, body, status) in [
        (
            "POST",
            with(&[("origin", "http://evil.example")]),
            &body,
            403,
        ),
        ("POST", with(&[("origin", "null")]), &body, 403),
        ("POST", vec![JSON[1]], &body, 415),
        (
            "POST",
            vec![("content-type", "text/plain"), JSON[1]],
            &body,
            415,
        ),
        (
            "POST",
            vec![JSON[0], ("accept", "application/json")],
            &body,
            406,
        ),
        ("POST", vec![JSON[0], ("accept", "text/html")], &body, 406),
        (
            "GET",
            vec![("accept", "application/json")],
            &Vec::new(),
            406,
        ),
        (
            "GET",
            vec![("accept", "text/event-stream")],
            &Vec::new(),
            400,
        ),
        ("DELETE", Vec::new(), &Vec::new(), 400),
        ("PUT", with(&[]), &body, 405),
        ("POST", with(&[]), &large, 413),
        ("POST", with(&[]), &b"{".to_vec(), 400),
        ("POST", with(&[]), &b"[]".to_vec(), 400),
        ("POST", with(&[]), &b"{\"jsonrpc\":\"2.0\"}".to_vec(), 400),
        ("POST", with(&[("mcp-session-id", "0123")]), &body, 404),
    ] {
        let mut connection = front.connect();
        connection.send(method, &headers, body);
        let answer = connection.answer();
        assert_eq!(
            answer.status,
            status,
            "{method} {headers:?}: {}",
            answer.text()
        );
        assert!(
            answer.message()["error"]["message"].is_string(),
            "the error has a text"
        );
        if status == 405 {
            assert_eq!(answer.header("allow"), Some("GET, POST, DELETE"));
        }
    }
    let mut parse = front.connect();
    parse.send("POST", &JSON, b"{\"jsonrpc\": nonsense}");
    assert_eq!(parse.answer().code(), -32700);
    for (host, status) in [
        ("evil.example", 403),
        ("localhost.evil.example:80", 403),
        ("localhost", 404),
        ("a b", 400),
    ] {
        let mut connection = front.connect();
        connection.host = host.into();
        connection.path = "/nowhere".into();
        connection.send("POST", &JSON, &body);
        let answer = connection.answer();
        assert_eq!(answer.status, status, "{host}");
        // Only a caller that may use the servers learns their paths.
        let listed = answer.text().contains("servers are at /mcp");
        assert_eq!(listed, status == 404, "{}", answer.text());
    }
    assert_eq!(front.page("/healthz").status, 200);
    assert_eq!(
        front.metric("mainstay_sessions_opened_total"),
        0,
        "no server was bothered"
    );
    front.finish();
}

#[test]
fn requests_without_the_token_are_refused_and_the_token_is_never_shown() {
    let stage = Stage::new();
    let secret = "a-very-secret-token-0123456789";
    secret_file(&stage.path("token"), &format!("{secret}\n"));
    let token = stage.path("token");
    let mut words: Vec<_> = [
        "--token-file",
        token.to_str().unwrap(),
        "--name",
        "unruly",
        "--",
    ]
    .map(Into::into)
    .into();
    words.extend(stage.unruly::<&str>(&[]));
    let front = Front::on(stage, &words);
    let opening = request(1, "initialize", &json!({"protocolVersion": "2025-11-25"}));
    for offered in [
        None,
        Some("Bearer wrong-wrong-wrong"),
        Some("Basic x"),
        Some("Bearer "),
        Some("Bearer a-very-secret-token-012345678"),
        Some("Bearer a-very-secret-token-01234567890"),
        Some("Bearer a-very-secret-token-0123456789a-very-secret-token-0123456789"),
    ] {
        let mut connection = front.connect();
        let more = offered.map(|value| ("authorization", value));
        connection.post(more.as_slice(), &opening);
        let answer = connection.answer();
        assert_eq!(answer.status, 401);
        assert!(!answer.text().contains("secret"), "{}", answer.text());
        assert!(
            answer
                .header("www-authenticate")
                .unwrap()
                .starts_with("Bearer")
        );
    }
    assert_eq!(front.page("/metrics").status, 401);
    assert_eq!(front.page("/healthz").status, 200);
    let mut connection = front.connect();
    let bearer = format!("Bearer {secret}");
    let more = [
        ("authorization", bearer.as_str()),
        ("x-api-key", "another-secret"),
    ];
    connection.post(&more, &opening);
    assert_eq!(connection.answer().status, 200);
    // A request that is refused for another reason does not show its secrets either.
    let mut strange = front.connect();
    strange.path = "/another-secret/mcp".into();
    strange.post(&more, &opening);
    let refused = strange.answer();
    assert_eq!(refused.status, 404);
    let mut page = front.connect();
    page.path = "/metrics".into();
    page.send("GET", &more, b"");
    let told = [
        front.stage.story(),
        front.stderr(),
        refused.text(),
        page.answer().text(),
    ];
    for told in told {
        assert!(
            !told.contains(secret) && !told.contains("another-secret"),
            "{told}"
        );
    }
    front.finish();
}

#[test]
fn listening_beyond_this_machine_needs_a_token() {
    let stage = Stage::new();
    let output = stage
        .command(front::mainstay())
        .args(["serve", "--listen", "0.0.0.0:0", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("no token is asked for") && told.contains("--token-file"),
        "{told}"
    );
}

#[test]
fn slow_and_endless_senders_are_disconnected() {
    let front = Front::start(&["--header-max", "8KiB"], &[]);
    // Each limit is short only while the test provokes it, because a slow test would exceed it itself.
    front.limit("header_wait = \"500ms\"");
    let mut half_head = front.connect();
    half_head.raw(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n");
    assert!(half_head.closed());
    front.limit("body_wait = \"300ms\"");
    let mut half_body = front.connect();
    half_body.raw(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{");
    assert_eq!(half_body.answer().status, 408);
    let mut endless = front.connect();
    endless.raw(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n");
    endless.raw(format!("x: {}\r\n", "y".repeat(64 * 1024)).as_bytes());
    assert_eq!(endless.head().status, 431);
    drop((half_head, half_body, endless));
    // The metrics request itself is one connection.
    front.metric_is("mainstay_connections_open", 1);
    front.finish();
}

/// hyper does not check its own limit between two reads, so bytes of the last read are counted too.
#[test]
fn a_head_beyond_the_limit_is_refused_however_it_is_cut_into_reads() {
    let front = Front::start(&[], &[]);
    for (size, status) in [(60_000, 200), (66_000, 431), (90_000, 431), (120_000, 431)] {
        for parts in [1, 2, 3, 7] {
            let mut connection = front.connect();
            let head = format!(
                "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
                "y".repeat(size)
            );
            for part in head.as_bytes().chunks(head.len().div_ceil(parts)) {
                connection.raw(part);
                std::thread::yield_now();
            }
            assert_eq!(connection.head().status, status, "{size} in {parts}");
        }
    }
    front.finish();
}

#[test]
fn too_many_at_a_time_are_refused_for_now() {
    let front = Front::start(&["--requests-max", "2", "--streams-max", "3"], &[]);
    let session = front.session();
    let asked: Vec<_> = (1..=2)
        .map(|id| session.asking(&call(id, "sleep", &json!({"ms": 600_000}))))
        .collect();
    front.metric_is("mainstay_requests_total{era=\"legacy\"}", 3);
    let mut news = session.news(None);
    assert_eq!(news.head().status, 200);
    for answer in [
        session.post(&request(3, "ping", &json!({}))),
        session.news(None).answer(),
    ] {
        assert_eq!(answer.status, 429, "{}", answer.text());
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    drop((asked, news));
    front.finish();
    let front = Front::start(&["--connections-max", "3"], &[]);
    let mut there: Vec<_> = (0..3).map(|_| front.connect()).collect();
    for one in &mut there {
        one.path = "/healthz".into();
        one.send("GET", &[], b"");
        assert_eq!(one.answer().status, 200);
    }
    let mut more = front.connect();
    more.send("GET", &[], b"");
    assert_eq!(more.answer().status, 503);
    drop(there);
    until("there is room again", || {
        let mut next = front.connect();
        next.path = "/healthz".into();
        next.send("GET", &[], b"");
        (next.answer().status == 200).then_some(())
    });
    front.finish();
}

#[test]
fn a_browser_may_show_our_answers_to_pages_of_allowed_sites_only() {
    let stage = Stage::new();
    let token = stage.path("token");
    secret_file(&token, "a-very-secret-token-0123456789\n");
    let options = [
        "--token-file",
        token.to_str().unwrap(),
        "--allow-origin",
        "https://app.example",
    ];
    let mut words: Vec<std::ffi::OsString> = options.map(Into::into).into();
    words.extend(["--name", "unruly", "--"].map(Into::into));
    words.extend(stage.unruly::<&str>(&[]));
    let front = Front::on(stage, &words);
    // A browser sends a preflight request first, which has no token.
    let ask = |origin: &str| {
        let mut connection = front.connect();
        let wanted = "authorization, content-type, mcp-protocol-version, mcp-session-id";
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", wanted),
        ];
        connection.send("OPTIONS", &headers, b"");
        let answer = connection.answer();
        let told = answer.header("access-control-allow-headers") == Some(wanted);
        (answer.status, told)
    };
    assert_eq!(ask("https://app.example"), (204, true));
    assert_eq!(
        ask(&format!("http://{}", front.address)),
        (204, true),
        "our own"
    );
    // A page of another program on this machine is another site.
    for elsewhere in [
        "http://localhost:6274",
        "http://127.0.0.1",
        "http://evillocalhost",
    ] {
        assert_eq!(ask(elsewhere), (403, false), "{elsewhere}");
    }
    assert_eq!(ask("https://evil.example"), (403, false));
    let post = |origin: &str, token: &str| {
        let mut connection = front.connect();
        let opening = request(1, "initialize", &json!({"protocolVersion": "2025-11-25"}));
        connection.post(&[("origin", origin), ("authorization", token)], &opening);
        connection.answer()
    };
    let opened = post(
        "https://app.example",
        "Bearer a-very-secret-token-0123456789",
    );
    assert_eq!(opened.status, 200);
    assert_eq!(
        opened.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert_eq!(opened.header("vary"), Some("origin"));
    let exposed = opened.header("access-control-expose-headers").unwrap();
    assert!(exposed.contains("mcp-session-id"), "{exposed}");
    let refused = post(
        "https://evil.example",
        "Bearer a-very-secret-token-0123456789",
    );
    assert_eq!(
        (
            refused.status,
            refused.header("access-control-allow-origin")
        ),
        (403, None)
    );
    assert_eq!(post("https://app.example", "Bearer no").status, 401);
    front.finish();
}
