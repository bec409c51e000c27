//! Events on stdout, one readable line each, or as JSON as they were written. Notes about broken lines go to stderr.
//! guards: No invisible or control character of a server reaches the terminal.

use std::fs::OpenOptions;
use std::io::Write;

use mainstay_os::clock;
use mainstay_protocol::time;

use crate::support::home::{Home, outcome};

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
fn events_are_printed_as_readable_lines() {
    assert_eq!(
        home("{\"v\":1,\"at\":\n").mainstay(&["events", "--utc"]),
        outcome(
            "\
2026-11-14 (UTC)
23:59:59  fetch      0000  died        #1 pid 7, exit code 1 after 1.50 s
          stderr: boom
2026-11-15 (UTC)
22:31:07  playwright 0000  started     #1 pid 4711
22:31:10  playwright 0000  cleaned up  0 left after 12 ms (EOF), the client closed stdin, 3 ended
",
            "note: skipped 1 incomplete and 1 unknown lines (unknown ones were written by a newer version)\n",
            0
        )
    );
}

#[test]
fn events_of_one_server_are_printed_as_json() {
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
fn events_since_shows_nothing_older() {
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
    assert_eq!(words.matches("  no answer  ").count(), 1, "{words}");
}

#[test]
fn times_are_local_and_milliseconds_are_shown_on_request() {
    let home = home("");
    let mut command = home.command(&["events", "--server", "playwright", "-v"]);
    let shown = home.outcome(command.env("TZ", "XYZ-05:30"));
    assert_eq!(
        shown.stdout,
        "\
2026-11-16 (UTC+05:30)
04:01:07.123  playwright 0000  started     #1 pid 4711
          tier cgroup
04:01:10.000  playwright 0000  cleaned up  0 left after 12 ms (EOF), the client closed stdin, 3 ended
"
    );
    let mut command = home.command(&["events", "--since", "2026-11-16 04:01:08"]);
    let shown = home.outcome(command.env("TZ", "XYZ-05:30"));
    assert_eq!(shown.stdout.matches(" playwright ").count(), 1, "{shown:?}");
}

/// Ends of pipes are shown on request, and the last so many events are counted without them.
#[test]
fn minor_events_are_left_out() {
    let end = r#"{"v":1,"at":"2026-11-15T22:31:11.000Z","id":"00000002","server":"playwright","event":"pipe_end","pipe":"client_stdin","generation":1}"#;
    let home = home(&format!("{end}\n{end}\n"));
    let shown = home.mainstay(&["events", "-n", "1"]).stdout;
    assert!(shown.contains("  cleaned up  "), "{shown}");
    let shown = home.mainstay(&["events", "-n", "1", "-v"]).stdout;
    assert!(shown.contains("  pipe closed  "), "{shown}");
}

#[test]
fn a_server_that_is_not_known_is_an_error_with_the_names() {
    let home = home("");
    for words in [
        &["events", "--server", "nosuch"][..],
        &["events", "--server", "nosuch", "--timeline"],
        &["events", "--server", "nosuch", "--json"],
    ] {
        assert_eq!(
            home.mainstay(words),
            outcome(
                "",
                "error: no server is called `nosuch`\nhint: known servers: playwright\n",
                1
            ),
            "{words:?}"
        );
    }
}

#[test]
fn events_says_so_if_there_are_none() {
    for words in [&["events"][..], &["events", "--timeline"]] {
        assert_eq!(
            Home::new().mainstay(words),
            outcome(
                "",
                "no events yet: they are written when a server runs under `mainstay run -- COMMAND`\n",
                0
            )
        );
    }
    let shown = Home::new().mainstay(&["events", "--since", "10"]);
    assert_eq!(shown.code, Some(2));
    assert!(
        shown.stderr.contains("`10` is not a time"),
        "{}",
        shown.stderr
    );
}

/// A server's name or output cannot reverse a line or move the cursor.
#[test]
fn events_hide_invisible_characters() {
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
        &["why", "--full"],
        &["why", "--last", "5"],
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
