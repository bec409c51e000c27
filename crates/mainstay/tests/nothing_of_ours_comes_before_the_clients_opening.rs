//! The first message fixes a server's era, so it is the client's: no probe, no opening of ours comes before it, also not after a
//! restart; and after a death the next generation is opened in the era of the client.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_testkit::wait::until;
use scene::Scene;
use serde_json::{Value, json};

/// Everything of ours as early and as often as can be.
const EAGER: [&str; 6] = [
    "--probe-idle",
    "1s",
    "--instant-opening",
    "1ms",
    "--restart-budget",
    "100",
];

fn meta() -> Value {
    json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }})
}

#[test]
fn also_after_a_restart() {
    let mut scene = Scene::start(&EAGER, &[]);
    scene.server(1);
    for generation in 2..=3 {
        let output = scene.mainstay(&["restart", "unruly"]);
        assert!(output.status.success(), "{output:?}");
        scene.server(generation);
    }
    scene.client.wire.initialize().unwrap();
    let held = scene.held();
    assert_eq!(held["generation"], 3);
    let heard = scene::heard(&held);
    assert_eq!(heard[..2], ["initialize", "notifications/initialized"]);
    // Once it is open, a slow client may find it idle for so long that it is asked whether it is there.
    let asked = heard[2..].iter().filter(|method| *method != "ping");
    assert_eq!(asked.collect::<Vec<_>>(), ["tools/call"]);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn discover_alone_leaves_the_era_open() {
    let mut scene = Scene::start(&EAGER, &["--modern"]);
    scene
        .client
        .wire
        .request("server/discover", &meta())
        .unwrap();
    scene.kill(1);
    scene.exit(1);
    // The next one hears what the client says next, and nothing before it.
    let mut params = meta();
    params["name"] = json!("held");
    let answer = scene.client.wire.request("tools/call", &params).unwrap();
    let held = scene::content(&answer);
    assert_eq!(held["generation"], 2);
    assert_eq!(scene::heard(held), ["tools/call"]);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn a_refused_discover_is_not_repeated() {
    let mut scene = Scene::start(&[], &[]);
    let refused = scene
        .client
        .wire
        .request("server/discover", &meta())
        .unwrap();
    assert_eq!(refused["error"]["code"], -32601);
    scene.client.wire.initialize().unwrap();
    scene.kill(1);
    scene.replayed(2);
    assert_eq!(
        scene.heard(),
        ["initialize", "notifications/initialized", "tools/call"]
    );
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn discover_is_answered_from_the_record_while_the_server_starts() {
    let stage = mainstay_testkit::stage::Stage::new();
    let door = stage.path("door");
    let habit = format!("--start-when {}", door.display());
    let argv = scene::argv(&stage, &[], &["--modern", "--in", "2", &habit]);
    let mut scene = Scene::on(stage, &argv);
    let first = scene
        .client
        .wire
        .request("server/discover", &meta())
        .unwrap();
    let (_, rest) = scene.client.finish();
    assert_eq!(rest, b"");
    let stage = scene.stage;
    let mut scene = Scene::on(stage, &argv);
    let again = scene
        .client
        .wire
        .request("server/discover", &meta())
        .unwrap();
    assert_eq!(again["result"], first["result"]);
    assert_eq!(scene.stage.event("instant")["method"], "server/discover");
    std::fs::write(&door, "").unwrap();
    let mut params = meta();
    params["name"] = json!("held");
    let answer = scene.client.wire.request("tools/call", &params).unwrap();
    assert_eq!(scene::content(&answer)["generation"], 2);
    until("the server's own answer is swallowed", || {
        (!scene.client.wire.readable()).then_some(())
    });
    assert_eq!(scene.finish(), [json!(null); 0]);
}
