//! `ulimit -f`: a file that may not grow ends neither us nor a server. The kernel's word for it is a signal whose default is
//! death.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::process::Stdio;

use mainstay::ledger::time;
use mainstay_os::clock;
use mainstay_os::record::Region;
use mainstay_testkit::built::under_test;
use mainstay_testkit::card::state_dir;
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use serde_json::json;

/// The words that run a server with a limit on file sizes, in KiB.
fn limited(stage: &Stage, kib: usize) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["sh", "-c", "ulimit -f \"$0\"; exec \"$@\""]
        .iter()
        .map(Into::into)
        // A shell counts in blocks of 512 bytes.
        .chain([(kib * 2).to_string().into()])
        .collect();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    words.extend(run(mainstay, &[], stage.unruly::<&str>(&[])));
    words
}

#[test]
fn a_ledger_that_may_not_grow_ends_nobody() {
    let stage = Stage::new();
    let kib = Region::BYTES.div_ceil(1024);
    let events = state_dir(stage.home()).join("events");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&events)
        .unwrap();
    // Today's file, and tomorrow's in case that it is midnight.
    for wall_ms in [clock::wall_ms(), clock::wall_ms() + time::DAY_MS] {
        let path = events.join(format!("{}.jsonl", time::date(wall_ms)));
        let file = fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .unwrap();
        file.set_len(kib as u64 * 1024).unwrap();
    }
    let mut client = Client::open(&stage, &limited(&stage, kib));
    assert!(client.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());
    // Nor does its successor die of it.
    let keeper = stage.card().keeper.unwrap();
    killers::at_once(&[keeper]);
    assert!(client.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());
    assert!(client.finish().0.success());
    for file in fs::read_dir(&events).unwrap() {
        let size = file.unwrap().metadata().unwrap().len();
        assert_eq!(size, kib as u64 * 1024, "nothing was torn off");
    }
    stage.census.assert_empty();
}

#[test]
fn a_record_that_may_not_have_its_size_is_told_with_the_limit() {
    let stage = Stage::new();
    let kib = Region::BYTES.div_ceil(1024);
    for limit in [4, kib - 1] {
        let words = limited(&stage, limit);
        let output = stage
            .command(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            format!(
                "error: cannot make the link's record in memory: file too large\n\
                 hint: the limit on file sizes (`ulimit -f`, LimitFSIZE=) must allow {kib} KiB\n"
            )
        );
        assert!(output.stdout.is_empty());
    }
    stage.census.assert_empty();
}
