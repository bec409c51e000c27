//! A client left with a full buffer, and its server reads nothing. Once the keeper treats the client as closed, it sleeps until
//! the next step of the stop ladder.
//! guards: A keeper sleeps between the steps of the stop ladder.

use std::fs;
use std::time::Duration;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::unruly::notification;
use mainstay_testkit::wait::{poll_for, span};
use rustix::event::{PollFd, PollFlags};

/// Wake-ups during the whole stop: a few for each step. One per millisecond would be thousands.
const WAKE_UPS: u64 = 300;

#[test]
fn the_keeper_sleeps_while_the_rest_is_unread() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let options = ["--grace-eof", "100ms", "--grace-term", "2s"];
    let server = stage.unruly(&["--deaf", "--ignore-term", "--ignore-eof"]);
    let client = &mut Client::open(&stage, &run(mainstay, &options, server));
    let keeper = stage.card().keeper.unwrap();
    let writer = client.wire.writer().expect("stdin is open");
    rustix::fs::fcntl_setfl(writer, rustix::fs::OFlags::NONBLOCK).unwrap();
    let line = notification(1);
    while poll_for(
        &mut [PollFd::new(writer, PollFlags::OUT)],
        span(Duration::from_millis(300)),
    ) > 0
    {
        rustix::io::write(writer, line.as_bytes()).ok();
    }
    let before = wake_ups(keeper.pid).expect("the keeper lives");
    client.wire.close_write();
    let mut after = before;
    while let Some(now) = wake_ups(keeper.pid) {
        after = now;
        std::thread::yield_now();
    }
    assert!(after - before < WAKE_UPS, "{} wake-ups", after - before);
    stage.census.assert_empty();
}

/// How often a process has slept so far.
fn wake_ups(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let count = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    count.trim().parse().ok()
}
