//! `printf … | mainstay run -- server` prints the answers: EOF does not cut off answers that are still due.
//! guards: Every request before EOF is answered.

use std::collections::BTreeSet;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Carrier, Launch};
use mainstay_testkit::stage::{Stage, run};
use serde_json::{Value, json};

#[test]
fn every_request_before_eof_is_answered() {
    for carrier in [Carrier::Pipes, Carrier::Sockets] {
        let stage = Stage::new();
        let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
        let argv = run(mainstay, &[], stage.unruly(&["--exit-code", "5"]));
        let mut client = Launch::new(&stage, &argv).carrier(carrier).start();
        let asked: BTreeSet<i64> = [
            (
                "initialize",
                json!({"protocolVersion": "2025-11-25", "capabilities": {}}),
            ),
            ("tools/list", json!({})),
            (
                "tools/call",
                json!({"name": "sleep", "arguments": {"ms": 250}}),
            ),
            (
                "tools/call",
                json!({"name": "big", "arguments": {"bytes": 300_000}}),
            ),
            ("ping", json!({})),
        ]
        .iter()
        .map(|(method, params)| client.wire.ask(method, params).unwrap())
        .collect();
        let (status, rest) = client.finish();
        let mut answered = Vec::new();
        for line in rest.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            let answer: Value = serde_json::from_slice(line).unwrap();
            assert!(answer.get("result").is_some(), "{answer}");
            answered.push(answer["id"].as_i64().unwrap());
        }
        assert_eq!(answered.len(), asked.len());
        assert_eq!(answered.into_iter().collect::<BTreeSet<_>>(), asked);
        assert_eq!(status.code(), Some(5));
        stage.census.assert_empty();
    }
}

#[test]
fn a_shell_pipeline_prints_answers_after_eof() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let script = r#"printf '{"jsonrpc":"2.0","id":1,"method":"ping"}\n{"jsonrpc":"2.0","id":2,"method":"ping"}' | "$@""#;
    let argv = run(mainstay, &[], stage.unruly::<&str>(&[]));
    let output = stage
        .command("sh")
        .args(["-c", script, "sh"])
        .args(argv)
        .output()
        .unwrap();
    // The last request has no newline and still counts.
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        answers
            .iter()
            .map(|answer| &answer["id"])
            .collect::<Vec<_>>(),
        [&json!(1), &json!(2)]
    );
    assert!(output.status.success());
    stage.census.assert_empty();
}
