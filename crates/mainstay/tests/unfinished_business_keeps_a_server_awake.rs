//! What forbids `--hibernate`: a call in flight, a subscription, an open listen, a question to the client, a task that is not
//! done. Each holds its server while another link, idle under the same options, goes to rest; when it is over, so does
//! its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/play.rs"]
mod play;

use std::fs;

use mainstay_testkit::client::Client;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use play::{called, end, gone, lives, modern, open, pid, start, touch};
use serde_json::json;

const HELD: [&str; 4] = ["--hibernate", "100ms", "--name", "held"];

/// Somebody has begun something with this server; then three idle links go to rest, one after the other; then it ends.
fn holds(stage: &Stage, mut client: Client, server: i64, over: impl FnOnce(&mut Client)) {
    let rests = || {
        let all = stage.events("renewal");
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
fn a_call_in_flight() {
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
fn a_subscription() {
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
fn an_open_listen() {
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
fn a_question_to_the_client() {
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
fn a_task_that_is_not_done() {
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
fn a_task_that_nobody_asks_about_any_more_holds_it_for_its_own_time() {
    let stage = Stage::new();
    let mut client = start(&stage, &["--hibernate", "100ms"], &[]);
    let call = modern(json!({"name": "task", "arguments": {"ttlMs": 300}}));
    let answer = client.wire.request("tools/call", &call).unwrap();
    assert_eq!(answer["result"]["resultType"], "task");
    let rested = play::renewal(&stage, "idle");
    assert!(
        rested["why"]["idle"]["ms"].as_u64().unwrap() >= 300,
        "{rested}"
    );
    end(client);
    stage.census.assert_empty();
}
