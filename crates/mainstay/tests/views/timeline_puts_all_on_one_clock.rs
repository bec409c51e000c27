//! `mainstay events --timeline` shows events, signals, ends of pipes and frames in one order.
//! guards: `events --timeline` shows events, signals and frames in the order in which they happened.

use crate::support::scene::{self, Scene, mainstay};
use mainstay_os::identity::Handle;
use mainstay_testkit::stage::Stage;
use rustix::process::Signal;
use serde_json::{Value, json};

fn timeline(stage: &Stage, words: &[&str]) -> Vec<Value> {
    let mut command = stage.command(mainstay());
    let command = command.args(["events", "--timeline", "--json"]).args(words);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    scene::messages(&output.stdout)
}

/// One word for each row.
fn words(rows: &[Value]) -> Vec<String> {
    let word = |row: &Value| {
        if let Some(event) = row.get("event") {
            let pipe = event["pipe"].as_str();
            return pipe.map_or_else(|| event["event"].as_str().unwrap().into(), Into::into);
        }
        let frame = row.get("frame").or_else(|| row.get("brief")).unwrap();
        let method = frame["method"].as_str().unwrap_or("-");
        format!(
            "{} {} {method}",
            frame["from"].as_str().unwrap(),
            frame["kind"].as_str().unwrap()
        )
    };
    rows.iter().map(word).collect()
}

#[test]
fn the_timeline_has_the_messages_of_a_recording() {
    let stage = Stage::new();
    let path = stage.path("frames.jsonl");
    let argv = scene::argv(
        &stage,
        &["--linger", "0", "--record", path.to_str().unwrap()],
        &[],
    );
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    scene.call("echo", &json!({"text": "hello"}));
    let shim = scene.stage.card().shim.unwrap();
    Handle::open(shim).unwrap().signal(Signal::TERM).unwrap();
    scene.stage.event("teardown");
    scene.client.wait();
    let rows = timeline(&scene.stage, &["--server", "unruly"]);
    assert_eq!(
        words(&rows),
        [
            "start",
            "client request initialize",
            "server response initialize",
            "client notification notifications/initialized",
            "client request tools/call",
            "server response tools/call",
            "signal",
            "server_stdout",
            "exit",
            "teardown"
        ]
    );
    assert!(rows[4]["frame"]["body"].as_str().unwrap().contains("hello"));
    let at = |row: &Value| row["at"].as_str().unwrap().to_owned();
    assert!(rows.iter().map(at).is_sorted());
    assert!(
        rows.iter()
            .all(|row| row["since_ms"].is_u64() && row["server"] == "unruly")
    );
    let mut shown = scene.stage.command(mainstay());
    let shown = shown.args(["events", "--timeline"]).output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains("  unruly  c→s   tools/call "), "{text}");
    assert!(text.contains("  unruly  signal  SIGTERM from "), "{text}");
}

#[test]
fn the_timeline_without_a_recording_has_the_messages_in_the_events() {
    let mut scene = Scene::open(&[], &[]);
    scene.call("echo", &json!({"text": "hello"}));
    scene.client.finish();
    scene.stage.event("teardown");
    let rows = timeline(&scene.stage, &[]);
    let words = words(&rows);
    let place = |word: &str| {
        let found = words.iter().filter(|other| *other == word).count();
        assert_eq!(found, 1, "{word}: {words:?}");
        words.iter().position(|other| other == word).unwrap()
    };
    assert!(place("start") < place("client request tools/call"));
    assert!(place("client request tools/call") < place("server response tools/call"));
    assert!(place("server response tools/call") < place("client_stdin"));
    assert!(place("client_stdin") < place("exit"));
    assert!(
        !rows.iter().any(|row| row.to_string().contains("hello")),
        "no bodies"
    );
}

#[test]
fn the_timeline_reports_a_missing_file() {
    let stage = Stage::new();
    let mut command = stage.command(mainstay());
    let output = command
        .args(["events", "--timeline", "--frames", "/no/file"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("cannot read /no/file"), "{errors}");
}
