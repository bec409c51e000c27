//! The server is itself a `mainstay run`. The inner mainstay answers the outer one's own requests, so the outer one can replay
//! the opening to the next generation as usual.
//! guards: A mainstay can be the server of another mainstay, and a respawn works through both.

use crate::support::scene::{Scene, argv, mainstay};
use mainstay_os::identity::Handle;
use mainstay_testkit::stage::{Stage, run};
use rustix::process::Signal;
use serde_json::json;

#[test]
fn a_mainstay_behind_a_mainstay_is_opened_again_after_a_death() {
    let stage = Stage::new();
    let inner = argv(&stage, &["--linger", "0"], &[]);
    let outer = run(mainstay(), &["--name", "outer"], inner);
    let mut scene = Scene::on(stage, &outer);
    scene.client.wire.initialize().unwrap();
    assert_eq!(scene.call("look", &json!({}))["generation"], 1);
    let outer = scene
        .stage
        .card_that("is the outer one's", |card| card.json["name"] == "outer");
    let handle = Handle::open(outer.server.unwrap()).unwrap();
    handle.signal(Signal::KILL).unwrap();
    scene
        .stage
        .event_that("ready", |event| event["server"] == "outer");
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
