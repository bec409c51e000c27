//! A server in a container: the engine's command gets a cid file, and the stop ladder stops the container by its id. The engine
//! here is a stand-in that logs its calls. crates/testkit/scripts/podman-check shows whether a real one can run.
//! guards: The container of a server is stopped with the server, or named as left.

use std::ffi::OsString;
use std::fs;
use std::process::Stdio;

use crate::support::engine::{ID, calls, engine_calls, is_up, lose, named, question, wrapped};
use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use serde_json::json;

/// A container that stops by itself gets all the time that it needs, also on a slow machine.
fn obedient(stage: &Stage) -> Vec<OsString> {
    wrapped(stage, &["--grace-eof", "60s"], &[])
}

fn stubborn(stage: &Stage) -> Vec<OsString> {
    let graces = ["--grace-eof", "200ms", "--grace-term", "1s"];
    wrapped(stage, &graces, &["--ignore-eof", "--ignore-term"])
}

#[test]
fn a_container_that_stops_by_itself_is_left_alone() {
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
fn a_container_that_does_not_stop_is_stopped() {
    let stage = Stage::new();
    let mut client = Client::open(&stage, &stubborn(&stage));
    client.finish_without_waiting_for_stdout();
    stage.census.assert_empty();
    assert_eq!(engine_calls(&stage), [format!("stop -t 1 {ID}")]);
    assert_eq!(stage.event("teardown")["left"], json!([]));
    assert!(!is_up(&stage));
}

#[test]
fn a_container_that_survives_the_stop_is_killed() {
    let stage = Stage::new();
    fs::write(stage.path("deaf"), "").unwrap();
    let mut client = Client::open(&stage, &stubborn(&stage));
    client.finish_without_waiting_for_stdout();
    stage.census.assert_empty();
    assert_eq!(
        engine_calls(&stage),
        [format!("stop -t 1 {ID}"), question(), format!("kill {ID}")]
    );
    assert_eq!(stage.event("teardown")["left"], json!([]));
    // The engine's commands do not run with the keeper's scheduling policy.
    let policies = fs::read_to_string(stage.path("policies")).unwrap();
    assert_eq!(policies, "0\n0\n0\n0\n");
}

#[test]
fn a_container_that_the_engine_cannot_end_is_named_and_not_forgotten() {
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
    let finding = format!("is dead, but container {ID} still runs");
    assert!(told.contains(&finding), "{told}");

    lose(&stage, false);
    let mut next = Client::open(&stage, &obedient(&stage));
    let sweep = stage.event_that("leftovers_ended", |event| event["of"] == id.as_str());
    assert_eq!(sweep["ended"], json!([named()]), "{sweep}");
    assert!(next.finish().0.success());
    stage.census.assert_empty();
}

#[test]
fn a_slow_engine_keeps_no_other_link_waiting() {
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
        engine_calls(&stage).contains(&kill).then_some(())
    });
    let doctor = mainstay().args(["doctor", "--verbose"]).output().unwrap();
    let told = String::from_utf8_lossy(&doctor.stdout);
    assert!(
        told.contains("1 run, and all their keepers answer"),
        "{told}"
    );
    fs::remove_file(stage.path("slow")).unwrap();
    let stopped = stop.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&stopped.stdout);
    assert!(told.contains("0 left"), "{told}");
    client.wait();
    stage.census.assert_empty();
}

#[test]
fn an_engine_command_without_its_daemon_says_nothing_about_the_container() {
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
fn a_killed_engine_command_says_nothing_about_the_container() {
    let stage = Stage::new();
    let options = ["--restart-budget", "0", "--grace-eof", "60s"];
    let mut client = Client::open(&stage, &wrapped(&stage, &options, &[]));
    killers::at_once(&[stage.card().server.unwrap()]);
    client.wait();
    until("the container is stopped", || {
        (!is_up(&stage)).then_some(())
    });
    stage.census.assert_empty();
    assert_eq!(engine_calls(&stage), [format!("stop -t 2 {ID}")]);
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
