//! With `--watch`, a saved version does not start. Every request is answered at once with what is wrong, in which file, and what
//! to do. Once the file is repaired, it is served at once.
//! guards: With `--watch`, a version that does not start is explained in every answer until the file is repaired.

use std::fs;

use crate::support::play::{self, end, open, starts};
use mainstay_testkit::built::under_test;
use mainstay_testkit::stage::Stage;
use serde_json::{Value, json};

const OPTIONS: [&str; 4] = ["--watch", "src", "--watch-quiet", "20ms"];

fn save(stage: &Stage, text: &str) {
    fs::create_dir_all(stage.path("src")).unwrap();
    // Editors save like this: they write a new file and rename it.
    fs::write(stage.path("src/.code.py.swp"), text).unwrap();
    fs::rename(stage.path("src/.code.py.swp"), stage.path("src/code.py")).unwrap();
}

fn text_of(answer: &Value) -> &str {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

#[test]
fn a_broken_new_version_is_explained_at_once_and_served_when_repaired() {
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
        // The broken version was started once, not again and again.
        assert_eq!(stage.events("start").len(), 1 + round);

        let answer = client
            .wire
            .request("tools/call", &json!({"name": "pid"}))
            .unwrap();
        let text = text_of(&answer);
        let begin = format!(
            "MCP server 'plain' is not running: {path} has changed, and what is there now does not start (exit code 1); the version \
             before it was ended, tools/call was not sent to a server; fix the file: it is started as soon as a watched file \
             changes; in addition, it is tried again every 60 s"
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
fn a_request_in_flight_gets_the_same_explanation() {
    let stage = Stage::new();
    save(&stage, "SAYS = 'one'");
    let mut client = open(&stage, &OPTIONS, &[]);
    let call = json!({"name": "block", "arguments": {"until": "done"}});
    let blocked = client.wire.ask("tools/call", &call).unwrap();
    play::called(&stage, "block");
    save(&stage, "raise SystemExit('no database')");
    play::restarting_event(&stage, "changed");
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
fn a_server_that_was_given_up_for_another_reason_comes_back() {
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
