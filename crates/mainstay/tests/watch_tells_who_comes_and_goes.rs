//! `mainstay watch` on real servers that we did not start: NEW and GONE, once each, with how they ended.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod watching;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use mainstay_os::identity::Handle;
use mainstay_testkit::client::Carrier;
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::skip;
use mainstay_testkit::stage::{Source, Stage, run};
use rustix::process::Signal;
use serde_json::Value;
use watching::{Watching, mainstay, watch, words};

fn kill(who: mainstay_core::ids::Identity, signal: Signal) {
    Handle::open(who).unwrap().signal(signal).unwrap();
}

#[test]
fn with_signal_and_with_exit_code() {
    let stage = Stage::new();
    let plan = Plan {
        copies: Some(3),
        carrier: Carrier::Sockets,
        ..Plan::default()
    };
    let mut client = Puppet::start(&stage, plan, &stage.unruly(&["--exit-code", "7"]));
    let mut watch = watch(&stage, &[&client.who.pid.to_string()]);
    for server in client.shims.clone() {
        let new = watch.that("a server", |line| line["what"] == "new");
        assert_eq!(new["pid"], server.pid, "in the order of their start");
        assert_eq!(new["start"], server.start);
        assert_eq!(new["client"]["pid"], client.who.pid);
        assert_eq!(
            (&new["stdin"], &new["stdout"]),
            (&"socket".into(), &"socket".into())
        );
        assert!(new["command"][0].as_str().unwrap().ends_with("unruly"));
        assert!(new["rss_kib"].as_u64().unwrap() > 0);
        assert_eq!(new["ours"], Value::Null);
    }
    kill(client.shims[0], Signal::KILL);
    let gone = watch.of("gone", client.shims[0].pid);
    assert_eq!(gone["status"]["signal"]["number"], 9);
    kill(client.shims[1], Signal::TERM);
    let gone = watch.of("gone", client.shims[1].pid);
    assert!(gone["status"].is_object(), "{gone}");
    client.close();
    let gone = watch.of("gone", client.shims[2].pid);
    assert_eq!(gone["status"]["code"], 7);
    // The client ends, nobody is left, and so the watch is over.
    client.exit();
    let end = watch.that("the client's end", |line| line["what"] == "client_gone");
    assert_eq!(end["status"]["code"], 0);
    assert_eq!(watch.line(), None);
    assert_eq!(watch.wait().code(), Some(0));
}

#[test]
fn servers_that_come_later_by_the_connector_and_without_it() {
    for option in [&[][..], &["--no-connector"]] {
        let stage = Stage::new();
        let mut client = Puppet::start(&stage, Plan::default(), &stage.unruly::<&str>(&[]));
        let mut options = vec!["--client", "puppet"];
        options.extend(option);
        let mut watch = watch(&stage, &options);
        let first = watch.of("new", client.shims[0].pid);
        assert_eq!(
            (&first["stdin"], &first["stdout"]),
            (&"pipe".into(), &"pipe".into())
        );
        client.close();
        watch.of("gone", client.shims[0].pid);
        client.wait_shims();
        client.again();
        let pid = client.call_pids()[0].unwrap();
        watch.of("new", pid);
        drop(client);
        watch.of("gone", pid);
        watch.interrupt();
    }
}

#[test]
fn a_chain_of_launchers_is_one_server() {
    let stage = Stage::new();
    let server = stage.unruly::<&str>(&[]);
    let server: Vec<&str> = server.iter().map(|word| word.to_str().unwrap()).collect();
    // As npx does it: a program that starts a shell that starts the server, all with the same pipes.
    let inner = format!("{}; exit 5", server.join(" "));
    let outer = format!("sh -c '{inner}'; exit 6");
    let mut client = Puppet::start(&stage, Plan::default(), &words(&["sh", "-c", &outer]));
    let pid = client.call_pids()[0].unwrap();
    let mut watch = watch(&stage, &[&client.who.pid.to_string()]);
    let new = watch.of("new", pid);
    let launchers = new["launchers"].as_array().unwrap();
    assert_eq!(launchers.len(), 2, "{new}");
    assert_eq!(launchers[0]["pid"], client.shims[0].pid);
    client.close();
    let gone = watch.of("gone", pid);
    assert_eq!(gone["status"]["code"], 0);
    client.wait_shims();
    client.exit();
    while watch.line().is_some() {}
    let told: Vec<&Value> = watch.seen.iter().map(|line| &line["what"]).collect();
    assert_eq!(told, ["new", "gone", "client_gone"], "once each");
}

#[test]
fn a_launcher_that_becomes_the_server() {
    let stage = Stage::new();
    let server = stage.unruly::<&str>(&[]);
    let server: Vec<&str> = server.iter().map(|word| word.to_str().unwrap()).collect();
    // A shell that waits without a child: on a slow machine a short one could be taken for the server.
    let wait = format!("read line; exec {}", server.join(" "));
    let mut watch = watch(&stage, &["--all"]);
    let mut launcher = stage.command("sh");
    let mut launcher = launcher
        .args(["-c", &wait])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = launcher.id() as i32;
    let new = watch.of("new", pid);
    assert_eq!(new["launcher"], true, "{new}");
    launcher.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let moved = watch.of("moved", pid);
    assert_eq!(moved["launcher"], false);
    assert!(moved["command"][0].as_str().unwrap().ends_with("unruly"));
    drop(launcher.stdin.take());
    launcher.wait().unwrap();
    watch.of("gone", pid);
    watch.interrupt();
}

#[test]
fn a_server_that_outlives_its_client_is_told_as_left() {
    let stage = Stage::new();
    let client = Puppet::start(&stage, Plan::default(), &stage.unruly(&["--ignore-eof"]));
    let server = client.shims[0];
    let mut watch = watch(&stage, &[&client.who.pid.to_string()]);
    watch.of("new", server.pid);
    client.kill();
    let end = watch.that("the client's end", |line| line["what"] == "client_gone");
    assert_eq!(end["status"]["signal"]["number"], 9);
    watch.of("left", server.pid);
    assert_eq!(watch.line(), None);
    assert_eq!(watch.wait().code(), Some(1));
    kill(server, Signal::KILL);
}

#[test]
fn servers_of_ours_are_marked() {
    let stage = Stage::new();
    let argv = run(mainstay(), &["--name", "files"], stage.unruly::<&str>(&[]));
    let mut client = Puppet::start(&stage, Plan::default(), &argv);
    let card = stage.card();
    let server = card.server.unwrap();
    // To everybody it is the server, to the client it is the shim.
    let mut all = watch(&stage, &["--all", "--once"]);
    let new = all.of("new", server.pid);
    assert_eq!(new["ours"]["server"], "files");
    assert_eq!(new["ours"]["id"], card.id);
    while all.line().is_some() {}
    assert_eq!(all.wait().code(), Some(0));
    let shim = client.shims[0];
    let mut of_client = watch(&stage, &[&client.who.pid.to_string()]);
    let new = of_client.of("new", shim.pid);
    assert_eq!(new["ours"]["server"], "files");
    client.close();
    of_client.of("gone", shim.pid);
    of_client.interrupt();
    client.exit();
    stage.event("teardown");
}

#[test]
fn nobody_there_is_told_in_words() {
    let stage = Stage::new();
    let mut watch = watch(&stage, &["--client", "no-such-client", "--once"]);
    assert_eq!(watch.line(), None);
    let said = watch.talk();
    assert!(said.contains("no no-such-client of yours"), "{said}");
    assert_eq!(watch.wait().code(), Some(0));
}

#[test]
fn where_the_connector_is_refused_it_says_so_and_looks_itself() {
    let stage = Stage::new();
    let mut client = Puppet::start(&stage, Plan::default(), &stage.unruly::<&str>(&[]));
    let root = rustix::process::geteuid().is_root();
    let mut command = stage.command("unshare");
    command
        .arg(if root { "-n" } else { "-rn" })
        .arg(mainstay())
        .args(["watch", "--json", "--for", "60s", "--client", "puppet"]);
    let mut watch = Watching::start(&stage, &mut command);
    let said = watch.talk();
    if said.starts_with("unshare:") {
        skip::skip(&said);
        return;
    }
    assert_eq!(
        said,
        "note: the kernel does not tell us of new processes (connection refused): looking every 1 s instead\n"
    );
    watch.of("new", client.shims[0].pid);
    client.close();
    client.wait_shims();
    watch.of("gone", client.shims[0].pid);
    client.again();
    let pid = client.call_pids()[0].unwrap();
    watch.of("new", pid);
    watch.interrupt();
}

#[test]
fn processes_of_others_are_told_as_far_as_they_can_be_seen() {
    if !skip::root_or_skip("only root can start a process of another user") {
        return;
    }
    let stage = Stage::new();
    let client = Puppet::start(&stage, Plan::default(), &stage.unruly::<&str>(&[]));
    // Somebody else may not look at the pipes of a process, but sees that it is there.
    let copy = std::env::temp_dir().join(format!("mainstay-{}", stage.census.mark()));
    stage.program(&copy, Source::Copy(&mainstay()));
    let mut command = stage.command(&copy);
    command
        .env("HOME", "/nonexistent")
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .args(["watch", "--json", "--for", "60s"])
        .arg(client.who.pid.to_string());
    let mut watch = Watching::start(&stage, &mut command);
    let new = watch.of("new", client.shims[0].pid);
    assert_eq!((&new["stdin"], &new["stdout"]), (&"?".into(), &"?".into()));
    kill(client.shims[0], Signal::KILL);
    let gone = watch.of("gone", client.shims[0].pid);
    // The kernel tells the status of another user's process once it is reaped, which this client does not do.
    assert!(
        gone["status"].is_object() || gone["unknown"].is_string(),
        "{gone}"
    );
    watch.interrupt();
    std::fs::remove_file(copy).unwrap();
}

#[test]
fn comets_are_told_to_come_before_they_are_told_to_go() {
    let stage = Stage::new();
    let mut watch = watch(&stage, &["--client", &me()]);
    for _ in 0..200 {
        // With pipes of its own, and gone in a moment.
        let output = stage.command("true").output().unwrap();
        assert!(output.status.success());
    }
    let mut last = stage.command("cat");
    let mut last = last
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    watch.of("new", last.id() as i32);
    drop(last.stdin.take());
    last.wait().unwrap();
    watch.of("gone", last.id() as i32);
    let seen = watch.interrupt();
    for (place, gone) in seen.iter().enumerate() {
        let who = |line: &Value| (line["pid"].clone(), line["start"].clone());
        let news = seen[..place]
            .iter()
            .filter(|line| line["what"] == "new" && who(line) == who(gone));
        if gone["what"] == "gone" {
            assert_eq!(news.count(), 1, "{gone}");
        }
    }
}

#[test]
fn nobody_has_that_pid() {
    let stage = Stage::new();
    let output = stage
        .command(mainstay())
        .args(["watch", "2147483647"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("error: no process has the pid 2147483647"),
        "{said}"
    );
}

fn me() -> String {
    mainstay_os::census::stat(std::process::id() as i32)
        .unwrap()
        .comm
}
