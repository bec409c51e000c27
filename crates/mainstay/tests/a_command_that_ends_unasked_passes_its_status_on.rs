//! A command that ends by itself before it was asked anything is no server: it is not started again, and its status is ours.
//! One that somebody kills is started again, a few times, and then its status is ours, too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use scene::Scene;
use serde_json::json;

#[test]
fn at_once() {
    for (habits, code) in [
        (["--exit-after-start", "--exit-code", "0"], 0),
        (["--exit-after-start", "--exit-code", "3"], 3),
    ] {
        let mut scene = Scene::start(&[], &habits);
        assert_eq!(scene.client.wait().code(), Some(code));
        assert_eq!(scene.client.wire.rest().unwrap(), b"");
        scene.stage.census.assert_empty();
        assert_eq!(scene.stage.events("start").len(), 1);
        assert_eq!(scene.stage.events("abandoned").len(), 0);
    }
}

#[test]
fn killed_before_anything() {
    let mut scene = Scene::start(&[], &[]);
    scene.kill(1);
    // The next one serves.
    scene.client.wire.initialize().unwrap();
    scene.server(2);
    let (status, _) = scene.client.finish();
    assert_eq!(status.code(), Some(0));
    scene.stage.census.assert_empty();
    assert_eq!(
        scene.exit(1)["status"],
        json!({"signal": {"number": 9, "core": false}})
    );
}

#[test]
fn killed_again_and_again_before_anything() {
    let mut scene = Scene::start(&[], &[]);
    for generation in 1..=3 {
        scene.kill(generation);
    }
    assert_eq!(scene.client.wait().code(), Some(128 + 9));
    scene.stage.census.assert_empty();
    assert_eq!(scene.stage.events("start").len(), 3);
}
