//! A server dies during the client's own opening, in the middle of the replay, or again and again. The next generation gets the
//! whole replay from the beginning, and requests that wait stay in the queue.
//! guards: A server that dies during the replay counts as one more death, and the next generation gets the whole replay.

use crate::support::scene::{self, Scene};
use mainstay_testkit::wire::trouble;
use serde_json::json;

#[test]
fn a_server_that_dies_in_the_handshake_is_restarted() {
    let mut scene = Scene::start(&[], &["--in", "1..2", "--dies-of initialize"]);
    scene.client.wire.initialize().unwrap();
    let held = scene.held();
    assert_eq!(held["generation"], 3);
    assert_eq!(
        scene::heard(&held),
        ["initialize", "notifications/initialized", "tools/call"]
    );
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn a_server_that_dies_in_every_handshake_is_reported() {
    let mut scene = Scene::start(
        &[],
        &[
            "--stderr",
            "fatal: no licence",
            "--exit-code",
            "4",
            "--dies-of",
            "initialize",
        ],
    );
    let opening = json!({"protocolVersion": "2025-11-25"});
    let answer = scene.client.wire.request("initialize", &opening).unwrap();
    let words = trouble(&answer);
    assert!(
        words.contains("exit code 4") && words.contains("fatal: no licence"),
        "{words}"
    );
    assert_eq!(answer["error"]["data"]["reason"], "server_exit");
    let (status, rest) = scene.client.finish();
    assert_eq!((status.code(), rest), (Some(4), Vec::new()));
    scene.stage.census.assert_empty();
    assert_eq!(
        scene.stage.events("start").len(),
        3,
        "a few chances, not many"
    );
}

#[test]
fn a_server_that_dies_at_any_step_of_the_replay_is_restarted() {
    for step in [
        "initialize",
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
        // Requests that are sent again, and requests that were held.
        "resources/read",
    ] {
        let dies = format!("--dies-of {step}");
        let mut scene = Scene::open(&[], &["--in", "2", &dies]);
        let wire = &mut scene.client.wire;
        wire.request("logging/setLevel", &json!({"level": "error"}))
            .unwrap();
        wire.request("resources/subscribe", &json!({"uri": "file:///a"}))
            .unwrap();
        scene.mute();
        let read = scene
            .client
            .wire
            .ask("resources/read", &json!({"uri": "a:b"}))
            .unwrap();
        scene.sync();
        scene.kill(1);
        scene.exit(1);
        let look = scene.ask_call("look", &json!({}));
        let all = scene.read_answers(&[read, look]);
        assert_eq!(all.len(), 2, "{step}: {all:?}");
        let [read] = scene::answers(&all, read)[..] else {
            panic!()
        };
        if step == "resources/read" {
            assert!(trouble(read).contains("is not sent a third time"), "{read}");
        } else {
            assert_eq!(
                read["result"]["contents"][0]["text"], "generation 3",
                "{step}: {read}"
            );
        }
        let held = scene.held();
        assert_eq!(held["generation"], 3);
        assert_eq!(held["level"], "error");
        assert_eq!(held["subscriptions"], json!(["file:///a"]));
        assert_eq!(scene.finish(), [json!(null); 0]);
    }
}

#[test]
fn deaths_in_the_replay_count_against_the_budget() {
    let mut scene = Scene::open(
        &["--restart-budget", "3"],
        &["--in", "2..", "--dies-of initialize"],
    );
    scene.mute();
    let list = scene.client.wire.ask("tools/list", &json!({})).unwrap();
    scene.sync();
    scene.kill(1);
    scene.exit(1);
    let call = scene.ask_call("look", &json!({}));
    let all = scene.read_answers(&[list, call]);
    assert_eq!(all.len(), 2);
    for answer in &all {
        assert!(trouble(answer).contains("ended 3 times"), "{answer}");
    }
    assert_eq!(scene.stage.events("start").len(), 3);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
