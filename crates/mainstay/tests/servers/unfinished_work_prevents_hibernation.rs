//! `--hibernate` does not end a server with a call in flight, a subscription, an open listening request, a question to the
//! client, or a task that is not done. Each keeps its server running while idle links with the same options hibernate. When it is
//! over, that server hibernates too.
//! guards: A server with unfinished work is never hibernated.

use std::fs;

use crate::support::play::{self, called, end, gone, lives, modern, open, pid, start, touch};
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use serde_json::json;

const HELD: [&str; 4] = ["--hibernate", "100ms", "--name", "held"];

/// A client has started something with this server. Three idle links hibernate, one after the other, while it still runs. Then
/// the work ends, and it hibernates too.
fn holds(stage: &Stage, mut client: Client, server: i64, over: impl FnOnce(&mut Client)) {
    let rests = || {
        let all = stage.events("restarting");
        all.iter().filter(|event| event["server"] == "held").count()
    };
    let before = rests();
    for _ in 0..3 {
        let mut idle = open(stage, &["--hibernate", "100ms", "--name", "idle"], &[]);
        let server = pid(&mut idle);
        gone(server);
        end(idle);
    }
    assert!(lives(server), "it was put to rest");
    assert_eq!(rests(), before);
    over(&mut client);
    gone(server);
    until("an event says so", || (rests() > before).then_some(()));
    client.finish();
    stage.census.assert_empty();
}

#[test]
fn a_call_in_flight_prevents_hibernation() {
    let stage = Stage::new();
    let mut client = open(&stage, &HELD, &[]);
    let call = json!({"name": "block", "arguments": {"until": "done"}});
    client.wire.ask("tools/call", &call).unwrap();
    let server = called(&stage, "block")["pid"].as_i64().unwrap();
    holds(&stage, client, server, |client| {
        touch(&stage, "done");
        assert!(play::next(client)["result"].is_object());
    });
}

#[test]
fn a_subscription_prevents_hibernation() {
    let stage = Stage::new();
    let about = json!({"uri": "plain:1"});
    let mut client = open(&stage, &HELD, &[]);
    client.wire.request("resources/subscribe", &about).unwrap();
    let server = pid(&mut client);
    holds(&stage, client, server, |client| {
        client
            .wire
            .request("resources/unsubscribe", &about)
            .unwrap();
    });
}

#[test]
fn an_open_listening_request_prevents_hibernation() {
    let stage = Stage::new();
    let mut client = start(&stage, &HELD, &[]);
    let wish = modern(json!({"notifications": {"toolsListChanged": true}}));
    let listen = client.wire.ask("subscriptions/listen", &wish).unwrap();
    let granted = play::next(&mut client);
    assert_eq!(
        granted["method"],
        "notifications/subscriptions/acknowledged"
    );
    let call = modern(json!({"name": "pid"}));
    let answer = client.wire.request("tools/call", &call).unwrap();
    let server = answer["result"]["structuredContent"]["pid"]
        .as_i64()
        .unwrap();
    holds(&stage, client, server, |client| {
        let params = json!({"requestId": listen});
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        client.wire.send(&cancel).unwrap();
    });
}

#[test]
fn a_request_to_the_client_prevents_hibernation() {
    let stage = Stage::new();
    let mut client = open(&stage, &HELD, &[]);
    let call = client
        .wire
        .ask("tools/call", &json!({"name": "ask"}))
        .unwrap();
    let asked = play::next(&mut client);
    assert_eq!(asked["method"], "roots/list");
    client.wire.answer(call).unwrap();
    let server = pid(&mut client);
    holds(&stage, client, server, |client| {
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}});
        client.wire.send(&answer).unwrap();
    });
}

#[test]
fn an_unfinished_task_prevents_hibernation() {
    let stage = Stage::new();
    let mut client = open(&stage, &HELD, &[]);
    let call = json!({"name": "task", "arguments": {"ttl": null}});
    let answer = client.wire.request("tools/call", &call).unwrap();
    assert_eq!(answer["result"]["task"]["status"], "working");
    let server = pid(&mut client);
    holds(&stage, client, server, |client| {
        fs::write(stage.path("status"), "completed").unwrap();
        client
            .wire
            .request("tasks/get", &json!({"taskId": "t1"}))
            .unwrap();
    });
}

#[test]
fn an_abandoned_task_prevents_hibernation_for_its_own_time() {
    let stage = Stage::new();
    let mut client = start(&stage, &["--hibernate", "100ms"], &[]);
    let call = modern(json!({"name": "task", "arguments": {"ttlMs": 300}}));
    let answer = client.wire.request("tools/call", &call).unwrap();
    assert_eq!(answer["result"]["resultType"], "task");
    let rested = play::restarting_event(&stage, "idle");
    assert!(
        rested["why"]["idle"]["ms"].as_u64().unwrap() >= 300,
        "{rested}"
    );
    end(client);
    stage.census.assert_empty();
}
