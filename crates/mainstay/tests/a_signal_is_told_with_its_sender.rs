//! A signal to the shim, or to the keeper, is written down with whoever sent it: the client, a child of the client, or
//! somebody who was gone already.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use std::process::Stdio;

use mainstay_os::identity::{self, Handle};
use rustix::process::Signal;
use scene::Scene;
use serde_json::{Value, json};

fn me() -> i32 {
    std::process::id() as i32
}

#[test]
fn the_client_itself() {
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

/// It waits until it is told to end, so that it is there when it is looked at.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a child of the client that kills"
)]
fn a_child_of_the_client_with_a_secret() {
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
fn the_keeper_tells_its_own() {
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
