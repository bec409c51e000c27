//! `ulimit -f`: a file that may not grow ends neither us nor a server. The kernel reports the limit with SIGXFSZ, which kills by
//! default.
//! guards: A file size limit that stops the ledger ends no process.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};

use mainstay_os::record::Region;
use mainstay_os::{clock, identity};
use mainstay_protocol::time;
use mainstay_testkit::built::under_test;
use mainstay_testkit::card::state_dir;
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use serde_json::json;

/// The command that runs a server with a limit on file sizes, in KiB.
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
fn a_ledger_that_may_not_grow_ends_no_process() {
    let stage = Stage::new();
    let kib = Region::BYTES.div_ceil(1024);
    let events = state_dir(stage.home()).join("events");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&events)
        .unwrap();
    // Today's file, and tomorrow's in case it is midnight.
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
    // Its successor does not die of it either.
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
fn a_record_that_may_not_have_its_size_needs_no_file() {
    let kib = Region::BYTES.div_ceil(1024);
    for limit in [0, 4, 1024, kib - 1] {
        let stage = Stage::new();
        let mut client = Client::open(&stage, &limited(&stage, limit));
        let pid = |client: &mut Client| {
            let told = client.wire.call("pid", &json!({})).unwrap();
            told["pid"].as_i64().unwrap() as i32
        };
        let first = pid(&mut client);
        killers::at_once(&[identity::of(first).unwrap()]);
        let second = pid(&mut client);
        assert_ne!(second, first);
        // The next keeper needs the record too: with it, it opens the server again as the client did.
        let stat = |pid| mainstay_os::census::stat(pid).unwrap();
        let keeper = stat(stat(second).ppid).ppid;
        killers::at_once(&[identity::of(keeper).unwrap()]);
        assert_ne!(pid(&mut client), second);
        assert!(client.finish().0.success());
        stage.census.assert_empty();
    }
}
