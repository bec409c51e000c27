//! With `--watch`, a saved file is served by the next generation once the requests in flight are answered. Many writes in a row
//! are one change. Files that version control and builds write do not count.
//! guards: With `--watch`, a saved file brings the next generation only after the requests in flight are answered.

use std::fs;

use crate::support::play::{
    self, called, end, lives, open, restarting_event, restarting_events, starts, touch,
};
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::Stage;
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
    let told = restarting_event(&stage, "changed");
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
    // Longer than the time between any two of these writes on a slow machine.
    let mut client = open(&stage, &["--watch", "src", "--watch-quiet", "5s"], &[]);
    for n in 1..=10 {
        write(&stage, "src/code.py", &format!("SAYS = {n}"));
        write(&stage, &format!("src/part-{n}.py"), "");
    }
    restarting_event(&stage, "changed");
    assert_eq!(says(&mut client), 10);
    // The second change shows that the first one caused no further restart.
    write(&stage, "src/code.py", "SAYS = 11");
    stage.event_that("restarting", |event| event["generation"] == 2);
    assert_eq!(says(&mut client), 11);
    assert_eq!(
        (restarting_events(&stage, "changed").len(), starts(&stage)),
        (2, 3)
    );
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
    let told = restarting_event(&stage, "changed");
    let path = told["why"]["changed"]["path"].as_str().unwrap();
    assert!(path.contains("/src/deep"), "{path}");
    says(&mut client);
    assert_eq!(restarting_events(&stage, "changed").len(), 1);
    end(client);
    stage.census.assert_empty();
}
