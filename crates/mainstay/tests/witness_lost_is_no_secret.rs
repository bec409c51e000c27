//! The process that sees how a server ends is killed, or stopped: the server goes with it or is seen all the same, the
//! client's next call is served, and nobody is left.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use mainstay_core::ids::Identity;
use mainstay_core::tier::Tier;
use mainstay_os::census::{self, Stat};
use mainstay_os::identity;
use mainstay_testkit::afford::afforded;
use mainstay_testkit::killers;
use mainstay_testkit::wait::until;
use scene::{Scene, freeze};
use serde_json::{Value, json};

/// A scene on each tier that there is, with each process of ours between the keeper and the server: in a namespace there is
/// one on either side of its init.
fn on_each_tier(play: impl Fn(Tier, Which, Scene)) {
    for tier in afforded() {
        for which in [Which::Nearest, Which::Furthest] {
            // Its end is not to be seen by the end of its pipes: a helper has them, too.
            let habits = ["--grandchild", "--daemon"];
            let options = ["--tier", tier.word(), "--grace-term", "300ms"];
            let scene = Scene::open(&options, &habits);
            play(tier, which, scene);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Which {
    /// The server's parent.
    Nearest,
    /// The keeper's child.
    Furthest,
}

impl Which {
    fn witness(self, scene: &Scene, generation: u32) -> Identity {
        let keeper = scene.stage.card().keeper.unwrap().pid;
        let parent = |stat: &Stat| census::stat(stat.ppid).unwrap();
        let mut at = parent(&census::stat(scene.server(generation).pid).unwrap());
        while matches!(self, Self::Furthest) && at.ppid != keeper {
            at = parent(&at);
        }
        assert_eq!(at.comm, "mcp-witness");
        at.who()
    }
}

/// The exit event's status, whether or not this machine dumps cores.
fn status(scene: &Scene, generation: u32) -> Value {
    let mut status = scene.exit(generation)["status"].clone();
    if let Some(core) = status.pointer_mut("/signal/core") {
        *core = json!(false);
    }
    status
}

#[test]
fn the_server_dies_with_it_and_is_started_again() {
    on_each_tier(|tier, which, mut scene| {
        let tier = format!("{tier} {which:?}");
        let (server, witness) = (scene.server(1), which.witness(&scene, 1));
        let open = scene.ask_call("sleep", &json!({"ms": 3_600_000}));
        scene.sync();
        killers::at_once(&[witness]);
        let answer = scene.client.wire.answer(open).unwrap();
        assert_eq!(answer["result"]["isError"], true, "{tier}: {answer}");
        assert_eq!(
            status(&scene, 1),
            json!({"signal": {"number": 9, "core": false}}),
            "{tier}"
        );
        assert_eq!(scene.call("look", &json!({}))["generation"], 2, "{tier}");
        assert!(!identity::alive(server), "{tier}");
        assert_eq!(scene.finish(), [json!(null); 0]);
    });
}

#[test]
fn stopped_it_hides_nothing() {
    on_each_tier(|tier, which, mut scene| {
        let tier = format!("{tier} {which:?}");
        let stopped = which.witness(&scene, 1);
        freeze(stopped);
        let open = scene.ask_call("crash", &json!({"code": 42}));
        let answer = scene.client.wire.answer(open).unwrap();
        assert_eq!(answer["result"]["isError"], true, "{tier}: {answer}");
        assert_eq!(status(&scene, 1), json!({"code": 42}), "{tier}");
        assert_eq!(scene.call("look", &json!({}))["generation"], 2, "{tier}");
        until("the stopped one is gone", || {
            (!identity::alive(stopped)).then_some(())
        });
        // And at the end of a session, when the client is gone and everything is taken down.
        freeze(which.witness(&scene, 2));
        assert_eq!(scene.finish(), [json!(null); 0]);
    });
}

#[test]
fn generation_after_generation_leaves_nothing_in_the_keeper() {
    let scene = Scene::open(&[], &[]);
    let keeper = scene.stage.card().keeper.unwrap().pid;
    let held = || {
        let maps = std::fs::read_to_string(format!("/proc/{keeper}/maps")).unwrap();
        let fds = std::fs::read_dir(format!("/proc/{keeper}/fd")).unwrap();
        (maps.lines().count(), fds.count())
    };
    let restart = |times| {
        for _ in 0..times {
            let out = scene.mainstay(&["restart", "unruly"]);
            assert!(out.status.success(), "{out:?}");
        }
    };
    restart(5);
    let before = held();
    restart(25);
    let after = held();
    // What a heap and a moment need, and not a stack or a handle for each.
    assert!(
        after.0 < before.0 + 5 && after.1 < before.1 + 5,
        "mappings and descriptors: {before:?}, then {after:?}"
    );
    assert_eq!(scene.finish(), [json!(null); 0]);
}
