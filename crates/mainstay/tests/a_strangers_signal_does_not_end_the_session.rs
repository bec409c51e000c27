//! `pkill -f playwright` matches the command line of the server and of `mainstay run -- … playwright …`. The client did not ask for
//! that: its pipe stays open, a server that was hit is started again, and the next call works. A stranger who insists is obeyed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_core::ids::Identity;
use mainstay_os::identity::{self, Handle};
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use scene::{Scene, argv};
use serde_json::{Value, json};

/// A child of the client, as the shell of an agent's tool.
const CHILD: &[&str] = &[];
/// No relative of the client: its parent has left.
const STRANGER: &[&str] = &["setsid", "--fork"];

/// What the command lines of shim and server have in common, and no other process has.
fn pattern(scene: &Scene) -> String {
    scene.stage.path("generations").display().to_string()
}

#[expect(clippy::disallowed_methods, reason = "a process that kills")]
fn run(launcher: &[&str], words: &[&str]) {
    let all: Vec<&str> = launcher.iter().chain(words).copied().collect();
    let status = std::process::Command::new(all[0])
        .args(&all[1..])
        .status()
        .unwrap();
    assert!(status.success(), "{all:?}: {status}");
}

fn ignored(scene: &Scene, count: u32) -> Value {
    let told = scene
        .stage
        .event_that("signal", |event| event["ignored"] == count);
    assert_eq!(told["to"], "shim", "{told}");
    told
}

#[test]
fn pkill_by_name_restarts_the_server_behind_the_open_pipe() {
    for (launcher, relation) in [(CHILD, "below_client"), (STRANGER, "other")] {
        let mut scene = Scene::open(&[], &[]);
        let shim = scene.stage.card().shim.unwrap();
        assert_eq!(scene.call("pid", &json!({}))["calls"], 1);
        run(launcher, &["pkill", "-f", &pattern(&scene)]);
        scene.exit(1);
        // The next call works, in the same session, by a new process.
        assert_eq!(scene.call("pid", &json!({}))["calls"], 1);
        let told = ignored(&scene, 1);
        assert_eq!(told["number"], 15);
        // A sender that has ended before it could be seen has no relation.
        assert!(
            told["gone"] == true || told["relation"] == relation,
            "{told}"
        );
        assert!(identity::alive(shim), "the shim stays");
        assert_eq!(scene.stage.events("lingering"), Vec::<Value>::new());
        assert_eq!(scene.stage.events("start").len(), 2);
        scene.finish();
    }
}

/// Whatever ends a process that does not catch it, and by whatever tool.
#[test]
fn every_signal_and_every_tool_is_survived_once() {
    for words in [
        ["pkill", "-HUP", "-f"],
        ["pkill", "-INT", "-f"],
        ["pkill", "-USR1", "-f"],
        ["kill", "-s", "TERM"],
        ["kill", "-s", "QUIT"],
    ] {
        let mut scene = Scene::open(&[], &[]);
        let shim = scene.stage.card().shim.unwrap();
        let target = match words[0] {
            "kill" => shim.pid.to_string(),
            _ => pattern(&scene),
        };
        let all = [&words[..], &[&target]].concat();
        run(STRANGER, &all);
        ignored(&scene, 1);
        assert!(scene.call("pid", &json!({}))["pid"].is_number(), "{all:?}");
        assert!(identity::alive(shim), "{all:?}");
        scene.finish();
    }
}

/// The server that was not hit keeps what it has in memory.
#[test]
fn a_server_that_was_not_hit_goes_on() {
    let mut scene = Scene::open(&[], &[]);
    let shim = scene.stage.card().shim.unwrap().pid.to_string();
    assert_eq!(scene.call("pid", &json!({}))["calls"], 1);
    run(CHILD, &["sh", "-c", &format!("kill {shim}")]);
    ignored(&scene, 1);
    assert_eq!(scene.call("pid", &json!({}))["calls"], 2);
    assert_eq!(scene.stage.events("start").len(), 1);
    scene.finish();
}

#[test]
fn a_stranger_that_insists_is_obeyed() {
    let mut scene = Scene::open(&["--linger", "60s"], &[]);
    let shim = scene.stage.card().shim.unwrap().pid;
    // One process sends both, so that nothing but its insisting counts, however slow the machine is.
    let script = format!(
        "import os, signal, sys\n\
         os.kill({shim}, signal.SIGTERM)\n\
         sys.stdin.readline()\n\
         os.kill({shim}, signal.SIGTERM)\n"
    );
    let mut insists = insisting(&script);
    ignored(&scene, 1);
    say(&mut insists);
    scene.client.wait();
    scene.stage.event("teardown");
    // Nothing is kept for a client that was not the one to end it.
    assert_eq!(scene.stage.events("lingering"), Vec::<Value>::new());
    insists.wait().unwrap();
    scene.stage.census.assert_empty();
}

#[expect(clippy::disallowed_methods, reason = "a process that kills")]
fn insisting(script: &str) -> std::process::Child {
    std::process::Command::new("python3")
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap()
}

fn say(child: &mut std::process::Child) {
    drop(child.stdin.take());
}

/// The client's own signal is understood after a stranger's.
#[test]
fn the_client_is_obeyed_after_a_stranger() {
    let mut scene = Scene::open(&["--linger", "60s"], &[]);
    let shim: Identity = scene.stage.card().shim.unwrap();
    run(STRANGER, &["kill", &shim.pid.to_string()]);
    ignored(&scene, 1);
    Handle::open(shim).unwrap().signal(Signal::TERM).unwrap();
    scene.client.wait();
    scene.stage.event("lingering");
    assert!(scene.mainstay(&["stop", "unruly"]).status.success());
    scene.stage.census.assert_empty();
}

/// `pkill -f mcp` finds guard and keeper by their names.
#[test]
fn guard_and_keeper_are_no_way_around_it() {
    let mut scene = Scene::open(&[], &[]);
    let card = scene.stage.card();
    let ours = [card.guard.unwrap(), card.keeper.unwrap()];
    let [guard, keeper] = ours.map(|who| who.pid.to_string());
    assert_eq!(scene.call("pid", &json!({}))["calls"], 1);
    run(STRANGER, &["kill", &guard, &keeper]);
    let told = scene
        .stage
        .event_that("signal", |event| event["to"] == "keeper");
    assert_eq!(told["ignored"], 1, "{told}");
    assert_eq!(scene.call("pid", &json!({}))["calls"], 2);
    assert!(ours.into_iter().all(identity::alive));
    scene.finish();
}

/// The command lines of guard and keeper do not hold the server's.
#[test]
fn guard_and_keeper_are_not_found_by_the_servers_name() {
    let scene = Scene::open(&[], &[]);
    let card = scene.stage.card();
    for who in [card.guard.unwrap(), card.keeper.unwrap()] {
        let words = mainstay_os::census::cmdline(who.pid);
        let found = words.iter().any(|word| word.contains(&pattern(&scene)));
        assert!(!found, "{words:?}");
    }
    scene.finish();
}

/// A stranger's signal does not keep a server longer than its client.
#[test]
fn the_client_ends_after_a_strangers_signal() {
    let stage = mainstay_testkit::stage::Stage::new();
    let words = argv(&stage, &["--linger", "60s"], &[]);
    let puppet = Puppet::start(&stage, Plan::default(), &words);
    run(STRANGER, &["kill", &puppet.shims[0].pid.to_string()]);
    stage.event_that("signal", |event| event["ignored"] == 1);
    puppet.kill();
    stage.census.assert_empty();
    until("the registry is empty", || {
        stage.cards().is_empty().then_some(())
    });
}
