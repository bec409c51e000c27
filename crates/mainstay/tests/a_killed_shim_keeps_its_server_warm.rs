//! A signal to the shim that the client did not mean: the server is kept with all that it has in memory, and the next start
//! of the same configuration by the same client goes on with it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_os::identity::Handle;
use mainstay_testkit::client::{Carrier, Client, Launch};
use mainstay_testkit::killers;
use mainstay_testkit::stage::Stage;
use rustix::process::Signal;
use scene::{Scene, argv};
use serde_json::{Value, json};

const KEPT: [&str; 2] = ["--linger", "60s"];

/// What ends the shim, and what the server's second client must find.
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
fn after_sigterm() {
    comes_back(Carrier::Pipes, |shim| shim.signal(Signal::TERM).unwrap());
}

#[test]
fn after_sigkill() {
    comes_back(Carrier::Pipes, |shim| shim.signal(Signal::KILL).unwrap());
}

#[test]
fn after_what_claude_does() {
    comes_back(Carrier::Sockets, |shim| killers::claude(shim.who));
}

/// Again and again: each time the same server.
#[test]
fn however_often() {
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

/// A second opening with other wishes takes a server that was not opened yet.
#[test]
fn another_opening_gets_a_fresh_generation() {
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
        scene.stage.event("renewal");
        assert_eq!(scene.stage.card().json["generation"], 2);
        scene.finish();
    }
}

/// What the client had subscribed to is taken back.
#[test]
fn the_next_session_begins_like_a_new_one() {
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
