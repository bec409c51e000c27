//! With `--restart-budget 0` a death is the end, as without us: what is pending is answered, then the pipe closes with the
//! server's own status.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_testkit::wire::trouble;
use scene::{Scene, messages};
use serde_json::json;

#[test]
fn a_death_is_the_end() {
    for (how, code) in [
        (json!({"code": 42}), 42),
        (json!({"signal": 6}), 128 + 6),
        (json!({"signal": 9}), 128 + 9),
        (json!({"signal": 11}), 128 + 11),
        (json!({"signal": 15}), 128 + 15),
    ] {
        let mut scene = Scene::open(&["--restart-budget", "0"], &[]);
        let id = scene.ask_call("crash", &how);
        let rest = messages(&scene.client.wire.rest().unwrap());
        assert_eq!(rest.len(), 1, "{rest:?}");
        assert_eq!(rest[0]["id"], id);
        assert!(trouble(&rest[0]).contains("it is not started again"));
        assert_eq!(scene.client.wait().code(), Some(code), "{how}");
        scene.stage.census.assert_empty();
        assert_eq!(scene.stage.events("start").len(), 1);
        assert_eq!(scene.stage.event("exit")["in_flight"], 1);
    }
}
