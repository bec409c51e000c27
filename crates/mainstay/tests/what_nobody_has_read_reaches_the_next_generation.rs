//! A request that a dead server never read cannot have taken effect: the next generation gets it, whatever it asks and whatever the
//! user wants repeated; in the order of the client, and with the notifications between them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use scene::{Scene, content, heard_messages};
use serde_json::json;

#[test]
fn whatever_it_is() {
    for retry in ["never", "safe"] {
        let mut scene = Scene::open(&["--retry", retry], &[]);
        scene.freeze(1);
        let mut ids = Vec::new();
        for n in 0..100 {
            ids.push(scene.ask_call("add", &json!({"n": n})));
            let note = json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"n": n}});
            scene.client.wire.send(&note).unwrap();
        }
        scene.taken();
        scene.kill(1);
        scene.exit(1);
        ids.push(scene.ask_call("add", &json!({"n": 100})));
        let all = scene.read_answers(&ids);
        assert_eq!(all.len(), ids.len());
        for (id, answer) in ids.iter().zip(&all) {
            assert_eq!(answer["id"], *id, "in their order");
            assert_eq!(content(answer)["generation"], 2);
        }
        let heard = heard_messages(&scene.held());
        let after = &heard[2..203];
        for (n, pair) in after.chunks(2).enumerate() {
            assert_eq!(pair[0]["params"]["arguments"]["n"], n);
            assert!(pair.get(1).is_none_or(|note| note["params"]["n"] == n));
        }
        assert_eq!(scene.finish(), [json!(null); 0]);
    }
}
