//! The replay sends the client's own opening byte for byte, then `initialized`, the log level and the subscriptions, then the
//! held lines in the order in which they came. The client sees none of it.
//! guards: After a respawn the server gets the client's opening, log level and subscriptions before any other line of the client.

use std::fs;

use crate::support::scene::{Scene, argv, content, heard, heard_messages};
use mainstay_testkit::stage::Stage;
use serde_json::{Value, json};

const PARAMS: &str = r#"{ "protocolVersion" : "2025-11-25", "capabilities":{"roots":{"listChanged":true},"x-own":{"a":[1.0,1e2]}},
"clientInfo":{"name":"gr\u00fc\u00df","version":"1"},"_meta":{"k":9007199254740993}, "unknown": null }"#;

fn params() -> String {
    PARAMS.replace('\n', " ")
}

/// Opens the session with those parameters, sets the level twice, and leaves two of three subscriptions.
fn open(scene: &mut Scene) {
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"initialize\",\"params\":{},\"id\":\"open\"}}\n",
        params()
    );
    let wire = &mut scene.client.wire;
    wire.send_bytes(line.as_bytes()).unwrap();
    let answer = wire.line().unwrap().unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["id"], "open");
    assert!(answer.get("result").is_some(), "{answer}");
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    wire.send(&ready).unwrap();
    for (method, params) in [
        ("logging/setLevel", json!({"level": "debug"})),
        ("resources/subscribe", json!({"uri": "file:///a"})),
        ("resources/subscribe", json!({"uri": "file:///b"})),
        ("logging/setLevel", json!({"level": "error"})),
        ("resources/subscribe", json!({"uri": "file:///c"})),
        ("resources/unsubscribe", json!({"uri": "file:///b"})),
    ] {
        let answer = wire.request(method, &params).unwrap();
        assert!(answer.get("result").is_some(), "{answer}");
    }
    let refused = wire.request("custom/subscribe", &json!({})).unwrap();
    assert!(refused.get("error").is_some());
}

const REPLAY: [&str; 5] = [
    "initialize",
    "notifications/initialized",
    "logging/setLevel",
    "resources/subscribe",
    "resources/subscribe",
];

#[test]
fn the_replay_comes_in_order() {
    let mut scene = Scene::start(&[], &[]);
    open(&mut scene);
    for generation in 1..=3 {
        scene.kill(generation);
        let replayed = scene.replayed(generation + 1);
        assert_eq!(replayed["level"], true);
        assert_eq!(replayed["subscriptions"], 2);
        let held = scene.held();
        let mut expected = REPLAY.to_vec();
        expected.push("tools/call");
        assert_eq!(heard(&held), expected);
        assert_eq!(held["level"], "error");
        assert_eq!(held["subscriptions"], json!(["file:///a", "file:///c"]));
        // The parameters are the client's bytes. Only the id is ours, and no client uses it.
        let opening = held["heard"][0].as_str().unwrap();
        assert!(opening.contains(&params()), "{opening}");
        for message in heard_messages(&held) {
            if let (Some(id), false) = (message.get("id"), message["method"] == "tools/call") {
                assert!(id.as_str().is_some_and(|id| id.starts_with("ms:")), "{id}");
            }
        }
    }
    assert_eq!(
        scene.finish(),
        [json!(null); 0],
        "the client saw nothing of it"
    );
}

#[test]
fn the_replay_comes_before_held_lines() {
    let stage = Stage::new();
    let door = stage.path("door");
    let habit = format!("--start-when {}", door.display());
    let argv = argv(&stage, &[], &["--in", "2", &habit]);
    let mut scene = Scene::on(stage, &argv);
    open(&mut scene);
    scene.kill(1);
    scene.server(2);
    // Sends numbered requests and notifications while the new server has not yet read its opening.
    let mut ids = Vec::new();
    for n in 0..300 {
        ids.push(scene.ask_call("echo", &json!({"n": n})));
        let note = json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"n": n}});
        scene.client.wire.send(&note).unwrap();
    }
    fs::write(&door, "").unwrap();
    let all = scene.read_answers(&ids);
    assert_eq!(all.len(), ids.len());
    for (n, answer) in all.iter().enumerate() {
        assert_eq!(content(answer), &json!({"n": n}));
    }
    let messages = heard_messages(&scene.held());
    let (replay, rest) = messages.split_at(REPLAY.len());
    let methods: Vec<&str> = replay
        .iter()
        .filter_map(|one| one["method"].as_str())
        .collect();
    assert_eq!(methods, REPLAY);
    for (n, pair) in rest[..600].chunks(2).enumerate() {
        assert_eq!(pair[0]["params"]["arguments"]["n"], n);
        assert_eq!(pair[1]["params"]["n"], n);
    }
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn the_replay_has_nothing_that_the_client_never_sent() {
    let mut scene = Scene::start(&[], &[]);
    let opening = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    scene.client.wire.request("initialize", &opening).unwrap();
    scene.kill(1);
    scene.replayed(2);
    assert_eq!(scene.heard(), ["initialize", "tools/call"]);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn a_notification_is_not_taken_for_the_answer_to_the_replayed_opening() {
    // server-everything does this: it sends a notification before the answer to `initialize`.
    let stage = Stage::new();
    let news = stage.path("news");
    fs::write(&news, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"up\"}}\n").unwrap();
    let habit = format!("--replay {}", news.display());
    let argv = argv(&stage, &[], &["--in", "2", &habit]);
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    scene.kill(1);
    scene.replayed(2);
    let id = scene.ask_call("held", &json!({}));
    let all = scene.read_answers(&[id]);
    let held = content(all.last().unwrap());
    assert_eq!(
        heard(held),
        ["initialize", "notifications/initialized", "tools/call"]
    );
    assert!(all.len() <= 2, "{all:?}");
    assert_eq!(scene.finish(), [json!(null); 0]);
}
