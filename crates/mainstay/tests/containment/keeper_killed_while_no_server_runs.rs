//! SIGKILL to the keeper between two generations, in the middle of a replay, or after the server was given up. The next keeper
//! has the replay, and the client's session goes on.
//! guards: A keeper that is killed while no server runs loses nothing of the session.

use crate::support::scene::{self, Scene, answers, argv, heard};
use mainstay_testkit::killers;
use mainstay_testkit::stage::Stage;
use serde_json::json;

fn session(word: &str) {
    let stage = Stage::new();
    let never = stage.path("never");
    let stuck = format!("--start-when {}", never.display());
    let habits: &[&str] = match word {
        "greeting" => &["--in", "2", &stuck],
        _ => &[],
    };
    let budget = if word == "abandoned" { "1" } else { "100" };
    let argv = argv(&stage, &["--restart-budget", budget], habits);
    let mut scene = Scene::on(stage, &argv);
    let wire = &mut scene.client.wire;
    wire.initialize().unwrap();
    wire.request("logging/setLevel", &json!({"level": "error"}))
        .unwrap();
    wire.request("resources/subscribe", &json!({"uri": "file:///a"}))
        .unwrap();
    scene.kill(1);
    if word == "waiting" {
        // The first restart is immediate, and each later one waits longer. A slow test must still find the link waiting.
        for generation in 2..=6 {
            scene.replayed(generation);
            scene.kill(generation);
            scene.exit(generation);
        }
    }
    scene.state(word);
    let keeper = scene.stage.cards()[0].keeper.unwrap();
    killers::at_once(&[keeper]);
    scene
        .stage
        .event_that("keeper_lost", |event| event["pid"] == keeper.pid);
    let id = scene.ask_call("held", &json!({}));
    let all = scene.read_answers(&[id]);
    assert_eq!(all.len(), 1, "{word}: {all:?}");
    let held = scene::content(answers(&all, id)[0]);
    assert_eq!(
        heard(held),
        [
            "initialize",
            "notifications/initialized",
            "logging/setLevel",
            "resources/subscribe",
            "tools/call"
        ],
        "{word}"
    );
    assert_eq!(held["level"], "error");
    assert_eq!(held["subscriptions"], json!(["file:///a"]));
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn a_killed_keeper_without_a_server_is_replaced_in_any_state() {
    for word in ["waiting", "greeting", "abandoned"] {
        session(word);
    }
}
