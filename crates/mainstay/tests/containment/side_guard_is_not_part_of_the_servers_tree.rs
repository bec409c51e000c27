//! A side guard is the keeper's child but no member of any tree. No generation's end touches it. Its own end is noticed at any
//! time: between two generations, before the first one, and in the middle of the kill step.
//! guards: A side guard survives every generation, and its own end is always noticed.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;

use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::Identity;
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Source, Stage, run};
use mainstay_testkit::wait::until;

use crate::support::play;
use crate::support::scene::{Scene, mainstay};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

const GRACES: [&str; 4] = ["--grace-eof", "300ms", "--grace-term", "300ms"];

/// Waits until the link has a guard other than this one, and returns it. There may be no server.
fn guard_after(stage: &Stage, guard: Option<Identity>) -> Identity {
    until("the card names another guard", || {
        let found = stage.cards().first()?.guard?;
        (Some(found) != guard).then_some(found)
    })
}

/// Kills the link's guard and returns its successor.
fn next_guard(stage: &Stage) -> Identity {
    let guard = guard_after(stage, None);
    killers::at_once(&[guard]);
    lost(stage, guard)
}

/// Waits until the loss of a guard is in the events, and returns its successor.
fn lost(stage: &Stage, guard: Identity) -> Identity {
    let lost = stage.event_that("guard_lost", |event| event["pid"] == guard.pid);
    let next = guard_after(stage, Some(guard));
    assert_eq!(lost["successor"], json!(next.pid));
    next
}

#[test]
fn a_side_guard_outlives_every_generation() {
    let mut scene = Scene::open(&GRACES, &["--setsid-child"]);
    let beside = next_guard(&scene.stage);
    for generation in 1..=3 {
        scene.kill(generation);
        scene.replayed(generation + 1);
        assert!(scene.call("pid", &json!({}))["pid"].is_i64());
        assert!(identity::alive(beside), "after generation {generation}");
    }
    assert_eq!(scene.stage.events("guard_lost").len(), 1);
    assert_eq!(scene.stage.card().guard, Some(beside));

    // It still does all that the first guard did.
    let keeper = scene.stage.card().keeper.unwrap();
    killers::at_once(&[keeper]);
    assert!(scene.call("pid", &json!({}))["pid"].is_i64());
    scene
        .stage
        .event_that("keeper_lost", |event| event["pid"] == keeper.pid);
    scene.finish();
}

#[test]
fn the_end_of_a_side_guard_is_noticed_while_no_server_runs() {
    let stage = Stage::new();
    play::learn(&stage, &["--lazy"], &[]);
    let mut client = play::open(&stage, &["--lazy"], &[]);
    assert_eq!(stage.cards()[0].json["state"], "resting");
    let first = next_guard(&stage);
    let second = next_guard(&stage);
    assert_ne!(first, second);
    assert_eq!(play::starts(&stage), 1, "no server was started for that");
    play::pid(&mut client);
    play::end(client);
    stage.census.assert_empty();
}

/// An engine whose `kill` reports that it runs, and waits for a line in a FIFO.
fn engine(stage: &Stage) -> Vec<OsString> {
    let docker = stage.path("docker");
    let server: Vec<String> = stage
        .unruly::<&str>(&[])
        .iter()
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = kill ]; then\n: > '{}'\nread word < '{}'\nexit 0\nfi\n\
         [ \"$2\" = --cidfile ] || exit 9\necho 4f5e6d7c8b9a > \"$3\"\nexec {}\n",
        stage.path("killing").display(),
        stage.path("gate").display(),
        server.join(" ")
    );
    stage.program(&docker, Source::Text(&script));
    vec![docker.into(), "run".into(), "-i".into(), "mcp/time".into()]
}

#[test]
fn the_end_of_a_side_guard_is_noticed_in_the_kill_step() {
    let stage = Stage::new();
    let gate = stage.path("gate");
    mknodat(CWD, &gate, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let mut gate = File::options().read(true).write(true).open(gate).unwrap();
    let argv = run(mainstay(), &GRACES, engine(&stage));
    let mut client = Client::open(&stage, &argv);
    let beside = next_guard(&stage);
    killers::at_once(&[stage.card().server.unwrap()]);
    until("the keeper waits for the engine", || {
        stage.path("killing").exists().then_some(())
    });
    let handle = Handle::open(beside).unwrap();
    killers::at_once(&[beside]);
    until("the side guard has ended", || handle.ended().then_some(()));
    gate.write_all(b"go\n").unwrap();
    lost(&stage, beside);
    assert!(client.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());
    let (status, _) = client.finish();
    assert!(status.success());
    stage.census.assert_empty();
}
