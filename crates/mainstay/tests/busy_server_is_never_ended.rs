//! However long a server is silent over a call, it is left alone: blocked, or even stopped, while the same silence has ended
//! an idle one twice. Only what the user allows for a call ends the call, and that not the server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/play.rs"]
mod play;

use mainstay_testkit::stage::Stage;
use play::{answers_probes, called, end, freeze, lives, open, pid, probing, signal, touch};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Two servers are stopped while they are idle and are ended for it, one after the other: as long as that takes, the other
/// one has been silent, too.
fn longer_than_two_idle_ones_may_be_silent(stage: &Stage) {
    for name in ["idle-1", "idle-2"] {
        let mut idle = open(stage, &probing(&["--name", name]), &[]);
        let server = answers_probes(stage, &mut idle);
        freeze(server);
        let ended = stage.event_that("renewal", |event| event["server"] == name);
        assert!(ended["why"]["unresponsive"].is_object(), "{ended}");
        assert_ne!(pid(&mut idle), server);
        end(idle);
    }
}

fn left_alone(stage: &Stage) -> bool {
    let of_it = |event: &Value| event["server"] == "busy";
    !stage.events("renewal").iter().any(of_it)
        && !stage.events("probes_unanswered").iter().any(of_it)
}

#[test]
fn blocked_in_a_call() {
    let stage = Stage::new();
    let mut client = open(&stage, &probing(&["--name", "busy"]), &[]);
    let server = answers_probes(&stage, &mut client);
    let call = json!({"name": "block", "arguments": {"until": "done"}});
    let call = client.wire.ask("tools/call", &call).unwrap();
    called(&stage, "block");
    longer_than_two_idle_ones_may_be_silent(&stage);
    assert!(lives(server) && left_alone(&stage));
    touch(&stage, "done");
    let answer = client.wire.answer(call).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["pid"], server);
    assert_eq!(pid(&mut client), server);
    end(client);
    stage.census.assert_empty();
}

/// The client has given the call up, but the server is still at it and hears nothing of that.
#[test]
fn blocked_in_a_call_that_was_cancelled() {
    let stage = Stage::new();
    let mut client = open(&stage, &probing(&["--name", "busy"]), &[]);
    let server = answers_probes(&stage, &mut client);
    let call = json!({"name": "block", "arguments": {"until": "done"}});
    let call = client.wire.ask("tools/call", &call).unwrap();
    called(&stage, "block");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}});
    client.wire.send(&cancel).unwrap();
    longer_than_two_idle_ones_may_be_silent(&stage);
    assert!(lives(server) && left_alone(&stage));
    touch(&stage, "done");
    client.wire.answer(call).unwrap();
    assert_eq!(pid(&mut client), server);
    // It has heard the question that it was asked meanwhile, too: it is free, and has to be there as any other.
    freeze(server);
    let ended = stage.event_that("renewal", |event| event["server"] == "busy");
    assert!(ended["why"]["unresponsive"].is_object(), "{ended}");
    assert_ne!(pid(&mut client), server);
    end(client);
    stage.census.assert_empty();
}

#[test]
fn stopped_in_a_call() {
    let stage = Stage::new();
    let mut client = open(&stage, &probing(&["--name", "busy"]), &[]);
    let server = answers_probes(&stage, &mut client);
    let call = json!({"name": "block", "arguments": {"until": "done"}});
    let call = client.wire.ask("tools/call", &call).unwrap();
    called(&stage, "block");
    freeze(server);
    touch(&stage, "done");
    longer_than_two_idle_ones_may_be_silent(&stage);
    assert!(lives(server) && left_alone(&stage));
    signal(server, Signal::CONT);
    let answer = client.wire.answer(call).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["pid"], server);
    end(client);
    stage.census.assert_empty();
}

/// A modern server that was woken for a long call has said nothing yet, but its client is served already: the time that an
/// opening may take is not for it.
#[test]
fn woken_for_a_long_call() {
    let stage = Stage::new();
    let options = ["--hibernate", "100ms", "--opening", "8s"];
    let mut client = play::start(&stage, &options, &[]);
    let call = |name: &str| play::modern(json!({"name": name, "arguments": {"until": "done"}}));
    let first = client.wire.request("tools/call", &call("pid")).unwrap();
    let first = first["result"]["structuredContent"]["pid"].as_i64();
    play::gone(first.unwrap());
    let blocked = client.wire.ask("tools/call", &call("block")).unwrap();
    called(&stage, "block");
    // One that really does not open is told of after that time.
    let mut silent = play::start(
        &stage,
        &["--opening", "8s", "--name", "silent"],
        &["--gate", "gate"],
    );
    silent.wire.request("tools/list", &json!({})).unwrap();
    stage.event_that("opening_silent", |event| event["server"] == "silent");
    touch(&stage, "done");
    let answer = client.wire.answer(blocked).unwrap();
    assert!(
        answer["result"]["structuredContent"]["pid"].is_i64(),
        "{answer}"
    );
    touch(&stage, "gate");
    silent.finish();
    end(client);
    stage.census.assert_empty();
}
