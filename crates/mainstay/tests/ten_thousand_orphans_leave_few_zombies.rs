//! A server that makes orphan after orphan does not fill the process table: whoever inherits them reaps them, while it happens
//! and not only in the end.

use std::thread;

use mainstay_os::census;
use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Client;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::json;

const ORPHANS: usize = 10_000;
/// At most looks, and when all have come to their end.
const FEW: usize = 10;
/// At any look: what is made while the keeper waits for its turn on a busy processor, and not what was made before.
const MOST: usize = FEW;

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
    let mut seen = Vec::new();
    let said = thread::scope(|scope| {
        let call = scope.spawn(|| client.wire.call("orphans", &json!({"n": ORPHANS})));
        while !call.is_finished() {
            seen.push(zombies());
        }
        call.join().expect("the call does not panic")
    });
    assert_eq!(said.unwrap()["orphans"], ORPHANS);
    seen.sort_unstable();
    let (usual, most) = (seen[seen.len() / 2], seen[seen.len() - 1]);
    let told = format!(
        "of {} looks the usual: {usual}, the most: {most}",
        seen.len()
    );
    eprintln!("TOLD {told}");
    assert!(usual < FEW && most < MOST, "{told}");
    until("the orphans are reaped", || {
        (zombies() < FEW && stage.census.zombies().len() < FEW).then_some(())
    });
    let (status, _) = client.finish();
    assert!(status.success());
    stage.census.assert_empty();
}
