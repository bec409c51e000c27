//! The start event, `ps` and `doctor` agree on which tier holds a tree and why no stronger one does.
//! guards: The start event, `ps` and `doctor` agree on the tier and on why no stronger one is used.

use std::path::PathBuf;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::{Stage, run};
use serde_json::{Value, json};

fn mainstay() -> PathBuf {
    under_test(env!("CARGO_BIN_EXE_mainstay"))
}

fn said(stage: &Stage, words: &[&str]) -> String {
    let output = stage.command(mainstay()).args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn json(stage: &Stage, words: &[&str]) -> Value {
    serde_json::from_str(&said(stage, words)).unwrap()
}

fn pair(value: &Value) -> (Value, Value) {
    assert!(value["why_not"].is_array(), "{value}");
    (value["tier"].clone(), value["why_not"].clone())
}

/// Runs a session with these options. Returns tier and reasons from its start event and asserts that `ps` and `events` agree.
fn session(stage: &Stage, options: &[&str]) -> (Value, Value) {
    let argv = run(mainstay(), options, stage.unruly::<&str>(&[]));
    let mut client = Client::open(stage, &argv);
    stage.card();
    let told = pair(&stage.event("start"));
    assert_eq!(pair(&json(stage, &["ps", "--json"])[0]), told);
    let (tree, words) = (
        said(stage, &["ps", "--tree"]),
        said(stage, &["events", "-v"]),
    );
    for why in told.1.as_array().unwrap() {
        let line = format!("not {}: ", why["tier"].as_str().unwrap());
        assert!(tree.contains(&format!("\n{line}")), "{tree}");
        assert!(words.contains(&format!("\n          {line}")), "{words}");
    }
    assert!(client.finish().0.success());
    stage.census.assert_empty();
    told
}

#[test]
fn start_event_ps_and_doctor_agree_on_the_strongest_tier() {
    let stage = Stage::new();
    let told = session(&stage, &["--grace-eof", "60s"]);
    let doctor = json(&stage, &["doctor", "--json"]);
    assert_eq!(pair(&doctor["containment"]), told);
}

#[test]
fn start_event_and_ps_agree_on_a_requested_tier() {
    let stage = Stage::new();
    let told = session(&stage, &["--tier", "subreaper", "--grace-eof", "60s"]);
    // The user asked for this tier, so no reason against a stronger one is given.
    assert_eq!(told, (json!("subreaper"), json!([])));
}
