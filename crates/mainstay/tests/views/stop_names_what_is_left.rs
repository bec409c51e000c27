//! `stop` waits for the keepers' answers and prints them. If a keeper does not answer, it says why.
//! guards: `stop` names every process that is left, and fails then.

use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::Identity;
use mainstay_store::registry::Entry;
use mainstay_store::registry::control::{Answer, Request};

use crate::support::home::{Home, Outcome, outcome};
use crate::support::keepers::{entry, with_keepers};

/// Runs the command against keepers that answer one `stop` each.
fn stop(home: &Home, words: &[&str], keepers: Vec<(Entry, Answer)>) -> Outcome {
    with_keepers(home, words, &Request::Stop, keepers)
}

fn ended(ended: u32, left: &[i32]) -> Answer {
    let left = left
        .iter()
        .map(|&pid| Seen {
            who: Identity { pid, start: 1 },
            comm: "node".into(),
        })
        .collect();
    Answer::Stopped { ended, left }
}

#[test]
fn stop_reports_that_no_process_is_left() {
    let home = Home::new();
    let keepers = vec![(entry(&home, 1, "play"), ended(3, &[]))];
    assert_eq!(
        stop(&home, &["stop", "play"], keepers),
        outcome("play: ended 3, 0 left\n", "", 0)
    );
}

#[test]
fn stop_ends_all_servers_of_a_name_and_names_what_is_left() {
    let home = Home::new();
    let keepers = vec![
        (entry(&home, 1, "play"), ended(3, &[])),
        (entry(&home, 2, "play"), ended(1, &[77])),
    ];
    assert_eq!(
        stop(&home, &["stop", "play", "--all"], keepers),
        outcome(
            "play (00000001): ended 3, 0 left\nplay (00000002): ended 1, 1 left: node (77)\n",
            "",
            1
        )
    );
}

#[test]
fn stop_by_the_first_digits_of_an_id_prints_json() {
    let home = Home::new();
    let _other = entry(&home, 0x1b00_0000, "play");
    let keepers = vec![(entry(&home, 0x1a00_0000, "play"), ended(2, &[]))];
    let stopped = stop(&home, &["stop", "1a00", "--json"], keepers);
    assert_eq!(stopped.code, Some(0));
    assert_eq!(
        stopped.json(),
        serde_json::json!([{"id": "1a000000", "server": "play", "ok": true, "ended": 2, "left": []}])
    );
}

#[test]
fn stop_reports_an_unknown_name() {
    let home = Home::new();
    let _live = entry(&home, 1, "playwright");
    assert_eq!(
        home.mainstay(&["stop", "plywright"]),
        outcome(
            "",
            "error: no server is called `plywright`\nhint: did you mean `playwright`?\n",
            1
        )
    );
}

#[test]
fn stop_reports_a_dead_keeper() {
    let home = Home::new();
    drop(entry(&home, 1, "play"));
    assert_eq!(
        home.mainstay(&["stop", "play"]),
        outcome(
            "",
            "error: play: its keeper is dead\nhint: the next `mainstay run` ends the processes that it left; `mainstay doctor` shows them\n",
            75
        )
    );
}
