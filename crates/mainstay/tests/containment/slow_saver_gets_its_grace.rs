//! A server that needs 1.5 s after EOF to save its state gets that time, however the session ended, and no signal meanwhile. The
//! grace is far longer here, so that a slow machine does not look like a slow server.
//! guards: A server gets its grace to save its state, however hastily the client kills the shim.

use std::fs;

use mainstay_testkit::built::under_test;
use mainstay_testkit::killers;
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::stage::{Stage, run};

/// Ends a session and returns what the server managed to write.
fn saved_after(end: impl FnOnce(Puppet) -> Option<Puppet>) -> String {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let marker = stage.path("marker");
    let server = stage.unruly(&[
        "--slow-exit",
        "1500ms",
        "--marker",
        marker.to_str().expect("a plain path"),
    ]);
    let puppet = Puppet::start(
        &stage,
        Plan {
            own_group: true,
            ..Plan::default()
        },
        &run(mainstay, &["--linger", "0", "--grace-eof", "60s"], server),
    );
    let client = end(puppet);
    stage.census.assert_empty();
    drop(client);
    fs::read_to_string(marker).unwrap_or_default()
}

#[test]
fn a_slow_server_gets_its_grace_after_eof() {
    let saved = saved_after(|mut puppet| {
        puppet.close();
        Some(puppet)
    });
    assert_eq!(saved, "saved");
}

#[test]
fn a_slow_server_gets_its_grace_after_its_client_was_killed() {
    let saved = saved_after(|puppet| {
        puppet.kill();
        None
    });
    assert_eq!(saved, "saved");
}

#[test]
fn a_slow_server_gets_its_grace_after_claude_killed_the_shim() {
    let saved = saved_after(|puppet| {
        killers::claude(puppet.shims[0]);
        Some(puppet)
    });
    assert_eq!(saved, "saved");
}

#[test]
fn a_slow_server_gets_its_grace_after_copilot_killed_the_tree() {
    let saved = saved_after(|puppet| {
        killers::copilot(puppet.shims[0]);
        Some(puppet)
    });
    assert_eq!(saved, "saved");
}

#[test]
fn a_slow_server_gets_its_grace_after_codex_killed_the_group() {
    let saved = saved_after(|puppet| {
        killers::codex(puppet.shims[0]);
        Some(puppet)
    });
    assert_eq!(saved, "saved");
}
