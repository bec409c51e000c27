//! A tool list of one megabyte passes unchanged, is learned whole, and is compared after a respawn like any other list.
//! guards: A tool list of any size is compared as a whole after a respawn.

use crate::support::scene::Scene;
use serde_json::{Value, json};

const CAPABLE: &str = r#"{"tools":{"listChanged":true}}"#;

fn list(scene: &mut Scene) -> Value {
    scene.client.wire.request("tools/list", &json!({})).unwrap()["result"].clone()
}

#[test]
fn a_megabyte_list_is_compared_after_a_respawn() {
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
    // The request is in flight at the death, so the next generation answers it.
    scene.mute();
    let id = scene.client.wire.ask("tools/list", &json!({})).unwrap();
    let look = scene.ask_call("look", &json!({}));
    scene.sync();
    scene.kill(1);
    let all = scene.read_answers(&[id, look]);
    assert_eq!(all.len(), 2, "nothing changed, nothing is told");
    let again = all.iter().find(|message| message["id"] == id).unwrap();
    assert_eq!(again["result"], first);
    // The third generation has one tool more.
    scene.kill(2);
    let told = scene.message();
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    assert!(list(&mut scene).to_string().contains("\"new\""));
    assert_eq!(scene.finish(), [json!(null); 0]);
}
