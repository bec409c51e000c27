//! `restart` waits for the keepers' answers and passes them on; without one it says why.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;
use mainstay::registry::Entry;
use mainstay::registry::control::{Answer, Request};
use support::keepers::{entry, with_keepers};
use support::{Home, Outcome, outcome};

/// The command, with keepers that answer one `restart` each.
fn restart(home: &Home, words: &[&str], keepers: Vec<(Entry, Answer)>) -> Outcome {
    with_keepers(home, words, &Request::Restart, keepers)
}

fn ready(generation: u32, pid: Option<i32>) -> Answer {
    Answer::Restarted { generation, pid }
}

#[test]
fn one_by_its_name() {
    let home = Home::new();
    let keepers = vec![(entry(&home, 1, "play"), ready(2, Some(4_711)))];
    assert_eq!(
        restart(&home, &["restart", "play"], keepers),
        outcome("play: restarted, generation 2, pid 4711\n", "", 0)
    );
}

#[test]
fn all_of_them_and_one_that_will_not() {
    let home = Home::new();
    let refused = Answer::Refused {
        error: "the next generation ended at once".into(),
    };
    // A dead link is nobody that runs.
    drop(entry(&home, 4, "gone"));
    let keepers = vec![
        (entry(&home, 1, "fetch"), ready(3, None)),
        (entry(&home, 2, "play"), refused),
    ];
    assert_eq!(
        restart(&home, &["restart", "--all"], keepers),
        outcome(
            "fetch (00000001): restarted, generation 3 starts when it is needed\n",
            "error: play (00000002): its keeper refused: the next generation ended at once\n",
            1
        )
    );
}

#[test]
fn as_json() {
    let home = Home::new();
    let keepers = vec![(entry(&home, 0x1a00_0000, "play"), ready(2, Some(4_711)))];
    let restarted = restart(&home, &["restart", "1a", "--json"], keepers);
    assert_eq!(restarted.code, Some(0));
    assert_eq!(
        restarted.json(),
        serde_json::json!([
            {"id": "1a000000", "server": "play", "ok": true, "generation": 2, "pid": 4_711}
        ])
    );
}

#[test]
fn nobody_there() {
    let home = Home::new();
    assert_eq!(
        home.mainstay(&["restart", "--all"]),
        outcome("", "no server runs under mainstay now\n", 0)
    );
    assert_eq!(
        home.mainstay(&["restart", "play"]),
        outcome(
            "",
            "error: no server is called `play`\nhint: none runs under mainstay now\n",
            1
        )
    );
    drop(entry(&home, 1, "play"));
    let dead = home.mainstay(&["restart", "play"]);
    assert_eq!(dead.code, Some(75));
    assert!(dead.stderr.starts_with("error: play: its keeper is dead\n"));
}

#[test]
fn either_a_name_or_all() {
    let home = Home::new();
    assert_eq!(home.mainstay(&["restart"]).code, Some(2));
    assert_eq!(home.mainstay(&["restart", "play", "--all"]).code, Some(2));
}
