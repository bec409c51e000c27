//! Keepers, alone or with their guards, are killed faster than they may be replaced. The process that gives up first ends the
//! tree, including daemons, and the shim reports what happened.
//! guards: When we give up after too many kills, the tree is ended first.

use mainstay_os::identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::card::Card;
use mainstay_testkit::client::Launch;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use serde_json::json;

/// Far more than are replaced within a minute, also on a machine where each takes seconds.
const TIMES: usize = 60;
/// The documented exit code for a fault of ours.
const FAILED: i32 = 125;

#[test]
fn repeatedly_killed_keepers_leave_no_process() {
    given_up(|card| vec![card.keeper.unwrap()]);
}

#[test]
fn repeatedly_killed_guards_and_keepers_leave_no_process() {
    given_up(|card| vec![card.guard.unwrap(), card.keeper.unwrap()]);
}

fn given_up(victims: fn(&Card) -> Vec<mainstay_protocol::ids::Identity>) {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let argv = run(
        mainstay,
        &["--restart-budget", "1000"],
        stage.unruly(&["--grandchild", "--setsid-child", "--daemon"]),
    );
    let mut client = Launch::new(&stage, &argv).start();
    client.wire.initialize().expect("the server opens");
    let mut card = stage.card();
    let mut rounds = 0;
    let last = loop {
        let killed = victims(&card);
        killers::at_once(&killed);
        let keeper = card.keeper.expect("a keeper");
        if client.wire.request("ping", &json!({})).is_err() {
            break keeper;
        }
        card = stage.card_that("names another pair", |card| {
            [card.guard, card.keeper]
                .iter()
                .flatten()
                .all(|who| !killed.contains(who) && identity::alive(*who))
        });
        rounds += 1;
        assert!(
            rounds < TIMES,
            "the link was never given up: {}",
            stage.story()
        );
    };
    assert_eq!(client.wait().code(), Some(FAILED));
    stage.census.assert_empty();
    let said = client.stderr_text();
    assert!(said.contains("killed too often"), "{said}");
    assert!(said.contains("mainstay events"), "{said}");
    let told = stage.event_that("keeper_lost", |event| event["successor"].is_null());
    assert_eq!(told["pid"], last.pid, "{told}");
    assert_eq!(stage.events("keeper_lost").len(), rounds + 1);
}
