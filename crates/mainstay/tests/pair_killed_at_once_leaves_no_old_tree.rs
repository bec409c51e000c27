//! SIGKILL to guard and keeper at once: the shim's next guard ends the old tree, daemons too, before the next generation is
//! there.

use mainstay_os::identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Launch;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
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
