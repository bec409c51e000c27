//! A request that two generations died with is poisoned: it is answered and not sent to a third, which serves on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_testkit::wire::trouble;
use scene::Scene;
use serde_json::json;

#[test]
fn and_the_third_generation_lives() {
    let mut scene = Scene::open(&[], &["--exit-code", "9", "--dies-of", "resources/read"]);
    let params = json!({"uri": "file:///poison"});
    let answer = scene
        .client
        .wire
        .request("resources/read", &params)
        .unwrap();
    let words = trouble(&answer);
    assert!(words.contains("exit code 9"), "{words}");
    assert!(words.contains("is not sent a third time"), "{words}");
    assert_eq!(answer["error"]["data"]["retried"], true, "{answer}");
    assert_eq!(answer["error"]["data"]["exit"], json!({"code": 9}));
    scene.exit(2);
    assert_eq!(scene.call("look", &json!({}))["generation"], 3);
    assert!(!scene.heard().contains(&"resources/read".to_owned()));
    assert_eq!(scene.stage.events("start").len(), 3);
    assert_eq!(scene.finish(), [json!(null); 0]);
}

#[test]
fn a_call_is_not_even_sent_twice() {
    let mut scene = Scene::open(&[], &["--dies-of", "add"]);
    let answer = scene.call("add", &json!({}));
    assert!(trouble(&answer).contains("may or may not have taken effect"));
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.stage.events("start").len(), 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
