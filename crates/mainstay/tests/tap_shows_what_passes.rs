//! `mainstay tap`: attached and detached at any time, both directions, and nobody notices.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;
mod tapping;

use mainstay_os::identity::{self, Handle};
use rustix::process::Signal;
use scene::Scene;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use tapping::{Tap, frames, lines};

fn answer_to(id: i64) -> impl Fn(&Value) -> bool {
    let id = id.to_string();
    move |line| line["kind"] == "response" && line["id"] == id.as_str()
}

fn interrupt(pid: i32) {
    let handle = Handle::open(identity::of(pid).unwrap()).unwrap();
    handle.signal(Signal::INT).unwrap();
}

#[test]
fn both_directions_until_it_is_interrupted() {
    let mut scene = Scene::open(&[], &[]);
    let mut tap = Tap::attach(&scene.stage, &[]);
    assert_eq!(
        (&tap.head["v"], &tap.head["redacted"]),
        (&json!(1), &json!(true))
    );
    let id = scene.ask_call("echo", &json!({"text": "hello"}));
    scene.client.wire.answer(id).unwrap();
    let seen = tap.until(answer_to(id));
    let [request, answer] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(
        (&request["from"], &request["to"]),
        (&json!("client"), &json!("server"))
    );
    assert_eq!(request["method"], "tools/call");
    assert!(request["body"].as_str().unwrap().contains("\"hello\""));
    assert_eq!(
        request["bytes"],
        request["body"].as_str().unwrap().len() + 1
    );
    assert_eq!(
        (&answer["from"], &answer["to"]),
        (&json!("server"), &json!("client"))
    );
    assert_eq!(
        answer["method"], "tools/call",
        "an answer has its request's"
    );
    let ns = |frame: &Value| frame["ns"].as_u64().unwrap();
    assert_eq!(answer["latency_us"], (ns(answer) - ns(request)) / 1_000);
    assert_eq!(answer["n"].as_u64(), request["n"].as_u64().map(|n| n + 1));
    interrupt(tap.pid());
    let (code, rest, errors) = tap.end();
    assert_eq!((code, rest.as_str()), (Some(0), ""));
    assert_eq!(errors, "detached after 2 frames\n");
    assert_eq!(
        scene.call("echo", &json!({"text": "again"})),
        json!({"text": "again"})
    );
    scene.finish();
}

#[test]
fn what_was_asked_before_has_its_latency_too() {
    let mut scene = Scene::open(&[], &[]);
    // The server hears of it only when the tap is there, however long that takes.
    scene.freeze(1);
    let id = scene.ask_call("sleep", &json!({"ms": 400}));
    scene.taken();
    let mut tap = Tap::attach(&scene.stage, &[]);
    scene.thaw(1);
    let answer = tap.find(answer_to(id));
    assert_eq!(answer["method"], "tools/call");
    assert!(
        answer["latency_us"].as_u64().unwrap() >= 400_000,
        "{answer}"
    );
    scene.client.wire.answer(id).unwrap();
    scene.finish();
    let (code, _, errors) = tap.end();
    assert_eq!(code, Some(0));
    assert!(errors.starts_with("the link has ended after "), "{errors}");
}

#[test]
fn by_method_with_the_answers_and_by_side() {
    let mut scene = Scene::open(&[], &[]);
    let mut calls = Tap::attach(&scene.stage, &["--method", "tools/c*"]);
    let mut server = Tap::attach(&scene.stage, &["--direction", "server"]);
    scene.client.wire.request("tools/list", &json!({})).unwrap();
    let id = scene.ask_call("echo", &json!({}));
    scene.client.wire.answer(id).unwrap();
    let seen = calls.until(answer_to(id));
    assert!(
        seen.iter().all(|frame| frame["method"] == "tools/call"),
        "{seen:?}"
    );
    assert_eq!(seen.len(), 2);
    let seen = server.until(answer_to(id));
    assert!(
        seen.iter().all(|frame| frame["from"] == "server"),
        "{seen:?}"
    );
    assert_eq!(seen.len(), 2);
    scene.finish();
}

#[test]
fn secrets_are_hidden_wherever_it_goes() {
    let mut scene = Scene::open(&[], &[]);
    let save = scene.stage.path("saved.jsonl");
    let mut hidden = Tap::attach(&scene.stage, &["--save", save.to_str().unwrap()]);
    let mut shown = Tap::attach(&scene.stage, &["--no-redact"]);
    assert_eq!(shown.head["redacted"], false);
    let secret = "hunter2hunter2";
    let id = scene.ask_call(
        "echo",
        &json!({"password": secret, "text": format!("Bearer {secret}")}),
    );
    scene.client.wire.answer(id).unwrap();
    let all = hidden.until(answer_to(id));
    assert!(
        all.iter().all(|line| !line.to_string().contains(secret)),
        "{all:?}"
    );
    assert!(
        all[0]["body"]
            .as_str()
            .unwrap()
            .contains("\"password\":\"[hidden]\"")
    );
    let all = shown.until(answer_to(id));
    assert!(all[0].to_string().contains(secret));
    scene.client.finish();
    assert_eq!(hidden.end().0, Some(0));
    let saved = lines(&save);
    assert_eq!(saved[0]["redacted"], true);
    assert!(frames(&saved).len() >= 2);
    assert!(saved.iter().all(|line| !line.to_string().contains(secret)));
    let mode = std::fs::metadata(&save).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn long_lines_show_their_beginning_and_their_true_size() {
    let mut scene = Scene::open(&[], &[]);
    let mut tap = Tap::attach(&scene.stage, &[]);
    let text = "x".repeat(300_000);
    let id = scene.ask_call("echo", &json!({"text": text, "token": "late-secret-1"}));
    scene.client.wire.answer(id).unwrap();
    let seen = tap.until(answer_to(id));
    for frame in [&seen[0], seen.last().unwrap()] {
        assert!(
            frame["bytes"].as_u64().unwrap() > 300_000,
            "{}",
            frame["bytes"]
        );
        assert_eq!(frame["cut"], true);
        let body = frame["body"].as_str().unwrap();
        assert!((60_000..=65_536).contains(&body.len()), "{}", body.len());
        assert!(!body.contains("late-secret"));
        assert_eq!(frame["method"], "tools/call");
    }
    scene.finish();
}

#[test]
fn what_mainstay_says_itself_is_told_apart() {
    let mut scene = Scene::open(&[], &[]);
    scene.call("echo", &json!({}));
    let mut tap = Tap::attach(&scene.stage, &[]);
    scene.mute();
    let id = scene.ask_call("echo", &json!({}));
    scene.taken();
    scene.kill(1);
    scene.read_answers(&[id]);
    let id = id.to_string();
    let answer = tap.find(|line| line["id"] == id.as_str() && line["from"] != "client");
    assert_eq!(
        (&answer["from"], &answer["to"]),
        (&json!("mainstay"), &json!("client"))
    );
    assert_eq!(
        (&answer["ours"], &answer["method"]),
        (&json!("answer"), &json!("tools/call"))
    );
    assert!(answer["latency_us"].is_u64());
    scene.replayed(2);
    scene.call("echo", &json!({}));
    let replay = tap.find(|line| line["method"] == "initialize");
    assert_eq!(
        (&replay["from"], &replay["to"]),
        (&json!("mainstay"), &json!("server"))
    );
    assert_eq!(
        (&replay["ours"], &replay["generation"]),
        (&json!("replay"), &json!(2))
    );
    let taken = tap.find(|line| line["from"] == "server");
    assert_eq!(taken["to"], "mainstay", "{taken}");
    assert_eq!(taken["method"], "initialize");
    scene.finish();
}

#[test]
fn a_killed_keeper_is_followed_by_the_next_one() {
    let mut scene = Scene::open(&[], &[]);
    let mut tap = Tap::attach(&scene.stage, &[]);
    scene.call("echo", &json!({}));
    let keeper = scene.stage.card().keeper.unwrap();
    assert_eq!(tap.head["keeper"], keeper.pid);
    Handle::open(keeper).unwrap().signal(Signal::KILL).unwrap();
    let head = tap.find(|line| line["line"] == "head");
    assert_ne!(head["keeper"], keeper.pid);
    let id = scene.ask_call("echo", &json!({}));
    scene.client.wire.answer(id).unwrap();
    tap.find(answer_to(id));
    scene.finish();
    let (code, _, errors) = tap.end();
    assert_eq!(code, Some(0));
    assert!(
        errors.starts_with("note: the keeper was replaced; "),
        "{errors}"
    );
}

#[test]
fn mistakes_are_told() {
    let scene = Scene::open(&[], &[]);
    for (words, code, told) in [
        (&["tap", "unrly"][..], 1, "did you mean `unruly`?"),
        (&["tap"], 2, "NAME|ID"),
        (
            &["tap", "unruly", "--direction", "up"],
            2,
            "say client, server or mainstay",
        ),
        (&["tap", "unruly", "--save", "/"], 125, "cannot save to /"),
        (&["tap", "--from", "/no/file"], 1, "cannot read /no/file"),
    ] {
        let output = scene.mainstay(words);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains(told), "{errors}");
        assert_eq!(output.status.code(), Some(code), "{errors}");
    }
    scene.finish();
}
