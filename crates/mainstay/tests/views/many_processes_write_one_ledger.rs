//! Several processes append to one event file. No line is lost, and no two lines are mixed.
//! guards: Events of many processes in one file are neither lost nor mixed.

use std::process::Command;

use mainstay_protocol::event::{Junk, What};
use mainstay_protocol::ids::LinkId;
use mainstay_store::ledger::Ledger;
use mainstay_store::ledger::read::{Filter, Skipped, all};
use mainstay_store::paths::Paths;

use crate::support::home::Home;
use crate::support::test_name;

const WRITERS: u32 = 6;
const EACH: u64 = 150;

/// Set when this test's own program is started again as a writer.
const WRITER: &str = "MAINSTAY_TEST_WRITER";

#[test]
#[expect(clippy::disallowed_methods, reason = "writers of their own")]
fn events_of_many_processes_are_neither_lost_nor_mixed() {
    if let Ok(number) = std::env::var(WRITER) {
        write(number.parse().unwrap());
        return;
    }
    let home = Home::new();
    let this = test_name(
        module_path!(),
        "events_of_many_processes_are_neither_lost_nor_mixed",
    );
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", &this])
                .env(WRITER, number.to_string())
                .env("HOME", home.path())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let (events, skipped) = all(&home.paths(), Filter::default()).unwrap();
    assert_eq!(skipped, Skipped::default());
    let mut next = vec![0; WRITERS as usize];
    for event in events {
        let writer = event.id.0 as usize;
        let What::Junk(junk) = event.what else {
            panic!("another kind")
        };
        assert_eq!(junk.lines, next[writer]);
        assert_eq!(junk.sample, sample(writer as u32, junk.lines));
        next[writer] += 1;
    }
    assert_eq!(next, vec![EACH; WRITERS as usize]);
}

fn write(writer: u32) {
    let mut ledger = Ledger::open(&Paths::find().unwrap());
    for lines in 0..EACH {
        let sample = sample(writer, lines);
        ledger.record(LinkId(writer), "a", What::Junk(Junk { lines, sample }));
    }
    assert_eq!(ledger.trouble(), None);
}

fn sample(writer: u32, lines: u64) -> String {
    // From a few bytes to several pages.
    writer.to_string().repeat((lines as usize * 131) % 20_000)
}
