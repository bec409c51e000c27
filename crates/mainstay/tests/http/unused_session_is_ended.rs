//! An idle session ends, and a session in use does not. A session whose client has vanished is idle.
//! guards: An idle session of `serve` ends, and one in use never does.

use std::time::Duration;

use crate::support::front::{Front, alive, call, gone, request};
use mainstay_testkit::wait::idle;
use serde_json::json;

const TTL: Duration = Duration::from_secs(1);
/// Set once each client uses its session or has left it.
const SHORT: &str = "session_ttl = \"1s\"";
const OPTIONS: [&str; 2] = ["--sse-keep-alive", "50ms"];

#[test]
fn a_session_with_a_stream_or_a_request_is_not_idle() {
    let front = Front::start(&OPTIONS, &[]);
    let reading = front.session();
    let mut news = reading.news(None);
    assert_eq!(news.head().status, 200);
    let reader = reading.server();
    let waiting = front.session();
    let waiter = waiting.server();
    let mut slow = waiting.asking(&call(7, "sleep", &json!({"ms": 5_000})));
    let left = front.session();
    let leaver = left.server();
    front.limit(SHORT);
    gone(leaver);
    assert_eq!(left.delete().status, 404);
    // This wait proves that something does not happen.
    idle(TTL);
    assert!(alive(reader), "its client reads news");
    let answer = slow.answer();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.last()["id"], 7, "its client waited");
    assert!(alive(waiter) || front.metric("mainstay_sessions_open") <= 1);
    news.drop_it();
    gone(reader);
    gone(waiter);
    front.metric_is("mainstay_sessions_open", 0);
    front.metric_is("mainstay_sessions_closed_total{cause=\"idle\"}", 3);
    front.metric_is("mainstay_links", 0);
    front.finish();
}

#[test]
fn a_session_ends_although_its_server_works_for_a_client_that_left() {
    let front = Front::start(&OPTIONS, &[]);
    let session = front.session();
    let server = session.server();
    let connection = session.asking(&call(7, "sleep", &json!({"ms": 600_000})));
    front.metric_is("mainstay_requests_total{era=\"legacy\"}", 3);
    connection.drop_it();
    front.limit(SHORT);
    gone(server);
    assert_eq!(front.stage.event("client_session_closed")["why"], "idle");
    front.finish();
}

#[test]
fn a_session_ends_if_its_client_left_during_a_request() {
    let front = Front::start(&OPTIONS, &[]);
    let session = front.session();
    let server = session.server();
    // An unread byte hides the end of the connection behind it.
    let mut connection = session.asking(&call(7, "sleep", &json!({"ms": 600_000})));
    connection.raw(b"P");
    front.metric_is("mainstay_requests_total{era=\"legacy\"}", 3);
    connection.drop_it();
    front.limit(SHORT);
    gone(server);
    assert_eq!(front.stage.event("client_session_closed")["why"], "idle");
    front.finish();
}

#[test]
fn a_session_ends_if_its_client_never_reads() {
    let mut options = OPTIONS.to_vec();
    options.extend(["--dead-peer", "1s"]);
    let front = Front::start(&options, &[]);
    let session = front.session();
    let server = session.server();
    let params = json!({"name": "steps", "arguments": {"n": 150_000}, "_meta": {"progressToken": "more-than-all-buffers-hold"}});
    let deaf = session.asking(&request(7, "tools/call", &params));
    front.limit(SHORT);
    gone(server);
    assert_eq!(front.stage.event("client_session_closed")["why"], "idle");
    front.metric_is("mainstay_connections_open", 1);
    drop(deaf);
    front.finish();
}
