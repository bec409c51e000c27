//! The modern era has no opening to replay. Open listening requests are sent again, and their second acknowledgement is
//! swallowed. If the server grants less than before, the listening request ends, so that the client notices.
//! guards: In the modern era, listening requests survive the death of the server, and a smaller grant is shown to the client.

use crate::support::scene::{Scene, heard, heard_messages};
use mainstay_testkit::wire::trouble;
use serde_json::{Value, json};

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

fn modern(mut params: Value) -> Value {
    params["_meta"] = meta();
    params
}

fn call(scene: &mut Scene, tool: &str, arguments: &Value) -> Value {
    let params = modern(json!({"name": tool, "arguments": arguments}));
    let answer = scene.client.wire.request("tools/call", &params).unwrap();
    match answer.pointer("/result/structuredContent") {
        Some(content) => content.clone(),
        None => answer,
    }
}

/// A session that has called `server/discover` and listens for tools and prompts.
fn listening(options: &[&str], habits: &[&str]) -> (Scene, i64) {
    let mut all = vec!["--modern"];
    all.extend(habits);
    let mut scene = Scene::start(options, &all);
    let wire = &mut scene.client.wire;
    let discovered = wire.request("server/discover", &modern(json!({}))).unwrap();
    assert_eq!(
        discovered["result"]["supportedVersions"],
        json!(["2026-07-28"])
    );
    let wanted = json!({"toolsListChanged": true, "promptsListChanged": true});
    let listen = modern(json!({"notifications": wanted}));
    let id = wire.ask("subscriptions/listen", &listen).unwrap();
    let granted = scene.message();
    assert_eq!(
        granted["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(granted["params"]["notifications"], wanted);
    (scene, id)
}

#[test]
fn listening_requests_survive_deaths() {
    let (mut scene, id) = listening(&[], &[]);
    for generation in 1..=3 {
        scene.kill(generation);
        let replayed = scene.replayed(generation + 1);
        assert_eq!(replayed["listens"], 1);
        let held = call(&mut scene, "held", &json!({}));
        assert_eq!(heard(&held), ["subscriptions/listen", "tools/call"]);
        assert_eq!(heard_messages(&held)[0]["params"]["_meta"], meta());
        assert_eq!(held["listens"][0][0], id);
        // The new generation's notifications reach the listener.
        let news = json!({"method": "notifications/tools/list_changed"});
        let params = modern(json!({"name": "news", "arguments": news}));
        let asked = scene.client.wire.ask("tools/call", &params).unwrap();
        let all = scene.read_answers(&[asked]);
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(
            all[0]["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
            id
        );
    }
    // The listening request is answered when the link ends or not at all. No other line comes.
    let rest = scene.finish();
    assert!(rest.iter().all(|message| message["id"] == id), "{rest:?}");
}

#[test]
fn a_smaller_grant_after_a_restart_ends_the_listening() {
    let (mut scene, id) = listening(&[], &["--in", "2..", "--grants toolsListChanged"]);
    scene.kill(1);
    let ended = scene.message();
    assert_eq!(ended["id"], id, "{ended}");
    assert_eq!(ended["result"]["resultType"], "complete");
    scene.stage.event("server_changed");
    let held = call(&mut scene, "held", &json!({}));
    assert_eq!(held["listens"], json!([]), "the server was told");
    // The next generation does not get the listening request.
    scene.kill(2);
    scene.replayed(3);
    let held = call(&mut scene, "held", &json!({}));
    assert_eq!(heard(&held), ["tools/call"]);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn a_cancelled_listening_request_is_not_sent_again() {
    let (mut scene, id) = listening(&[], &[]);
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    scene.client.wire.send(&cancel).unwrap();
    call(&mut scene, "look", &json!({}));
    scene.kill(1);
    scene.replayed(2);
    let held = call(&mut scene, "held", &json!({}));
    assert_eq!(heard(&held), ["tools/call"]);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn modern_calls_in_flight_at_a_death_get_a_result_with_its_type() {
    let (mut scene, _) = listening(&[], &["--dies-of", "add"]);
    let params = modern(json!({"name": "add", "arguments": {}}));
    let answer = scene.client.wire.request("tools/call", &params).unwrap();
    assert!(trouble(&answer).contains("it is started again"));
    assert_eq!(answer["result"]["resultType"], "complete");
    scene.finish();
}

#[test]
fn a_modern_server_that_was_given_up_comes_back() {
    let options = ["--restart-budget", "1", "--restart-probe", "200ms"];
    let (mut scene, id) = listening(&options, &["--in", "2", "--dies-of server/discover"]);
    scene.kill(1);
    scene.stage.event("abandoned");
    // A listening request is answered like any other when there is no server to listen to.
    let ended = scene.message();
    assert_eq!(ended["id"], id, "{ended}");
    scene.replayed(3);
    assert_eq!(call(&mut scene, "look", &json!({}))["generation"], 3);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn the_end_of_the_session_does_not_wait_for_listening_requests() {
    // A listening request is never answered. With a grace this long, waiting for its answer would be a hang.
    let (scene, id) = listening(&["--grace-eof", "10m"], &[]);
    let rest = scene.finish();
    assert!(rest.iter().all(|message| message["id"] == id), "{rest:?}");
}
