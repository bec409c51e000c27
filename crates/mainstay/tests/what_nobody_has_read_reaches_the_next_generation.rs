//! A request that a dead server never read cannot have taken effect: the next generation gets it, whatever it asks and whatever the
//! user wants repeated; in the order of the client, and with the notifications between them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_testkit::wait::until;
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

#[test]
fn also_what_did_not_even_fit_into_its_pipe() {
    let mut scene = Scene::open(&[], &["--in", "2", "--deaf"]);
    scene.mute();
    let pad = "x".repeat(1_000);
    let ask = json!({"name": "p", "arguments": {"pad": pad}});
    let mut ids = Vec::new();
    for _ in 0..200 {
        ids.push(scene.client.wire.ask("prompts/get", &ask).unwrap());
    }
    scene.sync();
    scene.kill(1);
    scene.replayed(2);
    until("its pipe is full", || {
        (scene.unread(2) > 60_000).then_some(())
    });
    scene.kill(2);
    for answer in scene.read_answers(&ids) {
        // What the server says of a method that it does not know: nothing was answered by us.
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    }
    assert_eq!(scene.call("look", &json!({}))["generation"], 3);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
