//! A plain server that notes what it reads, sessions with it, and client messages of either era.

use std::ffi::OsString;
use std::fs;

use mainstay_os::census;
use mainstay_os::identity::Handle;
use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};

/// The protocol version of the modern era.
pub const MODERN: &str = "2026-07-28";

/// The command of the plain server. Its file is written once, because its age is part of the configuration.
pub fn plain(stage: &Stage, flags: &[&str]) -> Vec<OsString> {
    let script = stage.path("plain.py");
    if !script.exists() {
        fs::write(&script, include_str!("plain.py")).unwrap();
    }
    let mut argv: Vec<OsString> = vec!["python3".into(), "-S".into(), script.into()];
    argv.extend(flags.iter().map(Into::into));
    argv
}

/// `mainstay run` with these options for the plain server with these flags.
pub fn words(stage: &Stage, options: &[&str], flags: &[&str]) -> Vec<OsString> {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let server = plain(stage, flags);
    let mut all = options.to_vec();
    if !options.contains(&"--grace-eof") {
        // The grace is long, so that the server exits at EOF even on a slow machine. A signal would show in its status.
        all.extend(["--grace-eof", "20s"]);
    }
    run(mainstay, &all, server)
}

/// Starts a session without sending a line.
pub fn start(stage: &Stage, options: &[&str], flags: &[&str]) -> Client {
    Launch::new(stage, &words(stage, options, flags)).start()
}

/// Starts a session and opens it.
pub fn open(stage: &Stage, options: &[&str], flags: &[&str]) -> Client {
    let mut client = start(stage, options, flags);
    client.wire.initialize().unwrap();
    client
}

/// A whole session with the usual requests of a client, so that there is a record of it.
pub fn learn(stage: &Stage, options: &[&str], flags: &[&str]) -> Value {
    let mut client = open(stage, options, flags);
    let tools = client.wire.request("tools/list", &json!({})).unwrap();
    end(client);
    tools["result"].clone()
}

/// Ends a session and asserts success.
pub fn end(mut client: Client) {
    let (status, rest) = client.finish();
    let rest = String::from_utf8_lossy(&rest).into_owned();
    assert!(status.success() && rest.is_empty(), "{status:?} {rest}");
}

/// The pid of the server.
pub fn pid(client: &mut Client) -> i64 {
    let said = client.wire.call("pid", &json!({})).unwrap();
    said["pid"].as_i64().unwrap_or_else(|| panic!("{said}"))
}

/// Parameters with the `_meta` of the modern era.
pub fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "testkit", "version": "1"},
    });
    params
}

/// The next message to the client, of any kind.
pub fn next(client: &mut Client) -> Value {
    let line = client.wire.line().unwrap().expect("the session goes on");
    serde_json::from_slice(&line).unwrap()
}

/// The notes of the servers of this test so far, in order.
pub fn notes(stage: &Stage) -> Vec<Value> {
    let text = fs::read_to_string(stage.path("heard")).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The methods that the servers have read so far, in order.
pub fn methods(stage: &Stage) -> Vec<String> {
    let notes = notes(stage);
    let heard = notes
        .iter()
        .filter_map(|note| note["heard"]["method"].as_str());
    heard.map(Into::into).collect()
}

/// How many servers were started so far.
pub fn starts(stage: &Stage) -> usize {
    let notes = notes(stage);
    notes
        .iter()
        .filter(|note| !note["started"].is_null())
        .count()
}

/// Waits for a note that fulfils a condition.
pub fn noted(stage: &Stage, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    until(&format!("a note: {what}"), || {
        notes(stage).into_iter().find(|note| holds(note))
    })
}

/// Waits until a server has read a call of this tool.
pub fn called(stage: &Stage, tool: &str) -> Value {
    noted(stage, tool, |note| note["heard"]["params"]["name"] == tool)
}

/// Creates a file that a server waits for.
pub fn touch(stage: &Stage, file: &str) {
    fs::write(stage.path(file), "").unwrap();
}

/// Signals a process of this test.
pub fn signal(pid: i64, signal: Signal) {
    let who = census::stat(pid as i32).unwrap().who();
    Handle::open(who).unwrap().signal(signal).unwrap();
}

/// Stops a process and waits until it is stopped.
pub fn freeze(pid: i64) {
    signal(pid, Signal::STOP);
    until("it stands still", || {
        (census::stat(pid as i32).unwrap().state == b'T').then_some(())
    });
}

/// Whether a process exists and is no zombie.
pub fn lives(pid: i64) -> bool {
    census::stat(pid as i32).is_ok_and(|stat| !stat.dead())
}

/// Waits until a process is gone.
pub fn gone(pid: i64) {
    until("it is gone", || (!lives(pid)).then_some(()));
}

/// The `restarting` events of this kind so far.
pub fn restarting_events(stage: &Stage, why: &str) -> Vec<Value> {
    let all = stage.events("restarting");
    all.into_iter().filter(|event| is(event, why)).collect()
}

/// Waits for a `restarting` event of this kind.
pub fn restarting_event(stage: &Stage, why: &str) -> Value {
    stage.event_that("restarting", |event| is(event, why))
}

fn is(event: &Value, why: &str) -> bool {
    event["why"] == why || event["why"].get(why).is_some()
}

/// Options that make the keeper probe an idle server soon and often. The server still has enough time to answer on a slow
/// machine: a server that does not answer would rightly be replaced.
pub fn probing<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut options = vec![
        "--probe-idle",
        "20ms",
        "--probe-wait",
        "500ms",
        "--probe-lost",
        "2",
    ];
    // A server that reads its EOF must have enough time to exit by itself, also on a slow machine.
    options.extend(["--grace-eof", "1s", "--grace-term", "50ms"]);
    options.extend(more);
    options
}

/// Waits until the server has answered a probe and returns its pid. The second probe shows that the first was answered.
pub fn answers_probes(stage: &Stage, client: &mut Client) -> i64 {
    let server = pid(client);
    until("two probes", || {
        let notes = notes(stage);
        let ping = |note: &&Value| note["pid"] == server && note["heard"]["method"] == "ping";
        (notes.iter().filter(ping).count() >= 2).then_some(())
    });
    server
}
