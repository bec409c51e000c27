//! A server in a container: the engine's command gets a cid file, and the ladder stops the container by its id. The engine here is a
//! stand-in that writes down how it is called; crates/testkit/scripts/podman-check shows whether a real one can run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod engine;

use std::ffi::OsString;
use std::fs;
use std::process::Stdio;

use engine::{ID, calls, errands, is_up, lose, named, question, wrapped};
use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use serde_json::json;

/// One that obeys has all the time that it needs, on a slow machine as well.
fn obedient(stage: &Stage) -> Vec<OsString> {
    wrapped(stage, &["--grace-eof", "60s"], &[])
}

fn stubborn(stage: &Stage) -> Vec<OsString> {
    let graces = ["--grace-eof", "200ms", "--grace-term", "1s"];
    wrapped(stage, &graces, &["--ignore-eof", "--ignore-term"])
}

#[test]
fn a_container_that_obeys_is_left_alone() {
    let stage = Stage::new();
    let mut client = Client::open(&stage, &obedient(&stage));
    assert!(client.finish().0.success());
    stage.census.assert_empty();
    let calls = calls(&stage);
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert!(
        calls[0].starts_with("run --cidfile ") && calls[0].ends_with(" -i --rm mcp/time"),
        "{calls:?}"
    );
    assert_eq!(stage.cards().len(), 0);
}

#[test]
fn one_that_does_not_is_stopped() {
    let stage = Stage::new();
    let mut client = Client::open(&stage, &stubborn(&stage));
    client.finish_without_waiting_for_stdout();
    stage.census.assert_empty();
    assert_eq!(errands(&stage), [format!("stop -t 1 {ID}")]);
    assert_eq!(stage.event("teardown")["left"], json!([]));
    assert!(!is_up(&stage));
}

#[test]
fn and_then_killed() {
    let stage = Stage::new();
    fs::write(stage.path("deaf"), "").unwrap();
    let mut client = Client::open(&stage, &stubborn(&stage));
    client.finish_without_waiting_for_stdout();
    stage.census.assert_empty();
    assert_eq!(
        errands(&stage),
        [format!("stop -t 1 {ID}"), question(), format!("kill {ID}")]
    );
    assert_eq!(stage.event("teardown")["left"], json!([]));
    // Whoever speaks for us does not wait for its turn as the keeper does.
    let policies = fs::read_to_string(stage.path("policies")).unwrap();
    assert_eq!(policies, "0\n0\n0\n0\n");
}

#[test]
fn one_that_the_engine_cannot_end_is_named_and_not_forgotten() {
    let stage = Stage::new();
    let mut client = Client::open(&stage, &stubborn(&stage));
    let id = stage.card().id;
    lose(&stage, true);
    client.finish_without_waiting_for_stdout();
    stage.census.assert_empty();
    assert_eq!(stage.event("teardown")["left"], json!([named()]));
    assert!(is_up(&stage));
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let doctor = stage.command(mainstay).arg("doctor").output().unwrap();
    let told = String::from_utf8_lossy(&doctor.stdout);
    let finding = format!("nobody has ended container {ID}");
    assert!(told.contains(&finding), "{told}");

    lose(&stage, false);
    let mut next = Client::open(&stage, &obedient(&stage));
    let sweep = stage.event_that("sweep", |event| event["of"] == id.as_str());
    assert_eq!(sweep["ended"], json!([named()]), "{sweep}");
    assert!(next.finish().0.success());
    stage.census.assert_empty();
}

#[test]
fn a_slow_engine_keeps_nobody_else_waiting() {
    let stage = Stage::new();
    for file in ["deaf", "slow"] {
        fs::write(stage.path(file), "").unwrap();
    }
    let mainstay = || stage.command(under_test(env!("CARGO_BIN_EXE_mainstay")));
    let options = "--grace-eof 100ms --grace-term 100ms --kill-confirm 60s --name slow";
    let options: Vec<&str> = options.split(' ').collect();
    let habits = ["--ignore-eof", "--ignore-term"];
    let mut client = Client::open(&stage, &wrapped(&stage, &options, &habits));
    stage.card();
    let stop = mainstay()
        .args(["stop", "slow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let kill = format!("kill {ID}");
    until("the engine is at it", || {
        errands(&stage).contains(&kill).then_some(())
    });
    let doctor = mainstay().arg("doctor").output().unwrap();
    let told = String::from_utf8_lossy(&doctor.stdout);
    assert!(told.contains("1 run, and all keepers answer"), "{told}");
    fs::remove_file(stage.path("slow")).unwrap();
    let stopped = stop.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&stopped.stdout);
    assert!(told.contains("0 left"), "{told}");
    client.wait();
    stage.census.assert_empty();
}

#[test]
fn an_engines_command_that_lost_its_daemon_says_nothing_of_the_container() {
    let stage = Stage::new();
    let mut client = Client::open(&stage, &obedient(&stage));
    client.wire.call("crash", &json!({"code": 125})).unwrap();
    assert!(client.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());
    let calls = calls(&stage);
    assert_eq!(calls[1], format!("stop -t 2 {ID}"), "{calls:?}");
    assert!(calls[2].starts_with("run --cidfile "), "{calls:?}");
    assert!(client.finish().0.success());
    stage.census.assert_empty();
}

#[test]
fn nor_does_one_that_was_killed_though_nobody_comes_after_it() {
    let stage = Stage::new();
    let options = ["--restart-budget", "0", "--grace-eof", "60s"];
    let mut client = Client::open(&stage, &wrapped(&stage, &options, &[]));
    killers::at_once(&[stage.card().server.unwrap()]);
    client.wait();
    until("the container is stopped", || {
        (!is_up(&stage)).then_some(())
    });
    stage.census.assert_empty();
    assert_eq!(errands(&stage), [format!("stop -t 2 {ID}")]);
}

#[test]
fn a_container_whose_keeper_was_killed_is_killed_before_the_next_one_starts() {
    let stage = Stage::new();
    let mut client = Client::open(&stage, &obedient(&stage));
    killers::at_once(&[stage.card().keeper.unwrap()]);
    assert!(client.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());
    assert!(client.finish().0.success());
    stage.census.assert_empty();
    let calls = calls(&stage);
    assert_eq!(calls[1], format!("kill {ID}"), "{calls:?}");
    assert!(calls[2].starts_with("run --cidfile "), "{calls:?}");
}
