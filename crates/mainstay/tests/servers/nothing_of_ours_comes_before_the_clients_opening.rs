//! The first message fixes a server's era, so it must be the client's. No probe and no opening of ours comes before it, not even
//! after a restart. After a death, the next generation is opened in the client's era.
//! guards: The first message that a server reads is the client's, because it fixes the era.

use crate::support::scene::{self, Scene};
use mainstay_testkit::wait::until;
use serde_json::{Value, json};

/// Options that make our own requests as early and as frequent as possible.
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
fn no_line_of_ours_comes_first_after_a_restart() {
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
    // Once the session is open, a slow client may leave the server idle long enough to be probed.
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
    // The next generation reads the client's next line, and nothing before it.
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
    assert_eq!(scene.stage.event("from_cache")["method"], "server/discover");
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
