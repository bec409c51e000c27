//! `doctor`: exit code by problems, each with a hint.
//!
//! Strays are looked for on the whole machine, where other tests may be at work; their finding is judged by itself.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use mainstay::registry::Entry;
use mainstay_core::ids::{Identity, LinkId, TAG_VARIABLE, Tag};
use mainstay_os::identity;
use serde_json::Value;
use support::{FakeTree, Home, card};

/// Checks whose outcome depends on the machine.
const OF_THE_MACHINE: [&str; 4] = ["tier", "detach", "memory", "watch"];

/// Check, status and what was found, without the machine-wide finding.
fn findings(home: &Home) -> Vec<(String, String, String)> {
    let shown = home.mainstay(&["doctor", "--json"]);
    let health = shown.json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = health["findings"].as_array().unwrap().clone();
    let healthy = all.iter().all(|finding| finding["status"] != "problem");
    assert_eq!(health["healthy"], healthy);
    assert_eq!(shown.code, Some(i32::from(!healthy)));
    all.iter()
        .filter(|finding| finding["check"] != "strays")
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
fn it_says_who_holds_a_tree_to_its_memory() {
    let home = Home::new();
    let memory: Vec<_> = findings(&home)
        .into_iter()
        .filter(|(check, _, _)| check == "memory")
        .collect();
    let [(_, status, what)] = memory.as_slice() else {
        panic!("one line, not {memory:?}");
    };
    match status.as_str() {
        "ok" => assert!(what.starts_with("the kernel itself"), "{what}"),
        "note" => assert!(what.contains("by measuring: "), "{what}"),
        other => panic!("{other}: {what}"),
    }
}

#[test]
fn a_fresh_home_is_healthy() {
    let home = Home::new();
    assert_eq!(problems(&home), []);
    let text = home.mainstay(&["doctor"]).stdout;
    let well: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("ok ") && !line.contains("strays"))
        .filter(|line| !OF_THE_MACHINE.iter().any(|&check| line.contains(check)))
        .collect();
    assert_eq!(
        well,
        [
            "ok       paths   ~/.local/state/mainstay is ours and private",
            "ok       config  no config file, nothing is needed",
            "ok       links   none runs now",
            "ok       events  none written yet",
            "ok       record  nothing remembered yet",
            "ok       debts   no HTTP session is open",
        ]
    );
}

#[test]
fn each_problem_is_found() {
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
                    "{}:2: `grace_eof`: `2` is not a time (write it like `1500ms`, `2s`, `5m` or `1h`)",
                    "~/.config/mainstay/config.toml"
                )
            ),
            (
                "links".into(),
                "the keeper of deaf (00000002) does not listen".into()
            ),
            (
                "leftovers".into(),
                "guard and keeper were killed: gone (00000001)".into()
            ),
        ]
    );
}

#[test]
fn loose_directories_and_broken_lines_are_worth_a_note() {
    let home = Home::new();
    let paths = home.paths();
    fs::set_permissions(paths.run().path(), fs::Permissions::from_mode(0o755)).unwrap();
    let today = mainstay::ledger::time::date(mainstay_os::clock::wall_ms());
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
            "~/.local/state/mainstay/run was 755; made private again",
            "1 event file with 0, 0 events in the last day, 1 torn and 0 unknown lines",
        ]
    );
}

#[test]
fn what_is_in_the_way_of_the_state_directory_is_named() {
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
fn a_stray_is_named() {
    let home = Home::alone();
    let me = identity::me().unwrap();
    let tag = Tag {
        realm: identity::realm().unwrap(),
        // Our pid at another time: that process is gone for sure.
        owner: Identity {
            start: me.start - 1,
            ..me
        },
        link: LinkId(0xdead),
    };
    let tree = FakeTree::start(&[(TAG_VARIABLE, &tag.to_string())]);
    let health = home.mainstay(&["doctor", "--json"]).json();
    let strays = health["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["check"] == "strays")
        .unwrap()
        .clone();
    assert_eq!(strays["status"], "problem");
    let what = strays["what"].as_str().unwrap();
    assert!(what.contains(&format!("sleep ({})", tree.child)), "{what}");
    assert_eq!(strays["hint"], "the next `mainstay run` ends them");
}
