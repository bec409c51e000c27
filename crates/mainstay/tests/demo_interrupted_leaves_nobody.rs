//! Ctrl-C in the middle of `mainstay demo`: everybody is ended, also those whom nobody but the demo would end.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use mainstay_os::census;
use mainstay_os::identity::{self, Handle};
use mainstay_testkit::built::under_test;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use rustix::process::Signal;

#[test]
fn interrupted() {
    let stage = Stage::new();
    let temp = stage.path("tmp");
    fs::create_dir(&temp).unwrap();
    let mut demo = stage
        .command(under_test(env!("CARGO_BIN_EXE_mainstay")))
        .arg("demo")
        .env("TMPDIR", &temp)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Two clients, 30 members, and mainstay's own: the first scene is on, and stays for its two seconds of grace.
    until("the scene is on", || (playing(&temp) > 30).then_some(()));
    let handle = Handle::open(identity::of(demo.id() as i32).unwrap()).unwrap();
    handle.signal(Signal::INT).unwrap();
    let status = demo.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status}");
    assert_eq!(playing(&temp), 0);
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0);
}

/// Processes that work in a directory below this one: the demo's, however they detached.
fn playing(temp: &Path) -> usize {
    census::pids()
        .unwrap()
        .into_iter()
        .filter(|pid| {
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(temp))
        })
        .count()
}
