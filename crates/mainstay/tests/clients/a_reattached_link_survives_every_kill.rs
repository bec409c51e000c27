//! After a client has come back, its link is like any other: a kill of the new shim, the keeper, the guard, or guard and keeper
//! at once loses nothing. If the client that comes back is killed during the hand-over, the server is still kept.
//! guards: No single kill during or after a hand-over loses the server or the client's pipes.

use crate::support::scene::{Scene, argv};
use mainstay_os::identity::Handle;
use mainstay_testkit::card::Card;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::killers;
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};

const KEPT: [&str; 2] = ["--linger", "60s"];

/// A scene whose client has come back, and its card.
fn reattached() -> (Scene, Card) {
    let mut scene = Scene::open(&KEPT, &[]);
    assert_eq!(scene.call("pid", &json!({}))["calls"], 1);
    strike(&mut scene, Signal::TERM);
    let words = argv(&scene.stage, &KEPT, &[]);
    scene.client = Client::open(&scene.stage, &words);
    scene.stage.event("reattached");
    let card = scene
        .stage
        .card_that("is ready", |card| card.json["state"] == "ready");
    (scene, card)
}

fn strike(scene: &mut Scene, signal: Signal) {
    let shim = Handle::open(scene.client.who).unwrap();
    shim.signal(signal).unwrap();
    scene.client.wait();
    scene.state("lingering");
}

#[test]
fn a_reattached_link_survives_a_killed_keeper() {
    let (mut scene, card) = reattached();
    killers::at_once(&[card.keeper.unwrap()]);
    // The same client gets a new generation, which has the replay of the old one.
    assert_eq!(scene.call("pid", &json!({}))["calls"], 1);
    scene.stage.event("keeper_lost");
    let card = scene
        .stage
        .card_that("is taken over", |now| now.keeper != card.keeper);
    assert_eq!(card.shim, Some(scene.client.who), "the new shim is known");
    // Once more, with the successor.
    strike(&mut scene, Signal::KILL);
    let words = argv(&scene.stage, &KEPT, &[]);
    scene.client = Client::open(&scene.stage, &words);
    assert_eq!(scene.call("pid", &json!({}))["calls"], 2);
    assert_eq!(scene.finish(), Vec::<Value>::new());
}

#[test]
fn a_reattached_link_survives_a_killed_guard() {
    let (mut scene, card) = reattached();
    killers::at_once(&[card.guard.unwrap()]);
    scene.stage.event("guard_lost");
    assert_eq!(scene.call("pid", &json!({}))["calls"], 2);
    killers::at_once(&[card.keeper.unwrap()]);
    assert_eq!(scene.call("pid", &json!({}))["calls"], 1);
    assert_eq!(scene.finish(), Vec::<Value>::new());
}

#[test]
fn a_reattached_link_survives_killed_guard_and_keeper() {
    let (mut scene, card) = reattached();
    killers::at_once(&[card.guard.unwrap(), card.keeper.unwrap()]);
    assert_eq!(
        scene.call("pid", &json!({}))["calls"],
        1,
        "a new pair, a new server"
    );
    let now = scene
        .stage
        .card_that("is taken over", |now| now.keeper != card.keeper);
    assert_eq!(now.json["id"], card.json["id"], "the same link");
    assert_eq!(scene.finish(), Vec::<Value>::new());
}

#[test]
fn a_reattached_server_ends_with_its_client() {
    let (scene, _) = reattached();
    let Scene { client, stage } = scene;
    // The client's death closes its pipes, so the keeper sees only an EOF.
    drop(client);
    stage.census.assert_empty();
}

/// Wherever the new shim is killed, the server is kept, and the next start finds it.
#[test]
fn a_server_is_kept_if_the_reconnecting_start_is_killed() {
    let mut scene = Scene::open(&KEPT, &[]);
    let first = scene.call("pid", &json!({}))["pid"].clone();
    strike(&mut scene, Signal::TERM);
    let words = argv(&scene.stage, &KEPT, &[]);
    for said in [
        &b""[..],
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"meth",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{}}\n",
    ] {
        let mut newcomer = Launch::new(&scene.stage, &words).start();
        newcomer.wire.send_bytes(said).unwrap();
        if said.ends_with(b"\n") {
            let line = newcomer.wire.line().unwrap().unwrap();
            let answer: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(answer["error"]["code"], -32601, "{answer}");
        } else {
            until("the newcomer stands at the door", || {
                let to = newcomer.wire.writer().unwrap();
                (rustix::io::ioctl_fionread(to).unwrap() == 0).then_some(())
            });
        }
        let handle = Handle::open(newcomer.who).unwrap();
        handle.signal(Signal::KILL).unwrap();
        newcomer.wait();
        scene.state("lingering");
    }
    // Killed right after it has sent the opening. The server is kept, whether or not the keeper had accepted it.
    for _ in 0..5 {
        let newcomer = Launch::new(&scene.stage, &words).start();
        let opening = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": mainstay_testkit::wire::PROTOCOL, "capabilities": {}}});
        newcomer.wire.send(&opening).unwrap();
        let handle = Handle::open(newcomer.who).unwrap();
        handle.signal(Signal::KILL).unwrap();
        drop(newcomer);
        scene.state("lingering");
    }
    scene.client = Client::open(&scene.stage, &words);
    assert_eq!(scene.call("pid", &json!({}))["pid"], first);
    scene.finish();
}
