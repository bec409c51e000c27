//! A request that a dead server never read cannot have taken effect: the next generation gets it, whatever it asks and whatever the
//! user wants repeated; in the order of the client, and with the notifications between them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use std::fs;

use mainstay_testkit::stage::{Stage, run};
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

/// Answers everything. The first one closes its stdin when it is told to, and lives on.
const CLOSES_ITS_STDIN: &str = r#"
cd "$1" || exit 1
echo x >> generations
generation=$(wc -l < generations)
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([^,}]*\).*/\1/p')
    case "$line" in
    *'"initialize"'*)
        echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}' ;;
    *notifications/initialized*)
        if [ "$generation" -eq 1 ]; then
            until [ -e close ]; do sleep 0.01; done
            exec 0<&-
            exec sleep 600
        fi ;;
    *)
        echo '{"jsonrpc":"2.0","id":'$id',"result":{"generation":'$generation'}}' ;;
    esac
done
"#;

#[test]
fn also_where_a_server_closes_its_stdin_and_lives_on() {
    let stage = Stage::new();
    let script = stage.path("closes_its_stdin.sh");
    fs::write(&script, CLOSES_ITS_STDIN).unwrap();
    let server = ["sh".into(), script.into(), stage.home().into()];
    let argv = run(scene::mainstay(), &["--name", "deaf"], server.into());
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    let call = json!({"name": "x".repeat(500)});
    let id = scene.client.wire.ask("tools/call", &call).unwrap();
    until("the request is in its pipe", || {
        (scene.unread(1) > 500).then_some(())
    });
    fs::write(scene.stage.path("close"), "").unwrap();
    let answer = scene.client.wire.answer(id).unwrap();
    assert_eq!(answer["result"]["generation"], 2, "{answer}");
    assert_eq!(scene.finish(), [json!(null); 0]);
}
