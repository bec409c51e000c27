//! `mainstay … | head -1` is not an error.
//! guards: A closed output pipe is not an error.

use std::process::Stdio;

use mainstay_protocol::event::{Junk, What};
use mainstay_protocol::ids::LinkId;
use mainstay_store::ledger::Ledger;

use crate::support::home::Home;

#[test]
fn a_closed_pipe_is_no_failure() {
    let home = Home::new();
    let mut ledger = Ledger::open(&home.paths());
    for lines in 0..20 {
        let sample = "x".repeat(10_000);
        ledger.record(LinkId(1), "a", What::Junk(Junk { lines, sample }));
    }
    for words in [
        &["events", "--json"][..],
        &["ps", "--json"],
        &["doctor"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = home
            .command(words)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        // `doctor` may find problems here, which does not matter for this test.
        let found = words == ["doctor"] && output.status.code() == Some(1);
        assert!(output.status.success() || found, "{words:?}: {output:?}");
        assert_eq!(output.stderr, b"", "{words:?}");
    }
}
