//! A server that dies while its client lives is started again with the same arguments, environment, directory and umask, however
//! it died. The client's pipe stays open, and the next call is served.
//! guards: A dead server is started again exactly as the client started it, and the client keeps its connection.

use std::ffi::OsString;
use std::fs;

use mainstay_protocol::ids::TAG_VARIABLE;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wire::trouble;

use crate::support::scene::{Scene, argv};
use serde_json::{Value, json};

/// The part of the report that must be equal in every generation.
fn world(mut given: Value) -> Value {
    for own in ["pid", "session", "pgrp"] {
        given.as_object_mut().unwrap().remove(own);
    }
    let environment = given["env"].as_object_mut().unwrap();
    environment
        .remove(TAG_VARIABLE)
        .expect("the tree is tagged");
    // Each generation has its own pipes, with other inode numbers.
    let fds = given["fds"].as_array().unwrap();
    let numbers: Vec<Value> = fds.iter().map(|fd| fd[0].clone()).collect();
    given["fds"] = json!(numbers);
    given
}

#[test]
fn a_restarted_server_has_the_same_arguments_environment_directory_and_umask() {
    let stage = Stage::new();
    fs::create_dir(stage.path("a project")).unwrap();
    let mut words: Vec<OsString> = ["/bin/sh", "-c", "umask 0027; exec \"$@\"", "sh"]
        .iter()
        .map(Into::into)
        .collect();
    words.extend(argv(
        &stage,
        &[],
        &["--stderr", "two words \"quoted\" $HOME *"],
    ));
    let client = mainstay_testkit::client::Launch::new(&stage, &words)
        .with(|command| {
            command
                .current_dir(stage.path("a project"))
                .env("GREETING", "grüß\tGott=1")
                .env("EMPTY", "")
        })
        .start();
    let mut scene = Scene { client, stage };
    scene.client.wire.initialize().unwrap();
    let first = world(scene.call("env", &json!({})));
    assert_eq!(first["umask"], "0027");
    assert_eq!(first["cwd"], json!(scene.stage.path("a project")));
    for generation in 1..=3 {
        scene.kill(generation);
        scene.replayed(generation + 1);
        assert_eq!(world(scene.call("env", &json!({}))), first);
    }
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn a_server_is_restarted_after_every_kind_of_death() {
    let mut scene = Scene::open(&["--restart-budget", "100"], &[]);
    let ways = [
        (json!({"code": 0}), json!({"code": 0})),
        (json!({"code": 42}), json!({"code": 42})),
        (
            json!({"signal": 6}),
            json!({"signal": {"number": 6, "core": false}}),
        ),
        (
            json!({"signal": 9}),
            json!({"signal": {"number": 9, "core": false}}),
        ),
    ];
    for (generation, (how, status)) in (1..).zip(&ways) {
        // The call that killed the server gets an error. The next generation answers the next call.
        let id = scene.ask_call("crash", how);
        let answer = scene.client.wire.answer(id).unwrap();
        let words = trouble(&answer).to_owned();
        assert!(words.contains("it is started again"), "{words}");
        let exit = scene.exit(generation);
        let mut ended = exit["status"].clone();
        // Whether the kernel dumps a core depends on this machine.
        if let Some(core) = ended.pointer_mut("/signal/core") {
            *core = json!(false);
        }
        assert_eq!(&ended, status);
        assert_eq!(exit["in_flight"], 1);
        let next = scene.call("look", &json!({}));
        assert_eq!(next["generation"], generation + 1);
    }
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn a_server_behind_launchers_is_restarted() {
    let stage = Stage::new();
    let habits = ["--launcher", "2", "--grandchild"];
    let argv = argv(&stage, &["--grace-term", "200ms"], &habits);
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    // First the server dies, and its launchers pass its status on. Then the outermost launcher dies while the server lives on
    // below it.
    let answer = scene.call("crash", &json!({"code": 3}));
    assert!(trouble(&answer).contains("it is started again"), "{answer}");
    assert_eq!(scene.exit(1)["status"], json!({"code": 3}));
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    let open = scene.ask_call("sleep", &json!({"ms": 3_600_000}));
    scene.call("echo", &json!({}));
    scene.kill(2);
    let answer = scene.client.wire.answer(open).unwrap();
    assert!(trouble(&answer).contains("it is started again"), "{answer}");
    assert_eq!(scene.call("look", &json!({}))["generation"], 3);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn a_server_that_closed_stdin_or_stdout_is_restarted() {
    let mut scene = Scene::open(&["--grace-eof", "100ms", "--grace-term", "100ms"], &[]);
    for (generation, end) in [(1, "stdout"), (2, "stdin")] {
        let answer = scene.call("hang_up", &json!({"end": end}));
        assert_eq!(answer, json!({"without": end}));
        // A server that closed a pipe cannot serve. Each later request must still get an answer.
        let id = scene.client.wire.ask("tools/list", &json!({})).unwrap();
        let answer = scene.client.wire.answer(id).unwrap();
        assert!(answer.get("result").is_some(), "{end}: {answer}");
        scene.exit(generation);
        assert_eq!(scene.call("look", &json!({}))["generation"], generation + 1);
    }
    assert_eq!(scene.finish(), [json!(null); 0]);
}
