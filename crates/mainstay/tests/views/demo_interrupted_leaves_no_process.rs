//! Ctrl-C in the middle of `mainstay demo`: all processes end, also those that only the demo itself would end.
//! guards: An interrupted demo leaves no process.

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
fn an_interrupted_demo_leaves_no_process() {
    let stage = Stage::new();
    let temp = stage.path("tmp");
    fs::create_dir(&temp).unwrap();
    let demo = stage
        .command(under_test(env!("CARGO_BIN_EXE_mainstay")))
        .arg("demo")
        .env("TMPDIR", &temp)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Two clients, 30 members of trees, and mainstay's own processes: the first scene runs and stays for its grace of two
    // seconds.
    until("the scene is on", || (playing(&temp) > 30).then_some(()));
    let handle = Handle::open(identity::of(demo.id() as i32).unwrap()).unwrap();
    handle.signal(Signal::INT).unwrap();
    let output = demo.wait_with_output().unwrap();
    let status = output.status;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.ends_with("interrupted: no process and no file is left behind\n"),
        "{said}"
    );
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status}");
    assert_eq!(playing(&temp), 0);
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0);
}

/// Counts the processes whose directory is below this one. That finds the demo's processes however they detached.
fn playing(temp: &Path) -> usize {
    census::pids()
        .unwrap()
        .into_iter()
        .filter(|pid| {
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(temp))
        })
        .count()
}
