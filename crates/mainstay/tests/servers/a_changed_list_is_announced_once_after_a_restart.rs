//! After a respawn, the client gets one `list_changed` for each list that differs from the one it last saw. It gets none if the
//! server never promised `listChanged`, unless the user asks for it with an option.
//! guards: After a respawn the client gets exactly one `list_changed` for each list that differs from what it saw.

use std::fs;

use crate::support::scene::{self, Scene, argv};
use mainstay_testkit::stage::Stage;
use serde_json::{Value, json};

const PROMISED: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true}}"#;
const SILENT: &str = r#"{"tools":{},"prompts":{}}"#;
const MORE: [&str; 2] = ["--in", "2.."];

/// The notifications that the client gets after a death, and the lists that the second generation was asked for.
fn told(mut scene: Scene, lists: &[&str]) -> (Vec<String>, Vec<String>) {
    for list in lists {
        let answer = scene.client.wire.request(list, &json!({})).unwrap();
        assert!(answer.get("result").is_some(), "{answer}");
    }
    scene.kill(1);
    scene.replayed(2);
    // Two calls after our own questions: every notification arrives before the answer to the second call.
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
fn each_list_that_differs_after_a_restart_is_announced() {
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
fn equal_lists_are_not_announced() {
    let scene = open(&[], PROMISED, "--junk-lines");
    let asked = vec!["tools/list".into()];
    assert_eq!(told(scene, &["tools/list"]), (none(), asked));
}

#[test]
fn a_list_that_the_client_never_saw_is_not_announced() {
    let scene = open(&[], PROMISED, "--extra-tool new");
    assert_eq!(told(scene, &[]), (none(), none()));
}

#[test]
fn a_list_without_the_list_changed_capability_is_not_announced() {
    let scene = open(&[], SILENT, "--extra-tool new");
    assert_eq!(told(scene, &["tools/list"]), (none(), none()));
}

#[test]
fn a_list_without_the_list_changed_capability_is_announced_on_request() {
    let scene = open(&["--advertise-list-changed"], SILENT, "--extra-tool new");
    let asked = vec!["tools/list".into()];
    assert_eq!(told(scene, &["tools/list"]), (vec![TOOLS.into()], asked));
}

#[test]
fn a_changed_list_is_announced_once_even_if_the_server_announces_it_too() {
    // server-everything does this: it sends a notification before the answer to `initialize`.
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
fn a_changed_list_is_not_announced_again_before_the_client_has_read_it() {
    let mut scene = open(&[], PROMISED, "--extra-tool new");
    scene.client.wire.request("tools/list", &json!({})).unwrap();
    scene.kill(1);
    assert_eq!(scene.message()["method"], TOOLS);
    // The client does not read the list again, so it already knows that its copy is stale.
    scene.kill(2);
    scene.replayed(3);
    let heard = scene.heard();
    assert!(!heard.contains(&"tools/list".to_owned()), "{heard:?}");
    let told = scene.stage.events("list_changed");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn listening_modern_clients_get_list_changed_after_a_restart() {
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
