//! `mainstay why` after real deaths: which process it was, how certain that is, from which events, and what followed.
//! guards: `why` names the sender of a signal with its evidence, and possible senders if none was seen.

use std::ffi::OsString;
use std::process::{Output, Stdio};

use crate::support::scene::{self, Scene, mainstay};
use mainstay_os::identity::Handle;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::stage::{Stage, run};
use rustix::process::Signal;
use serde_json::{Value, json};

fn why(stage: &Stage, words: &[&str]) -> Output {
    let mut command = stage.command(mainstay());
    command.arg("why").args(words).output().unwrap()
}

/// The output, with `#` for each number that differs between runs, and without lines that depend on the machine.
fn told(stage: &Stage, words: &[&str]) -> String {
    let output = why(stage, &[words, &["--full"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let foreign = ["file: ", "command: ", "started by: "];
    let passing = |line: &str| {
        // Other tests check the frames and the possible senders.
        line.contains(" before  c")
            || line.starts_with("  it could be ") && !line.contains("any other")
    };
    let lines = text
        .lines()
        .filter(|line| !passing(line) && !foreign.iter().any(|word| line.trim().starts_with(word)));
    let lines: Vec<String> = lines.map(without_numbers).collect();
    lines.join("\n") + "\n"
}

/// Replaces pids, clocks and durations by `#`. Codes, generations and counts stay.
fn without_numbers(line: &str) -> String {
    let mut kept = Vec::new();
    let mut before = "";
    let words: Vec<&str> = line.split(' ').collect();
    for (at, word) in words.iter().enumerate() {
        let bare = word.trim_matches(|c: char| !c.is_ascii_digit());
        let unit = words.get(at + 1).copied().unwrap_or_default();
        let span = ["ms", "s"].contains(&unit.trim_end_matches([',', '.', ';', ')']));
        let pid = ["pid", "(pid", "uid"].contains(&before) || word.starts_with('(');
        let clock = bare.contains(':');
        let numeric =
            !bare.is_empty() && bare.chars().all(|c| c.is_ascii_digit() || ".:".contains(c));
        if numeric && (span || pid || clock) {
            kept.push(word.replace(bare, "#"));
        } else {
            kept.push((*word).to_string());
        }
        before = word;
    }
    // A slow machine may need seconds.
    let line = kept.join(" ") + " ";
    let line = line.replace("# s ", "# ms ").replace("# s,", "# ms,");
    match line.trim_start().strip_prefix("#  unruly ") {
        // The row of an event: its id differs, and its columns are as wide as the other rows need.
        Some(row) => {
            let words: Vec<&str> = row.split_whitespace().skip(1).collect();
            format!("  # unruly ID {}", words.join(" "))
        }
        None => line.trim_end().to_string(),
    }
}

fn me() -> String {
    mainstay_os::census::stat(std::process::id() as i32)
        .unwrap()
        .comm
}

/// The first five lines. Whether the teardown is already in the events depends on timing.
fn head(text: &str) -> String {
    text.split_inclusive('\n').take(5).collect()
}

fn begin(stage: &Stage, options: &[&str], server: &[&str]) -> Client {
    let mut all = vec!["--name", "unruly"];
    all.extend(options);
    let server: Vec<OsString> = server.iter().map(Into::into).collect();
    Launch::new(stage, &run(mainstay(), &all, server)).start()
}

#[test]
fn why_explains_a_server_killed_by_another_process() {
    let mut scene = Scene::open(&[], &[]);
    scene.kill(1);
    scene.replayed(2);
    let shown = told(&scene.stage, &["unruly"]).replace(&me(), "CLIENT");
    assert_eq!(shown, "\
unruly was killed (SIGKILL, sender unknown) # ms after the handshake. Stdin was still open; the last answer was # ms old; nothing was in flight.
because
  unknown: a signal that mainstay did not send; only root can see who sent it
  it could be the server itself, or any other process of this user or of root
  `sudo mainstay trace-signals` shows the sender of each signal, from then on
evidence
  # unruly ID died #1 pid #, SIGKILL after # ms
last frames
what followed
  started again as generation 2 (pid #) after # ms
  generation 2 is ready after # ms
");
    scene.client.finish();
}

#[test]
fn why_explains_a_shim_signalled_by_the_client() {
    let mut scene = Scene::open(&["--linger", "0"], &[]);
    let shim = scene.stage.card().shim.unwrap();
    Handle::open(shim).unwrap().signal(Signal::TERM).unwrap();
    scene.stage.event("teardown");
    let shown = told(&scene.stage, &["unruly"]).replace(&me(), "CLIENT");
    assert_eq!(shown, "\
unruly was ended by CLIENT (pid #, SIGTERM, certain) # ms after the handshake. Stdin was still open; the last answer was # ms old; nothing was in flight.
because
  certain: the kernel names the client as sender of the signal, and pid and start time agree
evidence
  # unruly ID signal SIGTERM from CLIENT (#), uid #, the client
  # unruly ID ended #1 pid #, exit code 0 after # ms
  # unruly ID cleaned up 0 left after # ms (EOF), the shim got SIGTERM, 1 ended
last frames
what followed
  0 left of its tree after # ms
  it was not started again
");
    scene.client.wait();
}

#[test]
fn why_shows_the_last_messages_and_the_requests_in_flight() {
    let mut scene = Scene::open(&[], &[]);
    scene.call("echo", &json!({"text": "hello"}));
    scene.mute();
    let id = scene.ask_call("echo", &json!({"text": "unanswered"}));
    // Requests that the server has not read would go to the next generation.
    scene.sync();
    scene.kill(1);
    let exit = scene.exit(1);
    let standing = &exit["standing"];
    assert_eq!(
        (&standing["stdin_open"], &standing["in_flight"]),
        (&json!(true), &json!(1))
    );
    assert_eq!(standing["waiting"][0]["request"], "tools/call");
    assert_eq!(standing["waiting"][0]["id"], id.to_string());
    let frames = standing["frames"].as_array().unwrap();
    let last = frames
        .iter()
        .rfind(|frame| frame["method"] != "unruly/sync");
    let last = last.unwrap();
    assert_eq!(
        (&last["from"], &last["method"]),
        (&json!("client"), &json!("tools/call"))
    );
    assert_eq!(last["id"], id.to_string());
    let answer = frames
        .iter()
        .find(|frame| frame["kind"] == "response" && frame["method"] == "tools/call");
    assert!(answer.unwrap()["latency_ms"].is_u64(), "{standing}");
    assert!(
        frames.iter().all(|frame| frame.get("body").is_none()),
        "no body is recorded"
    );
    scene.replayed(2);
    let output = why(&scene.stage, &["unruly", "--full"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("; 1 request in flight (tools/call) got an answer from mainstay."),
        "{text}"
    );
    assert!(
        text.contains(&format!(" before  c→s  request tools/call {id}, ")),
        "{text}"
    );
    scene.client.finish();
}

#[test]
fn why_names_suspects_if_no_sender_was_seen() {
    let mut scene = Scene::open(&[], &[]);
    let mut script = scene.stage.command("sh");
    let script = script.args(["-c", "read line", "/srv/mcp-cleanup.sh"]);
    let mut script = script.stdin(Stdio::piped()).spawn().unwrap();
    scene.kill(1);
    let seen = scene.stage.event("suspects");
    assert_eq!(
        (&seen["part"], &seen["pid"]),
        (&json!("server"), &scene.exit(1)["pid"])
    );
    let who = seen["who"].as_array().unwrap();
    let why_of = |pid: u32| {
        let found = who.iter().find(|suspect| suspect["pid"] == pid);
        found.map(|suspect| suspect["why"].as_str().unwrap())
    };
    assert_eq!(why_of(std::process::id()), Some("client"), "{seen}");
    // On a crowded machine the scan may run out of time before it has seen all processes.
    if seen["all"] == true {
        assert_eq!(why_of(script.id()), Some("name"), "{seen}");
    }
    let output = why(&scene.stage, &["unruly", "--full"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let client = format!(
        "  it could be {} ({}), the client",
        me(),
        std::process::id()
    );
    assert!(text.contains(&client), "{text}");
    drop(script.stdin.take());
    script.wait().unwrap();
    scene.client.finish();
}

#[test]
fn why_explains_a_shim_killed_while_the_client_lives() {
    let mut scene = Scene::open(&["--linger", "0"], &[]);
    let shim = scene.stage.card().shim.unwrap();
    Handle::open(shim).unwrap().signal(Signal::KILL).unwrap();
    scene.stage.event("teardown");
    let gone = scene.stage.event("gone");
    assert_eq!(gone["standing"]["stdin_open"], true, "{gone}");
    let shown = told(&scene.stage, &["unruly"]);
    let start = "\
unruly was ended because the shim, the process that the client had started, was killed (SIGKILL, sender unknown) # ms after the handshake. Stdin was still open; the last answer was # ms old; nothing was in flight.
because
  unknown: the shim was killed, and the client was not seen to end with it; only root can see who sends SIGKILL
  it could be any other process of this user or of root
";
    assert!(shown.starts_with(start), "{shown}");
    let suspects = scene.stage.event("suspects");
    assert_eq!(suspects["part"], "shim");
    scene.client.wait();
}

#[test]
fn why_explains_a_killed_client() {
    let stage = Stage::new();
    let argv = scene::argv(&stage, &[], &[]);
    Puppet::start(&stage, Plan::default(), &argv).kill();
    stage.event("teardown");
    stage.event("gone");
    let shown = told(&stage, &[]);
    let start = "\
unruly was ended because puppet (pid #) had ended: SIGKILL (certain) # ms after the handshake. The last answer was # ms old; nothing was in flight.
because
  certain: the client process ended
evidence
";
    assert!(shown.starts_with(start), "{shown}");
    // Its pipes may or may not have closed before it was dead.
    let gone = "  # unruly ID client gone the client ended: pid #, SIGKILL\n";
    assert!(shown.contains(gone), "{shown}");
}

#[test]
fn why_explains_a_client_that_closed_its_pipes() {
    let mut scene = Scene::open(&[], &[]);
    scene.client.finish();
    scene.stage.event("teardown");
    let shown = told(&scene.stage, &["unruly"]).replace(&me(), "CLIENT");
    assert_eq!(shown, "\
unruly was ended because CLIENT (pid #) closed its stdin (certain) # ms after the handshake. The last answer was # ms old; nothing was in flight.
because
  certain: stdin came to its end, and the client was not seen to end with it
evidence
  # unruly ID ended #1 pid #, exit code 0 after # ms
  # unruly ID cleaned up 0 left after # ms (EOF), the client closed stdin, 1 ended
last frames
what followed
  0 left of its tree after # ms
  it was not started again
");
}

#[test]
fn why_explains_a_stop_by_the_user() {
    let mut scene = Scene::open(&[], &[]);
    let stopped = scene
        .stage
        .command(mainstay())
        .args(["stop", "unruly"])
        .output();
    assert!(stopped.unwrap().status.success());
    assert_eq!(
        told(&scene.stage, &["unruly"]),
        "\
unruly was ended by `mainstay stop` (certain) # ms after the handshake. The last answer was # ms old; nothing was in flight.
because
  certain: `mainstay stop` was called
evidence
  # unruly ID ended #1 pid #, exit code 0 after # ms
  # unruly ID cleaned up 0 left after # ms (EOF), mainstay stop, 1 ended
last frames
what followed
  0 left of its tree after # ms
  it was not started again
"
    );
    scene.client.wait();
}

#[test]
fn why_explains_a_server_that_ended_by_itself() {
    let stage = Stage::new();
    let mut client = begin(&stage, &["--restart-budget", "0"], &["sh", "-c", "exit 3"]);
    stage.event("exit");
    assert_eq!(
        head(&told(&stage, &["unruly"])),
        "\
unruly exited (exit code 3, certain) # ms after its start. It had not answered anything yet; nothing was in flight.
because
  certain: the server exited or crashed, and mainstay had sent no signal; a signal of another process that a server obeys by exiting only root can see
evidence
  # unruly ID died #1 pid #, exit code 3 after # ms
"
    );
    client.finish();
}

#[test]
fn why_explains_a_restart_by_a_watched_file() {
    let stage = Stage::new();
    let file = stage.path("watched");
    std::fs::write(&file, "1").unwrap();
    let options = ["--watch", file.to_str().unwrap()];
    let argv = scene::argv(&stage, &options, &[]);
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    std::fs::write(&file, "2").unwrap();
    scene.replayed(2);
    let shown = told(&scene.stage, &["unruly"]).replace(file.to_str().unwrap(), "FILE");
    assert_eq!(shown, "\
unruly was replaced by mainstay: FILE has changed (certain) # ms after the handshake. The last answer was # ms old; nothing was in flight.
because
  certain: mainstay replaced the server or put it to rest, by its settings
evidence
  # unruly ID restarting #1: FILE has changed
  # unruly ID ended #1 pid #, exit code 0 after # ms
  # unruly ID cleaned up 0 left after # ms (EOF), FILE has changed, 1 ended
last frames
what followed
  0 left of its tree after # ms
  started again as generation 2 (pid #) after # ms
  generation 2 is ready after # ms
");
    scene.client.finish();
}

#[test]
fn why_explains_a_failed_start() {
    let stage = Stage::new();
    let mut client = begin(&stage, &[], &["/no/such/server"]);
    client.finish();
    assert_eq!(
        told(&stage, &["unruly"]),
        "\
unruly could not be started (certain): command not found: /no/such/server.
because
  certain: the start itself failed
evidence
  # unruly ID not started command not found: /no/such/server
            hint: correct the path, or install the server there
what followed
  nothing
"
    );
}

/// The crash is told, not the restart that the user asked for afterwards.
#[test]
fn why_tells_the_crash_before_a_planned_restart() {
    let mut scene = Scene::open(&[], &["--in", "1", "--stderr last-words-of-the-first"]);
    scene.kill(1);
    scene.replayed(2);
    assert!(scene.mainstay(&["restart", "unruly"]).status.success());
    scene.exit(2);
    for words in [&[][..], &["unruly"]] {
        let output = why(&scene.stage, words);
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() <= 10, "{text}");
        assert!(
            lines[0].starts_with("unruly was killed (SIGKILL, sender unknown) "),
            "{text}"
        );
        for (name, holds) in [
            ("when", "id "),
            ("impact", "restarted after "),
            ("impact", "no call was lost"),
            ("last words", "last-words-of-the-first"),
            ("suspects", "(the client)"),
            ("next", "trace-signals"),
        ] {
            let row = lines.iter().find(|line| line.trim().starts_with(name));
            assert!(row.is_some_and(|row| row.contains(holds)), "{name}: {text}");
        }
    }
    let output = why(&scene.stage, &["--last", "5"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].contains("  unruly was replaced by `mainstay restart`"),
        "{text}"
    );
    assert!(lines[1].contains("  unruly was killed "), "{text}");
    let output = why(&scene.stage, &["unruly", "--last", "1", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (told.as_array().unwrap().len(), &told[0]["generation"]),
        (1, &json!(2))
    );
    scene.client.finish();
}

#[test]
fn why_finds_a_death_by_name_id_and_pid() {
    let mut scene = Scene::open(&[], &[]);
    let first = scene.server(1).pid.to_string();
    let id = scene.stage.card().id;
    scene.kill(1);
    scene.replayed(2);
    let second = scene.server(2).pid.to_string();
    scene.client.finish();
    scene.stage.event("teardown");
    let json = |target: &str| -> Value {
        let output = why(&scene.stage, &[target, "--json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let killed = json(&first);
    assert_eq!(killed["generation"], 1);
    assert_eq!(killed["verdict"]["sure"], "unknown");
    assert_eq!(killed["verdict"]["rule"], "server_killed");
    assert_eq!(killed["evidence"][0]["event"], "exit");
    let last = json(&second);
    assert_eq!(last["generation"], 2);
    assert_eq!(last["verdict"]["rule"], "client_closed");
    // The end of the session, which the client asked for, does not hide the crash before it.
    for target in ["unruly", &id, &id[..4], &std::process::id().to_string()] {
        assert_eq!(json(target)["generation"], 1, "{target}");
    }
}

/// `mainstay learn` opens and ends a session of its own.
#[test]
fn why_tells_the_crash_before_a_session_of_learn() {
    let mut scene = Scene::open(&[], &[]);
    scene.kill(1);
    scene.replayed(2);
    let argv = scene::argv(&scene.stage, &["--learn"], &[]);
    let mut learn = Launch::new(&scene.stage, &argv).start();
    learn.wire.initialize().unwrap();
    learn.finish();
    let text = |words: &[&str]| String::from_utf8(why(&scene.stage, words).stdout).unwrap();
    for words in [&[][..], &["unruly"]] {
        let text = text(words);
        assert!(text.starts_with("unruly was killed (SIGKILL"), "{text}");
    }
    let last = text(&["--last", "1"]);
    assert!(
        last.contains("ended because mainstay learn (pid "),
        "{last}"
    );
    scene.client.finish();
}

/// What ended with a killed client was not asked for, so the crash before it does not come first.
#[test]
fn why_tells_the_end_of_a_killed_client_before_an_older_crash() {
    let stage = Stage::new();
    let puppet = Puppet::start(&stage, Plan::default(), &scene::argv(&stage, &[], &[]));
    let first = stage.event("start");
    let pid = first["pid"].as_i64().unwrap() as i32;
    let server = mainstay_os::identity::of(pid).unwrap();
    Handle::open(server).unwrap().signal(Signal::KILL).unwrap();
    stage.event_that("ready", |event| event["generation"] == 2);
    puppet.kill();
    stage.event_that("exit", |event| event["generation"] == 2);
    stage.event("gone");
    let text = String::from_utf8(why(&stage, &["unruly"]).stdout).unwrap();
    assert!(text.contains("had ended: SIGKILL"), "{text}");
    assert!(!text.contains("asked for"), "{text}");
}

#[test]
fn why_says_so_if_nothing_is_known() {
    let stage = Stage::new();
    let output = why(&stage, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "error: no death is known\nhint: deaths of servers under `mainstay run` are kept for 14 days, unless the config file says otherwise\n"
    );
    let mut scene = Scene::open(&[], &[]);
    scene.stage.event("start");
    let text = |target: &str| {
        let output = why(&scene.stage, &[target]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(
        text("unruly"),
        "error: no death of `unruly` is known\nhint: `mainstay ps` shows the servers that run, `mainstay events` everything that is recorded\n"
    );
    assert_eq!(
        text("unrly"),
        "error: no server is called `unrly`\nhint: did you mean `unruly`?\n"
    );
    scene.client.finish();
}

/// The kernel limits the memory to 20 MB, while the ledger has 64.
#[test]
fn why_needs_little_memory_for_a_large_ledger() {
    let scene = Scene::open(&[], &[]);
    scene.kill(1);
    scene.replayed(2);
    let pid = scene.exit(1)["pid"].to_string();
    let events = scene.stage.home().join(".local/state/mainstay/events");
    let today = std::fs::read_dir(&events)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    // Fill earlier days, and add later events of another server.
    let line = r#"{"v":1,"at":"2026-01-01T10:00:00.000Z","id":"00c0ffee","server":"other","event":"call_deadline","request":"tools/call","ms":1000}"#;
    let many = format!("{line}\n").repeat((60 << 20) / line.len());
    std::fs::write(events.join("2026-01-01.jsonl"), &many).unwrap();
    let mut file = std::fs::File::options().append(true).open(today).unwrap();
    std::io::Write::write_all(
        &mut file,
        &many.as_bytes()[..(4 << 20) / line.len() * (line.len() + 1)],
    )
    .unwrap();
    let bounded = |words: &[&str]| {
        let mut command = scene.stage.command("sh");
        command.args(["-c", "ulimit -d 20000; exec \"$@\"", "sh"]);
        command.arg(mainstay()).args(words).output().unwrap()
    };
    for words in [&["why", "--json"][..], &["why", "unruly", "--json"]] {
        let output = bounded(words);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (told["pid"].to_string(), &told["generation"]),
            (pid.clone(), &json!(1))
        );
        assert_eq!(
            told["followed"][0]
                .as_str()
                .map(|text| text.starts_with("started again")),
            Some(true)
        );
    }
    let output = bounded(&["events", "-n", "3", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, format!("{line}\n").repeat(3));
    let output = bounded(&["events", "-n", "1", "--server", "unruly", "--json"]);
    let last: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(last["server"], "unruly");
    scene.finish();
}
