//! The truth table of `mainstay why`: which process ended a server, how, and when the question is asked.
//!
//! Each row plays one death with real processes and asks at least once: while the tree is being taken down, right after, or after
//! the next start. The verdict names the right process or none, and a certain verdict is always true.
//! guards: `why` names the right process or none, before, right after and long after a death.

use std::ffi::OsString;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::Identity;
use mainstay_testkit::client::Launch;
use mainstay_testkit::killers;
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;

use crate::support::leased;
use crate::support::play;
use crate::support::scene::{self, Scene, mainstay};
use rustix::process::Signal;
use serde_json::{Value, json};

/// The number of rows that run at the same time.
const AT_ONCE: usize = 6;

/// The least number of questions that the table asks.
const QUESTIONS: usize = 40;

/// The expected verdict: rule, culprit, certainty, and signal.
#[derive(Clone, Copy)]
struct Truth(&'static str, &'static str, &'static str, Option<i32>);

const EXITED: Truth = Truth("server_by_itself", "server", "certain", None);
const CLIENT_CLOSED: Truth = Truth("client_closed", "client", "certain", None);
const CLIENT_ENDED: Truth = Truth("client_ended", "client", "certain", None);
const STOPPED: Truth = Truth("asked", "user", "certain", None);
const CLOSED: Truth = Truth("server_closed", "mainstay", "certain", None);
const RENEWED: Truth = Truth("renewed", "mainstay", "certain", None);
const SHIM_KILLED: Truth = Truth("shim_killed", "none_known", "unknown", Some(9));

const fn killed(number: i32) -> Truth {
    Truth("server_killed", "none_known", "unknown", Some(number))
}

const fn by_client(number: i32) -> Truth {
    Truth("signal_by_client", "client", "certain", Some(number))
}

type Row = (&'static str, fn());

const ROWS: &[Row] = &[
    // Ended by the server itself.
    ("it exits with 0", || {
        dies(&crashes(json!({"code": 0})), EXITED);
    }),
    ("it exits with 1", || {
        dies(&crashes(json!({"code": 1})), EXITED);
    }),
    ("it exits with 143", || {
        let unsure = Truth("server_by_itself", "server", "probable", None);
        dies(&crashes(json!({"code": 143})), unsure);
    }),
    ("it aborts", || dies(&crashes(json!({"signal": 6})), EXITED)),
    ("it faults", || {
        dies(&crashes(json!({"signal": 11})), EXITED);
    }),
    ("it kills itself", || {
        dies(&crashes(json!({"signal": 9})), killed(9));
    }),
    ("it exits before it is opened", exits_before_it_is_opened),
    ("it closes stdout and exits at EOF", closes_stdout_and_exits),
    ("it cannot be started", cannot_be_started),
    // Ended by another process.
    ("SIGTERM by another process", || {
        dies(&by_another("TERM"), killed(15));
    }),
    ("SIGKILL by another process", || {
        dies(&by_another("KILL"), killed(9));
    }),
    ("SIGINT by another process", || {
        dies(&by_another("INT"), killed(2));
    }),
    ("SIGHUP by another process", || {
        dies(&by_another("HUP"), killed(1));
    }),
    ("SIGKILL by its own child", killed_by_its_child),
    (
        "SIGKILL by another process after the client's EOF",
        killed_on_the_way_down,
    ),
    (
        "SIGKILL by another process after it closed stdout",
        killed_after_closing,
    ),
    (
        "SIGKILL by another process while a restart waits",
        killed_before_its_restart,
    ),
    // Ended by the client, or by a signal to the shim.
    ("the client's EOF", || on_the_way(&eof, &[], CLIENT_CLOSED)),
    ("the client's EOF, unheard", || {
        deaf(&eof, &["--ignore-eof"], CLIENT_CLOSED);
    }),
    ("the client's EOF, unheard as SIGTERM is", || {
        deaf(&eof, &["--ignore-eof", "--ignore-term"], CLIENT_CLOSED);
    }),
    ("the client's SIGTERM", || {
        on_the_way(
            &|scene| signal_shim(scene, Signal::TERM),
            &[],
            by_client(15),
        );
    }),
    ("the client's SIGINT", || {
        on_the_way(&|scene| signal_shim(scene, Signal::INT), &[], by_client(2));
    }),
    ("the client's SIGHUP", || {
        on_the_way(&|scene| signal_shim(scene, Signal::HUP), &[], by_client(1));
    }),
    ("the client's SIGTERM, unheard", || {
        deaf(
            &|scene| signal_shim(scene, Signal::TERM),
            &["--ignore-eof"],
            by_client(15),
        );
    }),
    ("the shim is killed", || {
        on_the_way(&|scene| signal_shim(scene, Signal::KILL), &[], SHIM_KILLED);
    }),
    ("the shim is killed, unheard", || {
        deaf(
            &|scene| signal_shim(scene, Signal::KILL),
            &["--ignore-eof"],
            SHIM_KILLED,
        );
    }),
    ("the client exits", || {
        client_ends(Puppet::exit);
    }),
    ("the client crashes", || {
        client_ends(Puppet::crash);
    }),
    ("the client is killed", || {
        client_ends(Puppet::kill);
    }),
    (
        "client and shim are killed at once",
        client_and_shim_are_killed,
    ),
    (
        "a kept server, and the time is over",
        kept_until_the_time_is_over,
    ),
    (
        "a server that was kept is killed later",
        kept_and_killed_later,
    ),
    // Ended by mainstay, for a command or a rule.
    ("mainstay stop", || on_the_way(&stop, &[], STOPPED)),
    ("mainstay stop, unheard", || {
        deaf(&stop, &["--ignore-eof"], STOPPED);
    }),
    ("mainstay stop, unheard as SIGTERM is", || {
        deaf(&stop, &["--ignore-eof", "--ignore-term"], STOPPED);
    }),
    ("mainstay restart", || {
        let restart =
            |scene: &mut Scene| assert!(scene.mainstay(&["restart", "unruly"]).status.success());
        dies(&restart, Truth("renewed", "user", "certain", None));
    }),
    ("lease close", lease_closed),
    ("it closes stdout and lives", || closes("stdout", &[])),
    ("it closes stdout and lives, unheard", || {
        closes("stdout", &["--ignore-term"]);
    }),
    ("it closes stdin and lives", || closes("stdin", &[])),
    ("a watched file changes", watched_file),
    ("it is idle", idle),
    ("it hangs", hangs),
    ("it uses too much memory", too_much_memory),
    // Mainstay's own processes are killed.
    ("the keeper is killed", keeper_killed),
    (
        "the keeper is signalled by a process that then runs another program",
        sender_that_execs,
    ),
    ("the guard is killed", guard_killed),
];

#[test]
fn why_gives_every_death_its_true_verdict() {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((name, play)) = ROWS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if catch_unwind(AssertUnwindSafe(play)).is_err() {
                        failed.lock().unwrap().push(*name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "told wrongly: {failed:#?}");
    let asked = ASKED.load(Ordering::Relaxed);
    assert!(asked >= QUESTIONS, "{asked} questions");
}

static ASKED: AtomicUsize = AtomicUsize::new(0);

/// Asks about a server, a link or a process and asserts this verdict, without any further claim.
fn ask(stage: &Stage, target: &str, truth: Truth) -> Value {
    ASKED.fetch_add(1, Ordering::Relaxed);
    let Truth(rule, by, sure, signal) = truth;
    let mut command = stage.command(mainstay());
    let output = command.args(["why", target, "--json"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let story: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{target}: {errors}"));
    let verdict = &story["verdict"];
    assert_eq!(
        (
            &verdict["rule"],
            who(&verdict["by"]),
            &verdict["sure"],
            &verdict["signal"]
        ),
        (&json!(rule), by.to_owned(), &json!(sure), &json!(signal)),
        "{story:#}"
    );
    let suspects = verdict["suspects"].as_array().unwrap();
    assert!(suspects.is_empty() || sure == "unknown", "{story:#}");
    for suspect in suspects {
        assert_ne!(suspect["comm"], "mainstay", "{story:#}");
        assert_ne!(suspect["comm"], "unruly", "{story:#}");
    }
    // Suspects are noted for a kill by an unknown process, and not for one of ours.
    let noted = stage.events("suspects").into_iter();
    let noted = noted.filter(|event| event["part"] == "server" && event["pid"] == story["pid"]);
    assert!(noted.count() == 0 || rule == "server_killed", "{story:#}");
    story
}

fn who(by: &Value) -> String {
    let key = by.as_object().and_then(|by| by.keys().next().cloned());
    key.unwrap_or_else(|| by.as_str().unwrap_or_default().into())
}

/// A server that dies while its client lives: asks right after, and after the next start.
fn dies(end: &dyn Fn(&mut Scene), truth: Truth) {
    let mut scene = Scene::open(&[], &[]);
    let pid = scene.server(1).pid.to_string();
    end(&mut scene);
    scene.exit(1);
    ask(&scene.stage, &pid, truth);
    scene.replayed(2);
    ask(&scene.stage, &pid, truth);
    scene.finish();
}

fn crashes(how: Value) -> impl Fn(&mut Scene) {
    move |scene| {
        scene.ask_call("crash", &how);
    }
}

fn by_another(signal: &'static str) -> impl Fn(&mut Scene) {
    move |scene| {
        let pid = scene.server(1).pid.to_string();
        let mut kill = scene.stage.command("sh");
        let kill = kill.args(["-c", "kill -s \"$1\" \"$2\"", "sh", signal, &pid]);
        assert!(kill.status().unwrap().success());
    }
}

/// Starts a server with a process beside it that ignores SIGTERM, so that the tree outlives the server.
const BESIDE: &str = r#"trap "" TERM; sleep 300 </dev/null >/dev/null 2>&1 & echo $! > "$1.new"; mv "$1.new" "$1"
trap - TERM; shift; exec "$@""#;

fn held(stage: &Stage, options: &[&str], habits: &[&str]) -> Vec<OsString> {
    let mut server: Vec<OsString> = ["sh", "-c", BESIDE, "sh"].map(Into::into).into();
    server.push(stage.path("beside").into());
    server.extend(stage.unruly(habits));
    let mut all = vec!["--name", "unruly", "--grace-term", "300s", "--linger", "0"];
    all.extend(options);
    run(mainstay(), &all, server)
}

fn beside(stage: &Stage) -> Identity {
    let pid = until("a process beside the server", || {
        fs::read_to_string(stage.path("beside")).ok()
    });
    identity::of(pid.trim().parse().unwrap()).unwrap()
}

/// A server that mainstay ends: asks while its tree is being taken down, and right after.
fn on_the_way(end: &dyn Fn(&mut Scene) -> Option<Child>, habits: &[&str], truth: Truth) {
    let stage = Stage::new();
    let argv = held(&stage, &[], habits);
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    let beside = beside(&scene.stage);
    let command = end(&mut scene);
    scene.exit(1);
    ask(&scene.stage, "unruly", truth);
    assert!(
        scene.stage.events("teardown").is_empty(),
        "it is on its way down"
    );
    Handle::open(beside).unwrap().signal(Signal::KILL).unwrap();
    over(scene, command, truth);
}

/// A server that mainstay ends and that ignores the first steps of the ladder: asks right after.
fn deaf(end: &dyn Fn(&mut Scene) -> Option<Child>, habits: &[&str], truth: Truth) {
    let options = [
        "--linger",
        "0",
        "--grace-eof",
        "50ms",
        "--grace-term",
        "50ms",
    ];
    let options = match habits {
        [_] => &options[..4],
        _ => &options[..],
    };
    let mut scene = Scene::open(options, habits);
    let command = end(&mut scene);
    over(scene, command, truth);
}

fn over(mut scene: Scene, command: Option<Child>, truth: Truth) {
    scene.stage.event("teardown");
    ask(&scene.stage, "unruly", truth);
    scene.client.wait();
    if let Some(mut command) = command {
        assert!(command.wait().unwrap().success());
    }
    scene.stage.census.assert_empty();
}

fn eof(scene: &mut Scene) -> Option<Child> {
    scene.client.wire.close_write();
    None
}

fn signal_shim(scene: &mut Scene, signal: Signal) -> Option<Child> {
    let shim = scene.stage.card().shim.unwrap();
    Handle::open(shim).unwrap().signal(signal).unwrap();
    None
}

#[expect(clippy::unnecessary_wraps, reason = "one of several ways to end it")]
fn stop(scene: &mut Scene) -> Option<Child> {
    let mut command = scene.stage.command(mainstay());
    let command = command.args(["stop", "unruly"]).stdout(Stdio::null());
    Some(command.spawn().unwrap())
}

fn exits_before_it_is_opened() {
    let stage = Stage::new();
    let server = ["sh", "-c", "exit 3"].map(Into::into).into();
    let options = ["--name", "unruly", "--restart-budget", "0"];
    let mut client = Launch::new(&stage, &run(mainstay(), &options, server)).start();
    stage.event("exit");
    ask(&stage, "unruly", EXITED);
    client.finish();
    ask(&stage, "unruly", EXITED);
    stage.census.assert_empty();
}

fn closes_stdout_and_exits() {
    let stage = Stage::new();
    let script = "exec >/dev/null; cat >/dev/null; exit 3";
    let server = ["sh", "-c", script].map(Into::into).into();
    let options = [
        "--name",
        "unruly",
        "--restart-budget",
        "0",
        "--grace-eof",
        "60s",
    ];
    let mut client = Launch::new(&stage, &run(mainstay(), &options, server)).start();
    stage.event("exit");
    ask(&stage, "unruly", EXITED);
    client.finish();
    stage.census.assert_empty();
}

fn cannot_be_started() {
    let stage = Stage::new();
    let server = vec!["/no/such/server".into()];
    let argv = run(mainstay(), &["--name", "unruly"], server);
    let mut client = Launch::new(&stage, &argv).start();
    client.finish();
    ask(
        &stage,
        "unruly",
        Truth("cannot_start", "none_known", "certain", None),
    );
    stage.census.assert_empty();
}

fn killed_by_its_child() {
    let stage = Stage::new();
    let fifo = stage.path("fifo");
    let made = stage.command("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let script =
        r#"(exec </dev/null >/dev/null 2>&1; read x <"$1" && kill -KILL $$) & shift; exec "$@""#;
    let mut server: Vec<OsString> = ["sh", "-c", script, "sh"].map(Into::into).into();
    server.push(fifo.clone().into());
    server.extend(stage.unruly::<&str>(&[]));
    let argv = run(mainstay(), &["--name", "unruly"], server);
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    let pid = scene.server(1).pid.to_string();
    fs::write(&fifo, "go\n").unwrap();
    scene.exit(1);
    ask(&scene.stage, &pid, killed(9));
    scene.replayed(2);
    ask(&scene.stage, &pid, killed(9));
    scene.finish();
}

fn killed_on_the_way_down() {
    let mut scene = Scene::open(&["--grace-eof", "300s"], &["--ignore-eof"]);
    let server = Handle::open(scene.server(1)).unwrap();
    scene.client.wire.close_write();
    scene
        .stage
        .event_that("pipe_end", |end| end["pipe"] == "client_stdin");
    server.signal(Signal::KILL).unwrap();
    scene.client.wait();
    let story = ask(&scene.stage, "unruly", killed(9));
    let told = story["told"].as_str().unwrap();
    let both = "Mainstay was about to end it: the client closed stdin.";
    assert!(told.ends_with(both), "{told}");
    scene.stage.census.assert_empty();
}

fn killed_after_closing() {
    let mut scene = Scene::open(&["--grace-eof", "300s"], &[]);
    let server = scene.server(1);
    scene.ask_call("hang_up", &json!({"end": "stdout"}));
    scene
        .stage
        .event_that("pipe_end", |end| end["pipe"] == "server_stdout");
    Handle::open(server).unwrap().signal(Signal::KILL).unwrap();
    scene.replayed(2);
    ask(&scene.stage, &server.pid.to_string(), killed(9));
    scene.finish();
}

fn killed_before_its_restart() {
    let mut scene = Scene::open(&["--drain", "300s"], &[]);
    let server = scene.server(1);
    scene.ask_call("sleep", &json!({"ms": 300_000}));
    let mut restart = scene.stage.command(mainstay());
    let restart = restart.args(["restart", "unruly"]).stdout(Stdio::null());
    let mut restart = restart.spawn().unwrap();
    scene.stage.event("restarting");
    Handle::open(server).unwrap().signal(Signal::KILL).unwrap();
    scene.replayed(2);
    ask(&scene.stage, &server.pid.to_string(), killed(9));
    restart.wait().unwrap();
    scene.finish();
}

fn client_ends(end: fn(Puppet) -> ExitStatus) {
    let stage = Stage::new();
    let argv = held(&stage, &[], &[]);
    let puppet = Puppet::start(&stage, Plan::default(), &argv);
    let beside = beside(&stage);
    end(puppet);
    stage.event("exit");
    stage.event_that("gone", |gone| gone["part"] == "client");
    ask(&stage, "unruly", CLIENT_ENDED);
    assert!(stage.events("teardown").is_empty(), "it is on its way down");
    Handle::open(beside).unwrap().signal(Signal::KILL).unwrap();
    stage.event("teardown");
    ask(&stage, "unruly", CLIENT_ENDED);
    stage.census.assert_empty();
}

fn client_and_shim_are_killed() {
    let stage = Stage::new();
    let argv = scene::argv(&stage, &["--linger", "0"], &[]);
    let puppet = Puppet::start(&stage, Plan::default(), &argv);
    let shim = stage.card().shim.unwrap();
    killers::at_once(&[shim, puppet.who]);
    stage.event("teardown");
    stage.census.assert_empty();
    // The verdict depends on which of the two the keeper sees first.
    let by_shim = stage.event("exit")["ending"]["cause"] == "shim_killed";
    let together = Truth("shim_killed_with_client", "client", "probable", Some(9));
    ask(
        &stage,
        "unruly",
        if by_shim { together } else { CLIENT_ENDED },
    );
}

fn kept_until_the_time_is_over() {
    let mut scene = Scene::open(&["--linger", "1s"], &[]);
    signal_shim(&mut scene, Signal::TERM);
    scene.stage.event("lingering");
    ask(&scene.stage, "unruly", by_client(15));
    scene.client.wait();
    scene.stage.event("teardown");
    let story = ask(&scene.stage, "unruly", by_client(15));
    let told = story["told"].as_str().unwrap();
    assert!(told.contains("It had been kept warm for"), "{told}");
    scene.stage.census.assert_empty();
}

/// A signal that the server survived is not the cause of its later end.
fn kept_and_killed_later() {
    let stage = Stage::new();
    let argv = scene::argv(&stage, &["--linger", "300s"], &[]);
    let mut puppet = Puppet::start(&stage, Plan::default(), &argv);
    let card = stage.card();
    let server = card.server.unwrap();
    Handle::open(card.shim.unwrap())
        .unwrap()
        .signal(Signal::TERM)
        .unwrap();
    stage.event("lingering");
    let me = std::process::id();
    let survived = Truth("signal_by_process", "process", "certain", Some(15));
    let story = ask(&stage, "unruly", survived);
    assert_eq!(story["verdict"]["by"]["process"]["pid"], me);
    puppet.wait_shims();
    puppet.again();
    stage.event("reattached");
    Handle::open(server).unwrap().signal(Signal::KILL).unwrap();
    let replayed = |event: &Value| event["generation"] == 2;
    stage.event_that("ready", replayed);
    ask(&stage, &server.pid.to_string(), killed(9));
    puppet.close();
    puppet.wait_shims();
    stage.census.assert_empty();
}

fn lease_closed() {
    let stage = Stage::new();
    leased::lease(&stage, &["open", "job"]);
    let mut client = leased::server(&stage, "job", &[], &[]);
    leased::card(&stage, &client);
    leased::lease(&stage, &["close", "job"]);
    ask(
        &stage,
        "unruly",
        Truth("lease_ended", "user", "certain", None),
    );
    client.finish();
    stage.census.assert_empty();
}

fn closes(end: &str, habits: &[&str]) {
    let options = ["--grace-eof", "50ms", "--grace-term", "50ms"];
    // A server that obeys SIGTERM gets all the time that it needs.
    let options = if habits.is_empty() {
        &options[..2]
    } else {
        &options[..]
    };
    let mut scene = Scene::open(options, habits);
    let pid = scene.server(1).pid.to_string();
    scene.call("hang_up", &json!({"end": end}));
    if end == "stdin" {
        // A closed stdin is noticed only by the next write.
        scene.ask_call("echo", &json!({}));
    }
    scene.exit(1);
    let story = ask(&scene.stage, &pid, CLOSED);
    let told = story["told"].as_str().unwrap();
    let said = format!("was ended by mainstay because it had closed its {end} and lived on");
    assert!(told.contains(&said), "{told}");
    scene.replayed(2);
    ask(&scene.stage, &pid, CLOSED);
    scene.finish();
}

fn watched_file() {
    let stage = Stage::new();
    let file = stage.path("watched");
    fs::write(&file, "1").unwrap();
    let options = ["--watch", file.to_str().unwrap()];
    let argv = scene::argv(&stage, &options, &[]);
    let mut scene = Scene::on(stage, &argv);
    scene.client.wire.initialize().unwrap();
    let pid = scene.server(1).pid.to_string();
    fs::write(&file, "2").unwrap();
    scene.exit(1);
    ask(&scene.stage, &pid, RENEWED);
    scene.replayed(2);
    ask(&scene.stage, &pid, RENEWED);
    scene.finish();
}

fn idle() {
    let stage = Stage::new();
    let mut client = play::open(&stage, &["--hibernate", "100ms"], &[]);
    let pid = play::pid(&mut client);
    play::restarting_event(&stage, "idle");
    play::gone(pid);
    stage.event("exit");
    let story = ask(&stage, &pid.to_string(), RENEWED);
    let told = story["told"].as_str().unwrap();
    assert!(told.contains("was put to rest by mainstay"), "{told}");
    client.finish();
    stage.census.assert_empty();
}

fn hangs() {
    let stage = Stage::new();
    let mut client = play::open(&stage, &play::probing(&[]), &[]);
    let pid = play::answers_probes(&stage, &mut client);
    play::freeze(pid);
    play::restarting_event(&stage, "unresponsive");
    play::gone(pid);
    stage.event("exit");
    ask(&stage, &pid.to_string(), RENEWED);
    client.finish();
    stage.census.assert_empty();
}

fn too_much_memory() {
    let stage = Stage::new();
    let mut client = play::open(&stage, &["--memory-max", "100MiB"], &[]);
    let pid = client.wire.call("grow", &json!({"mib": 92})).unwrap()["pid"].as_i64();
    play::restarting_event(&stage, "memory");
    play::gone(pid.unwrap());
    stage.event("exit");
    ask(&stage, &pid.unwrap().to_string(), RENEWED);
    client.finish();
    stage.census.assert_empty();
}

fn keeper_killed() {
    let scene = Scene::open(&[], &[]);
    let keeper = scene.stage.card().keeper.unwrap();
    Handle::open(keeper).unwrap().signal(Signal::KILL).unwrap();
    scene.stage.event("keeper_lost");
    let lost = Truth("keeper_killed", "none_known", "unknown", Some(9));
    ask(&scene.stage, "unruly", lost);
    scene.replayed(2);
    ask(&scene.stage, &keeper.pid.to_string(), lost);
    scene.finish();
}

/// The kernel guarantees the pid of a sender, but the sender may run another program a moment later. So the keeper is stopped
/// until the sender runs another program. A descendant of the client is a foreign process, and its second signal is obeyed.
fn sender_that_execs() {
    let mut scene = Scene::open(&[], &[]);
    let keeper = scene.stage.card().keeper.unwrap();
    let mut senders = Vec::new();
    loop {
        scene::freeze(keeper);
        let mut sender = scene.stage.command("sh");
        let script = "kill -TERM \"$1\"; exec sleep 300";
        let sender = sender.args(["-c", script, "sh", &keeper.pid.to_string()]);
        senders.push(sender.spawn().unwrap());
        let pid = senders.last().unwrap().id();
        until("it runs another program", || {
            let stat = mainstay_os::census::stat(pid as i32).unwrap();
            (stat.comm == "sleep").then_some(())
        });
        scene::thaw(keeper);
        let signal = scene
            .stage
            .event_that("signal", |signal| signal["sender"] == pid);
        assert_eq!(signal["comm"], "sleep");
        if signal["ignored"].is_null() {
            break;
        }
    }
    scene.client.wait();
    let by = Truth("signal_by_process", "process", "certain", Some(15));
    let story = ask(&scene.stage, "unruly", by);
    let pid = senders.last().unwrap().id();
    assert_eq!(story["verdict"]["by"]["process"]["pid"], pid);
    let told = story["told"].as_str().unwrap();
    let said = format!("was ended by pid {pid} (SIGTERM, certain; seen a moment later as sleep");
    assert!(told.contains(&said), "{told}");
    for mut sender in senders {
        sender.kill().unwrap();
        sender.wait().unwrap();
    }
    scene.stage.census.assert_empty();
}

fn guard_killed() {
    let scene = Scene::open(&[], &[]);
    let guard = scene.stage.card().guard.unwrap();
    Handle::open(guard).unwrap().signal(Signal::KILL).unwrap();
    scene.stage.event("guard_lost");
    ASKED.fetch_add(1, Ordering::Relaxed);
    let output = scene.mainstay(&["why", "unruly"]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.starts_with("error: no death of `unruly` is known"),
        "{told}"
    );
    scene.finish();
}
