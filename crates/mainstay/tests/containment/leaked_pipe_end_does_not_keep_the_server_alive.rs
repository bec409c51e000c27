//! The client's write end of our stdin has leaked to another process, so EOF never comes. The server still ends when the client
//! is dead.
//! guards: A leaked copy of the client's pipe does not keep a server alive after the client's death.

use std::ffi::OsString;
use std::fs;

use mainstay_os::identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::killers;
use mainstay_testkit::puppet::{Leak, Plan, Puppet};
use mainstay_testkit::stage::{Stage, run};

fn start(stage: &Stage, leak: Leak) -> Puppet {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let options = ["--grace-eof", "300ms", "--grace-term", "300ms"];
    let argv = run(
        mainstay,
        &options,
        stage.unruly(&["--grandchild", "--daemon"]),
    );
    Puppet::start(
        stage,
        Plan {
            leak,
            ..Plan::default()
        },
        &argv,
    )
}

#[test]
fn the_server_ends_if_the_pipe_end_has_leaked_to_the_clients_command() {
    let stage = Stage::new();
    start(&stage, Leak::Command).kill();
    stage.census.assert_empty();
}

/// A launcher in front of the server. It opens its keeper's stdin for writing and so holds the client's own end.
const TAKES_THE_END: &str =
    "read pid name state keeper rest < /proc/$PPID/stat; exec 9>/proc/$keeper/fd/0; exec \"$@\"";

/// Processes of the tree hold the client's end of the pipe open. Then the client is killed.
fn held_within_the_tree(habits: &[&str]) {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let mut server: Vec<OsString> = ["sh", "-c", TAKES_THE_END, "sh"].map(Into::into).to_vec();
    server.extend(stage.unruly(habits));
    let options = ["--grace-eof", "300ms", "--grace-term", "300ms"];
    let puppet = Puppet::start(&stage, Plan::default(), &run(mainstay, &options, server));
    let card = stage.card();
    let keeper = card.keeper.expect("the card names it").pid;
    let pipe = fs::read_link(format!("/proc/{keeper}/fd/0")).expect("the keeper's stdin");
    let holders = stage.census.members_beside(&[]);
    assert_eq!(holders.len(), 1 + habits.len(), "{holders:?}");
    for holder in holders {
        let held = fs::read_link(format!("/proc/{}/fd/9", holder.pid)).ok();
        assert_eq!(held.as_ref(), Some(&pipe), "{holder:?}");
        let about = fs::read_to_string(format!("/proc/{}/fdinfo/9", holder.pid));
        let about = about.expect("it was there a moment ago");
        let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
        // The last digit of the flags is O_WRONLY.
        assert!(flags.is_some_and(|flags| flags.ends_with('1')), "{about}");
    }
    puppet.kill();
    stage.census.assert_empty();
    let teardown = stage.event("teardown");
    assert_eq!(teardown["cause"], "client_gone", "EOF never comes");
}

#[test]
fn the_server_ends_if_it_holds_the_pipe_end_itself() {
    held_within_the_tree(&[]);
}

#[test]
fn the_server_ends_if_its_detached_child_holds_the_pipe_end() {
    held_within_the_tree(&["--setsid-child"]);
}

#[test]
fn the_server_ends_if_the_pipe_end_has_leaked_to_a_sibling() {
    let stage = Stage::new();
    let puppet = start(&stage, Leak::Sibling);
    let sibling = puppet.sibling.expect("a sibling was asked for");
    killers::at_once(&[puppet.who]);
    stage.census.assert_empty();
    assert!(identity::alive(sibling), "the sibling is not ours to end");
}

#[test]
fn a_leaked_pipe_end_changes_nothing_while_the_client_lives() {
    for leak in [Leak::Command, Leak::Sibling] {
        let stage = Stage::new();
        let mut puppet = start(&stage, leak);
        assert!(puppet.call_pids()[0].is_some());
        assert!(puppet.call_pids()[0].is_some());
        puppet.exit();
        stage.census.assert_empty();
    }
}
