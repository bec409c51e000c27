//! `lease close` ends every server of the lease with its whole tree and confirms it, whichever of our processes is killed
//! meanwhile.
//! guards: When `lease close` reports 0 left, no process of the lease's servers lives.

use std::process::Stdio;

use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::Identity;
use mainstay_testkit::card::members;
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::until;

use crate::support::leased::{
    self, all_processes, assert_gone, card, command, lease, left_on_disk, server, told,
    until_nothing_on_disk,
};
use rustix::process::Signal;
use serde_json::{Value, json};

const SHORT: [&str; 4] = ["--grace-eof", "200ms", "--grace-term", "200ms"];
const DEAF: [&str; 2] = ["--ignore-eof", "--ignore-term"];

#[test]
fn lease_close_ends_a_server_that_ignores_signals_and_its_daemons() {
    let stage = Stage::new();
    lease(&stage, &["open", "job"]);
    let habits = [
        "--ignore-eof",
        "--ignore-term",
        "--tree",
        "9",
        "--daemon",
        "--daemon-clean-env",
    ];
    let mut client = server(&stage, "job", &SHORT, &habits);
    let card = card(&stage, &client);
    assert_eq!(card.json["lease"], "job");
    let all = all_processes(&stage);
    assert!(all.len() >= 15, "{all:?}");
    let closed = lease(&stage, &["close", "job"]);
    // No waiting here: `close` has returned, so they must be gone.
    assert_gone(&all);
    assert_eq!(
        (&closed["ok"], &closed["left"], &closed["was"]),
        (&json!(true), &json!(0), &json!("open"))
    );
    let row = &closed["servers"][0];
    assert_eq!(row["server"], "unruly");
    assert_eq!(row["pid"], card.server.unwrap().pid);
    assert!(row["ended"].as_u64().unwrap() >= 12, "{closed}");
    assert!(row["ms"].as_u64().unwrap() >= 400, "the whole ladder");
    assert_eq!(left_on_disk(&stage), [""; 0]);
    client.wait();
    // Closing again, and closing a lease that never existed, succeed and say so.
    for name in ["job", "never"] {
        let again = lease(&stage, &["close", name]);
        assert_eq!(
            (&again["ok"], &again["was"]),
            (&json!(true), &json!("unknown"))
        );
        assert_eq!(again["servers"], json!([]));
    }
    let teardown = stage.event("teardown");
    let cause = &teardown["cause"]["lease_ended"];
    assert_eq!(cause["lease"], "job");
    assert_eq!(
        cause["over"]["closed"]["by"]["pid"],
        std::process::id(),
        "{teardown}"
    );
}

#[test]
fn lease_close_ends_every_server_of_the_lease_and_none_of_another() {
    let stage = Stage::new();
    lease(&stage, &["open", "one"]);
    lease(&stage, &["open", "other"]);
    let mut clients: Vec<_> = (0..3).map(|_| server(&stage, "one", &[], &[])).collect();
    let mine: Vec<_> = clients
        .iter()
        .map(|client| card(&stage, client).server.unwrap())
        .collect();
    let mut other = server(&stage, "other", &[], &[]);
    // The server answers before its card is written. `lease list` adds up the memory of the cards.
    card(&stage, &other);
    // We answer the requests.
    let id = clients[0]
        .wire
        .ask("tools/call", &json!({"name": "mute", "arguments": {}}));
    id.unwrap();
    let closed = lease(&stage, &["close", "one", "--wait"]);
    assert_gone(&mine);
    assert_eq!(closed["servers"].as_array().unwrap().len(), 3);
    assert_eq!(closed["left"], 0);
    for client in &mut clients {
        client.wait();
    }
    assert!(other.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());
    let list = lease(&stage, &["list"]);
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(list[0]["lease"], "other");
    assert_eq!(
        (&list[0]["servers"], &list[0]["state"]),
        (&json!(1), &json!("open"))
    );
    assert!(list[0]["rss_kib"].as_u64().unwrap() > 0);
    other.finish();
    // A server that exits by itself leaves the lease open.
    let list = lease(&stage, &["list"]);
    assert_eq!(
        (&list[0]["servers"], &list[0]["state"]),
        (&json!(0), &json!("open"))
    );
    lease(&stage, &["close", "other"]);
    until_nothing_on_disk(&stage);
}

/// Stops a process with SIGSTOP and waits until it is stopped.
fn freeze(who: Identity) {
    Handle::open(who).unwrap().signal(Signal::STOP).unwrap();
    until("it is stopped", || {
        let stat = mainstay_os::census::stat(who.pid).unwrap();
        (stat.state == b'T').then_some(())
    });
}

/// Continues a stopped process.
fn thaw(who: Identity) {
    Handle::open(who).unwrap().signal(Signal::CONT).unwrap();
}

/// Runs `close` this many times at once, with `meanwhile` in between. Returns what each of them reports.
fn closing(stage: &Stage, name: &str, times: usize, meanwhile: impl FnOnce()) -> Vec<Value> {
    let begun: Vec<_> = (0..times)
        .map(|_| {
            let mut close = command(stage, &["close", name, "--json"]);
            close.stdout(Stdio::piped()).stderr(Stdio::piped());
            close.spawn().unwrap()
        })
        .collect();
    stage.event("lease_ended");
    meanwhile();
    let ended = begun.into_iter().map(std::process::Child::wait_with_output);
    ended.map(|output| told(&output.unwrap())).collect()
}

#[test]
fn two_lease_close_commands_at_once_leave_no_process() {
    let stage = Stage::new();
    lease(&stage, &["open", "job"]);
    let mut client = server(&stage, "job", &SHORT, &DEAF);
    let all = all_processes(&stage);
    let said = closing(&stage, "job", 2, || {});
    assert_gone(&all);
    for closed in &said {
        assert_eq!((&closed["ok"], &closed["left"]), (&json!(true), &json!(0)));
    }
    let ended = |closed: &Value| closed["servers"].as_array().unwrap().len();
    assert!(said.iter().any(|closed| ended(closed) == 1), "{said:?}");
    assert_eq!(stage.events("lease_ended").len(), 1);
    client.wait();
    until_nothing_on_disk(&stage);
}

#[test]
fn a_keeper_killed_during_lease_close_leaves_no_process() {
    let stage = Stage::new();
    lease(&stage, &["open", "job"]);
    let habits = [
        "--ignore-eof",
        "--ignore-term",
        "--daemon",
        "--daemon-clean-env",
    ];
    let graces = ["--grace-eof", "60s", "--grace-term", "60s"];
    let mut client = server(&stage, "job", &graces, &habits);
    let card = card(&stage, &client);
    let all = all_processes(&stage);
    let said = closing(&stage, "job", 1, || {
        until("the ladder has begun", || {
            let cards = stage.cards();
            cards.iter().find(|card| card.json["state"] == "stopping")?;
            Some(())
        });
        killers::at_once(&[card.keeper.unwrap()]);
    });
    // It does not wait for the graces, because no keeper is left that applies them.
    assert_gone(&all);
    assert_eq!(
        (&said[0]["ok"], &said[0]["left"]),
        (&json!(true), &json!(0))
    );
    client.wait();
    until_nothing_on_disk(&stage);
}

#[test]
fn a_killed_lease_close_command_leaves_no_process() {
    let stage = Stage::new();
    lease(&stage, &["open", "job"]);
    let mut client = server(&stage, "job", &SHORT, &DEAF);
    // The keeper is stopped, so the close cannot finish before the test is ready.
    let keeper = card(&stage, &client).keeper.unwrap();
    freeze(keeper);
    let mut close = command(&stage, &["close", "job"]).spawn().unwrap();
    stage.event("lease_ended");
    close.kill().unwrap();
    close.wait().unwrap();
    // The lease stays closed.
    let (code, stderr) = leased::refused(&stage, &["renew", "job"]);
    assert!(code == 1 && stderr.contains("was closed by"), "{stderr}");
    thaw(keeper);
    // The server ends, and the directory goes with it.
    client.wait();
    until_nothing_on_disk(&stage);
    stage.census.assert_empty();
    assert_eq!(lease(&stage, &["close", "job"])["was"], "unknown");
}

#[test]
fn lease_close_ends_servers_whose_mainstay_processes_were_all_killed() {
    // The start of another test would sweep what this test closes.
    let stage = Stage::alone();
    lease(&stage, &["open", "job"]);
    let daemons = ["--daemon", "--daemon-clean-env"];
    let mut client = Client::open_swept(&stage, &leased::argv(&stage, "job", &[], &daemons));
    let card = card(&stage, &client);
    let all = all_processes(&stage);
    until("the tree is recorded", || {
        (members(&card.dir).len() >= 3).then_some(())
    });
    let ours = [card.shim, card.guard, card.keeper].map(Option::unwrap);
    killers::at_once(&ours);
    client.wait();
    let alive = all.iter().filter(|who| identity::alive(**who)).count();
    assert!(alive >= 2, "the daemons are leftovers now");
    let closed = lease(&stage, &["close", "job"]);
    assert_gone(&all);
    assert_eq!((&closed["ok"], &closed["left"]), (&json!(true), &json!(0)));
    assert!(closed["ended"].as_u64().unwrap() >= 2, "{closed}");
    until_nothing_on_disk(&stage);
}

#[test]
fn lease_close_ends_servers_whose_guard_and_keeper_were_killed() {
    let stage = Stage::new();
    lease(&stage, &["open", "job"]);
    let mut client = server(&stage, "job", &[], &["--daemon"]);
    let old = card(&stage, &client);
    killers::at_once(&[old.guard.unwrap(), old.keeper.unwrap()]);
    client.wire.call("pid", &json!({})).unwrap();
    let all = all_processes(&stage);
    let closed = lease(&stage, &["close", "job"]);
    assert_gone(&all);
    assert_eq!(closed["servers"].as_array().unwrap().len(), 1, "{closed}");
    assert!(closed["ended"].as_u64().unwrap() >= 1, "{closed}");
    client.wait();
    until_nothing_on_disk(&stage);
}

#[test]
fn lease_close_ends_links_without_a_running_server() {
    for (options, habits, state) in [
        (&["--hibernate", "100ms"][..], &[][..], "resting"),
        (
            &["--restart-budget", "1000"],
            &["--in", "2..", "--exit-after-start"],
            "waiting",
        ),
    ] {
        let stage = Stage::new();
        lease(&stage, &["open", "job"]);
        let count = stage.path("generations");
        let mut all = vec!["--generations", count.to_str().unwrap()];
        all.extend(habits);
        let mut client = server(&stage, "job", options, &all);
        if state == "waiting" {
            let first = card(&stage, &client).server.unwrap();
            Handle::open(first).unwrap().signal(Signal::KILL).unwrap();
        }
        until(state, || {
            let cards = stage.cards();
            cards.iter().find(|card| card.json["state"] == state)?;
            Some(())
        });
        let closed = lease(&stage, &["close", "job"]);
        assert_eq!((&closed["ok"], &closed["left"]), (&json!(true), &json!(0)));
        assert_eq!(closed["servers"].as_array().unwrap().len(), 1);
        client.wait();
        stage.census.assert_empty();
        until_nothing_on_disk(&stage);
    }
}

#[test]
fn lease_close_with_wait_0_returns_at_once() {
    let stage = Stage::new();
    lease(&stage, &["open", "job"]);
    let mut client = server(&stage, "job", &SHORT, &DEAF);
    // The keeper is stopped, so the close cannot be done when `close` returns, however slow the machine is.
    let keeper = card(&stage, &client).keeper.unwrap();
    freeze(keeper);
    let closed = lease(&stage, &["close", "job", "--wait", "0"]);
    thaw(keeper);
    assert_eq!(closed["ok"], true, "{closed}");
    assert_eq!(closed["servers"][0]["error"], "not waited for");
    client.wait();
    until_nothing_on_disk(&stage);
    stage.census.assert_empty();
}

#[test]
fn lease_close_reports_a_stopped_keeper() {
    let stage = Stage::new();
    lease(&stage, &["open", "job"]);
    let mut client = server(&stage, "job", &[], &[]);
    let keeper = card(&stage, &client).keeper.unwrap();
    freeze(keeper);
    let (code, stderr) = leased::refused(&stage, &["close", "job", "--wait", "100ms"]);
    assert_eq!(code, 75);
    assert!(stderr.contains("is not done after 100 ms"), "{stderr}");
    thaw(keeper);
    client.wait();
    until_nothing_on_disk(&stage);
}
