//! A server in a container: the engine's command gets a cid file, and the ladder stops the container by its id. The engine here is a
//! stand-in that writes down how it is called; crates/testkit/scripts/podman-check shows whether a real one can run.

use std::ffi::OsString;
use std::fs;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Source, Stage, run};
use serde_json::json;

const ID: &str = "4f5e6d7c8b9a";

/// A `docker` whose `run` writes the cid file and becomes the server, and that otherwise only notes its words.
fn engine(stage: &Stage, habits: &[&str]) -> Vec<OsString> {
    let (docker, log) = (stage.path("docker"), stage.path("log"));
    let policies = stage.path("policies");
    let server: Vec<String> = stage
        .unruly(habits)
        .iter()
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> '{}'\ncut -d' ' -f41 /proc/self/stat >> '{}'\n[ \"$1\" = run ] || exit 0\n[ \"$2\" = --cidfile ] || exit 9\n\
         echo {ID} > \"$3\"\nexec {}\n",
        log.display(),
        policies.display(),
        server.join(" ")
    );
    stage.program(&docker, Source::Text(&script));
    vec![
        docker.into(),
        "run".into(),
        "-i".into(),
        "--rm".into(),
        "mcp/time".into(),
    ]
}

fn calls(stage: &Stage) -> Vec<String> {
    let text = fs::read_to_string(stage.path("log")).unwrap_or_default();
    text.lines().map(str::to_string).collect()
}

/// One that obeys has all the time that it needs, on a slow machine as well.
fn obedient(stage: &Stage) -> Vec<OsString> {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    run(mainstay, &["--grace-eof", "60s"], engine(stage, &[]))
}

fn stubborn(stage: &Stage) -> Vec<OsString> {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let graces = ["--grace-eof", "200ms", "--grace-term", "1s"];
    let habits = ["--ignore-eof", "--ignore-term"];
    run(mainstay, &graces, engine(stage, &habits))
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
}

#[test]
fn a_container_that_does_not_is_stopped_and_then_killed() {
    let stage = Stage::new();
    let mut client = Client::open(&stage, &stubborn(&stage));
    client.finish_without_waiting_for_stdout();
    stage.census.assert_empty();
    assert_eq!(
        calls(&stage)[1..],
        [format!("stop -t 1 {ID}"), format!("kill {ID}")]
    );
    // Whoever speaks for us does not wait for its turn as the keeper does.
    let policies = fs::read_to_string(stage.path("policies")).unwrap();
    assert_eq!(policies, "0\n0\n0\n");
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
