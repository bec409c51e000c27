//! `doctor`: the exit code depends on the problems, and each problem has a hint.
//!
//! `doctor` looks for leftovers on the whole machine, where other tests may run. So the tests check that finding separately.
//! guards: `doctor` fails if it finds a problem, and every problem has a hint.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use mainstay_os::identity;
use mainstay_protocol::event::{Abandoned, What};
use mainstay_protocol::ids::{Identity, LinkId, TAG_VARIABLE, Tag};
use mainstay_store::ledger::Ledger;
use mainstay_store::registry::Entry;

use crate::support::home::{FakeTree, Home, card};
use serde_json::Value;

/// Checks whose outcome depends on the machine.
const OF_THE_MACHINE: [&str; 5] = ["tier", "detach", "memory", "watch", "orphan"];

/// Check, status and finding, without the machine-wide check for leftovers.
fn findings(home: &Home) -> Vec<(String, String, String)> {
    let shown = home.mainstay(&["doctor", "--json"]);
    let health = shown.json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = health["findings"].as_array().unwrap().clone();
    let healthy = all.iter().all(|finding| finding["status"] != "problem");
    assert_eq!(health["healthy"], healthy);
    assert_eq!(shown.code, Some(i32::from(!healthy)));
    all.iter()
        .filter(|finding| finding["check"] != "leftovers")
        .inspect(|finding| {
            let needs_hint = finding["status"] == "problem";
            assert!(!needs_hint || finding["hint"].is_string(), "{finding}");
        })
        .map(|finding| {
            (
                text(&finding["check"]),
                text(&finding["status"]),
                text(&finding["what"]),
            )
        })
        .collect()
}

fn problems(home: &Home) -> Vec<(String, String)> {
    findings(home)
        .into_iter()
        .filter(|(_, status, _)| status == "problem")
        .map(|(check, _, what)| (check, what))
        .collect()
}

#[test]
fn doctor_says_how_memory_limits_are_enforced() {
    let home = Home::new();
    let memory: Vec<_> = findings(&home)
        .into_iter()
        .filter(|(check, _, _)| check == "memory")
        .collect();
    let [(_, status, what)] = memory.as_slice() else {
        panic!("one line, not {memory:?}");
    };
    match status.as_str() {
        "ok" => assert!(what.starts_with("the kernel enforces"), "{what}"),
        "note" => assert!(what.starts_with("mainstay measures"), "{what}"),
        other => panic!("{other}: {what}"),
    }
}

#[test]
fn doctor_finds_a_fresh_home_healthy() {
    let home = Home::new();
    assert_eq!(problems(&home), []);
    let text = home.mainstay(&["doctor", "--verbose"]).stdout;
    let well: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("ok ") && !line.contains("leftovers"))
        .filter(|line| !OF_THE_MACHINE.iter().any(|&check| line.contains(check)))
        .collect();
    assert_eq!(
        well,
        [
            "ok       links      no server runs now",
            "ok       sessions   no HTTP session is open",
            "ok       paths      ~/.local/state/mainstay belongs to you and is private",
            "ok       config     there is no config file, and none is needed",
            "ok       events     no events yet",
            "ok       cache      empty",
        ]
    );
    for place in [
        "events    ~/.local/state/mainstay/events",
        "cache     ~/.local/state/mainstay/cache",
    ] {
        assert!(text.contains(place), "{place} in {text}");
    }
}

/// The lines about the servers of the user, with what belongs to them. Those about the machine depend on it.
fn of_the_user(home: &Home, columns: &str) -> Vec<String> {
    let mut doctor = home.command(&["doctor"]);
    doctor.env("COLUMNS", columns);
    let text = home.outcome(&mut doctor).stdout;
    let columns: usize = columns.parse().unwrap();
    assert!(
        text.lines().all(|line| line.chars().count() <= columns),
        "{text}"
    );
    let mut wanted = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if !line.starts_with(' ') {
            wanted = line.contains(" server ") || line.contains(" client ");
        }
        lines.extend(wanted.then(|| line.to_owned()));
    }
    lines
}

#[test]
fn doctor_says_what_to_do_for_the_users_servers() {
    let home = Home::new();
    let server = r#"{"command":"node","args":["x.js"]}"#;
    let config = format!(r#"{{"mcpServers":{{"a":{server},"b":{server}}}}}"#);
    fs::write(home.path().join(".claude.json"), config).unwrap();
    let mut ledger = Ledger::open(&home.paths());
    for _ in 0..2 {
        ledger.record(LinkId(1), "broken", given_up());
    }
    assert_eq!(
        of_the_user(&home, "80"),
        [
            "note     server  broken was given up in the last day: exit code 1",
            "                 → mainstay why broken",
            "note     client  Claude Code: 0 of 2 servers go through mainstay",
            "                 → mainstay adopt claude",
        ]
    );
    assert_eq!(
        of_the_user(&home, "120"),
        [
            "note     server  broken was given up in the last day: exit code 1   mainstay why broken",
            "note     client  Claude Code: 0 of 2 servers go through mainstay    mainstay adopt claude",
        ]
    );
}

#[test]
fn doctor_says_where_a_clients_config_is_broken() {
    let home = Home::new();
    fs::write(home.path().join(".claude.json"), "{\n  \"mcpServers\": {\n").unwrap();
    let what = "Claude Code: ~/.claude.json: line 2, column 17: Unterminated object";
    assert_eq!(problems(&home), [("client".into(), what.into())]);
    let shown = home.mainstay(&["doctor"]);
    assert!(!shown.stdout.contains("healthy"), "{}", shown.stdout);
    assert!(!shown.stdout.contains("mainstay adopt"), "{}", shown.stdout);
    let hint = "hint: the client cannot read the file either";
    assert!(shown.stdout.contains(hint), "{}", shown.stdout);
}

fn given_up() -> What {
    What::Abandoned(Abandoned {
        deaths: 5,
        failed_starts: 0,
        window_ms: 60_000,
        last: "exit code 1".into(),
        changed: None,
        probe_ms: 0,
    })
}

#[test]
fn doctor_finds_each_problem() {
    let home = Home::new();
    let paths = home.paths();
    home.config("[defaults]\ngrace_eof = 2\n");
    drop(Entry::create(&paths, LinkId(1)).map(|dead| dead.write(&card(1, "gone"))));
    let deaf = Entry::create(&paths, LinkId(2)).unwrap();
    deaf.write(&card(2, "deaf")).unwrap();
    assert_eq!(
        problems(&home),
        [
            (
                "config".into(),
                format!(
                    "{}:2: `grace_eof`: `2` is not a time (write it like `500ms`, `2s`, `10min`, `1h` or `1d`)",
                    "~/.config/mainstay/config.toml"
                )
            ),
            (
                "links".into(),
                "the keeper of deaf (00000002) does not listen".into()
            ),
            (
                "links".into(),
                "the mainstay processes of these servers were killed: gone (00000001)".into()
            ),
        ]
    );
}

#[test]
fn doctor_notes_loose_directories_and_broken_lines() {
    let home = Home::new();
    let paths = home.paths();
    fs::set_permissions(paths.run().path(), fs::Permissions::from_mode(0o755)).unwrap();
    let today = mainstay_protocol::time::date(mainstay_os::clock::wall_ms());
    fs::write(
        paths.events().path().join(format!("{today}.jsonl")),
        "torn\n",
    )
    .unwrap();
    let notes: Vec<String> = findings(&home)
        .into_iter()
        .filter(|(check, status, _)| status == "note" && !OF_THE_MACHINE.contains(&check.as_str()))
        .map(|(_, _, what)| what)
        .collect();
    assert_eq!(
        notes,
        [
            "~/.local/state/mainstay/run was 755; it is private again now",
            "1 event file with 0, 0 events in the last day, 1 incomplete and 0 unknown lines",
        ]
    );
}

#[test]
fn doctor_names_an_obstacle_to_the_state_directory() {
    let home = Home::new();
    fs::write(home.path().join(".local"), "a file").unwrap();
    let temp = home.path().join("temp");
    fs::create_dir(&temp).unwrap();
    let mut doctor = home.command(&["doctor"]);
    doctor
        .env("XDG_RUNTIME_DIR", "/nonexistent")
        .env("TMPDIR", temp);
    let told = home.outcome(&mut doctor).stdout;
    let uid = rustix::process::geteuid().as_raw();
    let problem =
        format!("events and links are kept in ~/temp/mainstay-{uid}: ~/.local is not a directory");
    assert!(told.contains(&problem), "{told}");
}

#[test]
fn doctor_names_a_stray_process() {
    let home = Home::alone();
    let me = identity::me().unwrap();
    let tag = Tag {
        realm: identity::realm().unwrap(),
        // Our pid with another start time: that process no longer exists.
        owner: Identity {
            start: me.start - 1,
            ..me
        },
        link: LinkId(0xdead),
    };
    let tree = FakeTree::start(&[(TAG_VARIABLE, &tag.to_string())]);
    tree.mark(tag.mark());
    let health = home.mainstay(&["doctor", "--json"]).json();
    let leftovers = health["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["check"] == "leftovers")
        .unwrap()
        .clone();
    assert_eq!(leftovers["status"], "problem");
    let what = leftovers["what"].as_str().unwrap();
    assert!(what.contains(&format!("sleep ({})", tree.child)), "{what}");
    assert_eq!(leftovers["hint"], "the next `mainstay run` ends them");
}
