//! `--watch`, and what was saved does not start: every request is answered at once with what is wrong, in which file, and what
//! to do; the mended file is served at once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/play.rs"]
mod play;

use std::fs;

use mainstay_testkit::built::under_test;
use mainstay_testkit::stage::Stage;
use play::{end, open, starts};
use serde_json::{Value, json};

const OPTIONS: [&str; 4] = ["--watch", "src", "--watch-quiet", "20ms"];

fn save(stage: &Stage, text: &str) {
    fs::create_dir_all(stage.path("src")).unwrap();
    // As editors do it.
    fs::write(stage.path("src/.code.py.swp"), text).unwrap();
    fs::rename(stage.path("src/.code.py.swp"), stage.path("src/code.py")).unwrap();
}

fn text_of(answer: &Value) -> &str {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

#[test]
fn told_at_once_and_served_when_mended() {
    let stage = Stage::new();
    save(&stage, "SAYS = 'one'");
    let mut client = open(&stage, &OPTIONS, &[]);
    let says = client.wire.call("pid", &json!({})).unwrap();
    assert_eq!(says["says"], "one");

    for (round, broken, problem) in [
        (1, "SAYS = = 'two'", "SyntaxError: invalid syntax"),
        (2, "SAYS = two", "NameError: name 'two' is not defined"),
    ] {
        save(&stage, broken);
        let abandoned = stage.event_that("abandoned", |event| {
            stage
                .events("abandoned")
                .iter()
                .position(|other| other == event)
                == Some(round - 1)
        });
        let path = abandoned["changed"].as_str().unwrap();
        assert!(path.ends_with("/src/code.py"), "{abandoned}");
        // One look at it is enough: it was not started again and again.
        assert_eq!(stage.events("start").len(), 1 + round);

        let answer = client
            .wire
            .request("tools/call", &json!({"name": "pid"}))
            .unwrap();
        let text = text_of(&answer);
        let begin = format!(
            "MCP server 'plain' is not running: {path} has changed, and what is there now does not start (exit code 1); the version \
             before it was ended, tools/call was not sent to anybody; mend the file: it is started as soon as a watched file \
             changes; besides, it is tried again every 60 s"
        );
        assert!(text.starts_with(&begin), "{text}\n{begin}");
        assert!(text.contains(problem), "{text}");
        let answer = client.wire.request("tools/list", &json!({})).unwrap();
        assert_eq!(answer["error"]["data"]["reason"], "abandoned", "{answer}");
    }

    let mut events = stage.command(under_test(env!("CARGO_BIN_EXE_mainstay")));
    let events = events.args(["events"]).output().unwrap();
    let events = String::from_utf8(events.stdout).unwrap();
    assert!(
        events.contains(
            "src/code.py has changed and does not start: exit code 1; waits for the next change"
        ),
        "{events}"
    );

    save(&stage, "SAYS = 'three'");
    stage.event_that("start", |event| event["generation"] == 4);
    let says = client.wire.call("pid", &json!({})).unwrap();
    assert_eq!(says["says"], "three");
    assert_eq!(starts(&stage), 2, "the broken ones never got so far");
    end(client);
    stage.census.assert_empty();
}

#[test]
fn a_request_on_its_way_is_answered_with_it_too() {
    let stage = Stage::new();
    save(&stage, "SAYS = 'one'");
    let mut client = open(&stage, &OPTIONS, &[]);
    let call = json!({"name": "block", "arguments": {"until": "done"}});
    let blocked = client.wire.ask("tools/call", &call).unwrap();
    play::called(&stage, "block");
    save(&stage, "raise SystemExit('no database')");
    play::renewal(&stage, "changed");
    let held = client
        .wire
        .ask("tools/call", &json!({"name": "pid"}))
        .unwrap();
    play::touch(&stage, "done");
    let answer = client.wire.answer(blocked).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["says"], "one");
    let answer = client.wire.answer(held).unwrap();
    let text = text_of(&answer);
    assert!(
        text.contains("src/code.py has changed") && text.contains("no database"),
        "{text}"
    );
    save(&stage, "SAYS = 'two'");
    stage.event_that("start", |event| event["generation"] == 3);
    let says = client.wire.call("pid", &json!({})).unwrap();
    assert_eq!(says["says"], "two");
    end(client);
    stage.census.assert_empty();
}

#[test]
fn out_of_abandoned_for_another_reason() {
    let stage = Stage::new();
    save(&stage, "SAYS = 'one'");
    let options = [&OPTIONS[..], &["--restart-budget", "1"]].concat();
    let mut client = open(&stage, &options, &[]);
    client
        .wire
        .request("tools/call", &json!({"name": "die"}))
        .unwrap();
    let answer = client
        .wire
        .request("tools/call", &json!({"name": "pid"}))
        .unwrap();
    assert!(
        text_of(&answer).contains("is not running: it ended once within"),
        "{answer}"
    );
    save(&stage, "SAYS = 'two'");
    stage.event_that("start", |event| event["generation"] == 2);
    let says = client.wire.call("pid", &json!({})).unwrap();
    assert_eq!(says["says"], "two");
    end(client);
    stage.census.assert_empty();
}
