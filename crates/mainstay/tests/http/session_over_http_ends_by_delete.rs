//! A session of `serve` has its own server, ends by DELETE, and is answered with 404 from then on.
//! guards: A DELETE ends a session of `serve` and its server.

use crate::support::front::{self, Front, call, gone, request};
use mainstay_testkit::wait::until;
use serde_json::json;

#[test]
fn delete_ends_the_session_and_its_server() {
    let front = Front::start(&[], &[]);
    let one = front.session();
    let other = front.session();
    assert_ne!(one.id, other.id);
    assert_eq!(one.id.len(), 32, "128 bits");
    let (mine, theirs) = (one.server(), other.server());
    assert_ne!(mine, theirs);
    assert_eq!(one.delete().status, 200);
    gone(mine);
    for answer in [
        one.delete(),
        one.news(None).answer(),
        one.post(&request(2, "ping", &json!({}))),
        one.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
    ] {
        assert_eq!(answer.status, 404, "{}", answer.text());
    }
    assert_eq!(other.server(), theirs, "the other one goes on");
    let over = front.stage.event("client_session_closed");
    assert_eq!(
        (&over["why"], &over["session"]),
        (&json!("deleted"), &json!(1))
    );
    assert!(
        !over.to_string().contains(&one.id),
        "its name is its client's secret"
    );
    front.metric_is("mainstay_sessions_open", 1);
    assert_eq!(
        front.metric("mainstay_sessions_closed_total{cause=\"deleted\"}"),
        1
    );
    front.finish();
}

#[test]
fn requests_without_a_session_are_refused() {
    let front = Front::start(&[], &[]);
    let session = front.session();
    let mut bare = front.connect();
    bare.post(&[], &request(1, "tools/list", &json!({})));
    let answer = bare.answer();
    assert_eq!((answer.status, answer.code()), (400, -32600));
    assert_eq!(answer.message()["id"], 1);
    let mut wrong = front.connect();
    let headers = [
        ("mcp-session-id", session.id.as_str()),
        ("mcp-protocol-version", "1999-01-01"),
    ];
    wrong.post(&headers, &request(1, "tools/list", &json!({})));
    assert_eq!(wrong.answer().status, 400, "an unknown version");
    let answer = session.post(&call(5, "echo", &json!({"text": "hi"})));
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.header("content-type"),
        Some("application/json"),
        "one answer is no stream"
    );
    front.finish();
}

#[test]
fn a_failed_opening_leaves_no_session() {
    let front = Front::start(&[], &["--refuses", "initialize"]);
    let mut connection = front.connect();
    connection.post(
        &[],
        &request(1, "initialize", &json!({"protocolVersion": "2025-11-25"})),
    );
    let answer = connection.answer();
    assert_eq!(
        (answer.status, answer.code()),
        (200, -32602),
        "the server's own words"
    );
    assert_eq!(answer.header("mcp-session-id"), None);
    assert_eq!(
        front.stage.event("client_session_closed")["why"],
        "opening_failed"
    );
    front.metric_is("mainstay_links", 0);
    front.finish();
}

#[test]
fn the_server_of_a_session_is_listed_with_serve_as_its_client() {
    let front = Front::start(&[], &[]);
    let session = front.session();
    let server = session.server();
    let listed = until("it is listed", || {
        let output = front
            .stage
            .command(front::mainstay())
            .args(["ps", "--json"])
            .output()
            .unwrap();
        let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (!listed[0].is_null()).then_some(listed)
    });
    let one = &listed[0];
    assert_eq!(
        (
            &one["server"],
            &one["pid"],
            &one["client"]["pid"],
            &one["client"]["comm"]
        ),
        (
            &json!("unruly"),
            &json!(server),
            &json!(front.pid()),
            &json!("mainstay-serve")
        ),
        "{listed}"
    );
    session.call(1, "crash", &json!({"signal": 9}));
    let output = front
        .stage
        .command(front::mainstay())
        .args(["why", "unruly", "--full"])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        told.contains("unruly was killed") && told.contains("tools/call"),
        "{told}"
    );
    front.finish();
}
