//! The modern era of `serve`: all clients share one server, and no client sees the ids, tokens or subscriptions of another.
//! guards: No client of a shared modern server sees the ids, tokens or subscriptions of another.

use crate::support::front::{self, Front, call, request};
use mainstay_testkit::wait::until;
use serde_json::{Value, json};

const SUBSCRIPTION: &str = "/params/_meta/io.modelcontextprotocol~1subscriptionId";

fn tool(name: &str, arguments: &Value, token: &Value) -> Value {
    json!({"name": name, "arguments": arguments, "_meta": {"progressToken": token}})
}

#[test]
fn clients_with_the_same_ids_and_tokens_get_their_own_answers() {
    let front = Front::start(&[], &["--modern"]);
    let mut all: Vec<_> = (1..=8)
        .map(|n| {
            front.modern(
                &json!(1),
                "tools/call",
                tool("steps", &json!({"n": n}), &json!(1)),
            )
        })
        .collect();
    for (place, one) in all.iter_mut().enumerate() {
        one.head();
        let steps = place as u64 + 1;
        for step in 1..=steps {
            let progress = one.message();
            assert_eq!(progress["params"]["progressToken"], 1, "{progress}");
            assert_eq!(progress["params"]["progress"], step);
        }
        let answer = one.message();
        assert_eq!(
            (
                &answer["id"],
                &answer["result"]["structuredContent"]["steps"]
            ),
            (&json!(1), &json!(steps))
        );
        assert_eq!(one.event(), None);
    }
    assert_eq!(front.metric("mainstay_links"), 1, "one server");
    assert_eq!(front.metric("mainstay_sessions_open"), 0, "no session");
    assert_eq!(front.metric("mainstay_requests_total{era=\"modern\"}"), 8);
    front.finish();
}

#[test]
fn each_client_gets_only_what_it_listens_to() {
    let front = Front::start(
        &[],
        &[
            "--modern",
            "--capabilities",
            r#"{"tools":{"listChanged":true}}"#,
        ],
    );
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut one = front.modern(&json!("a"), "subscriptions/listen", filter.clone());
    let mut other = front.modern(&json!(7), "subscriptions/listen", filter);
    for (connection, name) in [(&mut one, json!("a")), (&mut other, json!(7))] {
        assert_eq!(
            connection.head().header("content-type"),
            Some("text/event-stream")
        );
        let granted = connection.message();
        assert_eq!(
            granted["method"],
            "notifications/subscriptions/acknowledged"
        );
        assert_eq!(granted.pointer(SUBSCRIPTION), Some(&name));
    }
    let news = json!({"method": "notifications/tools/list_changed"});
    let mut call = front.modern(&json!(7), "tools/call", tool("news", &news, &json!(0)));
    assert_eq!(call.answer().last()["id"], 7);
    for (connection, name) in [(&mut one, json!("a")), (&mut other, json!(7))] {
        let changed = connection.message();
        assert_eq!(changed["method"], news["method"]);
        assert_eq!(changed.pointer(SUBSCRIPTION), Some(&name));
    }
    // A stop of the front ends these requests with an answer, not with a broken stream.
    front.signal(rustix::process::Signal::TERM);
    for (mut connection, name) in [(one, json!("a")), (other, json!(7))] {
        let last = connection.message();
        assert_eq!(
            (&last["id"], &last["result"]["resultType"]),
            (&name, &json!("complete")),
            "{last}"
        );
        assert_eq!(connection.event(), None);
    }
    front.finish_stopped();
}

#[test]
fn a_client_that_leaves_is_cancelled_at_the_server() {
    let front = Front::start(&[], &["--modern"]);
    let leaving = front.modern(
        &json!(1),
        "tools/call",
        tool("sleep", &json!({"ms": 600_000}), &json!(1)),
    );
    front.metric_is("mainstay_requests_total{era=\"modern\"}", 1);
    leaving.drop_it();
    until("the server hears of it", || {
        let mut held = front.modern(&json!(2), "tools/call", tool("held", &json!({}), &json!(2)));
        let held = held.answer().last().to_string();
        held.contains("notifications/cancelled").then_some(())
    });
    front.finish();
}

#[test]
fn the_servers_death_is_answered_and_survived() {
    let front = Front::start(&[], &["--modern"]);
    let mut waiting = front.modern(
        &json!("w"),
        "tools/call",
        tool("sleep", &json!({"ms": 600_000}), &json!(1)),
    );
    front.metric_is("mainstay_requests_total{era=\"modern\"}", 1);
    let mut crash = front.modern(
        &json!("c"),
        "tools/call",
        tool("crash", &json!({"signal": 9}), &json!(2)),
    );
    for (connection, id) in [(&mut waiting, "w"), (&mut crash, "c")] {
        let answer = connection.answer().last();
        assert_eq!(
            (&answer["id"], &answer["result"]["isError"]),
            (&json!(id), &json!(true)),
            "{answer}"
        );
    }
    let mut next = front.modern(&json!(3), "tools/list", json!({}));
    assert_eq!(next.answer().status, 200);
    front.finish();
}

#[test]
fn headers_must_agree_with_the_body() {
    let front = Front::start(&[], &["--modern"]);
    let meta = |version: &str| json!({"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {}});
    let good = [
        ("mcp-protocol-version", front::MODERN),
        ("mcp-method", "tools/list"),
    ];
    let strange = [
        ("mcp-protocol-version", "2099-01-01"),
        ("mcp-method", "tools/list"),
    ];
    let other = [
        ("mcp-protocol-version", front::MODERN),
        ("mcp-method", "tools/call"),
    ];
    for (headers, params, status, code) in [
        (&good[..], json!({"_meta": meta(front::MODERN)}), 200, 0),
        (
            &good[..1],
            json!({"_meta": meta(front::MODERN)}),
            400,
            -32020,
        ),
        (&[], json!({"_meta": meta(front::MODERN)}), 400, -32020),
        (&other, json!({"_meta": meta(front::MODERN)}), 400, -32020),
        (&good, json!({}), 400, -32602),
        (
            &good,
            json!({"_meta": {"io.modelcontextprotocol/protocolVersion": front::MODERN}}),
            400,
            -32602,
        ),
        (&strange, json!({"_meta": meta("2099-01-01")}), 400, -32022),
    ] {
        let mut connection = front.connect();
        connection.post(headers, &request(9, "tools/list", &params));
        let answer = connection.answer();
        assert_eq!(answer.status, status, "{headers:?} {params}");
        let message = answer.message();
        assert_eq!(message["id"], 9);
        assert_eq!(
            message["error"]["code"].as_i64().unwrap_or(0),
            code,
            "{message}"
        );
    }
    for (method, status) in [("initialize", 404), ("ping", 404), ("no/such", 404)] {
        let mut connection = front.modern(&json!(4), method, json!({}));
        let answer = connection.answer();
        assert_eq!((answer.status, answer.code()), (status, -32601), "{method}");
    }
    for method in ["GET", "DELETE"] {
        let mut connection = front.connect();
        connection.send(
            method,
            &[
                ("mcp-protocol-version", front::MODERN),
                ("accept", "text/event-stream"),
            ],
            b"",
        );
        let answer = connection.answer();
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some("POST")),
            "{method}"
        );
    }
    front.finish();
}

#[test]
fn headers_must_agree_with_nested_arguments_and_come_once() {
    let front = Front::start(&[], &["--modern"]);
    let echo = |arguments: &Value, more: &[(&str, &str)]| {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": front::MODERN, "io.modelcontextprotocol/clientCapabilities": {}});
        let params = json!({"name": "echo", "arguments": arguments, "_meta": meta});
        let mut headers = vec![
            ("mcp-protocol-version", front::MODERN),
            ("mcp-method", "tools/call"),
            ("mcp-name", "echo"),
        ];
        headers.extend(more);
        let mut connection = front.connect();
        connection.post(&headers, &request(9, "tools/call", &params));
        let answer = connection.answer();
        let code = answer.last()["error"]["code"].as_i64();
        (answer.status, code.unwrap_or(0))
    };
    let inside = json!({"text": "x", "at": {"region": "eu"}});
    let outside = json!({"text": "x"});
    let region = "mcp-param-region";
    for (arguments, more, expected) in [
        (&outside, &[][..], (200, 0)),
        (&inside, &[(region, "eu")], (200, 0)),
        (&inside, &[(region, "us")], (400, -32020)),
        (&inside, &[], (400, -32020)),
        (&outside, &[(region, "eu")], (400, -32020)),
        (&inside, &[(region, "eu"), (region, "us")], (400, -32020)),
        (&outside, &[("mcp-name", "crash")], (400, -32020)),
        (&outside, &[("mcp-method", "tools/list")], (400, -32020)),
        (
            &outside,
            &[("mcp-protocol-version", "2025-11-25")],
            (400, -32020),
        ),
        // No tool declares this header as a copy of an argument.
        (
            &outside,
            &[("mcp-param-free", "a"), ("mcp-param-free", "b")],
            (200, 0),
        ),
    ] {
        assert_eq!(echo(arguments, more), expected, "{arguments} {more:?}");
    }
    front.finish();
}

#[test]
fn a_legacy_server_is_not_taken_for_a_modern_one() {
    let front = Front::start(&[], &[]);
    let mut connection = front.modern(&json!(1), "server/discover", json!({}));
    let answer = connection.answer();
    assert_eq!((answer.status, answer.code()), (404, -32601));
    let mut connection = front.modern(&json!(1), "tools/call", tool("pid", &json!({}), &json!(1)));
    assert_eq!(connection.answer().status, 400);
    front.metric_is("mainstay_links", 0);
    let session = front.session();
    assert_eq!(
        session.post(&call(1, "echo", &json!({"text": "a"}))).status,
        200
    );
    front.finish();
}

#[test]
fn repeated_keys_reach_no_request_of_another_client() {
    let front = Front::start(&[], &["--modern"]);
    let mut victim = front.modern(
        &json!("v"),
        "tools/call",
        tool("sleep", &json!({"ms": 600_000}), &json!(1)),
    );
    front.metric_is("mainstay_requests_total{era=\"modern\"}", 1);
    // A tool tells the attacker the ids under which the server knows the requests.
    let mut held = front.modern(&json!(2), "tools/call", tool("held", &json!({}), &json!(2)));
    let held = held.answer().last();
    let heard = held["result"]["structuredContent"]["heard"]
        .as_array()
        .unwrap();
    let called = heard
        .iter()
        .map(|line| serde_json::from_str::<Value>(line.as_str().unwrap()).unwrap())
        .find(|message| message["params"]["name"] == "sleep")
        .unwrap();
    let label = called["id"].as_str().unwrap().to_owned();
    let (number, random) = label.split_once('-').unwrap();
    assert!(
        number.starts_with('h') && random.len() == 32,
        "an id that no client can guess: {label}"
    );
    let meta = json!({"io.modelcontextprotocol/protocolVersion": front::MODERN, "io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"name": "echo", "arguments": {"text": "attack"}, "_meta": meta});
    let start = r#"{"jsonrpc":"2.0","id":"m","method":"tools/call""#;
    for body in [
        format!(r#"{start},"params":{params},"id":"{label}"}}"#),
        format!(r#"{start},"params":{params},"\u0069d":"{label}"}}"#),
        format!(r#"{start},"params":{params},"ID":"{label}"}}"#),
        format!(r#"{start},"params":{{}},"params":{params}}}"#),
        format!(r#"{start},"method":"tools/list","params":{params}}}"#),
        format!(
            r#"{start},"params":{{"name":"crash",{}}}"#,
            &params.to_string()[1..]
        ),
        format!(r#"{{"jsonrpc":"2.0","ID":"{label}","method":"tools/call","params":{params}}}"#),
    ] {
        let mut attacker = front.connect();
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", front::MODERN),
            ("mcp-method", "tools/call"),
            ("mcp-name", "echo"),
        ];
        attacker.send("POST", &headers, body.as_bytes());
        let answer = attacker.answer();
        assert_eq!((answer.status, answer.code()), (400, -32600), "{body}");
        assert!(answer.text().contains("twice"), "{}", answer.text());
    }
    let mut crash = front.modern(
        &json!("c"),
        "tools/call",
        tool("crash", &json!({"signal": 9}), &json!(3)),
    );
    crash.answer();
    let answer = victim.answer().last();
    assert_eq!(answer["id"], "v");
    assert!(!answer.to_string().contains("attack"), "{answer}");
    front.finish();
}
