//! Client and shim are not the keeper's children, but the events still say how they ended.
//! guards: The events say how client and shim ended, although they are not our children.

use crate::support::scene::{self, Scene};
use mainstay_os::identity::Handle;
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::stage::Stage;
use rustix::process::Signal;
use serde_json::{Value, json};

fn puppet(stage: &Stage) -> Puppet {
    let argv = scene::argv(stage, &[], &[]);
    Puppet::start(stage, Plan::default(), &argv)
}

fn gone(stage: &Stage, part: &str) -> Value {
    stage.event_that("gone", |event| event["part"] == part)
}

#[test]
fn the_status_of_a_killed_client_is_recorded() {
    let stage = Stage::new();
    let client = puppet(&stage);
    client.kill();
    let told = gone(&stage, "client");
    assert_eq!(
        told["status"],
        json!({"signal": {"number": 9, "core": false}})
    );
}

#[test]
fn the_status_of_a_client_that_exited_is_recorded() {
    let stage = Stage::new();
    let client = puppet(&stage);
    client.exit();
    assert_eq!(gone(&stage, "client")["status"], json!({"code": 0}));
}

#[test]
fn a_client_that_only_closed_its_pipes_is_not_recorded_as_ended() {
    let mut scene = Scene::open(&[], &[]);
    scene.client.finish();
    scene.stage.event("teardown");
    assert_eq!(scene.stage.events("gone"), Vec::<Value>::new());
}

#[test]
fn the_status_of_a_killed_shim_is_recorded() {
    let mut scene = Scene::open(&["--linger", "0"], &[]);
    let shim = scene.stage.card().shim.unwrap();
    Handle::open(shim).unwrap().signal(Signal::KILL).unwrap();
    let told = gone(&scene.stage, "shim");
    assert_eq!(told["pid"], shim.pid);
    assert_eq!(
        told["status"],
        json!({"signal": {"number": 9, "core": false}})
    );
    scene.client.wait();
}
