//! `--watch`: a saved file is served by the next generation, after what was in flight; many writes are one change; what version
//! control and builds write is none.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/play.rs"]
mod play;

use std::fs;

use mainstay_testkit::client::Client;
use mainstay_testkit::stage::Stage;
use play::{called, end, lives, open, renewal, renewals, starts, touch};
use serde_json::{Value, json};

fn write(stage: &Stage, file: &str, text: &str) {
    let file = stage.path(file);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn says(client: &mut Client) -> Value {
    client.wire.call("pid", &json!({})).unwrap()["says"].clone()
}

#[test]
fn the_new_code_serves_after_what_is_in_flight() {
    let stage = Stage::new();
    write(&stage, "src/code.py", "SAYS = 'one'");
    let mut client = open(
        &stage,
        &["--watch", "src/code.py", "--watch-quiet", "20ms"],
        &[],
    );
    assert_eq!(says(&mut client), "one");
    let call = json!({"name": "block", "arguments": {"until": "done"}});
    let blocked = client.wire.ask("tools/call", &call).unwrap();
    let old = called(&stage, "block")["pid"].as_i64().unwrap();

    write(&stage, "src/code.py", "SAYS = 'two'");
    let told = renewal(&stage, "changed");
    assert_eq!(told["in_flight"], 1, "{told}");
    let path = told["why"]["changed"]["path"].as_str().unwrap();
    assert!(path.ends_with("/src/code.py"), "{path}");
    let next = client
        .wire
        .ask("tools/call", &json!({"name": "pid"}))
        .unwrap();
    assert!(lives(old) && starts(&stage) == 1);
    touch(&stage, "done");
    let answer = play::next(&mut client);
    let content = &answer["result"]["structuredContent"];
    assert_eq!(
        (&answer["id"], &content["pid"], &content["says"]),
        (&json!(blocked), &json!(old), &json!("one"))
    );
    let answer = play::next(&mut client);
    let content = &answer["result"]["structuredContent"];
    assert_eq!(
        (&answer["id"], &content["says"]),
        (&json!(next), &json!("two"))
    );
    assert!(!lives(old));
    end(client);
    stage.census.assert_empty();
}

#[test]
fn many_quick_writes_are_one_change() {
    let stage = Stage::new();
    write(&stage, "src/code.py", "SAYS = 0");
    // Longer than any two of these writes are apart on a slow machine.
    let mut client = open(&stage, &["--watch", "src", "--watch-quiet", "5s"], &[]);
    for n in 1..=10 {
        write(&stage, "src/code.py", &format!("SAYS = {n}"));
        write(&stage, &format!("src/part-{n}.py"), "");
    }
    renewal(&stage, "changed");
    assert_eq!(says(&mut client), 10);
    // A second one, so that the first is known to have been all.
    write(&stage, "src/code.py", "SAYS = 11");
    stage.event_that("renewal", |event| event["generation"] == 2);
    assert_eq!(says(&mut client), 11);
    assert_eq!((renewals(&stage, "changed").len(), starts(&stage)), (2, 3));
    end(client);
    stage.census.assert_empty();
}

#[test]
fn version_control_and_builds_are_no_change() {
    let stage = Stage::new();
    write(&stage, "src/code.py", "SAYS = 'one'");
    for place in [
        "src/.git",
        "src/__pycache__",
        "src/node_modules/x",
        "src/target/debug",
    ] {
        write(&stage, &format!("{place}/index"), "");
    }
    let mut client = open(&stage, &["--watch", "src", "--watch-quiet", "20ms"], &[]);
    for noise in [
        "src/.git/index",
        "src/.git/refs/heads/new",
        "src/__pycache__/code.cpython-311.pyc",
        "src/node_modules/x/index",
        "src/target/debug/index",
        "src/.code.py.swp",
        "src/code.py~",
    ] {
        write(&stage, noise, "noise");
    }
    assert_eq!(says(&mut client), "one");
    write(&stage, "src/deep/new.py", "");
    let told = renewal(&stage, "changed");
    let path = told["why"]["changed"]["path"].as_str().unwrap();
    assert!(path.contains("/src/deep"), "{path}");
    says(&mut client);
    assert_eq!(renewals(&stage, "changed").len(), 1);
    end(client);
    stage.census.assert_empty();
}
