//! Limits under which a bare server still runs: few descriptors, few processes, no place for the state. With mainstay the client
//! gets its server too. Where that is not possible, it is told why and what to do.
//! guards: Under limits in which a bare server runs, the server runs with mainstay too, or the client is told why not.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use mainstay_os::identity;
use mainstay_protocol::ids::Identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::card;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::killers;
use mainstay_testkit::skip;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wire::trouble;
use serde_json::{Value, json};

/// A uid for this run and this test only. The limit counts all processes of a user, also those of an earlier run that init has
/// not reaped yet.
fn uid(first: u32) -> u32 {
    first + std::process::id() % 20_000
}

fn mainstay(stage: &Stage, options: &[&str]) -> Vec<OsString> {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    run(mainstay, options, stage.unruly::<&str>(&[]))
}

/// A command behind a shell that sets a limit.
fn limited(limit: &str, argv: Vec<OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["sh".into(), "-c".into()];
    words.push(format!("{limit}; exec \"$@\"").into());
    words.push("sh".into());
    words.extend(argv);
    words
}

/// The pid of the server that answers now.
fn server(client: &mut Client) -> i32 {
    let told = client.wire.call("pid", &json!({})).unwrap();
    told["pid"].as_i64().unwrap() as i32
}

fn who(pid: i32) -> Identity {
    identity::of(pid).unwrap()
}

/// The soft and the hard descriptor limit of a process.
fn descriptors(pid: i32) -> (String, String) {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = text.lines().find(|line| line.starts_with("Max open files"));
    let mut words = line.unwrap().split_whitespace().skip(3);
    let mut next = || words.next().unwrap().to_owned();
    (next(), next())
}

/// The error that answers the opening, and the exit code.
fn refused(mut client: Client) -> (String, Option<i32>) {
    let answer = client.wire.request("initialize", &json!({})).unwrap();
    assert_eq!(answer["error"]["data"]["reason"], "start_failed");
    let told = trouble(&answer).to_owned();
    let (status, rest) = client.finish();
    assert_eq!(rest, b"", "one answer, not more");
    (told, status.code())
}

/// Asserts that the server has replaced our process, and that stderr says why.
fn runs_bare(mut client: Client, why: &str, hint: &str) {
    client.wire.initialize().unwrap();
    assert_eq!(server(&mut client), client.who.pid);
    assert!(client.finish().0.success());
    let told = client.stderr_text();
    let first = format!(
        "warning: the server runs without mainstay, which cannot start its own processes: {why}\nhint: "
    );
    assert!(told.starts_with(&first) && told.contains(hint), "{told}");
}

#[test]
fn the_next_generation_starts_with_32_descriptors() {
    for options in [&[][..], &["--tier", "subreaper"]] {
        let stage = Stage::new();
        let argv = limited("ulimit -n 32", mainstay(&stage, options));
        let mut client = Client::open(&stage, &argv);
        let mut last = server(&mut client);
        for _ in 0..2 {
            killers::at_once(&[who(last)]);
            let next = server(&mut client);
            assert_ne!(next, last);
            last = next;
        }
        killers::at_once(&[stage.card().keeper.unwrap()]);
        assert_ne!(server(&mut client), last);
        assert!(client.finish().0.success());
        assert!(stage.events("start_failed").is_empty());
        stage.census.assert_empty();
    }
}

#[test]
fn with_fewer_descriptors_the_server_runs_without_us() {
    for most in [8, 31] {
        let stage = Stage::new();
        let limit = format!("ulimit -n {most}");
        let client = Launch::new(&stage, &limited(&limit, mainstay(&stage, &[]))).start();
        runs_bare(client, "too many open files", "ulimit -n");
        if most > 8 {
            let event = stage.event("start_failed");
            let problem = event["problem"].as_str().unwrap();
            assert!(problem.contains("runs without mainstay"), "{event}");
        }
        stage.census.assert_empty();
    }
}

#[test]
fn a_server_with_a_required_tier_is_refused_instead() {
    let stage = Stage::new();
    let argv = mainstay(&stage, &["--require-tier", "subreaper"]);
    let client = Launch::new(&stage, &limited("ulimit -n 16", argv)).start();
    let (told, code) = refused(client);
    assert_eq!(code, Some(125));
    for part in [
        "cannot start its own processes",
        "too many open files",
        "ulimit -n",
    ] {
        assert!(told.contains(part), "{told}");
    }
    stage.census.assert_empty();
}

#[test]
fn our_own_limit_is_raised_and_the_servers_is_as_it_was() {
    let stage = Stage::new();
    let mut client = Client::open(&stage, &limited("ulimit -S -n 64", mainstay(&stage, &[])));
    for generation in 1..=2 {
        let pid = server(&mut client);
        let (soft, hard) = descriptors(pid);
        assert_eq!(soft, "64");
        let card = stage.card_that("shows this server", |card| {
            card.server.is_some_and(|server| server.pid == pid)
        });
        let ours = descriptors(card.keeper.unwrap().pid);
        assert_eq!(ours, (hard.clone(), hard));
        if generation == 1 {
            killers::at_once(&[who(pid)]);
        }
    }
    assert!(client.finish().0.success());
    stage.census.assert_empty();
}

/// Closes the stdin of a process that reads it, and waits for its end.
fn end(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// A user with its own HOME.
struct User {
    uid: u32,
    home: PathBuf,
}

impl User {
    fn new(stage: &Stage, uid: u32) -> Self {
        let home = stage.path("own");
        fs::create_dir(&home).unwrap();
        chown(&home, Some(uid), Some(uid)).unwrap();
        Self { uid, home }
    }

    /// A client's start with a limit on processes.
    fn start(&self, stage: &Stage, most: u32, options: &[&str]) -> Client {
        // Some shells have `-p` for this limit, others `-u`.
        let limit = format!("ulimit -p {most} 2>/dev/null || ulimit -u {most}");
        Launch::new(stage, &limited(&limit, mainstay(stage, options)))
            .with(|command| command.env("HOME", &self.home).uid(self.uid).gid(self.uid))
            .start()
    }

    fn events(&self, word: &str) -> Vec<Value> {
        card::events_called(&self.home, word)
    }
}

#[test]
fn a_user_with_few_processes_has_its_server() {
    if !skip::root_or_skip("only root can play a user without other processes") {
        return;
    }
    let stage = Stage::new();
    let user = User::new(&stage, uid(20_000));
    for (count, most) in (1..).zip([1, 2, 4, 8]) {
        let client = user.start(&stage, most, &[]);
        runs_bare(client, "resource temporarily unavailable", "ulimit -u");
        assert_eq!(user.events("start_failed").len(), count);
        stage.census.assert_empty();
        fs::remove_file(stage.path("stderr.log")).unwrap();
    }
    let (told, code) = refused(user.start(&stage, 4, &["--tier", "subreaper"]));
    assert_eq!(code, Some(125));
    assert!(
        told.contains("cannot start its own processes") && told.contains("ulimit -u"),
        "{told}"
    );
    stage.census.assert_empty();
    // With enough room, mainstay holds the server.
    let mut client = user.start(&stage, 24, &[]);
    client.wire.initialize().unwrap();
    let first = server(&mut client);
    assert_ne!(first, client.who.pid);
    killers::at_once(&[who(first)]);
    assert_ne!(server(&mut client), first);
    assert!(client.finish().0.success());
    stage.census.assert_empty();
}

#[test]
fn a_user_at_a_high_limit_has_its_server_or_learns_why_not() {
    const MOST: u32 = 70;
    if !skip::root_or_skip("only root can play a user without other processes") {
        return;
    }
    let stage = Stage::new();
    let user = User::new(&stage, uid(40_000));
    let mut others: Vec<Child> = (0..MOST - 2)
        .map(|_| {
            let mut command = stage.command("cat");
            command.uid(user.uid).gid(user.uid).stdin(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    // Room for the shim and one more process: no guard can be started.
    let client = user.start(&stage, MOST, &[]);
    runs_bare(client, "resource temporarily unavailable", "ulimit -u");
    // Room for a guard and a keeper, but not for the server.
    end(others.pop().unwrap());
    let (told, code) = refused(user.start(&stage, MOST, &[]));
    assert_eq!(code, Some(125));
    assert!(
        told.contains("no new process") && told.contains("out of processes"),
        "{told}"
    );
    others.into_iter().for_each(end);
    stage.census.assert_empty();
}

#[test]
fn without_a_place_for_events_no_command_is_named_that_reads_them() {
    let stage = Stage::new();
    for (options, left) in [
        (&[][..], "is started again"),
        (&["--restart-budget", "0"], "is not started again"),
    ] {
        let mut client = Launch::new(&stage, &mainstay(&stage, options))
            .with(|command| {
                let nowhere = ["HOME", "XDG_RUNTIME_DIR", "TMPDIR"].map(|name| (name, "/dev/null"));
                command.envs(nowhere)
            })
            .start();
        client.wire.initialize().unwrap();
        let call = json!({"name": "crash", "arguments": {"code": 7}});
        let answer = client.wire.request("tools/call", &call).unwrap();
        let told = trouble(&answer);
        assert!(told.contains(left) && !told.contains("mainstay"), "{told}");
        client.finish();
        let stderr = client.stderr_text();
        assert!(
            stderr.contains("there is no place for events and links"),
            "{stderr}"
        );
        stage.census.assert_empty();
    }
    assert!(stage.events("start").is_empty());
}
