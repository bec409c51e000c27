//! A launcher starts the server and exits with status 0. When the client closes stdin, the link ends with the launcher's status,
//! and its end is in the events.
//! guards: If a launcher has left early, the exit status is the launcher's.

use std::ffi::OsString;

use mainstay_os::identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::json;

#[test]
fn the_status_of_an_early_launcher_is_0_and_not_a_kill() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let launcher = ["sh", "-c", r#"exec 3<&0; "$@" <&3 3<&- & exit 0"#, "sh"];
    let argv: Vec<OsString> = launcher
        .iter()
        .map(OsString::from)
        .chain(stage.unruly::<&str>(&[]))
        .collect();
    let mut client = Client::open(&stage, &run(mainstay, &[], argv));
    let launcher = stage.event("start")["pid"].as_i64().unwrap() as i32;
    until("the launcher has left", || {
        identity::of(launcher).is_err().then_some(())
    });
    client.wire.request("ping", &json!({})).unwrap();
    let (status, rest) = client.finish();
    assert_eq!((status.code(), rest), (Some(0), Vec::new()));
    stage.census.assert_empty();
    assert_eq!(stage.event("exit")["status"], json!({"code": 0}));
}
