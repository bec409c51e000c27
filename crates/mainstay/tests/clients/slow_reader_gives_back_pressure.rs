//! Back-pressure means not reading: a reader that stops makes the writer on the other side stop. Nothing is lost, and none of our
//! buffers grows meanwhile.
//! guards: A slow reader stops the writer, and our memory does not grow.

use std::fs;
use std::time::Duration;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::unruly::{notification, numbered};
use mainstay_testkit::wait::{poll_for, span, until};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use serde_json::json;

/// Far more than all pipes and buffers on the way hold together.
const PUSHED: u64 = 32 * 1024 * 1024;
/// Two pipes or sockets, our buffers, and some room.
const ON_THE_WAY: u64 = 1024 * 1024;

#[test]
fn a_client_that_does_not_read_stops_the_server() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let marker = stage.path("marker");
    let server = stage.unruly(&["--marker", marker.to_str().unwrap()]);
    let mut client = Client::open(&stage, &run(mainstay, &[], server));
    let id = client
        .wire
        .ask(
            "tools/call",
            &json!({"name": "push", "arguments": {"bytes": PUSHED}}),
        )
        .unwrap();
    let told = until("the server is stopped or through", || {
        fs::read_to_string(&marker).ok()
    });
    let sent: u64 = told
        .strip_prefix("stalled ")
        .expect("the server is stopped")
        .parse()
        .unwrap();
    assert!(
        sent < ON_THE_WAY,
        "{sent} bytes went out before the client read"
    );
    // Now the client reads, and everything arrives.
    let mut next = 0;
    loop {
        let line = client.wire.line().unwrap().expect("there are more to come");
        let Some(number) = numbered(&line) else {
            let answer: serde_json::Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(answer["id"], id);
            assert_eq!(answer["result"]["structuredContent"]["messages"], next);
            break;
        };
        assert_eq!(number, next);
        next += 1;
    }
    assert!(client.finish().0.success());
}

#[test]
fn a_server_that_does_not_read_stops_the_client() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let options = ["--grace-eof", "100ms", "--grace-term", "100ms"];
    let client = &mut Client::open(&stage, &run(mainstay, &options, stage.unruly(&["--deaf"])));
    let writer = client.wire.writer().expect("stdin is open");
    rustix::fs::fcntl_setfl(writer, rustix::fs::OFlags::NONBLOCK).unwrap();
    let (mut sent, mut number) = (0, 0);
    // It counts as stopped when it takes nothing for a while. A slow machine makes this stop earlier, never later.
    while sent < PUSHED {
        let mut fds = [PollFd::new(writer, PollFlags::OUT)];
        if poll_for(&mut fds, span(Duration::from_millis(300))) == 0 {
            break;
        }
        let line = notification(number);
        match rustix::io::write(writer, line.as_bytes()) {
            Ok(taken) => sent += taken as u64,
            Err(Errno::AGAIN) => {}
            Err(error) => panic!("{error}"),
        }
        number += 1;
    }
    assert!(
        sent < ON_THE_WAY,
        "{sent} bytes went in although the server does not read"
    );
    client.wire.close_write();
    stage.census.assert_empty();
}

/// The client answers none of the questions, so we refuse them at some point. If the server does not read the refusals either, we
/// stop reading from it.
#[test]
fn a_server_that_asks_and_never_reads_is_stopped() {
    const QUESTIONS: usize = 4096;
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let question = r#"{"jsonrpc":"2.0","id":%.0f,"method":"roots/list"}"#;
    let server = ["seq", "-f", question, "100000000"].map(Into::into);
    let argv = run(mainstay, &["--grace-eof", "100ms"], server.into());
    let mut client = Launch::new(&stage, &argv).start();
    for _ in 0..QUESTIONS {
        client.wire.line().unwrap().expect("a question");
    }
    let card = stage.card();
    let both = [card.keeper.unwrap(), card.server.unwrap()];
    // Both were asleep at many checks in a row, so neither can wake the other.
    let asleep = || {
        both.iter()
            .all(|who| mainstay_os::census::stat(who.pid).unwrap().state == b'S')
    };
    let mut looks = 0;
    until("nothing moves any more", || {
        looks = if asleep() { looks + 1 } else { 0 };
        (looks == 20).then_some(())
    });
    let grown = mainstay_os::census::memory(both[0].pid).rss_kib;
    assert!(grown < 128 * 1024, "{grown} KiB");
    client.finish();
    stage.census.assert_empty();
}
