//! The sweep at start ends what a dead session left, and nobody else: not another session's tree, not a stranger's daemon, not
//! a process that has got the pid of a recorded member.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use mainstay_os::census::Stat;
use mainstay_os::identity;
use mainstay_testkit::built::under_test;
use mainstay_testkit::card::{cards, members, state_dir};
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::skip;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::json;

const ESCAPEES: [&str; 3] = ["--setsid-child", "--daemon", "--daemon-clean-env"];

#[test]
fn only_the_dead_session_is_swept() {
    let stage = Stage::alone();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let wrapped = run(
        &mainstay,
        // The server ends by its EOF, and its status tells; the rest of its tree does not mind that.
        &["--grace-eof", "60s", "--grace-term", "300ms"],
        stage.unruly(&ESCAPEES),
    );

    // A stranger's daemons, started without us.
    let mut stranger = Client::open(&stage, &stage.unruly(&["--daemon", "--daemon-clean-env"]));
    let strangers: Vec<Stat> = stage.census.living();
    assert_eq!(strangers.len(), 3);

    // A session that lives.
    let mut alive = Client::open(&stage, &wrapped);
    let alive_card = stage.card();
    let with_alive: Vec<Stat> = stage
        .census
        .living()
        .into_iter()
        // The sweep of its own start ends by itself; until it has its name it bears the guard's.
        .filter(|stat| stat.comm != "mcp-sweep")
        .filter(|stat| stat.comm != "mcp-guard" || Some(stat.who()) == alive_card.guard)
        .collect();

    // A session of which nobody of ours is left.
    let mut dead = Client::open(&stage, &wrapped);
    let dead_card = stage.card_that("is the second one", |card| card.id != alive_card.id);
    let escaped: Vec<Stat> = stage
        .census
        .living()
        .into_iter()
        .filter(|stat| !with_alive.iter().any(|other| other.who() == stat.who()))
        // The sweep of its own start may still be under way; the witness dies with its keeper.
        .filter(|stat| !["mcp-sweep", "mcp-guard", "mcp-witness"].contains(&stat.comm.as_str()))
        .filter(|stat| {
            ![dead_card.shim, dead_card.guard, dead_card.keeper].contains(&Some(stat.who()))
        })
        .collect();
    assert_eq!(escaped.len(), 4);
    until("the tree is recorded", || {
        let recorded = members(&dead_card.dir);
        escaped
            .iter()
            .all(|stat| recorded.contains(&stat.who()))
            .then_some(())
    });
    let ours: Vec<_> = [dead_card.shim, dead_card.guard, dead_card.keeper]
        .into_iter()
        .flatten()
        .collect();
    killers::at_once(&ours);
    dead.wait();

    // A record of long ago, whose member's pid belongs to the stranger now.
    let reused = stranger.who;
    let forged = state_dir(stage.home()).join("run/00000bad");
    fs::create_dir(&forged).unwrap();
    let mut card = dead_card.json.clone();
    card["id"] = json!("00000bad");
    fs::write(forged.join("card.json"), card.to_string()).unwrap();
    fs::write(
        forged.join("members.json"),
        json!([{"pid": reused.pid, "start": reused.start - 1}]).to_string(),
    )
    .unwrap();

    // Anybody's next start.
    let mut next = Client::open(&stage, &run(&mainstay, &[], stage.unruly::<&str>(&[])));
    let sweep = stage.event_that("sweep", |event| event["of"] == dead_card.id.as_str());
    assert_eq!(sweep["left"], json!([]), "{sweep}");
    until("the dead session's tree is gone", || {
        escaped
            .iter()
            .all(|stat| !identity::alive(stat.who()))
            .then_some(())
    });
    until("the dead sessions' directories are gone", || {
        let ids: Vec<String> = cards(stage.home())
            .into_iter()
            .map(|card| card.id)
            .collect();
        (!ids.contains(&dead_card.id) && !ids.contains(&"00000bad".to_owned())).then_some(())
    });

    // Nobody else was touched.
    for stat in strangers.iter().chain(&with_alive) {
        assert!(identity::alive(stat.who()), "was touched: {stat:?}");
    }
    assert!(alive.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());
    assert!(stranger.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());

    assert!(next.finish().0.success());
    assert!(alive.finish().0.success());
    stranger.finish_without_waiting_for_stdout();
    // The stranger's daemons are ours to end only because we made them.
    stage.census.end_all();
}

/// The kernel shifts start times by the offset of whoever reads them: to the other one, everybody seems to be somebody else.
#[test]
fn a_session_in_another_time_namespace_lives_on() {
    if !skip::root_or_skip("a time namespace of its own needs root") {
        return;
    }
    if !Path::new("/proc/self/ns/time").exists() {
        skip::skip("the kernel has no time namespaces");
        return;
    }
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    // On every tier the sweep finds servers in another way.
    for options in [&[][..], &["--tier", "subreaper"]] {
        for the_first_is_shifted in [false, true] {
            let stage = Stage::alone();
            let words = run(&mainstay, options, stage.unruly(&["--setsid-child"]));
            let mut shifted: Vec<OsString> =
                ["unshare", "--time", "--boottime", "100000", "--fork"]
                    .iter()
                    .map(Into::into)
                    .collect();
            shifted.extend(words.clone());
            let (first, second) = if the_first_is_shifted {
                (&shifted, &words)
            } else {
                (&words, &shifted)
            };
            let mut alive = Client::open(&stage, first);
            let server = alive.wire.call("pid", &json!({})).unwrap()["pid"].clone();
            let card = stage.card_that("has a server", |card| !card.json["server"].is_null());
            assert_eq!(
                card.json["realm"]["timens"].is_u64(),
                the_first_is_shifted,
                "{}",
                card.json
            );
            // A directory from before the machine was started: once it is gone, the sweep has ended whom it meant to end.
            let forged = state_dir(stage.home()).join("run/00000bad");
            fs::create_dir(&forged).unwrap();
            let mut old = card.json.clone();
            old["id"] = json!("00000bad");
            old["realm"]["boot"] = json!("00000000");
            fs::write(forged.join("card.json"), old.to_string()).unwrap();

            let mut next = Client::open(&stage, second);
            until("the sweep is over", || (!forged.exists()).then_some(()));
            assert_eq!(stage.events("sweep"), Vec::<serde_json::Value>::new());
            assert_eq!(
                alive.wire.call("pid", &json!({})).unwrap()["pid"],
                server,
                "{}",
                stage.story()
            );
            assert!(next.finish().0.success());
            assert!(alive.finish().0.success());
            stage.census.assert_empty();
        }
    }
}
