//! A missing answer to a probe is not enough to replace a server. A server stays if it computes, if it writes, if it has never
//! answered a probe, or if its keeper was asleep itself.
//! guards: A server that does not answer a probe is not replaced while it shows any sign of life.

use crate::support::play::{
    self, answers_probes, end, freeze, methods, noted, open, pid, probing, signal, starts,
};
use mainstay_os::census;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::{idle, until};
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

/// The number of probes that a busy server leaves unread: many times what an idle and silent server may.
const LEFT: usize = 8;
/// The number of bytes that it writes, one every ten milliseconds: for longer than an idle and silent server may leave probes
/// unanswered.
const BYTES: usize = 250;

#[test]
fn an_idle_server_that_computes_is_left_alone() {
    let stage = Stage::new();
    let mut client = open(&stage, &probing(&[]), &[]);
    let server = answers_probes(&stage, &mut client);
    client.wire.call("burn", &json!({"probes": LEFT})).unwrap();
    noted(&stage, "done with it", |note| note["burnt"] == true);
    assert_eq!(pid(&mut client), server);
    assert!(play::restarting_events(&stage, "unresponsive").is_empty());
    end(client);
    stage.census.assert_empty();
}

#[test]
fn an_idle_server_that_writes_is_left_alone() {
    let stage = Stage::new();
    let mut client = open(&stage, &probing(&[]), &[]);
    let server = answers_probes(&stage, &mut client);
    client
        .wire
        .call("dribble", &json!({"bytes": BYTES}))
        .unwrap();
    // It reads no probe meanwhile. Whether each byte comes in time to postpone the next probe depends on the machine.
    noted(&stage, "done with it", |note| note["dribbled"] == BYTES);
    assert_eq!(pid(&mut client), server);
    assert!(play::restarting_events(&stage, "unresponsive").is_empty());
    end(client);
    stage.census.assert_empty();
}

#[test]
fn an_idle_server_that_never_answered_a_probe_is_left_alone() {
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
    // Nothing that follows makes us probe it again. It stands still for as long as it took to learn that of another server.
    freeze(server);
    let other = open(&stage, &probing(&["--name", "other"]), &["--no-probes"]);
    stage.event_that("probes_unanswered", |event| event["server"] == "other");
    end(other);
    assert!(play::restarting_events(&stage, "unresponsive").is_empty());
    signal(server, Signal::CONT);
    assert_eq!(pid(&mut client), server);
    end(client);
    stage.census.assert_empty();
}

#[test]
fn an_idle_server_is_left_alone_while_the_machine_sleeps() {
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
    // The keeper wakes up a dozen times for a moment, each time long after the answer was due, and sleeps again.
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
    assert!(play::restarting_events(&stage, "unresponsive").is_empty());
    end(client);
    stage.census.assert_empty();
}
