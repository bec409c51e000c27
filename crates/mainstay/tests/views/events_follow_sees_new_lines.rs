//! `events --follow` shows the existing events, then new ones, and ends when its reader does.
//! guards: `events --follow` shows every new event and exits with its reader.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use mainstay_protocol::event::{OpeningSilent, What};
use mainstay_protocol::ids::LinkId;
use mainstay_store::ledger::Ledger;

use crate::support::home::Home;

#[test]
fn events_follow_ends_with_its_reader() {
    let home = Home::new();
    let mut ledger = Ledger::open(&home.paths());
    let mut record = |ms| {
        let silent = What::OpeningSilent(OpeningSilent { ms });
        ledger.record(LinkId(1), "a", silent);
    };
    record(1);
    let mut child = home
        .command(&["events", "--follow", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().ends_with(r#""ms":1}"#));
    for ms in 2..20 {
        record(ms);
        assert!(next().ends_with(&format!(r#""ms":{ms}}}"#)));
    }
    // The kernel reports that the reader is gone, without any further event.
    drop(lines);
    assert!(child.wait().unwrap().success());
}

#[test]
fn events_follow_with_server_shows_only_that_server() {
    let home = Home::new();
    let mut ledger = Ledger::open(&home.paths());
    let mut record = |server, ms| {
        let silent = What::OpeningSilent(OpeningSilent { ms });
        ledger.record(LinkId(1), server, silent);
    };
    record("b", 1);
    record("a", 2);
    let mut child = home
        .command(&["events", "--follow", "--server", "a", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    // Events of other servers, before and in between, are left out.
    assert!(next().ends_with(r#""ms":2}"#));
    for ms in 3..10 {
        record("b", 100 + ms);
        record("a", ms);
        assert!(next().ends_with(&format!(r#""ms":{ms}}}"#)));
    }
    drop(lines);
    assert!(child.wait().unwrap().success());
}
