//! With `--lazy`, a client that only opens, lists and pings starts no server, and the link is listed as `resting`. The first call
//! starts the server, which is opened as the client was told.
//! guards: A lazy server is started by the first real call and not before.

use crate::support::play::{self, end, learn, lives, methods, modern, next, pid, start, starts};
use mainstay_testkit::built::under_test;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use serde_json::{Value, json};

fn ps(stage: &Stage, words: &[&str]) -> String {
    let mut command = stage.command(under_test(env!("CARGO_BIN_EXE_mainstay")));
    let output = command.arg("ps").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The row of `ps` for the one link, once it has this state.
fn ps_says(stage: &Stage, state: &str) -> Value {
    until(&format!("ps says {state}"), || {
        let all: Value = serde_json::from_str(&ps(stage, &["--json"])).unwrap();
        (all[0]["state"] == state).then(|| all[0].clone())
    })
}

#[test]
fn a_lazy_server_does_not_start_before_the_first_call() {
    let stage = Stage::new();
    learn(&stage, &["--lazy"], &[]);
    let before = (starts(&stage), methods(&stage).len());
    assert_eq!(before.0, 1, "without a record the opening needs the server");

    let mut client = start(&stage, &["--lazy"], &[]);
    client.wire.initialize().unwrap();
    client.wire.request("tools/list", &json!({})).unwrap();
    client.wire.request("ping", &json!({})).unwrap();
    let resting = ps_says(&stage, "resting");
    assert_eq!(
        (&resting["pid"], &resting["generation"]),
        (&Value::Null, &json!(0)),
        "{resting}"
    );
    assert!(ps(&stage, &[]).contains("resting"));
    assert_eq!(starts(&stage), 1);

    let call = client
        .wire
        .ask("tools/call", &json!({"name": "pid"}))
        .unwrap();
    let answer = next(&mut client);
    assert_eq!(
        answer["id"], call,
        "the lists are the same: nothing else is told"
    );
    let server = answer["result"]["structuredContent"]["pid"]
        .as_i64()
        .unwrap();
    assert!(lives(server));
    let heard = methods(&stage).split_off(before.1);
    assert_eq!(heard[..2], ["initialize", "notifications/initialized"]);
    assert_eq!(
        heard
            .iter()
            .filter(|method| *method == "tools/call")
            .count(),
        1
    );
    assert_eq!(ps_says(&stage, "ready")["pid"], server);
    end(client);
    stage.census.assert_empty();
}

#[test]
fn a_lazy_modern_server_does_not_start_before_the_first_call() {
    let stage = Stage::new();
    let ask = modern(json!({}));
    let mut client = start(&stage, &["--lazy"], &[]);
    client.wire.request("server/discover", &ask).unwrap();
    client.wire.request("tools/list", &ask).unwrap();
    end(client);
    assert_eq!(starts(&stage), 1);

    let mut client = start(&stage, &["--lazy"], &[]);
    client.wire.request("server/discover", &ask).unwrap();
    client.wire.request("tools/list", &ask).unwrap();
    ps_says(&stage, "resting");
    assert_eq!(starts(&stage), 1);
    let call = modern(json!({"name": "pid"}));
    let answer = client.wire.request("tools/call", &call).unwrap();
    assert!(
        answer["result"]["structuredContent"]["pid"].is_i64(),
        "{answer}"
    );
    assert_eq!(starts(&stage), 2);
    end(client);
    stage.census.assert_empty();
}

#[test]
fn a_client_that_tries_the_modern_era_first_starts_no_server() {
    let stage = Stage::new();
    let options = ["--lazy"];
    let legacy = ["--legacy"];
    for (session, started) in [(1, 1), (2, 1), (3, 1)] {
        let mut client = start(&stage, &options, &legacy);
        let ask = modern(json!({}));
        let refused = client.wire.request("server/discover", &ask).unwrap();
        assert_eq!(
            refused["error"],
            json!({"code": -32601, "message": "no server/discover here"}),
            "session {session}"
        );
        client.wire.initialize().unwrap();
        client.wire.request("tools/list", &json!({})).unwrap();
        assert_eq!(starts(&stage), started, "session {session}");
        end(client);
    }
    let asked = methods(&stage);
    let asked = asked.iter().filter(|method| *method == "server/discover");
    assert_eq!(
        asked.count(),
        1,
        "it was asked once, and that is remembered"
    );
    stage.census.assert_empty();
}

#[test]
fn a_client_that_never_calls_never_starts_a_lazy_server() {
    let stage = Stage::new();
    learn(&stage, &["--lazy"], &[]);
    for _ in 0..3 {
        learn(&stage, &["--lazy"], &[]);
    }
    assert_eq!(starts(&stage), 1);
    let mut client = play::open(&stage, &["--lazy"], &[]);
    pid(&mut client);
    end(client);
    assert_eq!(starts(&stage), 2);
    stage.census.assert_empty();
}
