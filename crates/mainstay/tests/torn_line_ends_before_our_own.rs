//! A server that dies in the middle of a long line: the newline that ends it comes before answers of ours that have waited
//! for that end, so that each of them is a line of its own.

use std::ffi::OsString;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Launch;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::json;

/// Begins a line that is too long to be held, and never ends it.
const SERVER: &str = r#"trap "" TERM
printf '{"jsonrpc":"2.0","method":"x","params":"'
head -c 200000 /dev/zero | tr '\0' a
while :; do sleep 1; done"#;

#[test]
fn an_answer_that_waited_is_a_line() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let options = ["--name", "torn", "--grace-eof", "1s", "--grace-term", "1s"];
    let server: Vec<OsString> = ["sh", "-c", SERVER].map(OsString::from).into();
    let mut client = Launch::new(&stage, &run(mainstay, &options, server)).start();
    until("half a line is on its way", || {
        client.wire.readable().then_some(())
    });
    let mut stop = stage
        .command(under_test(env!("CARGO_BIN_EXE_mainstay")))
        .args(["stop", "torn"])
        .spawn()
        .unwrap();
    stage.card_that("is being stopped", |card| card.json["state"] == "stopping");
    let id = client.wire.ask("ping", &json!({})).unwrap();
    let torn = client.wire.line().unwrap().expect("half a line");
    assert!(torn.starts_with(b"{\"jsonrpc\"") && torn.len() > 100_000);
    let answer = client.wire.line().unwrap().expect("the answer");
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["id"], id);
    client.finish();
    stop.wait().unwrap();
    stage.census.assert_empty();
}
