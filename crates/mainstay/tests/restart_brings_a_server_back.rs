//! `mainstay restart` brings the next generation in any state: while it serves, while it waits after deaths, after it was
//! given up; by name, by id, and all at once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_testkit::wire::trouble;
use scene::Scene;
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
fn while_it_serves() {
    let mut scene = Scene::open(&[], &[]);
    let id = scene.stage.card().id;
    let all = ["unruly", &id, &id[..4], "--all"];
    for (generation, whom) in (2..).zip(all) {
        // What is in flight is answered first.
        let open = scene.ask_call("sleep", &json!({"ms": 300}));
        restarted(&scene, &["restart", whom], generation);
        let answer = scene.client.wire.answer(open).unwrap();
        assert_eq!(answer["result"]["structuredContent"], json!({"slept": 300}));
        assert_eq!(scene.call("look", &json!({}))["generation"], generation);
    }
    assert_eq!(scene.stage.events("renewal").len(), 4);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn after_it_was_given_up() {
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
    // It is not mended yet: the command says so.
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
fn while_it_waits() {
    let mut scene = Scene::open(&["--restart-budget", "100"], &[]);
    // The waiting grows with each death; after the last one a slow test has the time to come before its end.
    for generation in 1..=6 {
        if generation > 1 {
            scene.replayed(generation);
        }
        scene.kill(generation);
        scene.exit(generation);
    }
    scene.state("waiting");
    // What comes meanwhile waits, too, and is answered by the one that was asked for.
    let open = scene.ask_call("look", &json!({}));
    restarted(&scene, &["restart", "unruly"], 7);
    let answer = scene.client.wire.answer(open).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["generation"], 7);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
