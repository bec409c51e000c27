//! `events --follow` shows what is there, then what comes, and ends when its reader does.

mod support;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use mainstay::ledger::Ledger;
use mainstay_core::event::{OpeningSilent, What};
use mainstay_core::ids::LinkId;
use support::Home;

#[test]
fn it_follows_and_ends_with_its_reader() {
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
    // The kernel tells it that the reader is gone; no event is needed for that.
    drop(lines);
    assert!(child.wait().unwrap().success());
}

#[test]
fn of_one_server_it_shows_nothing_else() {
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
    // Others before and between are left out.
    assert!(next().ends_with(r#""ms":2}"#));
    for ms in 3..10 {
        record("b", 100 + ms);
        record("a", ms);
        assert!(next().ends_with(&format!(r#""ms":{ms}}}"#)));
    }
    drop(lines);
    assert!(child.wait().unwrap().success());
}
