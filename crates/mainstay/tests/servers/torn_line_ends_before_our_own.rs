//! A server dies in the middle of a long line. The newline that ends the torn line comes before our own answers, so that each
//! answer is a line of its own.
//! guards: Our own lines are never glued to a line that a dead server left unfinished.

use std::ffi::OsString;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Launch;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::json;

/// Starts a line that is too long to be held, and never ends it.
const SERVER: &str = r#"trap "" TERM
printf '{"jsonrpc":"2.0","method":"x","params":"'
head -c 200000 /dev/zero | tr '\0' a
while :; do sleep 1; done"#;

#[test]
fn our_answer_after_a_torn_line_is_a_line_of_its_own() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    // The server does not exit before it is killed, however long the rest takes, and none of our own answers waits for these
    // times.
    let options = [
        "--name",
        "torn",
        "--grace-eof",
        "10m",
        "--grace-term",
        "10m",
    ];
    let server: Vec<OsString> = ["sh", "-c", SERVER].map(OsString::from).into();
    let mut client = Launch::new(&stage, &run(mainstay, &options, server)).start();
    until("half a line is on its way", || {
        client.wire.readable().then_some(())
    });
    // `stop` finds a server by its card, which is written after the server was started.
    stage.card();
    let mut stop = stage
        .command(under_test(env!("CARGO_BIN_EXE_mainstay")))
        .args(["stop", "torn"])
        .spawn()
        .unwrap();
    let card = stage.card_that("is being stopped", |card| card.json["state"] == "stopping");
    let id = client.wire.ask("ping", &json!({})).unwrap();
    let to = client.wire.writer().unwrap();
    until("it is taken", || {
        (rustix::io::ioctl_fionread(to).unwrap() == 0).then_some(())
    });
    killers::at_once(&[card.server.unwrap()]);
    let torn = client.wire.line().unwrap().expect("half a line");
    assert!(torn.starts_with(b"{\"jsonrpc\"") && torn.len() > 100_000);
    let answer = client.wire.line().unwrap().expect("the answer");
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["id"], id);
    client.finish();
    stop.wait().unwrap();
    stage.census.assert_empty();
}
