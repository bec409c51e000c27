//! A server that was given up is tried again from time to time. The first generation that opens gets the whole replay and serves.
//! Until then, every request is answered at once.
//! guards: A server that was given up is tried again, and the session goes on as soon as it starts.

use std::fs;
use std::path::PathBuf;

use crate::support::scene::{self, Scene};
use mainstay_testkit::built;
use mainstay_testkit::stage::{Source, Stage, run};
use mainstay_testkit::wait::until;
use mainstay_testkit::wire::trouble;
use serde_json::json;

#[test]
fn a_server_that_was_given_up_is_tried_again() {
    let mut scene = Scene::open(
        &["--restart-budget", "1", "--restart-probe", "200ms"],
        &[
            "--in",
            "2",
            "--exit-after-start",
            "--in",
            "3..4",
            "--dies-of initialize",
        ],
    );
    let wire = &mut scene.client.wire;
    wire.request("logging/setLevel", &json!({"level": "error"}))
        .unwrap();
    wire.request("resources/subscribe", &json!({"uri": "file:///a"}))
        .unwrap();
    scene.kill(1);
    scene.stage.event("abandoned");
    // Every request until then is answered, and the first good answer comes from a generation that got the whole replay.
    let held = until("the server is back", || {
        let held = scene.held();
        if held.get("generation").is_some() {
            return Some(held);
        }
        assert!(
            trouble(&held).contains("is tried again every 200 ms"),
            "{held}"
        );
        None
    });
    assert_eq!(held["generation"], 5);
    assert_eq!(held["level"], "error");
    assert_eq!(held["subscriptions"], json!(["file:///a"]));
    // The restart budget is full again.
    scene.kill(5);
    let abandoned = || scene.stage.events("abandoned").len();
    until("it is given up once more", || {
        (abandoned() >= 5).then_some(())
    });
    assert_eq!(scene.stage.events("exit").len(), 5);
    scene.replayed(6);
    assert_eq!(scene.call("look", &json!({}))["generation"], 6);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

/// A server whose program can be moved away, and the program's path.
fn removable(options: &[&str]) -> (Scene, PathBuf) {
    let stage = Stage::new();
    let program = stage.path("server");
    stage.program(&program, Source::Copy(built::unruly()));
    let mut words = stage.unruly::<&str>(&[]);
    words[0] = program.clone().into();
    let options = [&["--name", "unruly"], options].concat();
    let argv = run(scene::mainstay(), &options, words);
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    (scene, program)
}

/// Calls until a server answers.
fn back(scene: &mut Scene) {
    until("the server is back", || {
        scene.call("pid", &json!({})).get("pid").map(|_| ())
    });
}

#[test]
fn a_server_whose_file_was_missing_for_a_moment_comes_back() {
    let (mut scene, program) = removable(&[]);
    let away = scene.stage.path("away");
    fs::rename(&program, &away).unwrap();
    scene.kill(1);
    scene.stage.event("start_failed");
    fs::rename(&away, &program).unwrap();
    back(&mut scene);
    assert_eq!(scene.stage.events("exit").len(), 1);
    scene.finish();
}

#[test]
fn a_server_whose_file_was_missing_for_long_comes_back() {
    let (mut scene, program) = removable(&["--restart-budget", "3"]);
    let away = scene.stage.path("away");
    fs::rename(&program, &away).unwrap();
    scene.kill(1);
    let abandoned = scene.stage.event("abandoned");
    assert_eq!(abandoned["deaths"], 1, "{abandoned}");
    assert_eq!(abandoned["failed_starts"], 2, "{abandoned}");
    // The start failed, so the next attempt does not wait the minute that follows repeated deaths.
    assert_eq!(abandoned["probe_ms"], 500, "{abandoned}");
    let answer = scene.call("pid", &json!({}));
    let told = trouble(&answer);
    assert!(
        told.contains("it ended once and could not be started"),
        "{told}"
    );
    assert!(
        told.contains("not found") || told.contains("no such file"),
        "{told}"
    );
    fs::rename(&away, &program).unwrap();
    back(&mut scene);
    scene.finish();
}
