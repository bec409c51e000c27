//! Event files of earlier versions have other names for some kinds. Every view reads them and shows the names of today.
//! guards: An event that an earlier version wrote is read, whatever its kind was called then.

use std::fs;

use serde_json::Value;

use crate::support::home::Home;

/// One event for each old name, and a death that was part of a restart.
const LINES: &str = r#"{"v":1,"at":"2026-11-15T10:00:00.000Z","id":"00000001","server":"files","event":"sweep","of":"0000beef","owner":{"pid":42,"start":7},"by":["leaf"],"ended":[{"pid":50,"start":7,"comm":"node"}],"left":[]}
{"v":1,"at":"2026-11-15T10:00:01.000Z","id":"00000001","server":"files","event":"instant","method":"initialize","ms":300}
{"v":1,"at":"2026-11-15T10:00:02.000Z","id":"00000001","server":"files","event":"renewal","generation":1,"why":{"changed":{"path":"server.py"}},"in_flight":0,"added_later":"\"event\":\"renewal\""}
{"v":1,"at":"2026-11-15T10:00:03.000Z","id":"00000001","server":"files","event":"exit","generation":1,"pid":7,"status":{"code":0},"uptime_ms":1500,"usage":{"user_ms":1,"system_ms":1,"max_rss_kib":1},"in_flight":0,"ending":{"cause":{"renewal":{"changed":{"path":"server.py"}}},"rungs":["eof"],"ms":5},"stderr_tail":[]}
{"v":1,"at":"2026-11-15T10:00:04.000Z","id":"00000001","server":"files","event":"replayed","generation":2,"ms":180,"level":true,"subscriptions":0,"listens":0,"resent":1}
{"v":1,"at":"2026-11-15T10:00:05.000Z","id":"00000001","server":"files","event":"differs","generation":2,"what":"it has lost prompts"}
{"v":1,"at":"2026-11-15T10:00:06.000Z","id":"00000001","server":"files","event":"recording_hurt","path":"/f","why":"full","lost":12}
{"v":1,"at":"2026-11-15T10:00:07.000Z","id":"00000002","server":"web","event":"session_began","session":7}
{"v":1,"at":"2026-11-15T10:00:08.000Z","id":"00000002","server":"web","event":"session_over","session":7,"why":"idle","ms":1800000,"requests":31}
{"v":1,"at":"2026-11-15T10:00:09.000Z","id":"00000003","server":"far","event":"debt_paid","url":"https://mcp.example/mcp","since":"2026-11-15T09:00:00.000Z","status":404,"attempts":2}
{"v":1,"at":"2026-11-15T10:00:10.000Z","id":"00000003","server":"far","event":"debt_given_up","url":"https://mcp.example/mcp","since":"2026-11-14T09:00:00.000Z","why":"refused","attempts":9}
"#;

fn home() -> Home {
    let home = Home::new();
    let file = home.paths().events().path().join("2026-11-15.jsonl");
    fs::write(file, LINES).unwrap();
    home
}

/// The kinds that had another name: what they are called today, and what they were.
const NAMES: [(&str, &str); 10] = [
    ("restarting", "renewal"),
    ("ready", "replayed"),
    ("from_cache", "instant"),
    ("server_changed", "differs"),
    ("leftovers_ended", "sweep"),
    ("recording_incomplete", "recording_hurt"),
    ("client_session_opened", "session_began"),
    ("client_session_closed", "session_over"),
    ("session_closed_late", "debt_paid"),
    ("session_given_up", "debt_given_up"),
];

fn today(name: &str) -> &str {
    let known = NAMES.iter().find(|(_, old)| *old == name);
    known.map_or(name, |(new, _)| new)
}

fn names(lines: &str) -> Vec<String> {
    let parsed = lines.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["event"].as_str().unwrap().to_owned()
    });
    parsed.collect()
}

#[test]
fn old_events_are_printed_as_json_with_their_new_names() {
    let shown = home().mainstay(&["events", "--json"]);
    assert_eq!((shown.stderr.as_str(), shown.code), ("", Some(0)));
    let expected: String = LINES
        .lines()
        .zip(names(LINES))
        .map(|(line, old)| {
            let new = today(&old);
            line.replacen(
                &format!(r#""event":"{old}""#),
                &format!(r#""event":"{new}""#),
                1,
            ) + "\n"
        })
        .collect();
    assert_eq!(shown.stdout, expected);
    for (new, _) in NAMES {
        assert!(names(&shown.stdout).contains(&new.to_owned()), "{new}");
    }
}

#[test]
fn old_events_are_printed_in_the_words_of_users() {
    let shown = home().mainstay(&["events"]);
    assert_eq!((shown.stderr.as_str(), shown.code), ("", Some(0)));
    for word in [
        "restarting",
        "ready",
        "from cache",
        "changed",
        "cleaned up",
        "not recorded",
        "HTTP opened",
        "HTTP closed",
        "HTTP left open",
    ] {
        let text = &shown.stdout;
        assert!(text.contains(&format!("  {word}  ")), "{word}: {text}");
    }
    for (_, old) in NAMES {
        assert!(
            !shown.stdout.contains(&format!("  {old}  ")),
            "{}",
            shown.stdout
        );
    }
}

#[test]
fn why_counts_an_old_restart_event_as_evidence() {
    let home = home();
    let told = home.mainstay(&["why", "files"]);
    assert!(told.stdout.contains("server.py has changed"), "{told:?}");
    let json = home.mainstay(&["why", "files", "--json"]).stdout;
    let story: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(story["evidence"][0]["event"], "restarting", "{story:#}");
    assert_eq!(story["verdict"]["by"], "mainstay", "{story:#}");
}
