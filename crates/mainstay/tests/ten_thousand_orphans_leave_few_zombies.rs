//! A server that makes orphan after orphan does not fill the process table: whoever inherits them reaps them.

use mainstay_os::census;
use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::json;

const ROUNDS: u32 = 10;
const EACH: u32 = 1_000;
const FEW: usize = 10;

#[test]
fn zombies_stay_few_while_the_server_lives() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let mut client = Client::open(&stage, &run(mainstay, &[], stage.unruly::<&str>(&[])));
    let card = stage.card();
    let zombies = || {
        let ours = [card.shim, card.guard, card.keeper].into_iter().flatten();
        ours.flat_map(|who| census::children(who.pid).unwrap_or_default())
            .filter_map(|pid| census::stat(pid).ok())
            .filter(census::Stat::dead)
            .count()
    };
    for _ in 0..ROUNDS {
        let said = client.wire.call("orphans", &json!({"n": EACH})).unwrap();
        assert_eq!(said["orphans"], EACH);
        until("the orphans are reaped", || {
            (zombies() < FEW && stage.census.zombies().len() < FEW).then_some(())
        });
    }
    let (status, _) = client.finish();
    assert!(status.success());
    stage.census.assert_empty();
}
