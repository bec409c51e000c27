//! Some legacy servers die of `server/discover`. The client gets the answer of a legacy server, and the server is started again
//! and opened as the client asks next. The next session knows from the record not to send `server/discover` at all.
//! guards: A legacy server that dies of `server/discover` looks to the client like a legacy server that refuses it.

use crate::support::scene::{self, Scene, argv, heard};
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::stage::Stage;
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

/// One session: `server/discover`, then the opening. Returns the methods that the serving generation has read.
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
fn a_discover_that_killed_the_server_is_not_sent_in_the_next_session() {
    let stage = Stage::new();
    let argv = argv(&stage, &[], &DEADLY);
    assert_eq!(session(&stage, &argv), OPENED);
    assert_eq!(stage.events("start").len(), 2, "one died of it, one served");
    assert_eq!(session(&stage, &argv), OPENED);
    assert_eq!(stage.events("start").len(), 3, "and the next was not asked");
}

#[test]
fn without_a_record_each_session_sends_discover() {
    let stage = Stage::new();
    let argv = argv(&stage, &["--no-cache"], &DEADLY);
    for starts in [2, 4] {
        assert_eq!(session(&stage, &argv), OPENED);
        assert_eq!(stage.events("start").len(), starts);
    }
}

#[test]
fn an_initialize_right_after_a_fatal_discover_is_served() {
    // A client that does not wait: both requests are in flight when the server dies.
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
fn a_death_by_discover_does_not_count_against_the_budget() {
    // The server has died once of the probe. The budget of one restart is still there for later deaths.
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
