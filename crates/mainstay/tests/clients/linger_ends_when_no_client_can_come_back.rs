//! A kept server ends when its time is over, when its client ends, and when the user stops it. It is not kept for a client that
//! has closed its pipe, or that usually ends sessions by killing.
//! guards: A kept server ends as soon as its client cannot come back.

use std::fs;
use std::os::unix::fs::symlink;

use mainstay_os::identity::Handle;
use mainstay_testkit::built;
use mainstay_testkit::killers;
use mainstay_testkit::puppet::{Leak, Plan, Puppet};
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;

use crate::support::scene::{Scene, argv, freeze, thaw};
use rustix::process::Signal;
use serde_json::Value;

fn terminate(scene: &Scene) {
    let shim = Handle::open(scene.client.who).unwrap();
    shim.signal(Signal::TERM).unwrap();
}

/// Asserts that no process and no socket for a warm server is left.
fn all_gone(stage: &Stage) {
    stage.census.assert_empty();
    let state = stage.home().join(".local/state/mainstay");
    assert!(!state.join("warm").exists());
    assert_eq!(fs::read_dir(state.join("run")).unwrap().count(), 0);
}

fn why_it_ended(stage: &Stage) -> Value {
    stage.event("linger_ended")["why"].clone()
}

#[test]
fn a_kept_server_ends_when_its_time_is_up() {
    let mut scene = Scene::open(&["--linger", "300ms"], &[]);
    terminate(&scene);
    scene.client.wait();
    assert_eq!(why_it_ended(&scene.stage), "time_over");
    all_gone(&scene.stage);
    let teardown = scene.stage.event("teardown");
    assert_eq!(teardown["cause"]["shim_signal"]["number"], 15, "{teardown}");
}

#[test]
fn a_kept_server_ends_with_its_client() {
    let stage = Stage::new();
    let words = argv(&stage, &["--linger", "60s"], &[]);
    let puppet = Puppet::start(&stage, Plan::default(), &words);
    killers::claude(puppet.shims[0]);
    stage.event("lingering");
    puppet.kill();
    assert_eq!(why_it_ended(&stage), "client_gone");
    all_gone(&stage);
}

/// Client and shim end together, and no EOF comes, because another process holds the client's end. The client's parent lives, but
/// it is not the client.
#[test]
fn no_server_is_kept_if_client_and_shim_end_together() {
    for options in [&[][..], &["--linger", "60s"]] {
        let stage = Stage::new();
        let plan = Plan {
            leak: Leak::Sibling,
            ..Plan::default()
        };
        let puppet = Puppet::start(&stage, plan, &argv(&stage, options, &[]));
        let keeper = stage.card().keeper.unwrap();
        freeze(keeper);
        killers::at_once(&[puppet.who, puppet.shims[0]]);
        until("the client is dead", || {
            (!mainstay_os::identity::alive(puppet.who)).then_some(())
        });
        thaw(keeper);
        stage.event("teardown");
        all_gone(&stage);
        assert_eq!(stage.events("lingering"), Vec::<Value>::new());
    }
}

#[test]
fn a_kept_server_ends_by_mainstay_stop() {
    let mut scene = Scene::open(&["--linger", "60s"], &[]);
    terminate(&scene);
    scene.client.wait();
    scene.state("lingering");
    let listed = scene.mainstay(&["ps"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("lingering"), "{listed}");
    assert!(scene.mainstay(&["stop", "unruly"]).status.success());
    assert_eq!(why_it_ended(&scene.stage), "asked");
    all_gone(&scene.stage);
}

#[test]
fn a_kept_server_that_exits_ends_its_link() {
    let mut scene = Scene::open(&["--linger", "60s"], &[]);
    let server = scene.server(1);
    terminate(&scene);
    scene.client.wait();
    scene.state("lingering");
    killers::at_once(&[server]);
    assert_eq!(why_it_ended(&scene.stage), "server_ended");
    all_gone(&scene.stage);
    assert_eq!(scene.stage.events("start").len(), 1);
}

/// The kept server dies with its keeper, so nothing is kept. The same for guard and keeper.
#[test]
fn a_kept_server_ends_if_its_keeper_is_killed() {
    for both in [false, true] {
        let mut scene = Scene::open(&["--linger", "60s"], &[]);
        let card = scene.stage.card();
        terminate(&scene);
        scene.client.wait();
        scene.state("lingering");
        let mut victims = vec![card.keeper.unwrap()];
        victims.extend(card.guard.filter(|_| both));
        killers::at_once(&victims);
        until("the victims are dead", || {
            let dead = |who: &mainstay_protocol::ids::Identity| !mainstay_os::identity::alive(*who);
            victims.iter().all(dead).then_some(())
        });
        if both {
            // None of our processes is left: the server died with its keeper, and a later start removes its socket.
            let words = argv(&scene.stage, &["--linger", "60s"], &[]);
            let warm = scene.stage.home().join(".local/state/mainstay/warm");
            until("a later start sweeps", || {
                scene.client = mainstay_testkit::client::Client::open(&scene.stage, &words);
                assert_eq!(scene.call("pid", &serde_json::json!({}))["calls"], 1);
                scene.client.finish();
                scene.stage.census.assert_empty();
                (!warm.exists()).then_some(())
            });
        } else {
            assert_eq!(why_it_ended(&scene.stage), "keeper_lost");
        }
        all_gone(&scene.stage);
    }
}

/// The guard is killed meanwhile. A side guard takes its place, and the server is still kept.
#[test]
fn a_kept_server_survives_a_killed_guard() {
    let mut scene = Scene::open(&["--linger", "60s"], &[]);
    let card = scene.stage.card();
    terminate(&scene);
    scene.client.wait();
    scene.state("lingering");
    killers::at_once(&[card.guard.unwrap()]);
    scene.stage.event("guard_lost");
    let words = argv(&scene.stage, &["--linger", "60s"], &[]);
    scene.client = mainstay_testkit::client::Client::open(&scene.stage, &words);
    scene.stage.event("reattached");
    assert_eq!(scene.stage.events("start").len(), 1);
    scene.finish();
}

#[test]
fn a_client_that_closes_and_signals_at_once_has_ended_the_session() {
    let mut scene = Scene::open(&["--linger", "60s"], &[]);
    let keeper = scene.stage.card().keeper.unwrap();
    // The keeper is stopped, so that it sees both at once, however long a slow machine takes between the two.
    freeze(keeper);
    terminate(&scene);
    scene.client.wire.close_write();
    thaw(keeper);
    scene.client.wait();
    all_gone(&scene.stage);
    assert_eq!(scene.stage.events("lingering"), Vec::<Value>::new());
}

#[test]
fn a_client_that_closes_and_then_kills_has_ended_the_session() {
    let mut scene = Scene::open(&["--linger", "60s"], &["--slow-exit", "300ms"]);
    scene.client.wire.close_write();
    let shim = Handle::open(scene.client.who).unwrap();
    shim.signal(Signal::KILL).unwrap();
    scene.client.wait();
    all_gone(&scene.stage);
    assert_eq!(scene.stage.events("lingering"), Vec::<Value>::new());
}

/// Starts a client that has this name in the process table.
fn client_called(name: &str, strike: impl FnOnce(&Puppet)) -> Vec<Value> {
    let stage = Stage::new();
    let program = stage.path(name);
    symlink(built::puppet(), &program).unwrap();
    let words = argv(&stage, &[], &[]);
    let plan = Plan {
        program: Some(program),
        ..Plan::default()
    };
    let puppet = Puppet::start(&stage, plan, &words);
    strike(&puppet);
    let told = if name == "copilot" {
        stage.event("teardown");
        stage.events("lingering")
    } else {
        stage.event("lingering");
        stage.events("lingering")
    };
    puppet.kill();
    all_gone(&stage);
    told
}

#[test]
fn how_long_a_server_is_kept_depends_on_the_client() {
    let claude = client_called("claude", |puppet| killers::claude(puppet.shims[0]));
    assert_eq!(claude[0]["ms"], 60_000);
    let unknown = client_called("some-client", |puppet| killers::claude(puppet.shims[0]));
    assert_eq!(unknown[0]["ms"], 5_000);
    let copilot = client_called("copilot", |puppet| killers::copilot(puppet.shims[0]));
    assert_eq!(copilot, Vec::<Value>::new());
}
