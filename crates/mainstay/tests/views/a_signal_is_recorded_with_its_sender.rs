//! The event of a signal to the shim or to the keeper names its sender: the client, a child of the client, or a process that had
//! already exited.
//! guards: A signal to the shim or the keeper is recorded with its sender.

use std::process::Stdio;

use crate::support::scene::Scene;
use mainstay_os::identity::{self, Handle};
use rustix::process::Signal;
use serde_json::{Value, json};

fn me() -> i32 {
    std::process::id() as i32
}

#[test]
fn a_signal_from_the_client_is_recorded_with_its_sender() {
    let mut scene = Scene::open(&["--linger", "0"], &[]);
    let shim = scene.stage.card().shim.unwrap();
    Handle::open(shim).unwrap().signal(Signal::TERM).unwrap();
    let told = scene.stage.event("signal");
    let who = identity::me().unwrap();
    for (field, value) in [
        ("number", json!(15)),
        ("code", json!(0)),
        ("origin", json!("kill")),
        ("to", json!("shim")),
        ("sender", json!(who.pid)),
        ("start", json!(who.start)),
        ("relation", json!("client")),
        ("gone", json!(false)),
        ("ancestry", json!([])),
        ("exe", json!(std::env::current_exe().unwrap())),
    ] {
        assert_eq!(told[field], value, "{field} of {told}");
    }
    scene.client.wait();
}

/// The sender waits until it is told to exit, so that it can still be inspected.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a child of the client that kills"
)]
fn a_signal_from_a_child_of_the_client_is_recorded_without_its_secret() {
    let mut scene = Scene::open(&["--linger", "0"], &[]);
    let script = format!(
        "kill -HUP {}; read line",
        scene.stage.card().shim.unwrap().pid
    );
    let mut killer = std::process::Command::new("sh")
        .args(["-c", &script, "sh", "--token", "hunter2"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let told = scene.stage.event("signal");
    drop(killer.stdin.take());
    killer.wait().unwrap();
    assert_eq!(told["number"], 1);
    assert_eq!(told["sender"], killer.id());
    assert_eq!(told["relation"], "below_client");
    assert_eq!(told["comm"], "sh");
    assert_eq!(
        told["cmdline"],
        json!(["sh", "-c", script, "sh", "--token", "[hidden]"])
    );
    assert_eq!(told["ancestry"][0]["pid"], me());
    assert_eq!(told["ignored"], 1, "it is not the client itself");
    scene.client.finish();
}

#[test]
fn a_signal_to_the_keeper_is_recorded_with_its_sender() {
    let mut scene = Scene::open(&[], &[]);
    let keeper = scene.stage.card().keeper.unwrap();
    Handle::open(keeper).unwrap().signal(Signal::TERM).unwrap();
    let told: Value = scene.stage.event("signal");
    assert_eq!(
        (&told["to"], &told["sender"]),
        (&json!("keeper"), &json!(me()))
    );
    scene.client.wait();
}
