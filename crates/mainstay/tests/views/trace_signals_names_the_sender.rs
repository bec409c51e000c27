//! `mainstay trace-signals` on real kills: the sender is named in its own output, in `mainstay why` and in `mainstay watch`.
//! Where signals cannot be traced, it says why, and the test checks that message instead.
//! guards: A traced signal names its sender, and no trace setting is left when the tracer ends.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;

use crate::support::scene::{self, Scene};
use crate::support::watching::{
    Watching, begun, gone, instance, mainstay, send_by, trace, tracing, watch,
};
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::stage::{Source, Stage};
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::Value;

fn why(stage: &Stage, words: &[&str]) -> String {
    let mut command = stage.command(mainstay());
    let output = command.arg("why").args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The output of `why --json`, once it is certain. The tracer writes independently of the keeper, so the verdict may come later.
fn certain(stage: &Stage) -> Value {
    until("a certain verdict", || {
        let told: Value = serde_json::from_str(&why(stage, &["unruly", "--json"])).ok()?;
        (told["verdict"]["rule"] == "traced_signal").then_some(told)
    })
}

#[test]
fn trace_signals_names_the_killer_of_a_server() {
    let mut scene = Scene::open(&[], &[]);
    let Some(mut tracer) = trace(&scene.stage, &["--to", "unruly", "--signal", "KILL"]) else {
        return;
    };
    let server = scene.server(1);
    send_by(&scene.stage, "cleanup-script", "KILL", server.pid);
    scene.replayed(2);
    let line = tracer.that("the kill", |line| line["victim"]["pid"] == server.pid);
    assert_eq!(line["signal"], "SIGKILL");
    assert_eq!(line["result"], "delivered");
    assert_eq!(line["links"][0]["server"], "unruly");
    assert_eq!(line["links"][0]["to"], "server");
    let sender = line["sender"]["pid"].as_i64().unwrap();
    let comm = line["sender"]["comm"].as_str().unwrap();
    assert_eq!(comm, "sh", "the shell sends it itself");
    let told = certain(&scene.stage);
    assert_eq!(told["verdict"]["sure"], "certain");
    assert_eq!(told["verdict"]["by"]["process"]["pid"], sender);
    assert_eq!(told["generation"], 1);
    let text = why(&scene.stage, &["unruly", "--full"]);
    let first = format!("unruly was killed by sh (pid {sender}, SIGKILL, certain) ");
    assert!(text.starts_with(&first), "{text}");
    assert!(
        text.contains("  certain: `mainstay trace-signals` saw the signal while it was sent"),
        "{text}"
    );
    assert!(!text.contains("it could be the client"), "{text}");
    tracer.interrupt();
    scene.client.finish();
}

/// A shell runs the last command of its script in its own place, so the sender may be another program when the tracer looks.
#[test]
fn trace_signals_names_the_program_that_sent_and_not_a_later_one() {
    let mut scene = Scene::open(&[], &[]);
    let Some(mut tracer) = trace(&scene.stage, &["--signal", "KILL"]) else {
        return;
    };
    let server = scene.server(1);
    scene::freeze(tracer.who);
    let script = format!("kill -KILL {}; exec sleep 1000", server.pid);
    let mut command = scene.stage.command("sh");
    let mut sender = command.args(["-c", &script]).spawn().unwrap();
    let pid = sender.id() as i32;
    until("the sender runs sleep", || {
        let stat = mainstay_os::census::stat(pid).ok()?;
        (stat.comm == "sleep").then_some(())
    });
    scene::thaw(tracer.who);
    let line = tracer.that("the kill", |line| line["victim"]["pid"] == server.pid);
    assert_eq!(line["sender"]["pid"], pid);
    assert_eq!(line["sender"]["comm"], "sh", "{line}");
    assert_eq!(line["sender"]["cmdline"], serde_json::json!([]), "{line}");
    assert_eq!(
        certain(&scene.stage)["verdict"]["by"]["process"]["comm"],
        "sh"
    );
    sender.kill().unwrap();
    sender.wait().unwrap();
    tracer.interrupt();
    scene.client.finish();
}

#[test]
fn trace_signals_names_the_killer_of_a_shim_and_of_a_keeper() {
    for part in ["shim", "keeper"] {
        let mut scene = Scene::open(&[], &[]);
        let Some(tracer) = trace(&scene.stage, &[]) else {
            return;
        };
        let card = scene.stage.card();
        let victim = if part == "shim" {
            card.shim
        } else {
            card.keeper
        };
        send_by(&scene.stage, "cleanup", "KILL", victim.unwrap().pid);
        if part == "shim" {
            scene.stage.event("teardown");
        } else {
            scene.stage.event("keeper_lost");
        }
        let told = certain(&scene.stage);
        assert_eq!(told["verdict"]["sure"], "certain");
        let said = told["told"].as_str().unwrap();
        let named = if part == "shim" {
            "killed the shim"
        } else {
            "killed mainstay's keeper"
        };
        assert!(said.contains("because sh (pid "), "{said}");
        assert!(said.contains(named), "{said}");
        tracer.interrupt();
        scene.client.finish();
    }
}

#[test]
fn watch_names_a_sender_that_trace_signals_saw() {
    let stage = Stage::new();
    let client = Puppet::start(&stage, Plan::default(), &stage.unruly::<&str>(&[]));
    let Some(mut tracer) = trace(&stage, &[]) else {
        return;
    };
    let server = client.shims[0].pid;
    let mut watch = watch(&stage, &[&client.who.pid.to_string()]);
    watch.of("new", server);
    // `watch` waits only for a limited time for the tracer. It is stopped until the tracer has written, however long that takes.
    scene::freeze(watch.who);
    send_by(&stage, "cleanup", "KILL", server);
    tracer.that("the kill", |line| line["victim"]["pid"] == server);
    scene::thaw(watch.who);
    let gone = watch.of("gone", server);
    assert_eq!(gone["status"]["signal"]["number"], 9);
    assert_eq!(gone["sender"]["comm"], "sh", "{gone}");
    watch.interrupt();
    tracer.interrupt();
}

/// Without `--all`, signals between processes that are no servers are not shown.
#[test]
fn trace_signals_shows_signals_of_servers_only() {
    let stage = Stage::new();
    let client = Puppet::start(&stage, Plan::default(), &stage.unruly::<&str>(&[]));
    let Some(mut tracer) = trace(&stage, &["--signal", "KILL"]) else {
        return;
    };
    let mut other = stage.command("sleep").arg("100").spawn().unwrap();
    let other_pid = other.id() as i32;
    send_by(&stage, "cleanup", "KILL", other_pid);
    other.wait().unwrap();
    let server = client.shims[0].pid;
    send_by(&stage, "cleanup", "KILL", server);
    let line = tracer.that("the kill", |line| line["victim"]["pid"] == server);
    assert_eq!(line["victim_server"], "unruly", "{line}");
    assert_eq!(line["links"], serde_json::json!([]));
    let seen = tracer.interrupt();
    let other = |line: &Value| line["victim"]["pid"] == other_pid;
    assert!(!seen.iter().any(other), "{seen:?}");
}

/// A sender that only sends a signal has often exited before the tracer looks at it. The kernel's line then has no name yet.
#[test]
fn trace_signals_names_a_thousand_senders_that_exit_at_once() {
    let stage = Stage::new();
    let Some(mut tracer) = trace(&stage, &["--all", "--signal", "USR1"]) else {
        return;
    };
    let script = "trap '' USR1; i=0; while [ $i -lt 1000 ]; do (kill -USR1 $$); i=$((i+1)); done";
    let mut victim = stage.command("sh").args(["-c", script]).spawn().unwrap();
    let pid = victim.id();
    for _ in 0..1000 {
        let line = tracer.that("a signal", |line| line["victim"]["pid"] == pid);
        assert_eq!(line["sender"]["comm"], "sh", "{line}");
    }
    assert!(victim.wait().unwrap().success());
    tracer.interrupt();
}

/// The settings of the machine's own trace, where they can be read.
fn own_settings() -> Vec<Option<String>> {
    let files = [
        "events/signal/signal_generate/enable",
        "events/signal/signal_generate/filter",
        "events/sched/sched_process_exit/enable",
        "events/task/task_rename/enable",
        "trace_clock",
        "buffer_percent",
        "buffer_size_kb",
        "tracing_on",
    ];
    let root = tracing();
    files
        .iter()
        .map(|file| fs::read_to_string(root.join(file)).ok())
        .collect()
}

#[test]
fn trace_signals_leaves_nothing_however_it_ends() {
    let stage = Stage::new();
    if trace(&stage, &[]).is_none() {
        return;
    }
    let before = own_settings();
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let Some(mut tracer) = trace(&stage, &[]) else {
            return;
        };
        let path = instance(tracer.who);
        tracer.signal(signal);
        tracer.wait();
        gone(&path);
    }
    // The tracer and the child that cleans up after it are killed at once. The next tracer removes what they left.
    let Some(mut tracer) = trace(&stage, &[]) else {
        return;
    };
    let path = instance(tracer.who);
    let remover = mainstay_os::census::children(tracer.who.pid).unwrap();
    let mut both: Vec<_> = remover
        .iter()
        .map(|&pid| mainstay_os::identity::of(pid).unwrap())
        .collect();
    assert_eq!(both.len(), 1);
    both.push(tracer.who);
    mainstay_testkit::killers::at_once(&both);
    tracer.wait();
    let rest = path.exists();
    let next = trace(&stage, &[]).unwrap();
    assert!(
        rest && !path.exists(),
        "left by the killed, removed by the next"
    );
    next.interrupt();
    // The machine's own settings are unchanged.
    assert_eq!(own_settings(), before);
}

#[test]
fn trace_signals_mounts_tracefs_only_for_itself() {
    let stage = Stage::new();
    if trace(&stage, &[]).is_none() {
        return;
    }
    let mut command = stage.command("unshare");
    let script =
        "umount /sys/kernel/tracing 2>&-; exec \"$0\" trace-signals --all --json --for 60s";
    command.args(["-m", "sh", "-c", script]).arg(mainstay());
    let mut tracer = begun(Watching::start(&stage, &mut command)).unwrap();
    let path = instance(tracer.who);
    let mut victim = stage.command("sleep").arg("100").spawn().unwrap();
    let pid = victim.id() as i32;
    send_by(&stage, "cleanup", "TERM", pid);
    tracer.that("the signal", |line| line["victim"]["pid"] == pid);
    victim.wait().unwrap();
    tracer.interrupt();
    gone(&path);
}

#[test]
fn trace_signals_without_root_says_what_to_do() {
    let copy = std::env::temp_dir().join(format!("mainstay-trace-{}", std::process::id()));
    let stage = Stage::new();
    stage.program(&copy, Source::Copy(&mainstay()));
    let mut command = stage.command(&copy);
    command
        .current_dir("/")
        .args(["trace-signals", "--for", "60s"]);
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    fs::remove_file(copy).unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "error: cannot trace signals: only root can see who sends a signal to another process\n\
         hint: run it as `sudo mainstay trace-signals`; it writes to your own events, not to root's\n"
    );
}

#[test]
fn trace_signals_through_sudo_writes_with_the_users_rights() {
    const USER: u32 = 23_456;
    let stage = Stage::new();
    if !mainstay_testkit::skip::root_or_skip("only root can act for another user") {
        return;
    }
    // A home of that user with a trap: a link to a file of root in place of its events.
    let home = stage.path("home");
    let state = home.join(".local/state/mainstay");
    fs::create_dir_all(&state).unwrap();
    let trap = stage.path("trap");
    fs::create_dir(&trap).unwrap();
    for path in [
        &home,
        &home.join(".local"),
        &home.join(".local/state"),
        &state,
    ] {
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    }
    let mut command = stage.command(mainstay());
    command
        .env("HOME", &home)
        .env("SUDO_UID", USER.to_string())
        .env("SUDO_GID", USER.to_string())
        .args(["trace-signals", "--json", "--for", "60s"]);
    let Some(tracer) = begun(Watching::start(&stage, &mut command)) else {
        return;
    };
    for name in ["run", "events", "traced"] {
        let meta = fs::metadata(state.join(name)).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o777), (USER, 0o700), "{name}");
    }
    let sheet = fs::read_dir(state.join("traced"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(sheet.metadata().unwrap().uid(), USER);
    tracer.interrupt();
    assert_eq!(fs::read_dir(state.join("traced")).unwrap().count(), 0);
    // Root could write through the link and the user could not, so nothing must be written.
    fs::remove_dir_all(state.join("traced")).unwrap();
    std::os::unix::fs::symlink(&trap, state.join("traced")).unwrap();
    let tracer = begun(Watching::start(&stage, &mut command)).unwrap();
    assert_eq!(fs::read_dir(&trap).unwrap().count(), 0);
    tracer.interrupt();
}
