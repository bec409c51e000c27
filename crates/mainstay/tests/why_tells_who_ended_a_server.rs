//! `mainstay why`, after real deaths: who it was, how sure that is, from which events, and what followed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use std::ffi::OsString;
use std::process::{Output, Stdio};

use mainstay_os::identity::Handle;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::stage::{Stage, run};
use rustix::process::Signal;
use scene::{Scene, mainstay};
use serde_json::{Value, json};

fn why(stage: &Stage, words: &[&str]) -> Output {
    let mut command = stage.command(mainstay());
    command.arg("why").args(words).output().unwrap()
}

/// What is told, with `#` for each number that differs from run to run and without what differs from place to place.
fn told(stage: &Stage, words: &[&str]) -> String {
    let output = why(stage, words);
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let foreign = ["file: ", "command: ", "started by: "];
    let passing = |line: &str| {
        // Which frames passed, and who else was there, is told in tests of their own.
        line.contains(" before  c")
            || line.starts_with("  it could be ") && !line.contains("any other")
    };
    let lines = text
        .lines()
        .filter(|line| !passing(line) && !foreign.iter().any(|word| line.trim().starts_with(word)));
    let lines: Vec<String> = lines.map(without_numbers).collect();
    lines.join("\n") + "\n"
}

/// Pids, clocks and spans; codes, generations and counts stay.
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
    line.trim_end().to_string()
}

fn me() -> String {
    mainstay_os::census::stat(std::process::id() as i32)
        .unwrap()
        .comm
}

/// The first five lines: whether the teardown is written already is a matter of moments.
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
fn a_server_killed_by_somebody() {
    let mut scene = Scene::open(&[], &[]);
    scene.kill(1);
    scene.replayed(2);
    let shown = told(&scene.stage, &["unruly"]).replace(&me(), "CLIENT");
    assert_eq!(shown, "\
unruly was killed (SIGKILL, sender unknown) # ms after the handshake. Stdin was still open; the last answer was # ms old; nothing was in flight.
because
  unknown: a signal that mainstay did not send; only root can see who sent it
  it could be the server itself, or any other process of this user or of root
  `sudo mainstay trace-signals` sees who sends which signal to whom, from then on
evidence
  #  unruly  exit  pid #, SIGKILL after # ms
last frames
what followed
  started again as generation 2 (pid #) after # ms
  generation 2 is ready after # ms
");
    scene.client.finish();
}

#[test]
fn a_shim_signalled_by_the_client() {
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
  #  unruly  signal  SIGTERM from CLIENT (#), uid #, the client
  #  unruly  exit  pid #, exit code 0 after # ms
  #  unruly  teardown  0 left after # ms (EOF), the shim got SIGTERM, 1 ended
last frames
what followed
  0 left of its tree after # ms
  it was not started again
");
    scene.client.wait();
}

#[test]
fn with_the_last_frames_and_what_was_in_flight() {
    let mut scene = Scene::open(&[], &[]);
    scene.call("echo", &json!({"text": "hello"}));
    scene.mute();
    let id = scene.ask_call("echo", &json!({"text": "unanswered"}));
    // What it has not read would go on to the next generation.
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
        "bodies are nobody's business"
    );
    scene.replayed(2);
    let output = why(&scene.stage, &["unruly"]);
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
fn who_was_there_is_named_where_nobody_was_seen() {
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
    // On a crowded machine the look may end before it has come to everybody.
    if seen["all"] == true {
        assert_eq!(why_of(script.id()), Some("name"), "{seen}");
    }
    let output = why(&scene.stage, &["unruly"]);
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
fn a_shim_killed_while_the_client_lives() {
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
fn a_client_that_was_killed() {
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
    // Its pipes may have closed before it was dead, or not.
    let gone = "  #  unruly  gone  the client ended: pid #, SIGKILL\n";
    assert!(shown.contains(gone), "{shown}");
}

#[test]
fn a_client_that_closed() {
    let mut scene = Scene::open(&[], &[]);
    scene.client.finish();
    scene.stage.event("teardown");
    let shown = told(&scene.stage, &["unruly"]).replace(&me(), "CLIENT");
    assert_eq!(shown, "\
unruly was ended because CLIENT (pid #) closed its stdin (certain) # ms after the handshake. The last answer was # ms old; nothing was in flight.
because
  certain: stdin came to its end, and the client was not seen to end with it
evidence
  #  unruly  exit  pid #, exit code 0 after # ms
  #  unruly  teardown  0 left after # ms (EOF), the client closed stdin, 1 ended
last frames
what followed
  0 left of its tree after # ms
  it was not started again
");
}

#[test]
fn stopped_by_the_user() {
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
  #  unruly  exit  pid #, exit code 0 after # ms
  #  unruly  teardown  0 left after # ms (EOF), mainstay stop, 1 ended
last frames
what followed
  0 left of its tree after # ms
  it was not started again
"
    );
    scene.client.wait();
}

#[test]
fn a_server_that_ended_by_itself() {
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
  #  unruly  exit  pid #, exit code 3 after # ms
"
    );
    client.finish();
}

#[test]
fn a_watched_file() {
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
  #  unruly  renewal  generation 1 to be replaced: FILE has changed
  #  unruly  exit  pid #, exit code 0 after # ms
  #  unruly  teardown  0 left after # ms (EOF), FILE has changed, 1 ended
last frames
what followed
  0 left of its tree after # ms
  started again as generation 2 (pid #) after # ms
  generation 2 is ready after # ms
");
    scene.client.finish();
}

#[test]
fn a_start_that_failed() {
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
  #  unruly  start_failed  command not found: /no/such/server
      hint: install it, or give its full path: a client may pass a shorter PATH than your shell has
what followed
  nothing
"
    );
}

#[test]
fn by_name_by_id_by_pid_and_as_json() {
    let mut scene = Scene::open(&[], &[]);
    let first = scene.server(1).pid.to_string();
    let id = scene.stage.card().id;
    scene.kill(1);
    scene.replayed(2);
    scene.client.finish();
    scene.stage.event("teardown");
    let json = |whom: &str| -> Value {
        let output = why(&scene.stage, &[whom, "--json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let killed = json(&first);
    assert_eq!(killed["generation"], 1);
    assert_eq!(killed["verdict"]["sure"], "unknown");
    assert_eq!(killed["verdict"]["rule"], "server_killed");
    assert_eq!(killed["evidence"][0]["event"], "exit");
    for whom in ["unruly", &id, &id[..4], &std::process::id().to_string()] {
        let last = json(whom);
        assert_eq!(last["generation"], 2, "{whom}");
        assert_eq!(last["verdict"]["rule"], "client_closed");
    }
}

#[test]
fn nothing_is_known() {
    let stage = Stage::new();
    let output = why(&stage, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "error: no death is known\nhint: deaths of servers under `mainstay run` are remembered for 14 days, if the config file says nothing else\n"
    );
    let mut scene = Scene::open(&[], &[]);
    scene.stage.event("start");
    let text = |whom: &str| {
        let output = why(&scene.stage, &[whom]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(
        text("unruly"),
        "error: no death of `unruly` is known\nhint: `mainstay ps` shows what runs, `mainstay events` all that is known\n"
    );
    assert_eq!(
        text("unrly"),
        "error: nothing is known of `unrly`\nhint: did you mean `unruly`?\n"
    );
    scene.client.finish();
}

/// The memory is limited by the kernel: 20 MB, where the ledger has 64.
#[test]
fn a_large_ledger_needs_no_memory() {
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
    // Earlier days, and what another server said later.
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
