//! The server's own end is ours: its code, or 128 + n for a signal, also when it dies in the middle of a session.

use std::os::unix::process::ExitStatusExt;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::stage::{Stage, run};
use serde_json::{Value, json};

fn open(stage: &Stage, habits: &[&str]) -> Client {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    Client::open(stage, &run(mainstay, &[], stage.unruly(habits)))
}

#[test]
fn after_a_clean_end() {
    for code in ["0", "3", "77", "255"] {
        let stage = Stage::new();
        let (status, rest) = open(&stage, &["--exit-code", code]).finish();
        assert_eq!(
            status.code().map(|code| code.to_string()).as_deref(),
            Some(code)
        );
        assert_eq!(rest, b"");
        stage.census.assert_empty();
        let exit = stage.event("exit");
        assert_eq!(
            exit["status"],
            json!({"code": code.parse::<i32>().unwrap()})
        );
    }
}

#[test]
fn after_a_death_in_the_middle() {
    for (how, code) in [
        (json!({"code": 42}), 42),
        (json!({"signal": 6}), 128 + 6),
        (json!({"signal": 9}), 128 + 9),
        (json!({"signal": 11}), 128 + 11),
        (json!({"signal": 15}), 128 + 15),
    ] {
        let stage = Stage::new();
        let mut client = open(&stage, &[]);
        let id = client
            .wire
            .ask("tools/call", &json!({"name": "crash", "arguments": how}))
            .unwrap();
        // The request that it died of is answered, once.
        let answer = client.wire.answer(id).unwrap();
        assert!(
            answer.get("error").is_some() || answer["result"]["isError"] == true,
            "{answer}"
        );
        assert_eq!(client.wire.rest().unwrap(), b"");
        let status = client.wait();
        assert_eq!(
            (status.code(), status.signal()),
            (Some(code), None),
            "{how}"
        );
        stage.census.assert_empty();
        assert_eq!(stage.event("exit")["in_flight"], 1);
    }
}

#[test]
fn half_a_line_is_ended_before_the_answer() {
    let stage = Stage::new();
    let mut client = open(&stage, &["--die-mid-line"]);
    let id = client
        .wire
        .ask("tools/call", &json!({"name": "pid"}))
        .unwrap();
    let rest = client.wire.rest().unwrap();
    let lines: Vec<&[u8]> = rest
        .split(|&b| b == b'\n')
        .filter(|line| !line.is_empty())
        .collect();
    let answers = lines
        .iter()
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    assert_eq!(
        answers.filter(|answer| answer["id"] == id).count(),
        1,
        "{}",
        String::from_utf8_lossy(&rest)
    );
    assert!(rest.ends_with(b"\n"));
    assert_eq!(client.wait().code(), Some(137));
    stage.census.assert_empty();
}

#[test]
fn after_a_kill_of_the_shim_it_is_the_kill() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let argv = run(
        mainstay,
        &["--grace-eof", "200ms"],
        stage.unruly::<&str>(&[]),
    );
    for signal in [
        rustix::process::Signal::TERM,
        rustix::process::Signal::INT,
        rustix::process::Signal::HUP,
    ] {
        let mut client = Launch::new(&stage, &argv).start();
        client.wire.initialize().unwrap();
        mainstay_os::identity::Handle::open(client.who)
            .unwrap()
            .signal(signal)
            .unwrap();
        let status = client.wait();
        let told = status
            .signal()
            .or_else(|| status.code().map(|code| code - 128));
        assert_eq!(told, Some(signal.as_raw()), "{status:?}");
        stage.census.assert_empty();
    }
}
