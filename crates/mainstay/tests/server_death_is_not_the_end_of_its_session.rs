//! A session of `serve` outlives its server: its name stays, every request is answered, no stream ends without that.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod front;

use front::{Front, call, request};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn between_two_requests_and_in_the_middle_of_one() {
    let front = Front::start(&[], &[]);
    let session = front.session();
    let first = session.server();
    kill(first);
    let second = session.server();
    assert_ne!(first, second, "another process, the same session");
    // In the middle of a call: it is answered in words that a model reads, and the stream is a whole one.
    let mut waiting = session.asking(&call(7, "sleep", &json!({"ms": 600_000})));
    front.metric_is("mainstay_requests_total{era=\"legacy\"}", 4);
    // The server reads in order, so it has the one before.
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
fn and_what_comes_while_it_starts_is_held() {
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
fn until_it_is_stopped_for_good() {
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
    assert_eq!(front.stage.event("session_over")["why"], "server_gone");
    let again = front.session();
    assert!(again.server() > 0, "a new session has a new server");
    front.finish();
}
