//! A server that is itself behind a mainstay: what the outer one asks on its own is answered through the inner one, so that the
//! next generation is opened like any other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_os::identity::Handle;
use mainstay_testkit::stage::{Stage, run};
use rustix::process::Signal;
use scene::{Scene, argv, mainstay};
use serde_json::json;

#[test]
fn after_a_death() {
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
        .event_that("replayed", |event| event["server"] == "outer");
    assert_eq!(scene.call("look", &json!({}))["generation"], 2);
    assert_eq!(scene.finish(), [json!(null); 0]);
}
