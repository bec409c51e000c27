//! A signal to the shim that the client did not mean: the server is kept with all that it has in memory, and the next start
//! of the same configuration by the same client goes on with it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_os::identity::Handle;
use mainstay_testkit::client::Client;
use rustix::process::Signal;
use scene::{Scene, argv};
use serde_json::json;

/// What ends the shim, and what the server's second client must find.
fn comes_back(strike: impl FnOnce(&Handle)) {
    let mut scene = Scene::open(&["--linger", "60s"], &[]);
    let before = scene.call("pid", &json!({}));
    let shim = Handle::open(scene.stage.card().shim.unwrap()).unwrap();
    strike(&shim);
    scene.client.wait();
    scene.state("lingering");
    let words = argv(&scene.stage, &["--linger", "60s"], &[]);
    scene.client = Client::open(&scene.stage, &words);
    let after = scene.call("pid", &json!({}));
    assert_eq!(after["pid"], before["pid"], "the same process");
    assert_eq!(after["calls"], 2, "with what it had in memory");
    let heard = scene.heard();
    let openings = heard.iter().filter(|method| *method == "initialize");
    assert_eq!(openings.count(), 1, "{heard:?}");
    assert_eq!(scene.stage.event("reattached")["dropped"], 0);
    assert_eq!(scene.stage.events("start").len(), 1);
    assert!(
        !scene
            .stage
            .home()
            .join(".local/state/mainstay/warm")
            .exists()
    );
    assert_eq!(scene.finish(), Vec::<serde_json::Value>::new());
}

#[test]
fn after_sigterm() {
    comes_back(|shim| shim.signal(Signal::TERM).unwrap());
}

#[test]
fn after_sigkill() {
    comes_back(|shim| shim.signal(Signal::KILL).unwrap());
}

#[test]
fn after_what_claude_does() {
    comes_back(|shim| mainstay_testkit::killers::claude(shim.who));
}
