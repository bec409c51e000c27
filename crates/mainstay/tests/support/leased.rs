//! Shared by the tests of leases: the verbs with `--json`, servers in a lease, and what is left on disk.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use mainstay_os::identity;
use mainstay_protocol::ids::Identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::card::{Card, state_dir};
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::Value;

/// The command under test.
pub fn mainstay() -> PathBuf {
    under_test(env!("CARGO_BIN_EXE_mainstay"))
}

/// `mainstay lease` with these words.
pub fn command(stage: &Stage, words: &[&str]) -> Command {
    let mut command = stage.command(mainstay());
    command.arg("lease").args(words);
    command
}

/// Runs `mainstay lease` to its end and returns its JSON.
pub fn lease(stage: &Stage, words: &[&str]) -> Value {
    let output = command(stage, words).arg("--json").output().unwrap();
    told(&output)
}

/// The JSON of a successful command.
pub fn told(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The exit code and stderr of a command that fails.
pub fn refused(stage: &Stage, words: &[&str]) -> (i32, String) {
    let output = command(stage, words).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), stderr)
}

/// `mainstay run` in a lease, for an unruly server with these options.
pub fn argv(stage: &Stage, lease: &str, options: &[&str], habits: &[&str]) -> Vec<OsString> {
    let mut all = vec!["--lease", lease, "--name", "unruly"];
    all.extend(options);
    run(mainstay(), &all, stage.unruly(habits))
}

/// A client with a server in a lease, opened.
pub fn server(stage: &Stage, lease: &str, options: &[&str], habits: &[&str]) -> Client {
    Client::open(stage, &argv(stage, lease, options, habits))
}

/// The card of the link that this client has started.
pub fn card(stage: &Stage, client: &Client) -> Card {
    stage.card_that("is this client's", |card| card.shim == Some(client.who))
}

/// All processes of a link: ours and its tree. The processes of a sweep are left out, because they end by themselves.
pub fn all_processes(stage: &Stage) -> Vec<Identity> {
    let living = stage.census.living();
    let passing = |comm: &str| comm == "mcp-sweep";
    let guards: Vec<_> = stage.cards().iter().filter_map(|card| card.guard).collect();
    living
        .iter()
        .filter(|stat| !passing(&stat.comm))
        .filter(|stat| stat.comm != "mcp-guard" || guards.contains(&stat.who()))
        .map(mainstay_os::census::Stat::who)
        .collect()
}

/// Asserts that none of these processes is alive.
pub fn assert_gone(who: &[Identity]) {
    let left: Vec<_> = who.iter().filter(|who| identity::alive(**who)).collect();
    assert!(left.is_empty(), "still alive: {left:?}");
}

/// All files and directories of leases and links.
pub fn left_on_disk(stage: &Stage) -> Vec<String> {
    let names = |folder: &str| {
        let entries = fs::read_dir(state_dir(stage.home()).join(folder));
        let entries = entries.into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    names("lease").chain(names("run")).collect()
}

/// Waits until no file or directory of leases and links is left.
pub fn until_nothing_on_disk(stage: &Stage) {
    until("no directory is left", || {
        left_on_disk(stage).is_empty().then_some(())
    });
}
