//! Requests from the server to the client: every generation counts its ids from 0, but the client never sees an id twice. At a
//! death, open requests are cancelled, and an answer that comes later is dropped.
//! guards: A client's answer reaches only the generation that asked, and the client never sees an id twice.

use crate::support::scene::{Scene, content};
use serde_json::{Value, json};

fn question(scene: &mut Scene) -> (i64, Value) {
    let call = scene.ask_call("ask", &json!({"method": "roots/list", "wait": true}));
    let question = scene.message();
    assert_eq!(question["method"], "roots/list", "{question}");
    (call, question["id"].clone())
}

fn roots(scene: &Scene, id: &Value, name: &str) {
    let roots = json!([{"uri": format!("file:///{name}")}]);
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"roots": roots}});
    scene
        .client
        .wire
        .send(&answer)
        .expect("the client's pipe is open");
}

#[test]
fn a_clients_answer_does_not_reach_the_next_generation() {
    let mut scene = Scene::open(&[], &[]);
    let (call, first) = question(&mut scene);
    scene.kill(1);
    // We answer the call and cancel the question, each once.
    let mut told = [scene.message(), scene.message()];
    told.sort_by_key(|message| message.get("method").is_none());
    assert_eq!(told[0]["method"], "notifications/cancelled", "{told:?}");
    assert_eq!(told[0]["params"]["requestId"], first);
    assert_eq!(told[1]["id"], call);
    assert_eq!(told[1]["result"]["isError"], true);
    // The next generation asks with the same id. The client sees another one.
    scene.replayed(2);
    let (call, second) = question(&mut scene);
    assert_ne!(second, first);
    assert!(
        second
            .as_str()
            .is_some_and(|label| label.parse::<f64>().is_err()),
        "{second}"
    );
    roots(&scene, &first, "late");
    roots(&scene, &second, "right");
    let answer = scene.client.wire.answer(call).unwrap();
    let said = &content(&answer)["said"];
    assert_eq!(said["id"], 0, "with the server's own id");
    assert_eq!(said["result"]["roots"][0]["uri"], "file:///right");
    let heard = scene.heard();
    let answers = heard.iter().filter(|what| what.starts_with("answer"));
    assert_eq!(answers.count(), 1, "{heard:?}");
    // A second answer to the same question is dropped, because no server waits for it.
    roots(&scene, &second, "again");
    let held = scene.held();
    assert!(!held.to_string().contains("again"), "{held}");
    assert_eq!(held["open_questions"], 0);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn questions_open_at_a_restart_are_cancelled() {
    let mut scene = Scene::open(&["--drain", "0ms"], &[]);
    scene.call("ask", &json!({"method": "sampling/createMessage"}));
    // The question and the answer to the call came in that order. Only the question is still open.
    assert!(scene.mainstay(&["restart", "unruly"]).status.success());
    let told = scene.message();
    assert_eq!(told["method"], "notifications/cancelled", "{told}");
    assert_eq!(told["params"]["requestId"], 0);
    roots(&scene, &json!(0), "late");
    let held = scene.held();
    assert!(!held.to_string().contains("late"), "{held}");
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn a_question_before_the_opening_is_answered() {
    let mut scene = Scene::open(&[], &["--in", "2", "--asks-first"]);
    scene.kill(1);
    scene.exit(1);
    // The question comes before the answer to `initialize`, because the server waits for the answer to its question.
    let call = scene.ask_call("look", &json!({}));
    let question = scene.message();
    assert_eq!(question["method"], "ping", "{question}");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {}});
    scene.client.wire.send(&answer).unwrap();
    let answer = scene.client.wire.answer(call).unwrap();
    assert_eq!(content(&answer)["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
