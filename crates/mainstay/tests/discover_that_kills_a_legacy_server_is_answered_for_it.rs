//! Some legacy servers die of `server/discover`. The client gets the answer that a legacy server gives, the server is started again
//! and opened as the client then wants; the next session knows, and the server is not even asked.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::stage::Stage;
use scene::{Scene, argv, heard};
use serde_json::{Value, json};

const DEADLY: [&str; 4] = ["--exit-code", "1", "--dies-of", "server/discover"];

fn discover(client: &mut Client) -> Value {
    let params = json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }});
    let request =
        json!({"jsonrpc": "2.0", "id": "d1", "method": "server/discover", "params": params});
    client.wire.send(&request).unwrap();
    let line = client.wire.line().unwrap().expect("an answer");
    serde_json::from_slice(&line).unwrap()
}

/// One session: probe, then open; what the server that serves has heard.
fn session(stage: &Stage, argv: &[std::ffi::OsString]) -> Vec<String> {
    let mut client = Launch::new(stage, argv).start();
    let answer = discover(&mut client);
    assert_eq!(answer["id"], "d1");
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    client.wire.initialize().unwrap();
    let held = client.wire.call("held", &json!({})).unwrap();
    let (status, rest) = client.finish();
    assert_eq!((status.code(), rest), (Some(1), Vec::new()));
    stage.census.assert_empty();
    heard(&held)
}

const OPENED: [&str; 3] = ["initialize", "notifications/initialized", "tools/call"];

#[test]
fn and_the_next_session_knows() {
    let stage = Stage::new();
    let argv = argv(&stage, &[], &DEADLY);
    assert_eq!(session(&stage, &argv), OPENED);
    assert_eq!(stage.events("start").len(), 2, "one died of it, one served");
    assert_eq!(session(&stage, &argv), OPENED);
    assert_eq!(stage.events("start").len(), 3, "and the next was not asked");
}

#[test]
fn without_a_record_each_session_learns_it_anew() {
    let stage = Stage::new();
    let argv = argv(&stage, &["--no-record"], &DEADLY);
    for starts in [2, 4] {
        assert_eq!(session(&stage, &argv), OPENED);
        assert_eq!(stage.events("start").len(), starts);
    }
}

#[test]
fn an_opening_behind_it_is_served() {
    // A client that waits no longer: both are on their way when the server dies.
    let mut scene = Scene::start(&[], &DEADLY);
    let id = scene
        .client
        .wire
        .ask("server/discover", &json!({}))
        .unwrap();
    let opening = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    let open = scene.client.wire.ask("initialize", &opening).unwrap();
    let all = scene.read_answers(&[id, open]);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(scene::answers(&all, id)[0]["error"]["code"], -32601);
    assert!(scene::answers(&all, open)[0].get("result").is_some());
    assert_eq!(scene.heard(), ["initialize", "tools/call"]);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn it_costs_nothing_of_the_budget() {
    // It has died once of the probe; the budget of one is for later deaths.
    let stage = Stage::new();
    let argv = argv(&stage, &["--restart-budget", "2"], &DEADLY);
    let mut scene = Scene::on(stage, &argv);
    assert_eq!(discover(&mut scene.client)["error"]["code"], -32601);
    scene.client.wire.initialize().unwrap();
    scene.kill(2);
    scene.replayed(3);
    assert_eq!(scene.heard(), OPENED);
    scene.kill(3);
    scene.stage.event("abandoned");
    assert_eq!(scene.finish(), [json!(null); 0]);
}
