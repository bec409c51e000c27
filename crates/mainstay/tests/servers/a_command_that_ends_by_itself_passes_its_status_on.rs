//! A command that exits before the first request is not a server: it is not started again, and we exit with its status. A command
//! that is killed before the first request is started again a few times. After that, we exit with its status too.
//! guards: A command that exits before the first request is not restarted, and its status is passed on.

use crate::support::scene::Scene;
use serde_json::json;

#[test]
fn a_command_that_exits_at_once_passes_its_status_on() {
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
fn a_command_killed_before_the_handshake_is_restarted() {
    let mut scene = Scene::start(&[], &[]);
    scene.kill(1);
    // The next generation serves.
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
fn a_command_killed_at_every_start_passes_its_status_on() {
    let mut scene = Scene::start(&[], &[]);
    for generation in 1..=3 {
        scene.kill(generation);
    }
    assert_eq!(scene.client.wait().code(), Some(128 + 9));
    scene.stage.census.assert_empty();
    assert_eq!(scene.stage.events("start").len(), 3);
}
