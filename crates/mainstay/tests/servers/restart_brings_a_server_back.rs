//! `mainstay restart` starts the next generation in any state: while the server runs, while a restart is delayed after deaths,
//! and after the server was given up. It takes a name, an id, or all servers at once.
//! guards: `mainstay restart` starts the next generation in any state of the link.

use crate::support::scene::Scene;
use mainstay_testkit::wire::trouble;
use serde_json::json;

fn restarted(scene: &Scene, words: &[&str], generation: u32) {
    let output = scene.mainstay(words);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    let pid = scene.server(generation).pid;
    assert_eq!(
        said,
        format!("unruly: restarted, generation {generation}, pid {pid}\n")
    );
}

#[test]
fn restart_replaces_a_running_server() {
    let mut scene = Scene::open(&[], &[]);
    let id = scene.stage.card().id;
    let all = ["unruly", &id, &id[..4], "--all"];
    for (generation, target) in (2..).zip(all) {
        // The request in flight is answered first.
        let open = scene.ask_call("sleep", &json!({"ms": 300}));
        restarted(&scene, &["restart", target], generation);
        let answer = scene.client.wire.answer(open).unwrap();
        assert_eq!(answer["result"]["structuredContent"], json!({"slept": 300}));
        assert_eq!(scene.call("look", &json!({}))["generation"], generation);
    }
    assert_eq!(scene.stage.events("restarting").len(), 4);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn restart_starts_a_server_that_was_given_up() {
    let mut scene = Scene::open(
        &["--restart-budget", "1", "--restart-probe", "0ms"],
        &["--in", "2", "--dies-of initialize"],
    );
    scene.kill(1);
    scene.state("abandoned");
    let answer = scene.call("look", &json!({}));
    assert!(
        trouble(&answer).contains("mainstay restart unruly"),
        "{answer}"
    );
    // The server still cannot start, and the command says so.
    let output = scene.mainstay(&["restart", "unruly"]);
    assert!(!output.status.success(), "{output:?}");
    assert!(!output.stderr.is_empty());
    scene.exit(2);
    scene.state("abandoned");
    restarted(&scene, &["restart", "--all"], 3);
    assert_eq!(scene.call("look", &json!({}))["generation"], 3);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn restart_starts_a_server_at_once_during_the_back_off() {
    let mut scene = Scene::open(&["--restart-budget", "100"], &[]);
    // The delay grows with each death. After the last death it is long enough for a slow test.
    for generation in 1..=6 {
        if generation > 1 {
            scene.replayed(generation);
        }
        scene.kill(generation);
        scene.exit(generation);
    }
    scene.state("waiting");
    // Requests that arrive meanwhile wait too, and the new generation answers them.
    let open = scene.ask_call("look", &json!({}));
    restarted(&scene, &["restart", "unruly"], 7);
    let answer = scene.client.wire.answer(open).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["generation"], 7);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
