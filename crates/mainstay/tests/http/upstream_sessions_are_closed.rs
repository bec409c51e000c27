//! `serve --upstream` gives sessions of a foreign server an idle limit, a maximum number and a DELETE, because their clients
//! never send one.
//! guards: Every session of a server behind `serve --upstream` is ended there, even after our own SIGKILL.

use std::ffi::OsString;

use crate::support::front::{self, Answer, Front, call, request};
use mainstay_testkit::httpd::{Fault, Httpd, Manner};
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};

/// A front whose upstream is another front, which plays the foreign server.
fn before(server: &Front, options: &[&str]) -> Front {
    let url = format!("http://{}{}", server.address, server.paths[0]);
    let mut words: Vec<OsString> = vec!["--upstream".into(), url.into()];
    words.extend(options.iter().map(OsString::from));
    Front::on(Stage::new(), &words)
}

/// Set once no client uses a session any more.
const SHORT: &str = "session_ttl = \"1s\"";
const OPEN: &str = "mainstay_sessions_open";
const DELETED: &str = "mainstay_sessions_closed_total{cause=\"deleted\"}";

#[test]
fn unused_upstream_sessions_are_closed() {
    let server = Front::start(&[], &[]);
    let front = before(&server, &[]);
    for id in 0..10 {
        let session = front.session();
        let answer = session.call(id, "echo", &json!({"text": "hi"}));
        assert_eq!(
            answer["result"]["structuredContent"]["text"], "hi",
            "{answer}"
        );
    }
    let reading = front.session();
    let mut news = reading.news(None);
    assert_eq!(news.head().status, 200);
    front.limit(SHORT);
    server.metric_is(DELETED, 10);
    server.metric_is(OPEN, 1);
    assert_eq!(
        front.metric("mainstay_sessions_closed_total{cause=\"idle\"}"),
        10
    );
    news.drop_it();
    server.metric_is(OPEN, 0);
    assert_eq!(reading.post(&request(1, "ping", &json!({}))).status, 404);
    front.metric_is("mainstay_sessions_unclosed", 0);
    front.finish();
    server.finish();
}

#[test]
fn upstream_sessions_are_closed_at_the_limit_and_when_serve_stops() {
    let server = Front::start(&[], &[]);
    let front = before(&server, &["--session-cap", "2"]);
    let sessions: Vec<_> = (0..5).map(|_| front.session()).collect();
    server.metric_is(DELETED, 3);
    assert_eq!(sessions[0].delete().status, 404);
    assert_eq!(
        sessions[4].delete().status,
        200,
        "a client may do it itself"
    );
    server.metric_is(DELETED, 4);
    assert_eq!(front.metric(OPEN), 1);
    let mut slow = sessions[3].asking(&call(3, "sleep", &json!({"ms": 500})));
    assert_eq!(slow.answer().last()["id"], 3);
    drop(sessions);
    front.finish();
    server.metric_is(OPEN, 0);
    assert_eq!(
        server.metric("mainstay_sessions_closed_total{cause=\"idle\"}"),
        0
    );
    server.finish();
}

#[test]
fn an_upstream_session_is_closed_if_the_client_leaves_before_it_gets_the_id() {
    let server = Front::start(&[], &["--start-when", "GO"]);
    let front = before(&server, &[]);
    let mut connection = front.connect();
    connection.post(
        &[],
        &request(0, "initialize", &json!({"protocolVersion": "2025-11-25"})),
    );
    server.metric_is(OPEN, 1);
    connection.drop_it();
    std::fs::write(server.stage.path("GO"), "").unwrap();
    server.metric_is(OPEN, 0);
    front.metric_is(OPEN, 0);
    front.finish();
    server.finish();
}

#[test]
fn modern_requests_pass_unchanged_to_the_upstream() {
    let server = Front::start(&[], &["--modern"]);
    let front = before(&server, &[]);
    let mut connection = front.modern(
        &json!("x"),
        "tools/call",
        json!({"name": "steps", "arguments": {"n": 2}, "_meta": {"progressToken": 4}}),
    );
    assert_eq!(
        connection.head().header("content-type"),
        Some("text/event-stream")
    );
    assert_eq!(connection.message()["params"]["progressToken"], 4);
    assert_eq!(connection.message()["params"]["progress"], 2);
    assert_eq!(connection.message()["id"], "x");
    assert_eq!(connection.event(), None);
    assert_eq!(front.metric(OPEN), 0);
    let leaving = front.modern(
        &json!(1),
        "tools/call",
        json!({"name": "sleep", "arguments": {"ms": 600_000}}),
    );
    server.metric_is("mainstay_requests_total{era=\"modern\"}", 2);
    leaving.drop_it();
    // The client does not wait for this answer any more, so the request is cancelled.
    until("the server hears of it", || {
        let held = json!({"name": "held", "arguments": {}});
        let held = front.modern(&json!(2), "tools/call", held).answer().last();
        held.to_string()
            .contains("notifications/cancelled")
            .then_some(())
    });
    front.finish();
    server.finish();
}

#[test]
fn an_unreachable_upstream_is_reported() {
    let server = Front::start(&[], &[]);
    let front = before(&server, &[]);
    let session = front.session();
    let id = session.id.clone();
    server.finish();
    let answer = session.post(&request(9, "tools/list", &json!({})));
    assert_eq!((answer.status, &answer.message()["id"]), (502, &json!(9)));
    assert!(answer.text().contains("upstream"), "{}", answer.text());
    assert!(!front.stage.story().contains(&id));
    drop(session);
    // The upstream server cannot be told of the end, and `serve` says so. The rest ends as usual.
    let mut front = front;
    front.signal(Signal::TERM);
    front.wait();
    assert!(
        front.stderr().contains("could not be ended now"),
        "{}",
        front.stderr()
    );
    front.stage.census.assert_empty();
}

/// A front whose upstream is the test's own HTTP server.
fn before_httpd(http: &Httpd, options: &[&str]) -> Front {
    let mut words: Vec<OsString> = vec!["--upstream".into(), http.url().into()];
    words.extend(options.iter().map(OsString::from));
    Front::on(Stage::new(), &words)
}

#[test]
fn upstream_sessions_are_closed_after_requests_in_flight_are_answered() {
    let http = Httpd::start();
    http.streams();
    let mut front = before_httpd(&http, &["--stop-wait", "60s"]);
    let session = front.session();
    let mut news = session.news(None);
    assert_eq!(news.head().status, 200);
    http.next("tools/call", Fault::Hold);
    let mut waiting = session.asking(&call(7, "echo", &json!({"text": "late"})));
    http.heard("tools/call", 1);
    front.signal(Signal::TERM);
    until("it takes nothing new", || {
        std::net::TcpStream::connect(front.address)
            .is_err()
            .then_some(())
    });
    assert_eq!(http.deleted().len(), 0, "the session is needed still");
    http.release();
    let answer = waiting.answer();
    assert_eq!((answer.status, &answer.last()["id"]), (200, &json!(7)));
    // The GET stream never ends by itself, and does not delay the stop.
    while news.event().is_some() {}
    assert!(front.wait().success());
    assert_eq!(http.deleted().len(), 1);
    http.empty();
    let took = front.stage.event("serve_stopped");
    assert_eq!(took["left"], 0);
}

#[test]
fn upstream_sessions_are_closed_at_the_next_start_if_the_upstream_hangs() {
    let http = Httpd::start();
    http.always("DELETE", Fault::Hold);
    http.manner(Manner::Events);
    let mut front = before_httpd(&http, &["--stop-wait", "200ms"]);
    let sessions: Vec<_> = (0..5).map(|_| front.session()).collect();
    http.next("tools/call", Fault::Hold);
    let waiting = sessions[0].asking(&call(7, "echo", &json!({})));
    http.heard("tools/call", 1);
    drop(sessions);
    front.signal(Signal::TERM);
    let status = front.wait();
    assert_eq!(status.code(), Some(1), "not all was done");
    assert!(
        front
            .stderr()
            .contains("5 sessions upstream could not be closed in time"),
        "{}",
        front.stderr()
    );
    assert_eq!(front.stage.event("serve_stopped")["left"], 5);
    assert_eq!(http.open(), 5);
    drop(waiting);
    http.mend();
    let mut words: Vec<OsString> = vec!["--".into()];
    words.extend(front.stage.unruly::<&str>(&[]));
    let next = front.again(&words);
    http.empty();
    next.finish();
}

#[test]
fn a_session_that_cannot_be_written_down_is_closed_and_refused() {
    let http = Httpd::start();
    let stage = Stage::new();
    let notes = mainstay_testkit::card::state_dir(stage.home()).join("sessions");
    std::fs::create_dir_all(notes.parent().unwrap()).unwrap();
    // A file in place of the directory, so nothing can be written there.
    std::fs::write(&notes, "in the way").unwrap();
    let front = Front::on(stage, &["--upstream".into(), http.url().into()]);
    let mut connection = front.connect();
    connection.post(
        &[],
        &request(3, "initialize", &json!({"protocolVersion": "2025-11-25"})),
    );
    let answer = connection.answer();
    assert_eq!(
        (answer.status, answer.header("mcp-session-id")),
        (503, None)
    );
    assert!(
        answer.text().contains("could not be written down"),
        "{}",
        answer.text()
    );
    assert_eq!(http.opened(), 1);
    http.empty();
    front.metric_is("mainstay_sessions_unclosed", 0);
    front.finish();
}

#[test]
fn upstream_sessions_are_closed_after_serve_was_killed() {
    let server = Front::start(&[], &[]);
    let mut front = before(&server, &[]);
    for _ in 0..3 {
        drop(front.session());
    }
    assert_eq!(server.metric(OPEN), 3);
    front.signal(Signal::KILL);
    front.wait();
    assert_eq!(server.metric(OPEN), 3, "no DELETE was sent");
    // The next start of mainstay sends it: here a front for another server.
    let mut words: Vec<OsString> = vec!["--".into()];
    words.extend(front.stage.unruly::<&str>(&[]));
    let next = front.again(&words);
    server.metric_is(DELETED, 3);
    server.metric_is(OPEN, 0);
    next.finish();
    server.finish();
}

#[test]
fn secrets_in_the_url_of_the_upstream_are_never_shown() {
    let http = Httpd::start();
    let secret = "s3cret-of-the-url";
    let url = format!("{}?key={secret}", http.url()).replacen(
        "http://",
        &format!("http://me:{secret}@"),
        1,
    );
    let front = Front::on(Stage::new(), &["--upstream".into(), url.into()]);
    let session = front.session();
    http.next("tools/list", Fault::Drop);
    let refused = session.post(&request(1, "tools/list", &json!({})));
    assert_eq!(refused.status, 502);
    let sent = http.sent();
    assert!(
        sent.iter().all(|one| one.path.contains(secret)),
        "it goes where it belongs"
    );
    let notes = mainstay_testkit::card::state_dir(front.stage.home()).join("sessions");
    let notes: Vec<_> = std::fs::read_dir(notes)
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok())
        .collect();
    assert!(
        notes.iter().any(|note| note.contains("\"session\"")),
        "{notes:?}"
    );
    let cmdline = std::fs::read_to_string(format!("/proc/{}/cmdline", front.pid())).unwrap();
    let told = [
        front.stage.story(),
        front.stderr(),
        refused.text(),
        notes.concat(),
        cmdline,
    ];
    for told in told {
        assert!(!told.contains(secret), "{told}");
    }
    drop(session);
    front.finish();
    http.empty();
}

#[test]
fn upstream_sessions_are_closed_with_the_headers_that_opened_them() {
    for (header, value) in [
        ("authorization", "Bearer known-to-the-client"),
        ("x-api-key", "known-to-the-client"),
    ] {
        let http = Httpd::start();
        http.secret(header, value);
        let mut front = before_httpd(&http, &[]);
        let opening = request(0, "initialize", &json!({"protocolVersion": "2025-11-25"}));
        let open = |more: &[(&str, &str)]| {
            let mut connection = front.connect();
            connection.post(more, &opening);
            let answer = connection.answer();
            (
                answer.status,
                answer.header("mcp-session-id").map(String::from),
            )
        };
        assert_eq!(open(&[]), (401, None), "the server's own word");
        let (status, session) = open(&[(header, value)]);
        assert_eq!(status, 200);
        let mut connection = front.connect();
        let session = session.unwrap();
        let more = [
            (header, value),
            ("mcp-session-id", session.as_str()),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        connection.post(&more, &request(1, "tools/list", &json!({})));
        assert_eq!(connection.answer().status, 200);
        front.limit(SHORT);
        http.empty();
        front.limit("session_ttl = \"1h\"");
        let end = http.sent().pop().unwrap();
        assert_eq!(end.verb, "DELETE");
        assert_eq!(end.headers["mcp-protocol-version"], "2025-11-25");
        // Only the client had the secret. After a kill the note says so, and no DELETE is tried without it.
        assert_eq!(open(&[(header, value)]).0, 200);
        front.signal(Signal::KILL);
        front.wait();
        let sessions = |words: &[&str]| {
            let mut command = front.stage.command(front::mainstay());
            let output = command.arg("sessions").args(words).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let told = sessions(&["close"]) + &sessions(&[]);
        assert!(told.contains("a client of `serve`"), "{told}");
        let told = format!("{told}{}{}", front.stage.story(), front.stderr());
        assert!(!told.contains("known-to-the-client"), "{told}");
        assert_eq!(http.open(), 1);
    }
}

fn closed(cause: &str) -> String {
    format!("mainstay_sessions_closed_total{{cause=\"{cause}\"}}")
}

/// Sends a message in a session that was opened elsewhere.
fn of_session(front: &Front, id: &str, method: &str, message: &Value) -> Answer {
    let mut connection = front.connect();
    let headers = [
        ("mcp-session-id", id),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    let body = serde_json::to_vec(message).unwrap();
    let body = if method == "POST" { &body[..] } else { b"" };
    connection.send(method, &headers, body);
    connection.answer()
}

#[test]
fn a_session_id_that_is_given_again_is_a_new_session() {
    let http = Httpd::start();
    let front = before_httpd(&http, &[]);
    let ping = request(1, "ping", &json!({}));
    let first = front.session();
    assert_eq!(first.delete().status, 200);
    assert_eq!(first.post(&ping).status, 404, "over is over");
    http.restart();
    let again = front.session();
    assert_eq!(again.id, first.id);
    assert_eq!(again.post(&ping).status, 200);
    // Also while the older one is open: the restarted server does not know it any more, so there is nothing to delete.
    http.restart();
    let third = front.session();
    assert_eq!(third.id, first.id);
    front.metric_is(OPEN, 1);
    assert_eq!(front.metric(&closed("server_gone")), 1);
    assert_eq!(third.post(&ping).status, 200);
    assert_eq!(http.deleted().len(), 1, "by its client, the first one");
    let all = [first, again, third];
    drop(all);
    front.finish();
    http.empty();
    assert_eq!(http.deleted().len(), 2, "one was open");
}

#[test]
fn an_owed_delete_does_not_end_a_new_session_with_the_same_id() {
    let http = Httpd::start();
    let front = before_httpd(&http, &["--session-cap", "1"]);
    let old = front.session();
    http.always("DELETE", Fault::Drop);
    let other = front.session();
    assert_ne!(other.id, old.id);
    // The DELETE of the first session fails and is tried again and again. Meanwhile the server gives its id to another session.
    until("it is tried", || {
        let sent = http.sent();
        sent.iter().any(|one| one.verb == "DELETE").then_some(())
    });
    http.restart();
    let new = front.session();
    assert_eq!(new.id, old.id);
    http.mend();
    front.metric_is("mainstay_sessions_unclosed", 0);
    assert_eq!(new.post(&request(1, "ping", &json!({}))).status, 200);
    assert_eq!(http.deleted().len(), 0);
    let all = [old, other, new];
    drop(all);
    front.finish();
    http.empty();
}

#[test]
fn an_unknown_session_id_takes_no_place() {
    let http = Httpd::start();
    let front = before_httpd(&http, &["--session-cap", "2"]);
    let session = front.session();
    let ping = request(1, "ping", &json!({}));
    for n in 0..5 {
        let junk = of_session(&front, &format!("junk-{n}"), "POST", &ping);
        assert_eq!(junk.status, 404);
        assert_eq!(junk.text(), "no such session", "the server's own word");
    }
    let opened = "mainstay_sessions_opened_total";
    assert_eq!((front.metric(OPEN), front.metric(opened)), (1, 1));
    assert_eq!(session.post(&ping).status, 200);
    assert_eq!(http.deleted().len(), 0);
    // A session that the server knows was opened before this front started. It is counted if there is room.
    let elsewhere = before_httpd(&http, &[]);
    let (known, more) = (elsewhere.session(), elsewhere.session());
    assert_eq!(of_session(&front, &known.id, "POST", &ping).status, 200);
    assert_eq!(front.metric(OPEN), 2);
    assert_eq!(of_session(&front, &more.id, "POST", &ping).status, 200);
    assert_eq!((front.metric(OPEN), front.metric(opened)), (2, 2));
    assert_eq!(front.metric(&closed("evicted")), 0);
    assert_eq!(of_session(&front, &more.id, "DELETE", &ping).status, 200);
    assert_eq!(of_session(&front, &more.id, "POST", &ping).status, 404);
    assert_eq!(session.post(&ping).status, 200);
    assert_eq!(session.delete().status, 200);
    assert_eq!(front.metric(OPEN), 1);
    drop(session);
    front.finish();
    assert_eq!(http.open(), 0, "what was counted is ended");
    drop((known, more));
    elsewhere.finish();
}

#[test]
fn a_session_opened_before_the_front_is_in_use_from_its_first_request() {
    let http = Httpd::start();
    let elsewhere = before_httpd(&http, &[]);
    let known = elsewhere.session();
    let front = before_httpd(&http, &["--session-cap", "1"]);
    http.next("tools/call", Fault::Hold);
    let mut slow = front.connect();
    let headers = [("mcp-session-id", known.id.as_str())];
    slow.post(&headers, &call(7, "echo", &json!({"text": "late"})));
    http.heard("tools/call", 1);
    let ping = request(1, "ping", &json!({}));
    assert_eq!(of_session(&front, &known.id, "POST", &ping).status, 200);
    assert_eq!(front.metric(OPEN), 1);
    let mut opening = front.connect();
    let params = json!({"protocolVersion": "2025-11-25"});
    opening.post(&[], &request(0, "initialize", &params));
    assert_eq!(opening.answer().status, 503, "it waits for an answer");
    http.release();
    assert_eq!(slow.answer().last()["id"], 7);
    drop(front.session());
    assert_eq!(front.metric(&closed("evicted")), 1);
    front.finish();
    drop(known);
    elsewhere.finish();
}

#[test]
fn nothing_of_ours_is_written_into_a_compressed_stream() {
    let http = Httpd::start();
    http.manner(Manner::Events);
    let front = before_httpd(&http, &[]);
    let session = front.session();
    let mut connection = session.connect();
    let body = serde_json::to_vec(&request(1, "ping", &json!({}))).unwrap();
    let asks = [("accept-encoding", "gzip, br")];
    session.send(&mut connection, "POST", &asks, &body);
    assert_eq!(connection.answer().status, 200);
    let sent = http.sent();
    assert!(
        sent.iter()
            .all(|one| !one.headers.contains_key("accept-encoding")),
        "no request asks for compression"
    );
    // If the server compresses nevertheless and breaks off, we add no plain text to the stream. Otherwise we add an error.
    for (encoding, told) in [("content-encoding: gzip\r\n", false), ("", true)] {
        let raw = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{encoding}transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"
        );
        http.next("ping", Fault::Raw(raw));
        let answer = session.post(&request(2, "ping", &json!({})));
        assert_eq!(answer.text().contains("broke off"), told, "{encoding}");
    }
    drop(session);
    front.finish();
    http.empty();
}

#[test]
fn a_404_to_another_account_does_not_end_a_session() {
    let http = Httpd::start();
    let front = before_httpd(&http, &["--session-ttl", "60s"]);
    let ask = |verb: &str, token: &str, session: Option<&str>, body: &serde_json::Value| {
        let mut connection = front.connect();
        let mut more = vec![
            ("authorization", token),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        more.extend(session.map(|id| ("mcp-session-id", id)));
        connection.send(verb, &more, body.to_string().as_bytes());
        connection.answer()
    };
    let opening = request(0, "initialize", &json!({"protocolVersion": "2025-11-25"}));
    let opened = ask("POST", "Bearer mine", None, &opening);
    let session = opened.header("mcp-session-id").map(String::from);
    let session = session.as_deref();
    // A server that separates accounts answers other accounts that there is no such session.
    let list = request(1, "tools/list", &json!({}));
    for (verb, method) in [("POST", "tools/list"), ("DELETE", "DELETE")] {
        http.next(method, Fault::Status(404, "no such session"));
        let told = ask(verb, "Bearer other-account", session, &list);
        assert_eq!(told.status, 404, "{verb}");
        let mine = ask("POST", "Bearer mine", session, &list);
        assert_eq!(mine.status, 200, "{verb} of another account ended it");
    }
    // A later token that the server accepts in this session is used for its DELETE too, because the first one may have expired.
    http.secret("authorization", "Bearer renewed");
    assert_eq!(ask("POST", "Bearer mine", session, &list).status, 401);
    assert_eq!(ask("POST", "Bearer renewed", session, &list).status, 200);
    front.finish();
    assert_eq!(http.deleted().len(), 1);
    http.empty();
}
