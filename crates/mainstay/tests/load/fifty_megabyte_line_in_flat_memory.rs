//! The memory of a link does not depend on the size of a message: a line of 50 MB passes in either direction while our own
//! processes grow by less than 1 MB.
//! guards: The memory of a link does not depend on the size of a message.

use std::fs;

use mainstay_os::identity::Handle;
use mainstay_protocol::ids::Identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::card::members;
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};

const BIG: usize = 50_000_000;
/// The size of a first exchange that touches the same code, so that its pages are not counted as growth.
const WARM: usize = 2_000_000;
const GROWTH_KIB: u64 = 1_000;

#[test]
fn fifty_megabyte_lines_pass_in_both_directions() {
    let _turn = crate::turn();
    let (stage, client) = opened();
    passes(&stage, client, |client, bytes| {
        big(client, &json!({"bytes": bytes}), bytes);
        let padded = json!({"pad": "y".repeat(bytes)});
        assert!(client.wire.call("pid", &padded).unwrap()["pid"].is_i64());
    });
}

#[test]
fn a_fifty_megabyte_line_with_its_id_last_passes_after_a_restart() {
    let _turn = crate::turn();
    let (stage, client) = opened();
    let first = stage.card().server.expect("it runs");
    let handle = Handle::open(first).expect("it runs");
    handle.signal(Signal::KILL).expect("it is ours");
    stage.event("ready");
    passes(&stage, client, |client, bytes| {
        big(client, &json!({"bytes": bytes, "id_last": true}), bytes);
    });
}

fn opened() -> (Stage, Client) {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let client = Client::open(&stage, &run(mainstay, &[], stage.unruly::<&str>(&[])));
    (stage, client)
}

/// Asks for a result of that many bytes and reads it.
fn big(client: &mut Client, arguments: &Value, bytes: usize) {
    let params = json!({"name": "big", "arguments": arguments});
    let answer = client.wire.request("tools/call", &params);
    let answer = answer.expect("it is answered");
    let text = answer["result"]["content"][0]["text"].as_str();
    assert_eq!(text.map(str::len), Some(bytes));
}

/// Asserts that our processes do not grow with the size of an exchange.
fn passes(stage: &Stage, mut client: Client, exchange: impl Fn(&mut Client, usize)) {
    let card = stage.card();
    let ours: Vec<Identity> = [card.shim, card.guard, card.keeper]
        .into_iter()
        .flatten()
        .collect();
    exchange(&mut client, WARM);
    // Waits for work that is done only once, a second after the start.
    until("the tree is noted", || {
        (!members(&card.dir).is_empty()).then_some(())
    });
    let before: Vec<u64> = ours.iter().map(|&who| peak_kib(who)).collect();
    exchange(&mut client, BIG);
    for (who, before) in ours.iter().zip(before) {
        let after = peak_kib(*who);
        // The kernel's counters are approximate, so a second look may show less.
        assert!(
            after.saturating_sub(before) < GROWTH_KIB,
            "pid {who} grew from {before} to {after} KiB"
        );
    }
    assert!(client.finish().0.success());
    stage.census.assert_empty();
}

/// The largest resident set so far.
fn peak_kib(who: Identity) -> u64 {
    let status = fs::read_to_string(format!("/proc/{who}/status")).expect("it lives");
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok())
        .expect("the kernel tells the peak")
}
