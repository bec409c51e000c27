//! What cannot be hidden is told: a next generation with another protocol version ends the session, one that has lost a
//! capability is named in an event, one that refuses what its predecessor took goes on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_testkit::wire::trouble;
use scene::{Scene, messages};
use serde_json::json;

#[test]
fn with_everything_answered() {
    let mut scene = Scene::open(&[], &["--in", "2", "--version 2024-11-05"]);
    scene.mute();
    let list = scene.client.wire.ask("tools/list", &json!({})).unwrap();
    scene.sync();
    scene.kill(1);
    let rest = messages(&scene.client.wire.rest().unwrap());
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert_eq!(rest[0]["id"], list);
    let words = trouble(&rest[0]);
    for part in ["2024-11-05", "2025-11-25", "connect again"] {
        assert!(words.contains(part), "{words}");
    }
    assert_eq!(rest[0]["error"]["data"]["reason"], "server_differs");
    scene.client.wait();
    scene.stage.census.assert_empty();
    let differs = scene.stage.event("differs");
    assert!(
        differs["what"]
            .as_str()
            .is_some_and(|what| what.contains("2024-11-05"))
    );
}

#[test]
fn a_lost_capability_is_told() {
    let before = r#"{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true}}"#;
    let mut scene = Scene::open(
        &[],
        &[
            "--capabilities",
            before,
            "--in",
            "2",
            r#"--capabilities {"tools":{}}"#,
        ],
    );
    scene.kill(1);
    scene.replayed(2);
    let differs = scene.stage.event("differs");
    let what = differs["what"].as_str().unwrap();
    for lost in [
        "logging",
        "resources",
        "resources.subscribe",
        "tools.listChanged",
    ] {
        assert!(what.contains(lost), "{what}");
    }
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn a_refused_subscription_is_told() {
    let mut scene = Scene::open(&[], &["--in", "2", "--refuses resources/subscribe"]);
    let subscribe = json!({"uri": "file:///a"});
    scene
        .client
        .wire
        .request("resources/subscribe", &subscribe)
        .unwrap();
    scene.kill(1);
    scene.replayed(2);
    let differs = scene.stage.event("differs");
    assert!(
        differs["what"]
            .as_str()
            .is_some_and(|what| what.contains("subscription"))
    );
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
