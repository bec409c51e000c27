//! A request that a dead server never read cannot have taken effect. The next generation gets it, whatever the method and
//! whatever `--retry` says, in the client's order and with the notifications in between.
//! guards: Requests that a dead server never read are sent to the next generation in the client's order.

use std::fs;

use crate::support::scene::{self, Scene, content, heard_messages};
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::json;

#[test]
fn unread_requests_of_every_kind_reach_the_next_generation() {
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
fn requests_that_did_not_fit_into_the_pipe_reach_the_next_generation() {
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
        // This is the server's own error for an unknown method, so no answer is ours.
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    }
    assert_eq!(scene.call("look", &json!({}))["generation"], 3);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

/// Answers everything. The first generation closes its stdin when told, and lives on.
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
fn unread_requests_reach_the_next_generation_after_the_server_closed_its_stdin() {
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
