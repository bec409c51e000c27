//! Events on stdout, one readable line each, or as they were written; notes about broken lines on stderr.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;
use std::fs::OpenOptions;
use std::io::Write;

use mainstay::ledger::time;
use mainstay_os::clock;
use support::{Home, outcome};

const LINES: &str = r#"{"v":1,"at":"2026-11-14T23:59:59.999Z","id":"00000001","server":"fetch","event":"exit","generation":1,"pid":7,"status":{"code":1},"uptime_ms":1500,"usage":{"user_ms":1,"system_ms":1,"max_rss_kib":1},"in_flight":0,"stderr_tail":["boom"]}
{"v":1,"at":"2026-11-15T22:31:07.123Z","id":"00000002","server":"playwright","event":"start","generation":1,"argv":["x"],"cwd":"/","pid":4711,"tier":"cgroup","why_not":[],"client":null,"detached":"yes"}
{"v":1,"at":"2026-11-15T22:31:09.000Z","id":"00000002","server":"playwright","event":"from_the_future","x":1}
{"v":1,"at":"2026-11-15T22:31:10.000Z","id":"00000002","server":"playwright","event":"teardown","cause":"client_eof","rungs":["eof"],"ms":12,"ended":3,"left":[],"extra":true}
"#;

fn home(tail: &str) -> Home {
    let home = Home::new();
    let file = home.paths().events().path().join("2026-11-15.jsonl");
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .unwrap()
        .write_all(format!("{LINES}{tail}").as_bytes())
        .unwrap();
    home
}

#[test]
fn in_words() {
    assert_eq!(
        home("{\"v\":1,\"at\":\n").mainstay(&["events"]),
        outcome(
            "\
2026-11-14 (UTC)
23:59:59.999  fetch  exit  pid 7, exit code 1 after 1.50 s
    stderr: boom
2026-11-15 (UTC)
22:31:07.123  playwright  start  pid 4711, generation 1, tier cgroup
22:31:10.000  playwright  teardown  0 left after 12 ms (EOF), the client closed stdin, 3 ended
",
            "note: skipped 1 torn and 1 unknown lines (an unknown kind is written by a newer version)\n",
            0
        )
    );
}

#[test]
fn of_one_server_as_they_were_written() {
    let lines: Vec<&str> = LINES.lines().collect();
    let known = format!("{}\n{}\n", lines[1], lines[3]);
    let shown = home("").mainstay(&["events", "--json", "--server", "playwright"]);
    assert_eq!((shown.stdout, shown.code), (known.clone(), Some(0)));
    let shown = home("").mainstay(&["events", "--json", "--id", "00000002"]);
    assert_eq!(shown.stdout, known);
}

/// An event an hour old and a fresh one.
fn old_and_new() -> Home {
    const HOUR_MS: u64 = 3_600_000;
    let home = Home::new();
    for (ms, age_ms) in [(1, HOUR_MS), (2, 0)] {
        let at = time::rfc3339(clock::wall_ms() - age_ms);
        let line = format!(
            r#"{{"v":1,"at":"{at}","id":"00000001","server":"a","event":"opening_silent","ms":{ms}}}"#
        );
        let file = format!("{}.jsonl", &at[..10]);
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(home.paths().events().path().join(file))
            .unwrap()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }
    home
}

#[test]
fn not_older_than_was_asked() {
    let home = old_and_new();
    let told = |words: &[&str]| {
        let shown = home.mainstay(words);
        assert_eq!((shown.stderr.as_str(), shown.code), ("", Some(0)));
        let silences = shown.stdout.lines().map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            event["ms"].as_u64().unwrap()
        });
        silences.collect::<Vec<_>>()
    };
    assert_eq!(told(&["events", "--json"]), [1, 2]);
    assert_eq!(told(&["events", "--json", "--since", "10m"]), [2]);
    assert_eq!(told(&["events", "--json", "--since", "2h"]), [1, 2]);
    let words = home.mainstay(&["events", "--since", "10m"]).stdout;
    assert_eq!(words.matches("opening_silent").count(), 1, "{words}");
}

#[test]
fn none() {
    assert_eq!(
        Home::new().mainstay(&["events"]),
        outcome(
            "",
            "no events yet: they are written when a server runs under `mainstay run -- COMMAND`\n",
            0
        )
    );
    let shown = Home::new().mainstay(&["events", "--since", "10"]);
    assert_eq!(shown.code, Some(2));
    assert!(
        shown.stderr.contains("`10` is not a time"),
        "{}",
        shown.stderr
    );
}

/// What a server is called, or has written, cannot turn a line around or move the cursor.
#[test]
fn without_characters_that_cannot_be_seen() {
    let foreign = "evil\u{202e}\u{2066}\u{200f}\u{61c}\u{200b}\u{9b}2J\u{1b}[2Jname";
    let lines: String = LINES.replace("playwright", &foreign.replace('\u{1b}', "\\u001b"));
    assert!(
        lines.contains('\u{202e}'),
        "a server is there under that name"
    );
    let home = home(&lines);
    for view in [
        &["events"][..],
        &["events", "-n", "3"],
        &["why"],
        &["ps"],
        &["doctor"],
    ] {
        let told = home.mainstay(view);
        let told = told.stdout + &told.stderr;
        let seen = told.chars().find(|c| {
            c.is_control() && *c != '\n' || "\u{202e}\u{2066}\u{200f}\u{61c}\u{200b}".contains(*c)
        });
        assert_eq!(seen, None, "{view:?}: {told}");
    }
    assert!(home.mainstay(&["events"]).stdout.contains("evil\\u{202e}"));
}
