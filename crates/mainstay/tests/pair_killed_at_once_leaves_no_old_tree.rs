//! SIGKILL to guard and keeper at once: the shim's next guard ends the old tree, daemons too, before the next generation is
//! there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use mainstay_os::identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Launch;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::json;

/// A shim lights a few more pairs than that anew before it gives up.
const TIMES: usize = 3;
const LINKS: usize = 2;

#[test]
fn however_often() {
    for _ in 0..LINKS {
        let stage = Stage::new();
        let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
        let argv = run(
            mainstay,
            &["--grace-eof", "300ms", "--grace-term", "300ms"],
            stage.unruly(&["--grandchild", "--setsid-child", "--daemon"]),
        );
        let mut client = Launch::new(&stage, &argv).start();
        client.wire.initialize().unwrap();
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

/// Double-forked, in a session of its own, with an empty environment, and made in the moment before the kill, so that no one
/// has written down that it is there: no parent, no variable and no list tells whose it is.
#[test]
fn a_daemon_without_environment_neither() {
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
