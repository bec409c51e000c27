//! `mainstay logs`: stderr and dropped lines of real servers, through restarts, floods, crashes and kills of the keeper.
//! guards: What a server writes to stderr can be read while it runs and after its end, and the log never grows beyond its limit.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::{Value, json};

use crate::support::scene::{self, Scene, mainstay};

/// stdout, stderr and exit code of `mainstay logs`.
fn logs(stage: &Stage, words: &[&str]) -> (String, String, Option<i32>) {
    let mut command = stage.command(mainstay());
    let output = command.arg("logs").args(words).output().unwrap();
    (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
        output.status.code(),
    )
}

/// Source and text of each line.
fn lines(stage: &Stage, words: &[&str]) -> Vec<(String, String)> {
    let (out, _, _) = logs(stage, &[words, &["--json"]].concat());
    let word = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    let lines = scene::messages(out.as_bytes());
    lines
        .iter()
        .map(|line| (word(line, "from"), word(line, "text")))
        .collect()
}

/// Waits until the log has this line.
fn has(stage: &Stage, target: &str, from: &str, text: &str) {
    let wanted = (from.to_owned(), text.to_owned());
    until(&format!("the line `{text}` in the log"), || {
        lines(stage, &[target, "-n", "1000"])
            .contains(&wanted)
            .then_some(())
    });
}

/// The bytes of all logs. The first lines are written a moment after the server wrote them.
fn size(stage: &Stage) -> u64 {
    let logs = stage.path(".local/state/mainstay/logs");
    let files = std::fs::read_dir(logs).into_iter().flatten();
    files
        .map(|file| file.unwrap().metadata().map_or(0, |meta| meta.len()))
        .sum()
}

#[test]
fn a_log_has_every_generation_and_no_secret() {
    let mut scene = Scene::open(
        &[],
        &[
            "--junk-lines",
            "--in",
            "1",
            "--stderr first:GITHUB_TOKEN=abcdef123456",
            "--in",
            "2",
            "--stderr second",
        ],
    );
    has(
        &scene.stage,
        "unruly",
        "stderr",
        "first:GITHUB_TOKEN=[hidden]",
    );
    scene.kill(1);
    scene.replayed(2);
    has(&scene.stage, "unruly", "stderr", "second");
    let all = lines(&scene.stage, &["unruly", "-n", "1000"]);
    let text = |from: &str| -> Vec<&str> {
        let lines = all.iter().filter(|line| line.0 == from);
        lines.map(|line| line.1.as_str()).collect()
    };
    let marks: Vec<&str> = text("mainstay")
        .iter()
        .map(|mark| mark.split(',').next().unwrap())
        .collect();
    assert_eq!(marks, ["started", "ended: SIGKILL", "restarted as #2"]);
    assert!(!text("stdout").is_empty(), "{all:?}");
    assert!(
        scene.client.stderr_text().contains("abcdef123456"),
        "the client gets the bytes"
    );
    // After the end the log is still there, and so is its last line.
    scene.client.finish();
    scene.stage.event("teardown");
    has(&scene.stage, "unruly", "mainstay", "ended: exit code 0");
    let (out, err, code) = logs(&scene.stage, &["unruly", "-n", "1"]);
    assert!(out.ends_with("  --- ended: exit code 0 ---\n"), "{out}");
    assert_eq!((err.as_str(), code), ("", Some(0)));
    assert_eq!(
        lines(&scene.stage, &["unruly", "--since", "1h", "-n", "2"]).len(),
        2
    );
}

#[test]
fn a_crashed_server_leaves_its_last_words() {
    let stage = Stage::new();
    let argv = run(
        mainstay(),
        &["--name", "unruly", "--restart-budget", "0"],
        [
            "sh",
            "-c",
            "echo starting >&2; printf 'no \"config\"' >&2; exit 3",
        ]
        .map(Into::into)
        .into(),
    );
    let mut client = Launch::new(&stage, &argv).start();
    stage.event("exit");
    let all = until("the last words", || {
        let all = lines(&stage, &["unruly"]);
        (all.len() == 4).then_some(all)
    });
    let texts: Vec<&str> = all.iter().map(|line| line.1.as_str()).collect();
    assert_eq!(
        texts[1..],
        ["starting", "no \"config\"", "ended: exit code 3"]
    );
    client.finish();
}

#[test]
fn a_flood_of_stderr_stays_within_the_limit() {
    const MEGABYTE: u64 = 1_000_000;
    let mut scene = Scene::open(&["--log-size", "256KiB"], &[]);
    for _ in 0..8 {
        scene.call("flood_stderr", &json!({"bytes": MEGABYTE}));
        assert!(size(&scene.stage) <= 256 * 1024);
    }
    assert!(scene.call("pid", &json!({}))["pid"].is_i64());
    scene.client.finish();
    has(&scene.stage, "unruly", "mainstay", "ended: exit code 0");
    assert!((1..=256 * 1024).contains(&size(&scene.stage)));
}

#[test]
fn a_killed_keeper_does_not_end_the_log() {
    let mut scene = Scene::open(
        &[],
        &["--in", "1", "--stderr one", "--in", "2", "--stderr two"],
    );
    has(&scene.stage, "unruly", "stderr", "one");
    let mut child = scene
        .stage
        .command(mainstay())
        .args(["logs", "unruly", "-f", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next_with = |text: &str| {
        for line in shown.by_ref() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if line["text"].as_str().unwrap().starts_with(text) {
                return line;
            }
        }
        panic!("the log ended before `{text}`");
    };
    next_with("one");
    killers::at_once(&[scene.stage.card().keeper.unwrap()]);
    assert_eq!(next_with("restarted as #2, pid ")["from"], "mainstay");
    let two = next_with("two");
    assert_eq!(
        (&two["generation"], &two["server"]),
        (&json!(2), &json!("unruly"))
    );
    // The follower ends with the link.
    scene.client.finish();
    next_with("ended: exit code 0");
    assert!(child.wait().unwrap().success());
}

#[test]
fn two_servers_of_one_name_are_told_apart() {
    let stage = Stage::new();
    let start = |line: &str| -> Client {
        let server = stage.unruly(&["--stderr", line]);
        let mut client = Launch::new(&stage, &run(mainstay(), &["--name", "twin"], server)).start();
        client.wire.initialize().unwrap();
        client
    };
    let mut clients = [start("left"), start("right")];
    let cards = until("both are listed", || {
        let cards = stage.cards();
        (cards.len() == 2).then_some(cards)
    });
    let (_, err, code) = logs(&stage, &["twin"]);
    assert_eq!(code, Some(1));
    assert!(
        err.starts_with("error: 2 servers are called `twin`\nhint: name one of them by its id:\n"),
        "{err}"
    );
    let mut texts = Vec::new();
    for card in &cards {
        assert!(
            err.contains(&format!("\n  mainstay logs {}  ", &card.id[..4])),
            "{err}"
        );
        let own = until("its line", || {
            let all = lines(&stage, &[&card.id]);
            all.into_iter().find(|line| line.0 == "stderr")
        });
        texts.push(own.1);
    }
    texts.sort();
    assert_eq!(texts, ["left", "right"]);
    for client in &mut clients {
        client.finish();
    }
}

#[test]
fn a_state_directory_without_room_for_logs_harms_no_server() {
    let stage = Stage::new();
    let state = stage.path(".local/state/mainstay");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("logs"), "in the way").unwrap();
    let argv = scene::argv(&stage, &[], &["--stderr", "hello"]);
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    scene.call("flood_stderr", &json!({"bytes": 300_000}));
    assert!(scene.call("pid", &json!({}))["pid"].is_i64());
    let text = scene.client.stderr_text();
    assert!(text.contains("hello"), "{text}");
    scene.finish();
}

#[test]
fn a_silent_or_unknown_server_is_explained() {
    let stage = Stage::new();
    let (out, err, code) = logs(&stage, &["nosuch"]);
    assert_eq!((out.as_str(), code), ("", Some(1)));
    assert_eq!(
        err,
        "error: no log of `nosuch` is known\nhint: no server has written anything under `mainstay run` yet\n"
    );
    let argv = scene::argv(&stage, &[], &[]);
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    scene.stage.card();
    let (out, err, code) = logs(&scene.stage, &["unruly"]);
    assert_eq!((out.as_str(), code), ("", Some(0)));
    assert_eq!(err, "unruly has written nothing to stderr\n");
    scene.finish();
}
