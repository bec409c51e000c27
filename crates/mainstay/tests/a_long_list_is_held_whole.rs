//! A tool list of a megabyte passes untouched, is learned whole, and is compared after a respawn like any other.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use scene::Scene;
use serde_json::{Value, json};

const CAPABLE: &str = r#"{"tools":{"listChanged":true}}"#;

fn list(scene: &mut Scene) -> Value {
    scene.client.wire.request("tools/list", &json!({})).unwrap()["result"].clone()
}

#[test]
fn and_compared_after_a_respawn() {
    let habits = [
        "--capabilities",
        CAPABLE,
        "--big-list",
        "1048576",
        "--in",
        "3",
        "--extra-tool new",
    ];
    let mut scene = Scene::open(&["--retry", "annotated"], &habits);
    let first = list(&mut scene);
    assert!(first.to_string().len() > 1 << 20);
    // Asked at a death, it comes from the next generation.
    scene.mute();
    let id = scene.client.wire.ask("tools/list", &json!({})).unwrap();
    let look = scene.ask_call("look", &json!({}));
    scene.sync();
    scene.kill(1);
    let all = scene.read_answers(&[id, look]);
    assert_eq!(all.len(), 2, "nothing changed, nothing is told");
    let again = all.iter().find(|message| message["id"] == id).unwrap();
    assert_eq!(again["result"], first);
    // The third one has a tool more.
    scene.kill(2);
    let told = scene.message();
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    assert!(list(&mut scene).to_string().contains("\"new\""));
    assert_eq!(scene.finish(), [json!(null); 0]);
}
