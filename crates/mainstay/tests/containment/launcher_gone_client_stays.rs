//! A launcher between client and mainstay (`sh -c`, npx) may exit early. The client behind it still holds the pipes, and its
//! server lives on until that client closes them.
//! guards: A launcher that exits early does not count as the end of the client.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::chown;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Launch;
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::skip;
use mainstay_testkit::stage::{Stage, run};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

/// A background job of a shell has /dev/null as stdin unless it is given another one.
const LAUNCHER: &str = r#"exec 3<&0; "$@" <&3 3<&- & exit 0"#;

/// Like `LAUNCHER`, but exits only after a write to the FIFO that is its first argument.
const PATIENT: &str =
    r#"cue=$1; shift; exec 3<&0; "$@" <&3 3<&- & exec 3<&-; read -r go <"$cue"; exit 0"#;

/// A user without any rights. The user need not exist.
const UNPRIVILEGED: u32 = 41_007;

fn launched(stage: &Stage, launcher: &[&str]) -> Vec<OsString> {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let mut argv: Vec<OsString> = launcher.iter().map(Into::into).collect();
    argv.extend(run(
        mainstay,
        &["--grace-eof", "300ms"],
        stage.unruly(&["--daemon"]),
    ));
    argv
}

#[test]
fn the_server_answers_after_its_launcher_is_gone() {
    let stage = Stage::new();
    let mut client = Launch::new(&stage, &launched(&stage, &["sh", "-c", LAUNCHER, "sh"])).start();
    assert!(client.wait().success(), "the launcher is gone");
    client.wire.initialize().expect("the opening is answered");
    let first = client.wire.call("pid", &json!({})).unwrap();
    let second = client.wire.call("pid", &json!({})).unwrap();
    assert_eq!(first["pid"], second["pid"]);
    client.wire.close_write();
    assert_eq!(client.wire.rest().unwrap(), b"");
    stage.census.assert_empty();
}

#[test]
fn the_server_answers_after_its_launcher_is_gone_even_if_the_client_is_hidden() {
    if !skip::root_or_skip("only root can start a client of another user") {
        return;
    }
    let stage = Stage::new();
    chown(stage.home(), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    let cue = stage.path("cue");
    mknodat(CWD, &cue, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    chown(&cue, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    let uid = UNPRIVILEGED.to_string();
    let words = [
        "setpriv",
        "--reuid",
        &uid,
        "--regid",
        &uid,
        "--clear-groups",
    ];
    let plan = Plan {
        behind: words.map(OsString::from).into(),
        hidden: true,
        ..Plan::default()
    };
    let launcher = ["sh", "-c", PATIENT, "sh", cue.to_str().unwrap()];
    let mut puppet = Puppet::start(&stage, plan, &launched(&stage, &launcher));
    fs::write(&cue, "go\n").unwrap();
    assert_eq!(puppet.wait_shims(), [0], "the launcher is gone");
    let moved = stage.event("client_moved");
    assert_eq!(moved["to"]["pid"], puppet.who.pid, "{moved}");
    let first = puppet.call_pids();
    assert!(first[0].is_some(), "{first:?}");
    puppet.close();
    stage.census.assert_empty();
}
