//! A server that was given up is tried again now and then; the first generation that opens brings everything back, and until
//! then every request is answered at once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_testkit::wait::until;
use mainstay_testkit::wire::trouble;
use scene::Scene;
use serde_json::json;

#[test]
fn by_a_slow_probe() {
    let mut scene = Scene::open(
        &["--restart-budget", "1", "--restart-probe", "200ms"],
        &[
            "--in",
            "2",
            "--exit-after-start",
            "--in",
            "3..4",
            "--dies-of initialize",
        ],
    );
    let wire = &mut scene.client.wire;
    wire.request("logging/setLevel", &json!({"level": "error"}))
        .unwrap();
    wire.request("resources/subscribe", &json!({"uri": "file:///a"}))
        .unwrap();
    scene.kill(1);
    scene.stage.event("abandoned");
    // Whatever is asked until then is answered, and the first good answer comes from a generation that knows everything.
    let held = until("the server is back", || {
        let held = scene.held();
        if held.get("generation").is_some() {
            return Some(held);
        }
        assert!(
            trouble(&held).contains("is tried again every 200 ms"),
            "{held}"
        );
        None
    });
    assert_eq!(held["generation"], 5);
    assert_eq!(held["level"], "error");
    assert_eq!(held["subscriptions"], json!(["file:///a"]));
    // It is as good as new: the budget, too.
    scene.kill(5);
    let abandoned = || scene.stage.events("abandoned").len();
    until("it is given up once more", || {
        (abandoned() >= 5).then_some(())
    });
    assert_eq!(scene.stage.events("exit").len(), 5);
    scene.replayed(6);
    assert_eq!(scene.call("look", &json!({}))["generation"], 6);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
