//! A session of `serve` outlives its server: it keeps its id, every request is answered, and no stream ends without an answer.
//! guards: A session of `serve` outlives its server, and no stream ends without an answer.

use crate::support::front::{self, Front, call, request};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn an_http_session_survives_the_death_of_its_server() {
    let front = Front::start(&[], &[]);
    let session = front.session();
    let first = session.server();
    kill(first);
    let second = session.server();
    assert_ne!(first, second, "another process, the same session");
    // In the middle of a call: the call gets an error text that a model can read, and the stream ends properly.
    let mut waiting = session.asking(&call(7, "sleep", &json!({"ms": 600_000})));
    front.metric_is("mainstay_requests_total{era=\"legacy\"}", 4);
    // The server reads in order, so it has read the earlier request.
    assert_eq!(session.server(), second);
    kill(second);
    let answer = waiting.answer();
    assert_eq!(answer.status, 200);
    let answer = answer.last();
    assert_eq!(
        (&answer["id"], &answer["result"]["isError"]),
        (&json!(7), &json!(true)),
        "{answer}"
    );
    let third = session.server();
    assert_ne!(second, third);
    assert_eq!(front.metric("mainstay_server_restarts_total"), 2);
    assert_eq!(front.metric("mainstay_sessions_open"), 1);
    assert_eq!(session.delete().status, 200);
    front.metric_is("mainstay_links", 0);
    assert_eq!(
        front.metric("mainstay_server_restarts_total"),
        2,
        "what was counted stays counted"
    );
    front.finish();
}

#[test]
fn requests_wait_while_the_server_restarts() {
    let front = Front::start(&[], &[]);
    let session = front.session();
    kill(session.server());
    let asked: Vec<_> = (0..10)
        .map(|id| session.asking(&request(id, "tools/list", &json!({}))))
        .collect();
    for (id, mut one) in asked.into_iter().enumerate() {
        let answer = one.answer();
        assert_eq!((answer.status, &answer.last()["id"]), (200, &json!(id)));
    }
    front.finish();
}

#[test]
fn an_http_session_ends_if_its_server_is_stopped() {
    let front = Front::start(&[], &[]);
    let session = front.session();
    session.server();
    let mut waiting = session.asking(&call(7, "sleep", &json!({"ms": 600_000})));
    let mut news = session.news(None);
    assert_eq!(news.head().status, 200);
    front.metric_is("mainstay_requests_total{era=\"legacy\"}", 3);
    let output = front
        .stage
        .command(front::mainstay())
        .args(["stop", "unruly"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let answer = waiting.answer().last();
    assert_eq!(answer["id"], 7, "{answer}");
    while news.event().is_some() {}
    assert_eq!(session.delete().status, 404);
    assert_eq!(
        front.stage.event("client_session_closed")["why"],
        "server_gone"
    );
    let again = front.session();
    assert!(again.server() > 0, "a new session has a new server");
    front.finish();
}
