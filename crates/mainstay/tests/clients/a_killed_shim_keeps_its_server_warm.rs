//! The shim gets a signal without an EOF, so the client may come back. The server is kept with all its memory, and the next start
//! of the same configuration by the same client continues with it.
//! guards: A signal to the shim without an EOF keeps the server, and the client's next start gets it with its memory.

use crate::support::scene::{Scene, argv};
use mainstay_os::identity::Handle;
use mainstay_testkit::client::{Carrier, Client, Launch};
use mainstay_testkit::killers;
use mainstay_testkit::stage::Stage;
use rustix::process::Signal;
use serde_json::{Value, json};

const KEPT: [&str; 2] = ["--linger", "60s"];

/// Ends the shim in this way and asserts that the next start gets the same server.
fn comes_back(carrier: Carrier, strike: impl FnOnce(&Handle)) {
    let stage = Stage::new();
    let words = argv(&stage, &KEPT, &[]);
    let start = |stage: &Stage| {
        let mut client = Launch::new(stage, &words).carrier(carrier).start();
        client.wire.initialize().unwrap();
        client
    };
    let client = start(&stage);
    let mut scene = Scene { client, stage };
    let before = scene.call("pid", &json!({}));
    let card = scene
        .stage
        .card_that("serves", |card| card.json["state"] == "ready");
    let shim = Handle::open(card.shim.unwrap()).unwrap();
    strike(&shim);
    scene.client.wait();
    scene.state("lingering");
    scene.client = start(&scene.stage);
    let after = scene.call("pid", &json!({}));
    assert_eq!(after["pid"], before["pid"], "the same process");
    assert_eq!(after["calls"], 2, "with what it had in memory");
    let heard = scene.heard();
    let openings = heard.iter().filter(|method| method.contains("initialize"));
    assert_eq!(
        openings.count(),
        2,
        "initialize and initialized once each: {heard:?}"
    );
    assert_eq!(scene.stage.event("reattached")["dropped"], 0);
    let card = scene
        .stage
        .card_that("is ready again", |card| card.json["state"] == "ready");
    assert_eq!(card.shim, Some(scene.client.who), "the new shim is known");
    assert!(
        !scene
            .stage
            .home()
            .join(".local/state/mainstay/warm")
            .exists()
    );
    assert_eq!(scene.finish(), Vec::<Value>::new());
}

#[test]
fn a_server_is_kept_after_sigterm_to_its_shim() {
    comes_back(Carrier::Pipes, |shim| shim.signal(Signal::TERM).unwrap());
}

#[test]
fn a_server_is_kept_after_sigkill_to_its_shim() {
    comes_back(Carrier::Pipes, |shim| shim.signal(Signal::KILL).unwrap());
}

#[test]
fn a_server_is_kept_after_claude_has_killed_its_shim() {
    comes_back(Carrier::Sockets, |shim| killers::claude(shim.who));
}

/// Each time it is the same server.
#[test]
fn a_server_is_kept_through_several_kills_of_its_shim() {
    let mut scene = Scene::open(&KEPT, &[]);
    for calls in 1..6 {
        assert_eq!(scene.call("pid", &json!({}))["calls"], calls);
        let shim = Handle::open(scene.client.who).unwrap();
        shim.signal(Signal::TERM).unwrap();
        scene.client.wait();
        scene.state("lingering");
        let words = argv(&scene.stage, &KEPT, &[]);
        scene.client = Client::open(&scene.stage, &words);
    }
    assert_eq!(scene.stage.events("start").len(), 1);
    scene.finish();
}

/// A second `initialize` with other parameters needs a server that was not opened yet.
#[test]
fn a_different_handshake_gets_a_new_generation() {
    for change in [
        |params: &mut Value| params["protocolVersion"] = json!("2025-06-18"),
        |params: &mut Value| params["capabilities"] = json!({"sampling": {}}),
    ] {
        let mut scene = Scene::open(&KEPT, &[]);
        assert_eq!(scene.call("pid", &json!({}))["calls"], 1);
        Handle::open(scene.client.who)
            .unwrap()
            .signal(Signal::KILL)
            .unwrap();
        scene.client.wait();
        scene.state("lingering");
        let words = argv(&scene.stage, &KEPT, &[]);
        scene.client = Launch::new(&scene.stage, &words).start();
        let mut params = json!({
            "protocolVersion": mainstay_testkit::wire::PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "other", "version": "1"},
        });
        change(&mut params);
        let answer = scene.client.wire.request("initialize", &params).unwrap();
        assert!(answer.get("result").is_some(), "{answer}");
        assert_eq!(scene.call("pid", &json!({}))["calls"], 1, "a new process");
        scene.stage.event("restarting");
        assert_eq!(scene.stage.card().json["generation"], 2);
        scene.finish();
    }
}

/// The subscriptions of the earlier session are cancelled.
#[test]
fn a_session_with_a_kept_server_looks_like_a_new_one() {
    let mut scene = Scene::open(&KEPT, &[]);
    scene
        .client
        .wire
        .request("resources/subscribe", &json!({"uri": "file:///a"}))
        .unwrap();
    Handle::open(scene.client.who)
        .unwrap()
        .signal(Signal::TERM)
        .unwrap();
    scene.client.wait();
    scene.state("lingering");
    let words = argv(&scene.stage, &KEPT, &[]);
    scene.client = Client::open(&scene.stage, &words);
    let heard = scene.heard();
    assert!(heard.contains(&"resources/unsubscribe".into()), "{heard:?}");
    scene.finish();
}
