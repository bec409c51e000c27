//! With `--hibernate`, an idle server is ended while its link stays. A ping is answered without a server. The next request starts
//! the server again with the whole replay, and the client notices nothing.
//! guards: A hibernated server costs no process, and the next request starts it with everything that it knew.

use crate::support::play::{
    self, end, gone, methods, modern, open, pid, restarting_event, restarting_events, start, starts,
};
use mainstay_os::census::Stat;
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use serde_json::{Value, json};

const OPTIONS: [&str; 2] = ["--hibernate", "100ms"];

/// Waits until the link reports that it hibernates and only our own processes are left.
fn rests(stage: &Stage, server: i64) {
    gone(server);
    let card = until("the card says resting", || {
        stage
            .cards()
            .into_iter()
            .find(|card| card.json["state"] == "resting")
    });
    assert_eq!(card.json["server"], Value::Null);
    let ours = [card.shim, card.guard, card.keeper];
    // The sweep of this start may still be running.
    until("only our own processes are left", || {
        let living = stage.census.living();
        let ours = |stat: &Stat| ours.contains(&Some(stat.who()));
        living.iter().all(ours).then_some(())
    });
}

/// Sends a request and asserts that its answer is the next line.
fn asks(client: &mut Client, method: &str, params: &Value) -> Value {
    let id = client.wire.ask(method, params).unwrap();
    let answer = play::next(client);
    assert_eq!(answer["id"], id, "{answer}");
    answer
}

#[test]
fn a_hibernated_server_comes_back_with_its_whole_state() {
    let stage = Stage::new();
    let mut client = open(&stage, &OPTIONS, &[]);
    asks(&mut client, "tools/list", &json!({}));
    asks(&mut client, "logging/setLevel", &json!({"level": "info"}));
    let first = pid(&mut client);
    rests(&stage, first);
    assert!(
        restarting_event(&stage, "idle")["why"]["idle"]["ms"]
            .as_u64()
            .unwrap()
            >= 100
    );

    let (before, asleep) = (starts(&stage), methods(&stage).len());
    assert_eq!(asks(&mut client, "ping", &json!({}))["result"], json!({}));
    assert_eq!(
        (starts(&stage), methods(&stage).len()),
        (before, asleep),
        "a ping starts no server"
    );

    let answer = asks(&mut client, "tools/call", &json!({"name": "pid"}));
    let second = answer["result"]["structuredContent"]["pid"]
        .as_i64()
        .unwrap();
    assert_ne!(first, second);
    let replayed = methods(&stage).split_off(asleep);
    assert_eq!(
        replayed[..3],
        [
            "initialize",
            "notifications/initialized",
            "logging/setLevel"
        ]
    );
    rests(&stage, second);
    assert!(restarting_events(&stage, "idle").len() >= 2);
    assert!(stage.events("abandoned").is_empty());
    end(client);
    stage.census.assert_empty();
}

#[test]
fn a_client_that_leaves_a_hibernated_server_does_not_wait() {
    let stage = Stage::new();
    let mut client = open(&stage, &OPTIONS, &[]);
    let server = pid(&mut client);
    rests(&stage, server);
    let before = starts(&stage);
    end(client);
    assert_eq!(starts(&stage), before);
    stage.census.assert_empty();
}

#[test]
fn our_own_probes_do_not_prevent_hibernation() {
    for flags in [&[][..], &["--no-probes"]] {
        let stage = Stage::new();
        let options = [
            "--hibernate",
            "3s",
            "--probe-idle",
            "20ms",
            "--probe-wait",
            "100ms",
            "--probe-lost",
            "2",
        ];
        let mut client = open(&stage, &options, flags);
        let server = pid(&mut client);
        play::noted(&stage, "a probe", |note| note["heard"]["method"] == "ping");
        rests(&stage, server);
        end(client);
        stage.census.assert_empty();
    }
}

#[test]
fn nothing_is_replayed_to_a_hibernated_modern_server() {
    let stage = Stage::new();
    let mut client = start(&stage, &OPTIONS, &[]);
    let call = modern(json!({"name": "pid"}));
    let first = asks(&mut client, "tools/call", &call)["result"]["structuredContent"]["pid"]
        .as_i64()
        .unwrap();
    rests(&stage, first);
    let second = asks(&mut client, "tools/call", &call)["result"]["structuredContent"]["pid"]
        .as_i64()
        .unwrap();
    assert_ne!(first, second);
    assert_eq!(methods(&stage), ["tools/call", "tools/call"]);
    end(client);
    stage.census.assert_empty();
}
