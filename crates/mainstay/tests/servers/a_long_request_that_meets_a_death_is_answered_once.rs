//! The server dies while a line of one megabyte is in flight, or is half forwarded with its id already read, or is half forwarded
//! with its id still to come. Each request is answered once, and the next generation gets only whole lines.
//! guards: A request that is half forwarded when the server dies is answered once, and no server gets the rest of a torn line.

use crate::support::scene::{Scene, heard_messages};
use mainstay_testkit::wait::until;
use mainstay_testkit::wire::trouble;
use serde_json::json;

const LONG: usize = 1 << 20;

fn pad() -> String {
    "x".repeat(LONG)
}

#[test]
fn a_long_request_in_flight() {
    let mut scene = Scene::open(&[], &[]);
    let id = scene.ask_call("sleep", &json!({"ms": 3_600_000, "pad": pad()}));
    // The server has read the whole line, because it answers the request that came after it.
    scene.call("echo", &json!({}));
    scene.kill(1);
    let answer = scene.client.wire.answer(id).unwrap();
    assert!(trouble(&answer).contains("SIGKILL"), "{answer}");
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

/// Sends the first half of a line, kills the server, and sends the second half.
fn halves(line: &str) {
    let mut scene = Scene::open(&[], &[]);
    scene.freeze(1);
    let (first, other) = line.as_bytes().split_at(LONG / 8);
    scene.client.wire.send_bytes(first).unwrap();
    until("part of the line is with the server", || {
        (scene.unread(1) > 4_096).then_some(())
    });
    scene.kill(1);
    scene.exit(1);
    scene.client.wire.send_bytes(other).unwrap();
    let answer = scene.client.wire.answer(77).unwrap();
    let words = trouble(&answer);
    assert!(
        words.contains("may or may not have taken effect"),
        "{words}"
    );
    let held = scene.held();
    assert_eq!(held["generation"], 2);
    for message in heard_messages(&held) {
        assert!(message.get("method").is_some(), "{message}");
    }
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn half_forwarded_with_its_id_first() {
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"tools/call\",\"params\":{{\"name\":\"add\",\"arguments\":{{\"pad\":\"{}\"}}}}}}\n",
        pad()
    );
    halves(&line);
}

#[test]
fn half_forwarded_with_its_id_last() {
    halves(&id_last());
}

fn id_last() -> String {
    format!(
        "{{\"params\":{{\"name\":\"add\",\"arguments\":{{\"pad\":\"{}\"}}}},\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"id\":77}}\n",
        pad()
    )
}

#[test]
fn half_forwarded_with_its_id_last_and_no_server_follows() {
    let mut scene = Scene::open(&["--restart-budget", "1", "--restart-probe", "0"], &[]);
    scene.freeze(1);
    let line = id_last();
    let (first, other) = line.as_bytes().split_at(LONG / 8);
    scene.client.wire.send_bytes(first).unwrap();
    until("part of the line is with the server", || {
        (scene.unread(1) > 4_096).then_some(())
    });
    scene.kill(1);
    scene.state("abandoned");
    scene.client.wire.send_bytes(other).unwrap();
    let answer = scene.client.wire.answer(77).unwrap();
    let words = trouble(&answer);
    assert!(
        words.contains("may or may not have taken effect"),
        "{words}"
    );
    let id = scene.ask_call("add", &json!({}));
    let answer = scene.client.wire.answer(id).unwrap();
    let words = trouble(&answer);
    assert!(words.contains("was not sent"), "{words}");
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn the_servers_own_half_line_is_ended_before_our_answer() {
    let mut scene = Scene::open(&[], &[]);
    let id = scene.ask_call("big", &json!({"bytes": LONG, "die_after": LONG / 2}));
    let torn = scene.client.wire.line().unwrap().unwrap();
    assert!(torn.len() > 1_000 && serde_json::from_slice::<serde_json::Value>(&torn).is_err());
    let answer = scene.message();
    assert_eq!(answer["id"], id);
    assert!(trouble(&answer).contains("SIGKILL"), "{answer}");
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
