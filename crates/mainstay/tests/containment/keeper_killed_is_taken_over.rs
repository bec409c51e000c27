//! SIGKILL to the keeper: the client's pipes stay open, requests in flight are answered once, the old tree is ended, and a new
//! keeper with a new server answers the next request.
//! guards: A killed keeper is replaced: the client keeps its pipes, every request is answered, and the old tree is gone.

use mainstay_os::identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Carrier, Launch};
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use serde_json::json;

const TIMES: usize = 3;

#[test]
fn several_killed_keepers_in_a_row_are_replaced() {
    for carrier in [Carrier::Pipes, Carrier::Sockets] {
        let stage = Stage::new();
        let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
        let argv = run(
            mainstay,
            // The grace is long, so that the server exits at EOF with its own status. The rest of its tree ignores EOF.
            &["--grace-eof", "60s", "--grace-term", "300ms"],
            stage.unruly(&["--grandchild", "--setsid-child", "--daemon"]),
        );
        let mut client = Launch::new(&stage, &argv).carrier(carrier).start();
        client.wire.initialize().unwrap();
        let mut card = stage.card();
        for round in 1..=TIMES {
            let server = client.wire.call("pid", &json!({})).unwrap()["pid"].clone();
            let old: Vec<_> = stage
                .census
                .living()
                .iter()
                .map(mainstay_os::census::Stat::who)
                .collect();
            let in_flight = client
                .wire
                .ask(
                    "tools/call",
                    &json!({"name": "sleep", "arguments": {"ms": 600_000}}),
                )
                .unwrap();
            // The server has read the call once it answers the ping that was sent after it.
            client.wire.request("ping", &json!({})).unwrap();
            let keeper = card.keeper.unwrap();
            killers::at_once(&[keeper]);
            let answer = client.wire.answer(in_flight).unwrap();
            assert!(
                answer.get("error").is_some() || answer["result"]["isError"] == true,
                "{answer}"
            );
            let next = client.wire.call("pid", &json!({})).unwrap()["pid"].clone();
            assert!(next.is_i64() && next != server, "{server} {next}");
            card = stage.card_that("names another keeper", |card| card.keeper != Some(keeper));
            let kept = [card.shim, card.guard];
            let left: Vec<_> = old
                .iter()
                .filter(|who| !kept.contains(&Some(**who)) && identity::alive(**who))
                .collect();
            assert!(left.is_empty(), "of the old tree still alive: {left:?}");
            let lost = stage.event_that("keeper_lost", |event| event["pid"] == keeper.pid);
            // The call, and also the ping before it if the keeper was killed between writing its answer and noting it.
            let settled = lost["settled"].as_u64();
            assert!(matches!(settled, Some(1 | 2)), "{lost}");
            // At most the server and its three descendants. The server may have died with its keeper before the guard scanned the
            // tree. In the first round the sweep of the first start may still run, and counts too.
            let ended = lost["ended"].as_u64().unwrap();
            assert!((3..=4 + u64::from(round == 1)).contains(&ended), "{lost}");
            assert_eq!(stage.events("keeper_lost").len(), round);
        }
        let (status, rest) = client.finish();
        assert!(
            status.success() && rest.is_empty(),
            "{status:?} {}",
            String::from_utf8_lossy(&rest)
        );
        stage.census.assert_empty();
    }
}

#[test]
fn no_request_of_a_stream_is_lost_with_a_killed_keeper() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let mut client = Launch::new(&stage, &run(mainstay, &[], stage.unruly::<&str>(&[]))).start();
    client.wire.initialize().unwrap();
    let card = stage.card();
    let asked: Vec<i64> = (0..500)
        .map(|_| client.wire.ask("ping", &json!({})).unwrap())
        .collect();
    killers::at_once(&[card.keeper.unwrap()]);
    let more: Vec<i64> = (0..500)
        .map(|_| client.wire.ask("ping", &json!({})).unwrap())
        .collect();
    let mut open: std::collections::BTreeSet<i64> = asked.into_iter().chain(more).collect();
    while !open.is_empty() {
        let line = client
            .wire
            .line()
            .unwrap()
            .expect("every request is answered");
        let answer: serde_json::Value = serde_json::from_slice(&line).unwrap_or_default();
        // An answer whose write cannot be known to have gone through may come twice, never zero times.
        if let Some(id) = answer["id"].as_i64() {
            open.remove(&id);
        }
    }
    client.finish();
    stage.census.assert_empty();
}
