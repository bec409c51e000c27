//! Clients whose parent is not the one that started them, with the real programs: tmux, and a systemd user manager. (Codex's daemon: interop/orphans.mjs.)
//! guards: `reap` spares servers of clients in tmux and below a user manager, and finds them once these are killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mainstay_os::census::{self, Stat};
use mainstay_os::identity;
use mainstay_testkit::census::MARK_VARIABLE;
use mainstay_testkit::lab::{self, Lab, UNPRIVILEGED};
use mainstay_testkit::skip::skip;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;
use serde_json::{Value, json};

use crate::reap_ends_orphans_and_spares_others::{kill, reap, server, try_to_end};
use crate::support::test_name;
use crate::support::watching::mainstay;

/// A client and its server.
struct Pair {
    client: Stat,
    server: i32,
}

/// A script that is a client: it opens a server, notes both pids, and waits. It has no other child, because none may be left.
fn script(stage: &Stage) -> PathBuf {
    let server = stage.unruly(&["--ignore-eof", "--ignore-term"]);
    let server: Vec<&str> = server.iter().map(|word| word.to_str().unwrap()).collect();
    let path = stage.path("client.sh");
    let told = stage.path("pids");
    let text = format!(
        "coproc S {{ exec {}; }}\necho $$ $S_PID > {told}.new; mv {told}.new {told}\n[ -p {told}.fifo ] || mkfifo {told}.fifo\nread line < {told}.fifo\n",
        server.join(" "),
        told = told.display()
    );
    fs::write(&path, text).unwrap();
    path
}

fn pair(stage: &Stage) -> Pair {
    let told = stage.path("pids");
    let pids = until("the client has a server", || fs::read_to_string(&told).ok());
    fs::remove_file(&told).unwrap();
    let pids: Vec<i32> = pids
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    Pair {
        client: census::stat(pids[0]).unwrap(),
        server: pids[1],
    }
}

fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// The server is in use, and neither it nor its client is ended.
fn spared(stage: &Stage, pair: &Pair) {
    let found = try_to_end(stage, pair.server);
    assert_eq!(found["verdict"], "in_use", "{found}");
    assert_eq!(found["client"]["pid"], pair.client.pid);
    assert!(identity::alive(pair.client.who()));
}

/// The server is an orphan, and is ended.
fn found_and_ended(stage: &Stage, pair: &Pair) {
    let found = until("its client is gone", || {
        Some(server(stage, pair.server)).filter(|found| found["verdict"] == "orphan")
    });
    assert_eq!(found["blocked"], json!([]));
    let done = reap(stage, &["--yes"], &[pair.server]);
    assert_eq!(done["done"][0]["left"], json!([]), "{done}");
    assert_eq!(done["done"][0]["ended"], 1, "{done}");
}

#[test]
fn a_client_in_tmux() {
    let stage = Stage::new();
    let socket = stage.path("tmux");
    let tmux = |words: &[&str]| {
        let mut command = stage.command("tmux");
        command.arg("-S").arg(&socket).args(["-f", "/dev/null"]);
        // What a client's shell passes on: other reapers took this tmux for a part of the session.
        command
            .env("CLAUDE_CODE_SESSION_ID", "1a2b3c4d")
            .env("CLAUDECODE", "1");
        command
            .env("TERM", "xterm")
            .env("LC_ALL", "C.UTF-8")
            .args(words);
        command
    };
    if tmux(&["-V"]).output().is_err() {
        skip("tmux is not installed");
        return;
    }
    let client = script(&stage);
    let client = client.to_str().unwrap();
    run(&mut tmux(&[
        "new-session",
        "-d",
        "-s",
        "work",
        "bash",
        client,
    ]));
    let pair = pair(&stage);
    let pid = run(&mut tmux(&["display-message", "-p", "#{pid}"]));
    let pid: i32 = String::from_utf8(pid.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let daemon = census::stat(pid).unwrap();
    let us = std::process::id() as i32;
    assert_ne!(daemon.ppid, us, "the tmux server has left us: {daemon:?}");
    assert_eq!(pair.client.ppid, pid);
    spared(&stage, &pair);
    for who in [daemon.who(), pair.client.who()] {
        let done = reap(&stage, &["--yes", "--stale"], &[who.pid]);
        assert_eq!(done["done"], json!([]), "{done}");
        assert!(identity::alive(who));
    }
    kill(daemon.who());
    // With the terminal its client goes, too.
    until("the client has ended", || {
        (!identity::alive(pair.client.who())).then_some(())
    });
    found_and_ended(&stage, &pair);
}

#[test]
fn a_client_below_a_systemd_user_manager() {
    if lab::inside().is_some() {
        let stage = Stage::new();
        detached_client(&stage);
        client_as_a_service(&stage);
        return;
    }
    if let Err(why) = lab::affordable() {
        skip(&why);
        return;
    }
    let lab = Lab::furnish(&mainstay());
    let name = test_name(module_path!(), "a_client_below_a_systemd_user_manager");
    let played = lab.run(&name);
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        played.status.success() && said(&played.stdout).contains("1 passed"),
        "{}{}",
        said(&played.stdout),
        said(&played.stderr)
    );
}

fn systemd_run(stage: &Stage, options: &[&str], command: &[&str]) {
    let runtime = format!("/run/user/{UNPRIVILEGED}");
    let mut all = stage.command("systemd-run");
    all.env("XDG_RUNTIME_DIR", &runtime)
        .args(["--user", "--quiet", "--collect"])
        .args(["--property", "KillMode=process"])
        .arg(format!("--setenv=XDG_RUNTIME_DIR={runtime}"))
        .arg(format!("--setenv={MARK_VARIABLE}={}", stage.census.mark()))
        .arg(format!("--setenv=HOME={}", stage.home().display()))
        .args(options)
        .args(command);
    run(&mut all);
}

/// The client's parent is the manager.
fn below_the_manager(pair: &Pair, place: &str) {
    let manager = census::stat(pair.client.ppid).unwrap();
    assert_eq!(manager.comm, "systemd", "{manager:?}");
    let cgroup = fs::read_to_string(format!("/proc/{}/cgroup", pair.client.pid)).unwrap();
    assert!(cgroup.lines().any(|line| line.ends_with(place)), "{cgroup}");
}

/// As desktops do it: a service starts the client in a scope of its own and goes. The manager inherits the client.
fn detached_client(stage: &Stage) {
    let client = script(stage);
    let launch = format!(
        "systemd-run --user --quiet --scope --collect --unit=app-client bash {} &",
        client.display()
    );
    systemd_run(stage, &["--unit=desktop"], &["bash", "-c", &launch]);
    let pair = pair(stage);
    until("the manager has inherited it", || {
        let parent = census::stat(census::stat(pair.client.pid).ok()?.ppid).ok()?;
        (parent.comm == "systemd").then_some(())
    });
    let pair = Pair {
        client: census::stat(pair.client.pid).unwrap(),
        ..pair
    };
    below_the_manager(&pair, "/app-client.scope");
    spared(stage, &pair);
    kill(pair.client.who());
    found_and_ended(stage, &pair);
}

/// A client that is a service. What it leaves is the manager's business, also after its death.
fn client_as_a_service(stage: &Stage) {
    let client = script(stage);
    let client: &Path = &client;
    systemd_run(
        stage,
        &["--unit=agent"],
        &["bash", client.to_str().unwrap()],
    );
    let pair = pair(stage);
    below_the_manager(&pair, "/agent.service");
    spared(stage, &pair);
    kill(pair.client.who());
    let found: Value = try_to_end(stage, pair.server);
    assert_eq!(found["verdict"], "unsure", "{found}");
    assert_eq!(
        found["blocked"][0],
        "it belongs to the service agent.service"
    );
    kill(identity::of(pair.server).unwrap());
}
