//! A server exits with status 0 while a helper process of it still holds its pipes: the server is dead, because the helper has
//! never written a line. A server whose launcher exits serves on, however late the launcher exits.
//! guards: A process that only holds the pipes of a dead server does not count as the server.

use std::ffi::OsString;

use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::Identity;
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;

use crate::support::scene::{self, Scene};
use rustix::process::Signal;
use serde_json::json;

#[test]
fn a_server_that_leaves_a_helper_is_started_again() {
    let mut scene = Scene::open(
        &[],
        &["--grandchild", "--dies-of", "echo", "--exit-code", "0"],
    );
    let first = scene.server(1);
    // The server exits in the middle of a call, which would otherwise wait for ever. The next generation answers the next call.
    let answer = scene.call("echo", &json!({}));
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let next = scene.call("pid", &json!({}))["pid"].clone();
    assert_eq!(next, scene.server(2).pid);
    assert_ne!(next, first.pid);
    assert_eq!(scene.exit(1)["status"], json!({"code": 0}));
    scene.client.finish();
    scene.stage.census.assert_empty();
}

#[test]
fn a_launcher_that_leaves_late_ends_no_server() {
    let stage = Stage::new();
    let script = r#"trap "exit 0" TERM; exec 3<&0; "$@" <&3 3<&- & exec 3<&-; wait"#;
    let argv: Vec<OsString> = ["sh", "-c", script, "sh"]
        .iter()
        .map(OsString::from)
        .chain(stage.unruly::<&str>(&["--grandchild"]))
        .collect();
    let mut client = Client::open(&stage, &run(scene::mainstay(), &[], argv));
    let server = client.wire.call("pid", &json!({})).unwrap()["pid"].clone();
    let launcher = stage.event("start")["pid"].as_i64().unwrap() as i32;
    assert_ne!(server, launcher);
    end(identity::of(launcher).unwrap());
    let after = client.wire.call("pid", &json!({})).unwrap();
    assert_eq!(after["pid"], server);
    let (status, rest) = client.finish();
    assert_eq!((status.code(), rest), (Some(0), Vec::new()));
    stage.census.assert_empty();
    assert_eq!(stage.events("start").len(), 1);
}

/// Makes a launcher exit with status 0 and waits until it has been reaped.
fn end(launcher: Identity) {
    let handle = Handle::open(launcher).unwrap();
    handle.signal(Signal::TERM).unwrap();
    until("the launcher has left", || {
        identity::of(launcher.pid).is_err().then_some(())
    });
}
