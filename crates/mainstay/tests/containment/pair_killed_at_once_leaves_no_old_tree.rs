//! SIGKILL to guard and keeper at once: the shim's next guard ends the old tree, including daemons, before the next generation
//! starts.
//! guards: If guard and keeper are killed at once, the old tree is gone before the next generation starts.

use mainstay_os::identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::json;

/// A shim replaces a few more pairs than this before it gives up.
const TIMES: usize = 3;
const LINKS: usize = 2;

#[test]
fn several_kills_of_guard_and_keeper_leave_no_old_process() {
    for _ in 0..LINKS {
        let stage = Stage::new();
        let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
        let argv = run(
            mainstay,
            &["--grace-eof", "300ms", "--grace-term", "300ms"],
            stage.unruly(&["--grandchild", "--setsid-child", "--daemon"]),
        );
        // The sweep of the start belongs to no tree. It ends by itself.
        let mut client = Client::open_swept(&stage, &argv);
        let mut card = stage.card();
        for _ in 0..TIMES {
            client.wire.call("pid", &json!({})).unwrap();
            let old: Vec<_> = stage
                .census
                .living()
                .iter()
                .map(mainstay_os::census::Stat::who)
                .collect();
            let pair = [card.guard.unwrap(), card.keeper.unwrap()];
            killers::at_once(&pair);
            client.wire.call("pid", &json!({})).unwrap();
            card = stage.card_that("names another pair", |card| {
                card.keeper != Some(pair[1]) && card.guard != Some(pair[0])
            });
            let left: Vec<_> = old
                .iter()
                .filter(|who| card.shim != Some(**who) && identity::alive(**who))
                .collect();
            assert!(left.is_empty(), "of the old tree still alive: {left:?}");
        }
        client.finish();
    }
}

/// The daemon is double-forked, in its own session, with an empty environment, and made right before the kill. No parent, no
/// variable and no list shows which link it belongs to.
#[test]
fn a_daemon_without_environment_is_ended_after_guard_and_keeper_were_killed() {
    for victims in ["guard and keeper", "shim, guard and keeper"] {
        let stage = Stage::new();
        let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
        let options = ["--tier", "subreaper", "--linger", "0s"];
        let argv = run(mainstay, &options, stage.unruly::<&str>(&[]));
        let mut client = Launch::new(&stage, &argv).start();
        client.wire.initialize().unwrap();
        let card = stage.card();
        let kind = json!({"kind": "daemon_clean_env"});
        client.wire.call("spawn", &kind).unwrap();
        let ours = [card.shim, card.guard, card.keeper].map(Option::unwrap);
        let known = [&ours[..], &[card.server.unwrap()]].concat();
        let daemons = until("the daemon has its name", || {
            let found = stage.census.members_beside(&known);
            (found.len() == 1).then_some(found)
        });
        if victims == "guard and keeper" {
            killers::at_once(&ours[1..]);
            client.wire.call("pid", &json!({})).unwrap();
        } else {
            killers::at_once(&ours);
            // The next start of any server ends what was left.
            let mut next = Launch::new(&stage, &argv).start();
            next.wire.initialize().unwrap();
            next.finish();
        }
        until(&format!("the daemon ends ({victims} were killed)"), || {
            (!identity::alive(daemons[0].who())).then_some(())
        });
        client.finish();
    }
}
