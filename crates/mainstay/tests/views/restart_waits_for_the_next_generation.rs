//! `restart` waits for the keepers' answers and prints them. If a keeper does not answer, it says why.
//! guards: `restart` reports success only after the keeper has confirmed the next generation.

use std::io::Write;
use std::process::Stdio;

use mainstay_store::registry::Entry;
use mainstay_store::registry::control::{Answer, Request};

use crate::support::at_terminal::AtTerminal;
use crate::support::home::{Home, Outcome, outcome};
use crate::support::keepers::{entry, with_keepers};
use crate::support::scene::Scene;

/// Runs the command against keepers that answer one `restart` each.
fn restart(home: &Home, words: &[&str], keepers: Vec<(Entry, Answer)>) -> Outcome {
    with_keepers(home, words, &Request::Restart, keepers)
}

fn ready(generation: u32, pid: Option<i32>) -> Answer {
    Answer::Restarted { generation, pid }
}

#[test]
fn restart_by_name_waits_for_the_new_server() {
    let home = Home::new();
    let keepers = vec![(entry(&home, 1, "play"), ready(2, Some(4_711)))];
    assert_eq!(
        restart(&home, &["restart", "play"], keepers),
        outcome("play: restarted, generation 2, pid 4711\n", "", 0)
    );
}

#[test]
fn restart_of_a_stopped_server_says_that_it_was_stopped() {
    let mut scene = Scene::open(&[], &[]);
    assert!(scene.mainstay(&["stop", "unruly"]).status.success());
    scene.stage.event("exit");
    scene.client.finish();
    let refused = scene.mainstay(&["restart", "unruly"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(
        text.starts_with("error: `mainstay stop` ended `unruly` at "),
        "{text}"
    );
    assert!(
        text.contains("\nhint: its client starts it again "),
        "{text}"
    );
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn restart_all_reports_a_server_that_refuses() {
    let home = Home::new();
    let refused = Answer::Refused {
        error: "the next generation ended at once".into(),
    };
    // A dead link does not count as a running server.
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
fn restart_prints_json() {
    let home = Home::new();
    let keepers = vec![(entry(&home, 0x1a00_0000, "play"), ready(2, Some(4_711)))];
    let restarted = restart(&home, &["restart", "1A00", "--json"], keepers);
    assert_eq!(restarted.code, Some(0));
    assert_eq!(
        restarted.json(),
        serde_json::json!([
            {"id": "1a000000", "server": "play", "ok": true, "generation": 2, "pid": 4_711}
        ])
    );
}

#[test]
fn restart_without_servers_says_so() {
    let home = Home::new();
    assert_eq!(
        home.mainstay(&["restart", "--all"]),
        outcome("", "no server runs under mainstay now\n", 0)
    );
    assert_eq!(
        home.mainstay(&["restart", "play"]),
        outcome(
            "",
            "error: no server is called `play`\nhint: no server runs under mainstay now\n",
            1
        )
    );
    drop(entry(&home, 1, "play"));
    let dead = home.mainstay(&["restart", "play"]);
    assert_eq!(dead.code, Some(75));
    assert!(dead.stderr.starts_with("error: play: its keeper is dead\n"));
}

#[test]
fn restart_of_a_name_with_all_restarts_every_server_of_that_name() {
    let home = Home::new();
    let _other = entry(&home, 3, "fetch");
    let keepers = vec![
        (entry(&home, 1, "play"), ready(2, Some(11))),
        (entry(&home, 2, "play"), ready(2, Some(12))),
    ];
    assert_eq!(
        restart(&home, &["restart", "play", "--all"], keepers),
        outcome(
            "play (00000001): restarted, generation 2, pid 11\nplay (00000002): restarted, generation 2, pid 12\n",
            "",
            0
        )
    );
}

#[test]
fn restart_says_on_a_terminal_what_it_waits_for() {
    let home = Home::new();
    let entry = entry(&home, 1, "play");
    let listener = entry.listen().unwrap();
    listener.set_nonblocking(false).unwrap();
    let mut command = home.command(&["restart", "play"]);
    let mut restart = AtTerminal::start(command.stdin(Stdio::null()).stdout(Stdio::null()));
    let (mut stream, _) = listener.accept().unwrap();
    // The keeper answers only after the command has said that it waits.
    restart.wait_for("waiting until the new server is ready (at most ");
    restart.wait_for(": play");
    stream.write_all(&ready(2, None).line()).unwrap();
    assert_eq!(restart.end(), Some(0));
}
