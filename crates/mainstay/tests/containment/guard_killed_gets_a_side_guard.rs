//! SIGKILL to the guard: client and server notice nothing, and a side guard takes its place. It does all that the first guard
//! did: when the keeper is killed next, the session still goes on.
//! guards: A killed guard is replaced, and the next kill is survived as well.

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use serde_json::json;

#[test]
fn a_killed_guard_loses_nothing_and_the_next_kill_is_survived() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let argv = run(
        mainstay,
        // The grace is long, so that the server exits at EOF with its own status. The rest of its tree ignores EOF.
        &["--grace-eof", "60s", "--grace-term", "300ms"],
        stage.unruly(&["--setsid-child", "--daemon-clean-env"]),
    );
    let mut client = Client::open(&stage, &argv);
    let card = stage.card();
    let server = client.wire.call("pid", &json!({})).unwrap()["pid"].clone();
    let in_flight = client
        .wire
        .ask(
            "tools/call",
            &json!({"name": "sleep", "arguments": {"ms": 200}}),
        )
        .unwrap();
    let guard = card.guard.unwrap();
    killers::at_once(&[guard]);
    assert_eq!(
        client.wire.answer(in_flight).unwrap()["result"]["structuredContent"]["slept"],
        200
    );
    let lost = stage.event_that("guard_lost", |event| event["pid"] == guard.pid);
    let beside = stage.card_that("names another guard", |card| card.guard != Some(guard));
    assert_eq!(lost["successor"], json!(beside.guard.unwrap().pid));
    assert_eq!(beside.keeper, card.keeper);
    assert_eq!(client.wire.call("pid", &json!({})).unwrap()["pid"], server);

    let keeper = card.keeper.unwrap();
    killers::at_once(&[keeper]);
    let next = client.wire.call("pid", &json!({})).unwrap()["pid"].clone();
    assert!(next.is_i64() && next != server, "{server} {next}");
    stage.event_that("keeper_lost", |event| event["pid"] == keeper.pid);
    let (status, _) = client.finish();
    assert!(status.success());
    stage.census.assert_empty();
}
