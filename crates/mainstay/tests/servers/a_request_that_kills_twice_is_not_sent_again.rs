//! A request that was in flight at the death of two generations is poisoned: it gets an error and is not sent to the third
//! generation, which serves on.
//! guards: A request that two servers died with is answered with an error and not sent to a third.

use crate::support::scene::Scene;
use mainstay_testkit::wire::trouble;
use serde_json::json;

#[test]
fn a_request_that_killed_two_servers_does_not_reach_the_third() {
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
fn a_tool_call_that_killed_a_server_is_not_sent_again() {
    let mut scene = Scene::open(&[], &["--dies-of", "add"]);
    let answer = scene.call("add", &json!({}));
    assert!(trouble(&answer).contains("may or may not have taken effect"));
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.stage.events("start").len(), 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
