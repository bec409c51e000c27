//! `mainstay watch` on real servers that we did not start reports NEW and GONE once each, with how they ended.
//! guards: `watch` reports each server once when it starts and once when it ends, in that order.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use mainstay_os::identity::Handle;
use mainstay_testkit::client::Carrier;
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::skip;
use mainstay_testkit::stage::{Source, Stage, run};

use crate::support::watching::{Watching, mainstay, watch, words};
use rustix::process::Signal;
use serde_json::Value;

fn kill(who: mainstay_protocol::ids::Identity, signal: Signal) {
    Handle::open(who).unwrap().signal(signal).unwrap();
}

#[test]
fn watch_reports_ends_with_their_signal_or_exit_code() {
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
    // The client exits and no server is left, so the watch ends.
    client.exit();
    let end = watch.that("the client's end", |line| line["what"] == "client_gone");
    assert_eq!(end["status"]["code"], 0);
    assert_eq!(watch.line(), None);
    assert_eq!(watch.wait().code(), Some(0));
}

#[test]
fn watch_reports_servers_that_start_later() {
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
fn watch_reports_a_chain_of_launchers_as_one_server() {
    let stage = Stage::new();
    let server = stage.unruly::<&str>(&[]);
    let server: Vec<&str> = server.iter().map(|word| word.to_str().unwrap()).collect();
    // npx does this: a program starts a shell that starts the server, all with the same pipes.
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
fn watch_reports_a_launcher_that_becomes_the_server() {
    let stage = Stage::new();
    let server = stage.unruly::<&str>(&[]);
    let server: Vec<&str> = server.iter().map(|word| word.to_str().unwrap()).collect();
    // The shell waits without a child, because on a slow machine a short-lived child could be taken for the server.
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
fn watch_reports_a_server_that_outlives_its_client_as_left() {
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
fn watch_marks_servers_under_mainstay() {
    let stage = Stage::new();
    let argv = run(mainstay(), &["--name", "files"], stage.unruly::<&str>(&[]));
    let mut client = Puppet::start(&stage, Plan::default(), &argv);
    let card = stage.card();
    let server = card.server.unwrap();
    // `--all` shows the server itself. For the client, its child is the shim.
    let mut all = watch(&stage, &["--all", "--once"]);
    let new = all.of("new", server.pid);
    assert_eq!(new["ours"]["server"], "files");
    assert_eq!(new["ours"]["id"], card.id);
    while all.line().is_some() {}
    assert_eq!(all.wait().code(), Some(0));
    let shim = client.shims[0];
    let shown = |line: &Value| line["pid"] == shim.pid;
    assert!(!all.seen.iter().any(shown), "each server once");
    assert_eq!(new["ours"]["client"]["pid"], client.who.pid);
    // As a table: the client's name and pid, the server's pid, and the link that holds it.
    let mut table = stage.command(mainstay());
    let table = table.args(["watch", "--once", &client.who.pid.to_string()]);
    let table = String::from_utf8(table.output().unwrap().stdout).unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        ["CLIENT", "SERVER", "PID", "AGE", "RSS", "HELD", "BY"]
    );
    let (of, pid) = (client.who.pid.to_string(), server.pid.to_string());
    assert_eq!(rows[1][..4], ["puppet", &of, "files", &pid]);
    let id = new["ours"]["short_id"].as_str().unwrap();
    assert_eq!(rows[1][rows[1].len() - 2..], ["mainstay", id]);
    assert_eq!(rows.len(), 2);
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
fn watch_reports_an_unknown_client() {
    let stage = Stage::new();
    let mut watch = watch(&stage, &["--client", "no-such-client", "--once"]);
    assert_eq!(watch.line(), None);
    let said = watch.talk();
    assert!(said.contains("no no-such-client of yours"), "{said}");
    assert_eq!(watch.wait().code(), Some(0));
}

#[test]
fn watch_without_the_connector_says_so_and_scans() {
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
        "note: the kernel does not report new processes (connection refused): listing all processes every 1 s instead\n"
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
fn watch_reports_servers_of_other_users_as_far_as_they_are_visible() {
    if !skip::root_or_skip("only root can start a process of another user") {
        return;
    }
    let stage = Stage::new();
    let client = Puppet::start(&stage, Plan::default(), &stage.unruly::<&str>(&[]));
    // Another user may not read the pipes of a process, but sees that it exists.
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
    // The kernel shows the exit status of another user's process only once it is reaped, which this client does not do.
    assert!(
        gone["status"].is_object() || gone["unknown"].is_string(),
        "{gone}"
    );
    watch.interrupt();
    std::fs::remove_file(copy).unwrap();
}

#[test]
fn watch_reports_a_short_lived_server_as_new_before_gone() {
    let stage = Stage::new();
    let mut watch = watch(&stage, &["--client", &me()]);
    for _ in 0..200 {
        // Each has its own pipes and exits at once.
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
fn watch_refuses_a_pid_without_a_process() {
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

#[test]
fn watch_suggests_the_client_if_a_word_is_given() {
    let stage = Stage::new();
    let output = stage
        .command(mainstay())
        .args(["watch", "claude"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("did you mean `mainstay watch --client claude`?"),
        "{said}"
    );
}

/// For people: a row when a server is found and one when it is gone, below titles; stderr says how to end it.
#[test]
fn watch_prints_rows_below_titles() {
    let stage = Stage::new();
    let mut client = Puppet::start(&stage, Plan::default(), &stage.unruly::<&str>(&[]));
    let mut command = stage.command(mainstay());
    let pid = client.who.pid.to_string();
    let mut watch = command
        .args(["watch", &pid])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let who = mainstay_os::identity::of(watch.id() as i32).unwrap();
    stage.census.spare(who);
    let mut shown = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || shown.next().map(Result::unwrap).unwrap_or_default();
    assert!(next().starts_with("TIME      WHAT    CLIENT "));
    let server = client.shims[0].pid.to_string();
    let row = next();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        words[1..6],
        ["RUNS", "puppet", &pid, "unruly", &server],
        "{row}"
    );
    assert!(row.contains("client only: mainstay adopt"), "{row}");
    client.close();
    client.wait_shims();
    let gone = next();
    assert!(gone.contains("  GONE    puppet "), "{gone}");
    assert!(gone.contains("exit code 0 after "), "{gone}");
    client.exit();
    let end = next();
    assert!(end.contains("  CLIENT  "), "{end}");
    assert_eq!(next(), "");
    let output = watch.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).unwrap();
    let begun = format!("watching the servers of pid {pid}; Ctrl-C ends it\n");
    assert!(said.ends_with(&begun), "{said}");
}

fn me() -> String {
    mainstay_os::census::stat(std::process::id() as i32)
        .unwrap()
        .comm
}
