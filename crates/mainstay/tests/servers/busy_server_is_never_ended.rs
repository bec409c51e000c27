//! A server that is silent during a call is left alone however long it takes, even if it is blocked or stopped. An idle server is
//! replaced twice in the same time. `--call-deadline` ends only the call, not the server.
//! guards: A server with a call in flight is never ended for being slow.

use crate::support::play::{
    self, answers_probes, called, end, freeze, lives, open, pid, probing, signal, touch,
};
use mainstay_testkit::stage::Stage;
use rustix::process::Signal;
use serde_json::{Value, json};

/// Stops two idle servers, one after the other, and waits until both are replaced. The other server has been silent for as long
/// as that takes.
fn longer_than_two_idle_ones_may_be_silent(stage: &Stage) {
    for name in ["idle-1", "idle-2"] {
        let mut idle = open(stage, &probing(&["--name", name]), &[]);
        let server = answers_probes(stage, &mut idle);
        freeze(server);
        let ended = stage.event_that("restarting", |event| event["server"] == name);
        assert!(ended["why"]["unresponsive"].is_object(), "{ended}");
        assert_ne!(pid(&mut idle), server);
        end(idle);
    }
}

fn left_alone(stage: &Stage) -> bool {
    let of_it = |event: &Value| event["server"] == "busy";
    !stage.events("restarting").iter().any(of_it)
        && !stage.events("probes_unanswered").iter().any(of_it)
}

#[test]
fn a_server_blocked_in_a_call_is_not_ended() {
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

/// The client has cancelled the call, but the server still works on it and does not read the cancellation.
#[test]
fn a_server_blocked_in_a_cancelled_call_is_not_ended_early() {
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
    // The server has also answered our probe by now. It is idle, so it has to answer probes like any other server.
    freeze(server);
    let ended = stage.event_that("restarting", |event| event["server"] == "busy");
    assert!(ended["why"]["unresponsive"].is_object(), "{ended}");
    assert_ne!(pid(&mut client), server);
    end(client);
    stage.census.assert_empty();
}

#[test]
fn a_server_stopped_in_a_call_is_not_ended() {
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

/// A modern server that was started for a long call has not written yet, but its client is already served. The time limit for an
/// opening does not apply to it.
#[test]
fn a_server_started_for_a_long_call_is_not_ended() {
    let stage = Stage::new();
    let options = ["--hibernate", "100ms", "--opening", "8s"];
    let mut client = play::start(&stage, &options, &[]);
    let call = |name: &str| play::modern(json!({"name": name, "arguments": {"until": "done"}}));
    let first = client.wire.request("tools/call", &call("pid")).unwrap();
    let first = first["result"]["structuredContent"]["pid"].as_i64();
    play::gone(first.unwrap());
    let blocked = client.wire.ask("tools/call", &call("block")).unwrap();
    called(&stage, "block");
    // A server that really does not open is reported after that time.
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
