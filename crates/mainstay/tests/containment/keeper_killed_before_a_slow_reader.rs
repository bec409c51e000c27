//! SIGKILL to the keeper while answers wait in it because the client does not read. Each request is still answered, and every
//! line after the torn one is whole.
//! guards: A keeper that is killed with unread answers in its buffers leaves no request without an answer.

use std::collections::BTreeSet;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Carrier, Launch};
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use serde_json::{Value, json};

/// More than the client's pipe holds, less than pipe and keeper together.
const REQUESTS: usize = 120;
const BYTES: usize = 1_000;

#[test]
fn every_request_is_answered_if_the_keeper_is_killed_before_a_slow_reader() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let argv = run(mainstay, &[], stage.unruly::<&str>(&[]));
    let mut client = Launch::new(&stage, &argv).carrier(Carrier::Pipes).start();
    client.wire.initialize().unwrap();
    let keeper = stage.card().keeper.unwrap();
    let text = "x".repeat(BYTES);
    let arguments = json!({"name": "echo", "arguments": {"text": text}});
    let mut open: BTreeSet<i64> = (0..REQUESTS)
        .map(|_| client.wire.ask("tools/call", &arguments).unwrap())
        .collect();
    // The first answer has arrived, so the others are in the keeper or in the pipe.
    let first: Value = serde_json::from_slice(&client.wire.line().unwrap().unwrap()).unwrap();
    open.remove(&first["id"].as_i64().unwrap());
    killers::at_once(&[keeper]);
    stage.event_that("keeper_lost", |event| event["pid"] == keeper.pid);
    while !open.is_empty() {
        let line = client.wire.line().unwrap().expect("all are answered");
        // The kill tore one line, which is no message.
        let answer: Value = serde_json::from_slice(&line).unwrap_or_default();
        if let Some(id) = answer["id"].as_i64() {
            open.remove(&id);
        }
    }
    client.finish();
    stage.census.assert_empty();
}
