//! Lines of a megabyte on their way when the server dies: in flight, half forwarded with the id known, half forwarded with the id
//! still to come. Each is answered once, and the next generation is told only whole lines.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_testkit::wait::until;
use mainstay_testkit::wire::trouble;
use scene::{Scene, heard_messages};
use serde_json::json;

const LONG: usize = 1 << 20;

fn pad() -> String {
    "x".repeat(LONG)
}

#[test]
fn in_flight() {
    let mut scene = Scene::open(&[], &[]);
    let id = scene.ask_call("sleep", &json!({"ms": 3_600_000, "pad": pad()}));
    // The server has read it all: it answers what came behind it.
    scene.call("echo", &json!({}));
    scene.kill(1);
    let answer = scene.client.wire.answer(id).unwrap();
    assert!(trouble(&answer).contains("SIGKILL"), "{answer}");
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

/// The first half, a death, the other half.
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
fn half_forwarded_with_its_id_last_and_nobody_follows() {
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
