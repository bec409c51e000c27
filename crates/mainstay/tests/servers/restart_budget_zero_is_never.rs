//! With `--restart-budget 0` a death ends the session, as without mainstay. Pending requests are answered, then the pipe closes,
//! and we exit with the server's own status.
//! guards: With `--restart-budget 0` a death of the server ends the session with its own status.

use crate::support::scene::{Scene, messages};
use mainstay_testkit::wire::trouble;
use serde_json::json;

#[test]
fn with_a_restart_budget_of_zero_a_death_ends_the_session() {
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
