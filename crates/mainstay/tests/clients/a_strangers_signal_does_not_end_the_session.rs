//! `pkill -f playwright` matches the command line of the server and of `mainstay run -- … playwright …`. The client did not ask
//! for that: its pipe stays open, a server that was hit is started again, and the next call works. A second signal from the same
//! process is obeyed.
//! guards: The first signal of a foreign process does not end a session, and the second one does.

use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::Identity;
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::wait::until;

use crate::support::scene::{Scene, argv};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A child of the client, like the shell of an agent's tool.
const CHILD: &[&str] = &[];
/// No relative of the client, because its parent has exited.
const STRANGER: &[&str] = &["setsid", "--fork"];

/// A text that only the command lines of shim and server contain.
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
        // A sender that has exited before it could be inspected has no relation.
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

/// Every signal that kills by default, sent by every tool.
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

/// The server that was not hit keeps its memory.
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
    // One process sends both signals, so that only the repetition counts, however slow the machine is.
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
    // The server is not kept, because the client did not end the session.
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

/// The client's own signal works after a foreign one.
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
fn a_signal_to_guard_and_keeper_does_not_end_the_session() {
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

/// The command lines of guard and keeper do not contain the server's. They show the link's id, as `ps` does.
#[test]
fn guard_and_keeper_are_not_found_by_the_servers_name() {
    let scene = Scene::open(&[], &[]);
    let card = scene.stage.card();
    for (who, name) in [
        (card.guard.unwrap(), "mcp-guard"),
        (card.keeper.unwrap(), "mcp-keeper"),
    ] {
        let words = mainstay_os::census::cmdline(who.pid);
        let found = words.iter().any(|word| word.contains(&pattern(&scene)));
        assert!(!found, "{words:?}");
        assert_eq!(words.join(" "), format!("{name} {}", &card.id[..4]));
    }
    scene.finish();
}

/// After a foreign signal, the server still ends with its client.
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
