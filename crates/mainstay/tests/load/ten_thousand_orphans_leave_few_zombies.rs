//! A server that creates orphans without end does not fill the process table. On every tier, zombies stay few at any moment, not
//! only at the end.
//! guards: Fewer than ten zombies exist at any moment, whatever the server does.

use std::thread;

use crate::support::scene::Scene;
use mainstay_os::census;
use mainstay_testkit::afford::afforded;
use mainstay_testkit::card::Card;
use serde_json::json;

const ORPHANS: usize = 10_000;
/// The limit at any look. The test looks without pause and uses one processor for that.
const FEW: usize = 10;

#[test]
fn ten_thousand_orphans_leave_few_zombies_while_the_server_lives() {
    let _turn = crate::turn();
    for tier in afforded() {
        let mut scene = Scene::open(&["--tier", tier.word()], &[]);
        let card = scene.stage.card_that("names the server", |card| {
            card.json["tier"] == tier.word() && card.server.is_some()
        });
        let ours = adopters(&card);
        let zombies = || -> usize {
            let children = |&pid| census::children(pid).unwrap_or_default();
            ours.iter()
                .flat_map(children)
                .filter_map(|pid| census::stat(pid).ok())
                .filter(census::Stat::dead)
                .count()
        };
        let (mut looks, mut most) = (0, 0);
        let client = &mut scene.client;
        let said = thread::scope(|scope| {
            let call = scope.spawn(|| client.wire.call("orphans", &json!({"n": ORPHANS})));
            while !call.is_finished() {
                looks += 1;
                most = most.max(zombies());
            }
            call.join().expect("the call does not panic")
        });
        assert_eq!(said.unwrap()["orphans"], ORPHANS);
        assert!(most < FEW, "{tier}: at the most {most} in {looks} looks");
        assert!(scene.stage.census.zombies().len() < FEW, "{tier}");
        assert_eq!(scene.finish(), [json!(null); 0]);
    }
}

/// The processes that adopt orphans: shim, guard, keeper, and our processes between the keeper and the server.
fn adopters(card: &Card) -> Vec<i32> {
    let known = [card.shim, card.guard, card.keeper];
    let mut ours: Vec<i32> = known.into_iter().flatten().map(|who| who.pid).collect();
    let mut next = census::stat(card.server.unwrap().pid).unwrap().ppid;
    while !ours.contains(&next) {
        ours.push(next);
        next = census::stat(next).unwrap().ppid;
    }
    ours
}
