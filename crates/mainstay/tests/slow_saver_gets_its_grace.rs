//! A server that needs 1.5 s after EOF to save its state has them, however the session ended: nobody signals it meanwhile.
//! Its grace is far longer here, so that a slow machine is not taken for a slow server.

use std::fs;

use mainstay_testkit::built::under_test;
use mainstay_testkit::killers;
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::stage::{Stage, run};

/// Ends a session and says what the server managed to write.
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
fn after_eof() {
    let saved = saved_after(|mut puppet| {
        puppet.close();
        Some(puppet)
    });
    assert_eq!(saved, "saved");
}

#[test]
fn after_the_client_was_killed() {
    let saved = saved_after(|puppet| {
        puppet.kill();
        None
    });
    assert_eq!(saved, "saved");
}

#[test]
fn after_claude_killed_the_shim() {
    let saved = saved_after(|puppet| {
        killers::claude(puppet.shims[0]);
        Some(puppet)
    });
    assert_eq!(saved, "saved");
}

#[test]
fn after_copilot_killed_the_tree_of_the_shim() {
    let saved = saved_after(|puppet| {
        killers::copilot(puppet.shims[0]);
        Some(puppet)
    });
    assert_eq!(saved, "saved");
}

#[test]
fn after_codex_killed_the_group_of_the_shim() {
    let saved = saved_after(|puppet| {
        killers::codex(puppet.shims[0]);
        Some(puppet)
    });
    assert_eq!(saved, "saved");
}
