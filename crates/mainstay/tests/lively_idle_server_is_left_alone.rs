//! No answer to a probe is not yet a reason: a server that computes, that writes, that never has answered a probe, or whose
//! keeper was asleep itself, stays.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/play.rs"]
mod play;

use mainstay_os::census;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::{idle, until};
use play::{answers_probes, end, freeze, methods, noted, open, pid, probing, signal, starts};
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

/// Probes that a server leaves lying while it is otherwise occupied: many times what an idle and silent one may.
const LEFT: usize = 8;
/// Bytes that it writes, one every ten milliseconds: for longer than an idle and silent one may leave probes unanswered.
const BYTES: usize = 250;

#[test]
fn while_it_computes() {
    let stage = Stage::new();
    let mut client = open(&stage, &probing(&[]), &[]);
    let server = answers_probes(&stage, &mut client);
    client.wire.call("burn", &json!({"probes": LEFT})).unwrap();
    noted(&stage, "done with it", |note| note["burnt"] == true);
    assert_eq!(pid(&mut client), server);
    assert!(play::renewals(&stage, "unresponsive").is_empty());
    end(client);
    stage.census.assert_empty();
}

#[test]
fn while_it_writes() {
    let stage = Stage::new();
    let mut client = open(&stage, &probing(&[]), &[]);
    let server = answers_probes(&stage, &mut client);
    client
        .wire
        .call("dribble", &json!({"bytes": BYTES}))
        .unwrap();
    // It reads no probe meanwhile. Whether each byte comes in time to put the next one off is the machine's affair.
    noted(&stage, "done with it", |note| note["dribbled"] == BYTES);
    assert_eq!(pid(&mut client), server);
    assert!(play::renewals(&stage, "unresponsive").is_empty());
    end(client);
    stage.census.assert_empty();
}

#[test]
fn if_it_never_answered_one() {
    let stage = Stage::new();
    let mut client = open(&stage, &probing(&[]), &["--no-probes"]);
    let server = pid(&mut client);
    let learned = stage.event("probes_unanswered");
    assert_eq!(learned["lost"], 2, "{learned}");
    let asked = methods(&stage)
        .iter()
        .filter(|method| *method == "ping")
        .count();
    assert_eq!(asked, 2);
    // Whatever becomes of it, it is not asked again; as long as it took to learn that of another one, it stands still.
    freeze(server);
    let other = open(&stage, &probing(&["--name", "other"]), &["--no-probes"]);
    stage.event_that("probes_unanswered", |event| event["server"] == "other");
    end(other);
    assert!(play::renewals(&stage, "unresponsive").is_empty());
    signal(server, Signal::CONT);
    assert_eq!(pid(&mut client), server);
    end(client);
    stage.census.assert_empty();
}

#[test]
fn while_the_machine_sleeps() {
    let stage = Stage::new();
    let options = [
        "--probe-idle",
        "20ms",
        "--probe-wait",
        "300ms",
        "--probe-lost",
        "10",
    ];
    let mut client = open(&stage, &options, &[]);
    let server = answers_probes(&stage, &mut client);
    let keeper = stage.card().keeper.unwrap().pid;
    freeze(keeper.into());
    freeze(server);
    // It wakes up a dozen times for a moment, each time long after the answer was due, and goes to sleep again.
    for _ in 0..12 {
        idle(Duration::from_millis(500));
        signal(keeper.into(), Signal::CONT);
        until("the keeper has looked around", || {
            (census::stat(keeper).unwrap().state == b'S').then_some(())
        });
        freeze(keeper.into());
    }
    signal(server, Signal::CONT);
    signal(keeper.into(), Signal::CONT);
    assert_eq!(pid(&mut client), server);
    assert_eq!(starts(&stage), 1);
    assert!(play::renewals(&stage, "unresponsive").is_empty());
    end(client);
    stage.census.assert_empty();
}
