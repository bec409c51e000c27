//! `mainstay tap` can be attached and detached at any time. It shows both directions, and neither client nor server notices.
//! guards: A tap shows both directions without secrets, and neither client nor server notices it.

use crate::support::scene::Scene;
use crate::support::tapping::{Tap, frames, lines};
use mainstay_os::identity::{self, Handle};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

fn answer_to(id: i64) -> impl Fn(&Value) -> bool {
    let id = id.to_string();
    move |line| line["kind"] == "response" && line["id"] == id.as_str()
}

fn interrupt(pid: i32) {
    let handle = Handle::open(identity::of(pid).unwrap()).unwrap();
    handle.signal(Signal::INT).unwrap();
}

#[test]
fn tap_shows_both_directions_until_it_is_interrupted() {
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
    let arguments = &request["message"]["params"]["arguments"];
    assert_eq!(arguments, &json!({"text": "hello"}), "the body as JSON");
    assert_eq!(answer["message"]["id"], id);
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
fn tap_shows_the_latency_of_a_request_from_before_it_started() {
    let mut scene = Scene::open(&[], &[]);
    // The server is stopped, so that it reads the request only once the tap is attached.
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
fn tap_filters_by_method_and_by_side() {
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
fn tap_hides_secrets_in_every_output() {
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
fn tap_shows_the_beginning_and_the_size_of_long_lines() {
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
fn tap_marks_our_own_lines() {
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
fn tap_continues_after_a_killed_keeper() {
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

/// For people: the tool and its arguments, then the latency and the text of the answer.
#[test]
fn tap_shows_the_tool_first_and_the_text_of_the_result() {
    let mut scene = Scene::open(&[], &[]);
    let save = scene.stage.path("saved.jsonl");
    let mut tap = Tap::attach(&scene.stage, &["--save", save.to_str().unwrap()]);
    let id = scene.ask_call("echo", &json!({"text": "hello"}));
    scene.client.wire.answer(id).unwrap();
    tap.until(answer_to(id));
    let shown = |words: &[&str]| {
        let mut all = vec!["tap", "--from", save.to_str().unwrap()];
        all.extend(words);
        String::from_utf8(scene.mainstay(&all).stdout).unwrap()
    };
    let rows = shown(&[]);
    let rows: Vec<&str> = rows.lines().collect();
    let (clock, request) = rows[0].split_once("  ").unwrap();
    assert_eq!(clock.len(), "22:31:07".len());
    assert_eq!(request, "→ tools/call echo  text=\"hello\"");
    let (_, answer) = rows[1].split_once("  ").unwrap();
    assert!(answer.starts_with("← "), "{rows:?}");
    assert!(
        answer.contains("hello") && !answer.contains("jsonrpc"),
        "{rows:?}"
    );
    let verbose = shown(&["-v"]);
    assert!(verbose.contains(&format!("→ #{id} ")), "{verbose}");
    scene.finish();
}

#[test]
fn tap_reports_mistakes() {
    let scene = Scene::open(&[], &[]);
    for (words, code, told) in [
        (&["tap", "unrly"][..], 1, "did you mean `unruly`?"),
        (&["tap"], 2, "mainstay tap unruly"),
        (
            &["tap", "unruly", "--direction", "up"],
            2,
            "write client, server or mainstay",
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
