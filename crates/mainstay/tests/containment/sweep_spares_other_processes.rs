//! The sweep at a start ends the processes that a dead session left, and no others: not another session's tree, not a foreign
//! daemon, and not a process that has got the pid of a recorded member.
//! guards: The sweep ends only processes that provably belong to a dead session.

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
        // The grace is long, so that the server exits at EOF with its own status. The rest of its tree ignores EOF.
        &["--grace-eof", "60s", "--grace-term", "300ms"],
        stage.unruly(&ESCAPEES),
    );

    // Foreign daemons, started without mainstay.
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
        // The sweep of its own start ends by itself. Until it has its own name it has the guard's.
        .filter(|stat| stat.comm != "mcp-sweep")
        .filter(|stat| stat.comm != "mcp-guard" || Some(stat.who()) == alive_card.guard)
        .collect();

    // A session whose shim, guard and keeper are killed below.
    let mut dead = Client::open(&stage, &wrapped);
    let dead_card = stage.card_that("is the second one", |card| card.id != alive_card.id);
    let escaped: Vec<Stat> = stage
        .census
        .living()
        .into_iter()
        .filter(|stat| !with_alive.iter().any(|other| other.who() == stat.who()))
        // The sweep of its own start may still run. The witness dies with its keeper.
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

    // An old record whose member's pid now belongs to the foreign daemon.
    let reused = stranger.who;
    let forged = state_dir(stage.home()).join("run/00000bad");
    let made = stage.path("00000bad");
    fs::create_dir(&made).unwrap();
    let mut card = dead_card.json.clone();
    card["id"] = json!("00000bad");
    fs::write(made.join("card.json"), card.to_string()).unwrap();
    fs::write(
        made.join("members.json"),
        json!([{"pid": reused.pid, "start": reused.start - 1}]).to_string(),
    )
    .unwrap();
    fs::rename(&made, &forged).unwrap();

    // The next start of any server.
    let mut next = Client::open(&stage, &run(&mainstay, &[], stage.unruly::<&str>(&[])));
    let sweep = stage.event_that("leftovers_ended", |event| {
        event["of"] == dead_card.id.as_str()
    });
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

    // No other process was touched.
    for stat in strangers.iter().chain(&with_alive) {
        assert!(identity::alive(stat.who()), "was touched: {stat:?}");
    }
    assert!(alive.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());
    assert!(stranger.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());

    assert!(next.finish().0.success());
    assert!(alive.finish().0.success());
    stranger.finish_without_waiting_for_stdout();
    // We may end the foreign daemons only because this test made them.
    stage.census.end_all();
}

/// The kernel shifts start times by the time-namespace offset of the reader. So each session sees the other's processes with
/// other start times, as if they were different processes.
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
    // Each tier finds servers in another way.
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
            // A directory from an earlier boot. Once it is gone, the sweep is finished.
            // It is moved there whole, because the first client's sweep may still run.
            let forged = state_dir(stage.home()).join("run/00000bad");
            let made = stage.path("00000bad");
            fs::create_dir(&made).unwrap();
            let mut old = card.json.clone();
            old["id"] = json!("00000bad");
            old["realm"]["boot"] = json!("00000000");
            fs::write(made.join("card.json"), old.to_string()).unwrap();
            fs::rename(&made, &forged).unwrap();

            let mut next = Client::open(&stage, second);
            until("the sweep is over", || (!forged.exists()).then_some(()));
            assert_eq!(
                stage.events("leftovers_ended"),
                Vec::<serde_json::Value>::new()
            );
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
