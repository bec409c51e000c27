//! `--hibernate`: an idle server goes, its link stays; a ping is answered without it; the next request starts it again with
//! everything that it had been told, and the client notices nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/play.rs"]
mod play;

use mainstay_os::census::Stat;
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use play::{end, gone, methods, modern, open, pid, renewal, renewals, start, starts};
use serde_json::{Value, json};

const OPTIONS: [&str; 2] = ["--hibernate", "100ms"];

/// The link says that it rests, and nobody but our own processes is there.
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
    // The sweep of its start may still be on its way out.
    until("nobody else is there", || {
        let living = stage.census.living();
        let ours = |stat: &Stat| ours.contains(&Some(stat.who()));
        living.iter().all(ours).then_some(())
    });
}

/// Nothing is on its way to the client but the answer to what it asks now.
fn asks(client: &mut Client, method: &str, params: &Value) -> Value {
    let id = client.wire.ask(method, params).unwrap();
    let answer = play::next(client);
    assert_eq!(answer["id"], id, "{answer}");
    answer
}

#[test]
fn it_goes_and_comes_back_with_all_it_knew() {
    let stage = Stage::new();
    let mut client = open(&stage, &OPTIONS, &[]);
    asks(&mut client, "tools/list", &json!({}));
    asks(&mut client, "logging/setLevel", &json!({"level": "info"}));
    let first = pid(&mut client);
    rests(&stage, first);
    assert!(
        renewal(&stage, "idle")["why"]["idle"]["ms"]
            .as_u64()
            .unwrap()
            >= 100
    );

    let (before, asleep) = (starts(&stage), methods(&stage).len());
    assert_eq!(asks(&mut client, "ping", &json!({}))["result"], json!({}));
    assert_eq!(
        (starts(&stage), methods(&stage).len()),
        (before, asleep),
        "a ping wakes nobody"
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
    assert!(renewals(&stage, "idle").len() >= 2);
    assert!(stage.events("abandoned").is_empty());
    end(client);
    stage.census.assert_empty();
}

#[test]
fn a_client_that_goes_meanwhile_is_let_go_at_once() {
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
fn questions_of_our_own_do_not_keep_it_awake() {
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
fn in_the_modern_era_there_is_nothing_to_tell() {
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
