//! A command that ends before it was asked anything is no server: it is not started again, and its status is ours.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use scene::Scene;

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
    assert_eq!(scene.client.wait().code(), Some(128 + 9));
    scene.stage.census.assert_empty();
    assert_eq!(scene.stage.events("start").len(), 1);
}
