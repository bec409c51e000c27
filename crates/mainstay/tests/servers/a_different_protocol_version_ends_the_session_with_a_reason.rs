//! Differences between two generations that cannot be hidden are reported. Another protocol version ends the session. A lost
//! capability is named in an event. A refused subscription is reported, and the session goes on.
//! guards: A new generation with another protocol version ends the session with an explanation instead of serving a client that expects something else.

use crate::support::scene::{Scene, messages};
use mainstay_testkit::wire::trouble;
use serde_json::json;

#[test]
fn every_request_is_answered_before_a_different_version_ends_the_session() {
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
    let differs = scene.stage.event("server_changed");
    assert!(
        differs["what"]
            .as_str()
            .is_some_and(|what| what.contains("2024-11-05"))
    );
}

#[test]
fn a_capability_lost_after_a_restart_is_recorded() {
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
    let differs = scene.stage.event("server_changed");
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
fn a_subscription_refused_after_a_restart_is_reported() {
    let mut scene = Scene::open(&[], &["--in", "2", "--refuses resources/subscribe"]);
    let subscribe = json!({"uri": "file:///a"});
    scene
        .client
        .wire
        .request("resources/subscribe", &subscribe)
        .unwrap();
    scene.kill(1);
    scene.replayed(2);
    let differs = scene.stage.event("server_changed");
    assert!(
        differs["what"]
            .as_str()
            .is_some_and(|what| what.contains("subscription"))
    );
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
