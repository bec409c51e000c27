//! A million small messages, half in each direction, and many pipelined requests: none is lost, doubled or out of order.
//! guards: No message is lost, doubled or reordered under load.

use std::thread;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::unruly::{notification, numbered};
use serde_json::{Value, json};

const HALF: u64 = 500_000;
const CROWD: i64 = 20_000;

fn open(stage: &Stage) -> Client {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    Client::open(stage, &run(mainstay, &[], stage.unruly::<&str>(&[])))
}

#[test]
fn a_million_messages_from_the_client_stay_in_order() {
    let _turn = crate::turn();
    let stage = Stage::new();
    let mut client = open(&stage);
    let mut lines = String::new();
    for number in 0..HALF {
        lines.push_str(&notification(number));
        if lines.len() > 100_000 {
            client.wire.send_bytes(lines.as_bytes()).unwrap();
            lines.clear();
        }
    }
    client.wire.send_bytes(lines.as_bytes()).unwrap();
    let counted = client.wire.call("counted", &json!({})).unwrap();
    assert_eq!(counted, json!({"count": HALF, "out_of_order": 0}));
    assert!(client.finish().0.success());
}

#[test]
fn a_million_messages_from_the_server_stay_in_order() {
    let _turn = crate::turn();
    let stage = Stage::new();
    let mut client = open(&stage);
    let id = client
        .wire
        .ask(
            "tools/call",
            &json!({"name": "notify", "arguments": {"n": HALF}}),
        )
        .unwrap();
    for number in 0..HALF {
        let line = client.wire.line().unwrap().expect("there are more to come");
        assert_eq!(
            numbered(&line),
            Some(number),
            "{}",
            String::from_utf8_lossy(&line)
        );
    }
    assert_eq!(
        client.wire.answer(id).unwrap()["result"]["structuredContent"]["done"],
        true
    );
    assert_eq!(client.finish().1, b"");
}

#[test]
fn many_requests_in_flight_are_all_answered() {
    let _turn = crate::turn();
    let stage = Stage::new();
    let mut client = open(&stage);
    let writer = client
        .wire
        .writer()
        .expect("stdin is open")
        .try_clone()
        .unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut writer = std::fs::File::from(writer);
            for id in 0..CROWD {
                let line =
                    format!("{{\"jsonrpc\":\"2.0\",\"id\":\"c{id}\",\"method\":\"ping\"}}\n");
                std::io::Write::write_all(&mut writer, line.as_bytes()).expect("mainstay reads");
            }
        });
        for id in 0..CROWD {
            let line = client
                .wire
                .line()
                .unwrap()
                .expect("every request is answered");
            let answer: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(
                answer,
                json!({"jsonrpc": "2.0", "id": format!("c{id}"), "result": {}})
            );
        }
    });
    assert_eq!(client.finish().1, b"");
}
