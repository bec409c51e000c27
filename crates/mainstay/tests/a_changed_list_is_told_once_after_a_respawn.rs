//! After a respawn the client is told once of each list that is not what it last saw, if it was promised to be told, or the
//! user wants it so; and not otherwise.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use std::fs;

use mainstay_testkit::stage::Stage;
use scene::{Scene, argv};
use serde_json::{Value, json};

const PROMISED: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true}}"#;
const SILENT: &str = r#"{"tools":{},"prompts":{}}"#;
const MORE: [&str; 2] = ["--in", "2.."];

/// What the client is told after a death, and which lists the second generation was asked for.
fn told(mut scene: Scene, lists: &[&str]) -> (Vec<String>, Vec<String>) {
    for list in lists {
        let answer = scene.client.wire.request(list, &json!({})).unwrap();
        assert!(answer.get("result").is_some(), "{answer}");
    }
    scene.kill(1);
    scene.replayed(2);
    // Two calls behind our own questions: whatever there is to tell is told before the second one's answer.
    let first = scene.ask_call("held", &json!({}));
    let mut all = scene.read_answers(&[first]);
    let second = scene.ask_call("held", &json!({}));
    all.extend(scene.read_answers(&[second]));
    let held = scene::content(all.last().unwrap());
    let asked = scene::heard_messages(held);
    let asked = asked
        .iter()
        .filter_map(|message| message["method"].as_str())
        .filter(|method| method.ends_with("/list"))
        .map(Into::into)
        .collect();
    let told = all.iter().filter_map(|message| message["method"].as_str());
    let told = told.map(Into::into).collect();
    assert_eq!(scene.finish(), [json!(null); 0]);
    (told, asked)
}

fn open(options: &[&str], capabilities: &str, second: &str) -> Scene {
    let mut habits = vec!["--capabilities", capabilities];
    habits.extend(MORE);
    habits.push(second);
    Scene::open(options, &habits)
}

const TOOLS: &str = "notifications/tools/list_changed";
const PROMPTS: &str = "notifications/prompts/list_changed";

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn each_that_differs() {
    let both = ["tools/list", "prompts/list"];
    let asked: Vec<String> = both.map(Into::into).into();
    let scene = open(&[], PROMISED, "--extra-tool new");
    assert_eq!(told(scene, &both), (vec![TOOLS.into()], asked.clone()));
    let scene = open(&[], PROMISED, "--extra-prompt new");
    assert_eq!(told(scene, &both), (vec![PROMPTS.into()], asked.clone()));
    let scene = open(&[], PROMISED, "--extra-tool new --extra-prompt new");
    let all = vec![TOOLS.into(), PROMPTS.into()];
    assert_eq!(told(scene, &both), (all, asked));
}

#[test]
fn not_if_equal() {
    let scene = open(&[], PROMISED, "--junk-lines");
    let asked = vec!["tools/list".into()];
    assert_eq!(told(scene, &["tools/list"]), (none(), asked));
}

#[test]
fn not_if_the_client_has_not_seen_it() {
    let scene = open(&[], PROMISED, "--extra-tool new");
    assert_eq!(told(scene, &[]), (none(), none()));
}

#[test]
fn not_if_it_was_not_promised() {
    let scene = open(&[], SILENT, "--extra-tool new");
    assert_eq!(told(scene, &["tools/list"]), (none(), none()));
}

#[test]
fn unless_the_user_wants_it() {
    let scene = open(&["--advertise-list-changed"], SILENT, "--extra-tool new");
    let asked = vec!["tools/list".into()];
    assert_eq!(told(scene, &["tools/list"]), (vec![TOOLS.into()], asked));
}

#[test]
fn once_even_if_the_server_says_so_itself() {
    // As server-everything does: news before the answer to `initialize`.
    let stage = Stage::new();
    let news = stage.path("news");
    fs::write(
        &news,
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{TOOLS}\"}}\n"),
    )
    .unwrap();
    let second = format!("--extra-tool new --replay {}", news.display());
    let mut habits = vec!["--capabilities", PROMISED];
    habits.extend(MORE);
    habits.push(&second);
    let argv = argv(&stage, &[], &habits);
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    let (told, _) = told(scene, &["tools/list"]);
    assert_eq!(told, [TOOLS]);
}

#[test]
fn not_again_before_the_client_has_looked() {
    let mut scene = open(&[], PROMISED, "--extra-tool new");
    scene.client.wire.request("tools/list", &json!({})).unwrap();
    scene.kill(1);
    assert_eq!(scene.message()["method"], TOOLS);
    // The client does not look: it knows already that what it saw is stale.
    scene.kill(2);
    scene.replayed(3);
    let heard = scene.heard();
    assert!(!heard.contains(&"tools/list".to_owned()), "{heard:?}");
    let told = scene.stage.events("list_changed");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn in_the_modern_era_to_whoever_listens_for_it() {
    let modern = |mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        params
    };
    let mut habits = vec!["--modern"];
    habits.extend(MORE);
    habits.push("--extra-tool new");
    let mut scene = Scene::start(&[], &habits);
    let wire = &mut scene.client.wire;
    wire.request("tools/list", &modern(json!({}))).unwrap();
    let mut listens = Vec::new();
    for wanted in ["promptsListChanged", "toolsListChanged"] {
        let params = modern(json!({"notifications": {wanted: true}}));
        let id = scene
            .client
            .wire
            .ask("subscriptions/listen", &params)
            .unwrap();
        let granted = scene.message();
        assert_eq!(
            granted["method"],
            "notifications/subscriptions/acknowledged"
        );
        listens.push(id);
    }
    scene.kill(1);
    let told = scene.message();
    assert_eq!(told["method"], TOOLS, "{told}");
    assert_eq!(
        told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        listens[1]
    );
    let rest = scene.finish();
    assert!(
        rest.iter().all(|message| message.get("method").is_none()),
        "{rest:?}"
    );
}
