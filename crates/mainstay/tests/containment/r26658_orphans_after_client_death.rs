//! Report 26658: a session with ten servers behind npx ends by exit, crash, terminal close or kill, and the servers stay for
//! ever, session after session. This test repeats each step, and no process is left.
//! guards: No process of a server's tree outlives its client, however the client ends.

use mainstay_testkit::built::under_test;
use mainstay_testkit::killers;
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::terminal::Terminal;
use mainstay_testkit::wait::until;

/// "Each session spawns ~10 MCP server processes."
const SERVERS: u32 = 10;

/// `claude -> npm exec @playwright/mcp -> node playwright-mcp`. The last one ignores EOF and has a browser.
fn session(stage: &Stage, plan: Plan) -> Puppet {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let habits = ["--launcher", "2", "--ignore-eof", "--setsid-child"];
    let argv = run(
        mainstay,
        &["--grace-eof", "300ms", "--grace-term", "300ms"],
        stage.unruly(&habits),
    );
    let mut puppet = Puppet::start(
        stage,
        Plan {
            copies: Some(SERVERS),
            ..plan
        },
        &argv,
    );
    assert!(puppet.call_pids().iter().all(Option::is_some));
    // Shim, guard, keeper, witness, two launchers, server and browser. A sweep runs too for a moment and ends by itself.
    until("eight processes for each server", || {
        (stage.census.living().len() == 8 * SERVERS as usize).then_some(())
    });
    puppet
}

#[test]
fn a_normal_exit_of_the_client_leaves_no_orphan() {
    let stage = Stage::new();
    let puppet = session(&stage, Plan::default());
    // Claude Code does this at /exit: it kills each process that it started, then exits.
    for &shim in &puppet.shims {
        killers::claude(shim);
    }
    puppet.exit();
    stage.census.assert_empty();
}

#[test]
fn a_client_exit_without_cleanup_leaves_no_orphan() {
    let stage = Stage::new();
    session(&stage, Plan::default()).exit();
    stage.census.assert_empty();
}

#[test]
fn a_closed_terminal_leaves_no_orphan() {
    let stage = Stage::new();
    let terminal = Terminal::open().expect("a terminal is to be had");
    session(
        &stage,
        Plan {
            terminal: Some(terminal),
            ..Plan::default()
        },
    )
    .hang_up();
    stage.census.assert_empty();
}

#[test]
fn a_crashed_client_leaves_no_orphan() {
    let stage = Stage::new();
    session(&stage, Plan::default()).crash();
    stage.census.assert_empty();
}

#[test]
fn a_killed_client_leaves_no_orphan() {
    let stage = Stage::new();
    session(&stage, Plan::default()).kill();
    stage.census.assert_empty();
}

#[test]
fn days_of_normal_use_leave_no_orphan() {
    // "~80 orphaned processes total from ~8 dead sessions": nothing accumulates.
    let stage = Stage::new();
    for _ in 0..8 {
        session(&stage, Plan::default()).kill();
        stage.census.assert_empty();
    }
}
