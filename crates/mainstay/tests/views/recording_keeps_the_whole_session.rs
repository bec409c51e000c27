//! `run --record FILE` writes every frame from the first byte on, also after a keeper was killed, within its size limit, and
//! without harm to the server.
//! guards: A recording has every frame of the session, also after a keeper was killed.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::support::scene::{self, Scene, mainstay};
use crate::support::tapping::{frames, lines};
use mainstay_os::identity::Handle;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};

fn recorded(options: &[&str]) -> (Scene, std::path::PathBuf) {
    let stage = Stage::new();
    let path = stage.path("frames.jsonl");
    let mut all = vec!["--record", path.to_str().unwrap()];
    all.extend(options);
    let argv = scene::argv(&stage, &all, &[]);
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    (scene, path)
}

#[test]
fn a_recording_has_the_session_from_the_first_byte_to_the_last() {
    let (mut scene, path) = recorded(&[]);
    let secret = "hunter2hunter2";
    let said = json!({"text": "hello", "api_key": secret});
    scene.call("echo", &said);
    scene.stage.event("start");
    assert_eq!(
        scene.stage.event("start")["recording"],
        path.to_str().unwrap()
    );
    scene.client.finish();
    let stage = &scene.stage;
    let all = lines(&path);
    assert_eq!(
        (&all[0]["line"], &all[0]["redacted"]),
        (&json!("head"), &json!(true))
    );
    let last = all.last().unwrap();
    assert_eq!(
        (&last["line"], &last["why"]),
        (&json!("end"), &json!("the link has ended"))
    );
    let frames = frames(&all);
    assert_eq!(
        (&frames[0]["n"], &frames[0]["method"]),
        (&json!(1), &json!("initialize"))
    );
    let numbers: Vec<u64> = frames
        .iter()
        .map(|frame| frame["n"].as_u64().unwrap())
        .collect();
    assert!(
        numbers.iter().zip(1..).all(|(n, expected)| *n == expected),
        "{numbers:?}"
    );
    assert!(all.iter().all(|line| !line.to_string().contains(secret)));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(stage.events("recording_incomplete").is_empty());
}

#[test]
fn a_recording_has_secrets_only_on_request() {
    let (mut scene, path) = recorded(&["--record-secrets"]);
    scene.call("echo", &json!({"password": "hunter2hunter2"}));
    scene.client.finish();
    let all = lines(&path);
    assert_eq!(all[0]["redacted"], false);
    assert!(
        all.iter()
            .any(|line| line.to_string().contains("hunter2hunter2"))
    );
}

#[test]
fn a_recording_has_a_new_head_after_a_killed_keeper() {
    let (mut scene, path) = recorded(&[]);
    scene.call("echo", &json!({"text": "one"}));
    until("it is on the disk", || {
        let text = std::fs::read_to_string(&path).unwrap();
        text.contains("one").then_some(())
    });
    let keeper = scene.stage.card().keeper.unwrap();
    Handle::open(keeper).unwrap().signal(Signal::KILL).unwrap();
    scene.call("echo", &json!({"text": "two"}));
    scene.client.finish();
    let all = lines(&path);
    let heads: Vec<&Value> = all.iter().filter(|line| line["line"] == "head").collect();
    assert_eq!(heads.len(), 2);
    assert_eq!(heads[0]["keeper"], keeper.pid);
    assert_eq!(heads[0]["link"], heads[1]["link"]);
    for text in ["one", "two"] {
        let said = |frame: &&&Value| frame["body"].as_str().unwrap().contains(text);
        assert!(frames(&all).iter().any(|frame| said(&frame)), "{text}");
    }
    assert_eq!(all.last().unwrap()["line"], "end");
}

#[test]
fn at_its_size_limit_the_recording_ends_and_the_server_does_not() {
    let (mut scene, path) = recorded(&["--record-bytes", "64KiB"]);
    let text = "z".repeat(4_000);
    for _ in 0..40 {
        let said = json!({"text": text});
        assert_eq!(scene.call("echo", &said), said);
    }
    let hurt = scene.stage.event("recording_incomplete");
    assert_eq!(hurt["why"], "it has reached its size (--record-bytes)");
    assert_eq!(hurt["path"], path.to_str().unwrap());
    scene.client.finish();
    let all = lines(&path);
    let last = all.last().unwrap();
    assert_eq!((&last["line"], &last["why"]), (&json!("end"), &hurt["why"]));
    assert!(std::fs::metadata(&path).unwrap().len() <= 64 * 1024);
}

#[test]
fn an_unwritable_recording_is_reported_before_a_server_starts() {
    let stage = Stage::new();
    let fifo = stage.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    for path in [stage.home(), &stage.path("no/such/directory/x"), &fifo] {
        let options = ["--record", path.to_str().unwrap()];
        let argv: Vec<OsString> = run(mainstay(), &options, stage.unruly::<&str>(&[]));
        let mut command = stage.command(&argv[0]);
        let output = command
            .args(&argv[1..])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{errors}");
        assert!(errors.contains("cannot record in "), "{errors}");
    }
    assert!(stage.events("start").is_empty());
}

#[test]
fn the_clients_lines_can_be_replayed_from_a_recording() {
    let (mut scene, path) = recorded(&[]);
    scene.call("echo", &json!({"text": "hello"}));
    scene.client.wire.request("tools/list", &json!({})).unwrap();
    scene.client.finish();
    let stage = &scene.stage;
    let mut tap = stage.command(mainstay());
    let tap = tap.args([
        "tap",
        "--raw",
        "--direction",
        "client",
        "--from",
        path.to_str().unwrap(),
    ]);
    let lines = tap.output().unwrap();
    assert!(
        lines.status.success() && lines.stderr.is_empty(),
        "{lines:?}"
    );
    let mut tap = tap.stdout(Stdio::piped()).spawn().unwrap();
    let argv: Vec<OsString> = run(mainstay(), &["--name", "again"], stage.unruly::<&str>(&[]));
    let mut again = stage.command(&argv[0]);
    let output = again
        .args(&argv[1..])
        .stdin(tap.stdout.take().unwrap())
        .output()
        .unwrap();
    assert!(tap.wait().unwrap().success());
    let answers = scene::messages(&output.stdout);
    let asked = scene::messages(&lines.stdout);
    let asked: Vec<&Value> = asked
        .iter()
        .filter(|line| line.get("id").is_some())
        .collect();
    assert_eq!(asked.len(), 3);
    for question in asked {
        let id = question["id"].as_i64().unwrap();
        let answer = scene::answers(&answers, id);
        assert_eq!(answer.len(), 1, "{question}");
        assert!(answer[0].get("result").is_some(), "{}", answer[0]);
    }
    until("the second server has ended", || {
        (stage.events("teardown").len() == 2).then_some(())
    });
}
