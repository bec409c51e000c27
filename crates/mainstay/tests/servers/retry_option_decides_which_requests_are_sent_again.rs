//! `--retry never` sends nothing again. `safe` sends methods again that only read. `annotated` also sends calls again of tools
//! that are annotated as safe to repeat. A call that has asked the client a question is never sent again.
//! guards: No request is sent again unless the user and the protocol allow it.

use crate::support::scene::{Scene, answers, content};
use mainstay_testkit::wire::trouble;
use serde_json::{Value, json};

/// Which of the four requests get a good answer from the second generation.
fn served(retry: &[&str]) -> [bool; 4] {
    let mut scene = Scene::open(retry, &[]);
    scene.client.wire.request("tools/list", &json!({})).unwrap();
    scene.mute();
    let ids = [
        scene.ask_call("look", &json!({})),
        scene.ask_call("put", &json!({})),
        scene.ask_call("add", &json!({})),
        scene
            .client
            .wire
            .ask("resources/read", &json!({"uri": "a:b"}))
            .unwrap(),
    ];
    scene.sync();
    scene.kill(1);
    let all = scene.read_answers(&ids);
    assert_eq!(all.len(), ids.len());
    scene.replayed(2);
    let served = ids.map(|id| {
        let answer = answers(&all, id)[0];
        if answer["result"].get("isError").is_some() || answer.get("error").is_some() {
            assert!(trouble(answer).contains("SIGKILL"), "{answer}");
            return false;
        }
        assert!(answer.to_string().contains("generation"), "{answer}");
        true
    });
    assert_eq!(scene.finish(), [json!(null); 0]);
    served
}

#[test]
fn retry_never_safe_and_annotated_send_again_what_they_say() {
    assert_eq!(served(&["--retry", "never"]), [false; 4]);
    assert_eq!(served(&["--retry", "safe"]), [false, false, false, true]);
    assert_eq!(served(&[]), [false, false, false, true]);
    let annotated = served(&["--retry", "annotated"]);
    assert_eq!(annotated, [true, true, false, true]);
}

#[test]
fn a_call_that_has_asked_the_client_is_not_sent_again() {
    let mut scene = Scene::open(&["--retry", "annotated"], &[]);
    scene.client.wire.request("tools/list", &json!({})).unwrap();
    let call = scene.ask_call("ask", &json!({"method": "roots/list", "wait": true}));
    let question = scene.message();
    assert_eq!(question["method"], "roots/list");
    scene.kill(1);
    let all = scene.read_answers(&[call]);
    assert!(trouble(answers(&all, call)[0]).contains("SIGKILL"));
    scene.replayed(2);
    let heard = scene.heard();
    let calls = heard.iter().filter(|method| *method == "tools/call");
    assert_eq!(
        calls.count(),
        1,
        "only the one that asks for this: {heard:?}"
    );
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn a_task_is_not_sent_again() {
    let mut scene = Scene::open(&["--retry", "annotated"], &[]);
    scene.client.wire.request("tools/list", &json!({})).unwrap();
    scene.mute();
    let plain = scene.ask_call("look", &json!({}));
    let params = json!({"name": "look", "arguments": {}, "task": {"ttl": 1_000}});
    let task = scene.client.wire.ask("tools/call", &params).unwrap();
    scene.sync();
    scene.kill(1);
    let all: Vec<Value> = scene.read_answers(&[plain, task]);
    assert_eq!(content(answers(&all, plain)[0])["generation"], 2);
    assert!(trouble(answers(&all, task)[0]).contains("SIGKILL"));
    assert_eq!(scene.finish(), [json!(null); 0]);
}
