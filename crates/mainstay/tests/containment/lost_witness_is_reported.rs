//! The witness, which sees how a server ends, is killed or stopped. The server dies with it, or its end is still noticed. The
//! client's next call is served, and no process is left.
//! guards: The loss of the witness hides no end of a server and leaves no process.

use mainstay_os::census::{self, Stat};
use mainstay_os::identity;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::tier::Tier;
use mainstay_testkit::afford::afforded;
use mainstay_testkit::killers;
use mainstay_testkit::wait::until;

use crate::support::scene::{Scene, freeze};
use serde_json::{Value, json};

/// Plays a scene on each available tier with each of our processes between the keeper and the server. In a pid namespace there is
/// one on either side of its init.
fn on_each_tier(play: impl Fn(Tier, Which, Scene)) {
    for tier in afforded() {
        for which in [Which::Nearest, Which::Furthest] {
            // A helper holds the pipes too, so the end of the pipes does not show the server's end.
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

/// The status in the exit event, with the core flag cleared because that depends on the machine.
fn status(scene: &Scene, generation: u32) -> Value {
    let mut status = scene.exit(generation)["status"].clone();
    if let Some(core) = status.pointer_mut("/signal/core") {
        *core = json!(false);
    }
    status
}

#[test]
fn the_server_dies_with_its_witness_and_is_started_again() {
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
fn a_stopped_witness_hides_no_end() {
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
        // The same at the end of a session, when the client is gone and the tree is taken down.
        freeze(which.witness(&scene, 2));
        assert_eq!(scene.finish(), [json!(null); 0]);
    });
}

#[test]
fn many_generations_leave_nothing_in_the_keeper() {
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
    // Room for the heap and for noise, but not for a leaked stack or handle per generation.
    assert!(
        after.0 < before.0 + 5 && after.1 < before.1 + 5,
        "mappings and descriptors: {before:?}, then {after:?}"
    );
    assert_eq!(scene.finish(), [json!(null); 0]);
}
