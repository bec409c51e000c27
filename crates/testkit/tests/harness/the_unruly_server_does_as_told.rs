//! The unruly server without mainstay: it answers like an MCP server, and misbehaves as its flags say.
//! guards: The server of the tests misbehaves exactly as its flags say.

use std::os::unix::process::ExitStatusExt;

use mainstay_testkit::client::{Carrier, Client, Launch};
use mainstay_testkit::stage::Stage;
use serde_json::{Value, json};

fn open(stage: &Stage, habits: &[&str]) -> Client {
    Client::open(stage, &stage.unruly(habits))
}

#[test]
fn it_speaks_the_legacy_era() {
    for carrier in [Carrier::Pipes, Carrier::Sockets] {
        let stage = Stage::new();
        let mut client = Launch::new(&stage, &stage.unruly(&[] as &[&str]))
            .carrier(carrier)
            .start();
        let discover = client.wire.request("server/discover", &json!({})).unwrap();
        assert_eq!(discover["error"]["code"], -32601);
        let opened = client.wire.initialize().unwrap();
        assert_eq!(opened["serverInfo"]["name"], "unruly");
        let tools = client.wire.request("tools/list", &json!({})).unwrap();
        assert!(tools["result"]["tools"].as_array().unwrap().len() >= 9);
        assert_eq!(
            client.wire.request("ping", &json!({})).unwrap()["result"],
            json!({})
        );
        assert_eq!(
            client.wire.call("pid", &json!({})).unwrap()["pid"],
            client.who.pid
        );
        let (status, rest) = client.finish();
        assert!(status.success() && rest.is_empty());
    }
}

#[test]
fn requests_can_be_pipelined_and_a_sleeper_holds_up_no_other() {
    let stage = Stage::new();
    let mut client = open(&stage, &[]);
    let slow = client
        .wire
        .ask(
            "tools/call",
            &json!({"name": "sleep", "arguments": {"ms": 80}}),
        )
        .unwrap();
    let quick = client.wire.ask("ping", &json!({})).unwrap();
    client.wire.close_write();
    let first: Value = serde_json::from_slice(&client.wire.line().unwrap().unwrap()).unwrap();
    let second: Value = serde_json::from_slice(&client.wire.line().unwrap().unwrap()).unwrap();
    assert_eq!((&first["id"], &second["id"]), (&json!(quick), &json!(slow)));
    assert_eq!(client.wire.line().unwrap(), None);
}

#[test]
fn it_reports_what_it_was_given() {
    let stage = Stage::new();
    let mut client = Launch::new(&stage, &stage.unruly(&["--exit-code", "7"]))
        .with(|command| command.env("GREETING", "good day").current_dir("/"))
        .start();
    client.wire.initialize().unwrap();
    let given = client.wire.call("env", &json!({})).unwrap();
    assert_eq!(given["env"]["GREETING"], "good day");
    assert_eq!(given["cwd"], "/");
    assert_eq!(given["blocked"], "0000000000000000");
    let fds: Vec<i64> = given["fds"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|fd| fd[0].as_i64())
        .collect();
    // The test runner may have left more descriptors open to us, and so to a bare server.
    assert_eq!(fds[..3], [0, 1, 2]);
    assert_eq!(client.finish().0.code(), Some(7));
}

#[test]
fn it_crashes_on_command() {
    let stage = Stage::new();
    for signal in [6, 9, 11, 15] {
        let mut client = open(&stage, &[]);
        client
            .wire
            .ask(
                "tools/call",
                &json!({"name": "crash", "arguments": {"signal": signal}}),
            )
            .unwrap();
        assert_eq!(client.wait().signal(), Some(signal));
    }
    let mut client = open(&stage, &[]);
    client
        .wire
        .ask(
            "tools/call",
            &json!({"name": "crash", "arguments": {"code": 42}}),
        )
        .unwrap();
    assert_eq!(client.wait().code(), Some(42));
    let mut client = open(&stage, &["--die-mid-line"]);
    client
        .wire
        .ask("tools/call", &json!({"name": "pid"}))
        .unwrap();
    assert_eq!(client.wait().signal(), Some(9));
    assert!(serde_json::from_slice::<Value>(&client.wire.line().unwrap().unwrap()).is_err());
}

#[test]
fn it_dies_at_once_with_a_last_word() {
    let stage = Stage::new();
    let argv = stage.unruly(&[
        "--stderr",
        "no API key",
        "--exit-after-start",
        "--exit-code",
        "3",
    ]);
    let mut client = Launch::new(&stage, &argv).start();
    assert_eq!(client.wait().code(), Some(3));
    assert_eq!(client.stderr_text(), "no API key\n");
}

#[test]
fn it_saves_slowly() {
    let stage = Stage::new();
    let marker = stage.path("marker");
    let mut client = open(
        &stage,
        &["--slow-exit", "50ms", "--marker", marker.to_str().unwrap()],
    );
    assert!(!marker.exists());
    assert!(client.finish().0.success());
    assert_eq!(std::fs::read_to_string(marker).unwrap(), "saved");
}

#[test]
fn it_floods_pads_and_litters() {
    let stage = Stage::new();
    let mut client = open(
        &stage,
        &[
            "--stderr-flood",
            "100000",
            "--junk-lines",
            "--big-result",
            "5000",
        ],
    );
    let said = client.wire.call("echo", &json!({"word": "hello"})).unwrap();
    assert_eq!(
        (&said["word"], said["pad"].as_str().unwrap().len()),
        (&json!("hello"), 5000)
    );
    let big = client
        .wire
        .request(
            "tools/call",
            &json!({"name": "big", "arguments": {"bytes": 300_000}}),
        )
        .unwrap();
    assert_eq!(
        big["result"]["content"][0]["text"].as_str().unwrap().len(),
        300_000
    );
    assert!(client.finish().0.success());
    assert_eq!(client.stderr_text().len(), 100_000);
}

#[test]
fn it_makes_processes_on_demand() {
    let stage = Stage::new();
    let mut client = open(&stage, &[]);
    for kind in [
        "grandchild",
        "setsid",
        "daemon",
        "daemon_clean_env",
        "stopped",
    ] {
        assert_eq!(
            client.wire.call("spawn", &json!({"kind": kind})).unwrap()["spawned"],
            kind
        );
    }
    assert_eq!(stage.census.living().len(), 6);
    let bare = stage.census.living().into_iter().filter(|stat| {
        std::fs::read(format!("/proc/{}/environ", stat.pid))
            .unwrap()
            .is_empty()
    });
    assert_eq!(bare.count(), 1);
    client.wire.close_write();
    stage.census.end_all();
}

#[test]
fn it_counts_its_generations_and_each_has_its_flags() {
    let stage = Stage::new();
    let count = stage.path("count");
    let habits = [
        "--generations",
        count.to_str().unwrap(),
        "--in",
        "2..",
        "--version 2024-11-05 --extra-tool more --exit-code 3 --dies-of add",
    ];
    let tools = |client: &mut Client| {
        let list = client.wire.request("tools/list", &json!({})).unwrap();
        list["result"]["tools"].as_array().unwrap().len()
    };
    let mut first = Launch::new(&stage, &stage.unruly(&habits)).start();
    assert_eq!(
        first.wire.initialize().unwrap()["protocolVersion"],
        "2025-11-25"
    );
    let fewer = tools(&mut first);
    assert_eq!(first.wire.call("add", &json!({})).unwrap()["generation"], 1);
    assert_eq!(first.finish().0.code(), Some(0));
    let mut second = Launch::new(&stage, &stage.unruly(&habits)).start();
    assert_eq!(
        second.wire.initialize().unwrap()["protocolVersion"],
        "2024-11-05"
    );
    assert_eq!(tools(&mut second), fewer + 1);
    assert_eq!(
        second.wire.call("look", &json!({})).unwrap()["generation"],
        2
    );
    assert!(
        second.wire.call("add", &json!({})).is_err(),
        "it dies of it"
    );
    assert_eq!(second.wait().code(), Some(3));
}

#[test]
fn it_remembers_what_it_was_told() {
    let stage = Stage::new();
    let mut client = open(&stage, &[]);
    for (method, params) in [
        ("logging/setLevel", json!({"level": "info"})),
        ("resources/subscribe", json!({"uri": "a:b"})),
        ("resources/subscribe", json!({"uri": "a:c"})),
        ("resources/unsubscribe", json!({"uri": "a:b"})),
    ] {
        let answer = client.wire.request(method, &params).unwrap();
        assert_eq!(answer["result"], json!({}));
    }
    let held = client.wire.call("held", &json!({})).unwrap();
    assert_eq!(
        (&held["level"], &held["subscriptions"]),
        (&json!("info"), &json!(["a:c"]))
    );
    assert_eq!(held["heard"].as_array().map(Vec::len), Some(7), "{held}");
    // When mute, it answers only one kind of request.
    client.wire.call("mute", &json!({})).unwrap();
    client.wire.ask("ping", &json!({})).unwrap();
    let sync = client.wire.ask("unruly/sync", &json!({})).unwrap();
    let line = client.wire.line().unwrap().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&line).unwrap()["id"], sync);
    assert!(client.finish().0.success());
}
