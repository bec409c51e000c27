//! A lease is over by its time or by the death of its owner, and its servers end, with nobody there to close it; also after
//! any of our own processes was killed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod leased;

use std::fs;
use std::process::{Child, Stdio};

use leased::{
    card, everybody, lease, left_on_disk, mainstay, refused, server, until_nothing_on_disk,
};
use mainstay_os::identity;
use mainstay_testkit::card::state_dir;
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::{Value, json};

/// Somebody who owns a lease: it waits for our end of its pipe.
fn owner(stage: &Stage) -> Child {
    let mut command = stage.command("cat");
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let child = child.unwrap();
    stage.census.spare(identity::of(child.id() as i32).unwrap());
    child
}

fn kill(mut owner: Child) {
    owner.kill().unwrap();
    owner.wait().unwrap();
}

fn owned(stage: &Stage, name: &str, owner: &Child) {
    let pid = owner.id().to_string();
    let opened = lease(stage, &["open", name, "--owner", &pid]);
    assert_eq!(opened["owner"]["comm"], "cat");
    assert_eq!(opened["ttl_ms"], Value::Null);
}

/// The client's server ends, and nothing is left.
fn ended(stage: &Stage, mut client: Client, how: &str) -> Value {
    client.wait();
    stage.census.assert_empty();
    until_nothing_on_disk(stage);
    let ended = stage.event("lease_ended");
    assert!(ended["over"].get(how).is_some(), "{ended}");
    assert_eq!(stage.events("lease_ended").len(), 1);
    ended
}

#[test]
fn by_its_time() {
    let stage = Stage::new();
    for name in ["short", "long"] {
        lease(&stage, &["open", name, "--ttl", "10m"]);
    }
    let mut long = server(&stage, "long", &[], &[]);
    let mut short = server(&stage, "short", &[], &["--daemon", "--setsid-child"]);
    let mine = card(&stage, &short).server.unwrap();
    // Renewed in time: when the other one is over, this time has passed as well.
    lease(&stage, &["renew", "long", "--ttl", "8s"]);
    let renewed = lease(&stage, &["renew", "long", "--ttl", "10m"]);
    assert_eq!(renewed["renewed"], true);
    let renewed = lease(&stage, &["renew", "short", "--ttl", "8s"]);
    assert_eq!(renewed["ttl_ms"], 8_000);
    short.wait();
    assert!(!identity::alive(mine));
    let over = stage.event("lease_ended");
    assert_eq!(over["lease"], "short");
    assert_eq!(over["over"], json!({"expired": {"ttl_ms": 8_000}}));
    assert!(long.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());
    // Not renewed any more, not even by name.
    let (code, stderr) = refused(&stage, &["renew", "short"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("no lease `short` is open"), "{stderr}");
    lease(&stage, &["close", "long"]);
    long.wait();
    until_nothing_on_disk(&stage);
}

#[test]
fn by_the_death_of_its_owner() {
    let stage = Stage::new();
    let owner = owner(&stage);
    owned(&stage, "job", &owner);
    let client = server(&stage, "job", &[], &["--daemon"]);
    kill(owner);
    ended(&stage, client, "owner_gone");
    let mut why = stage.command(mainstay());
    let why = why.args(["why", "unruly"]).output().unwrap();
    let why = String::from_utf8(why.stdout).unwrap();
    assert!(
        why.starts_with("unruly was ended because the lease `job` is over: its owner cat (pid "),
        "{why}"
    );
}

#[test]
fn by_the_death_of_its_owner_after_the_keepers() {
    let stage = Stage::new();
    let owner = owner(&stage);
    owned(&stage, "job", &owner);
    let mut client = server(&stage, "job", &[], &[]);
    let first = card(&stage, &client);
    killers::at_once(&[first.keeper.unwrap()]);
    client.wire.call("pid", &json!({})).unwrap();
    let second = stage.card_that("names the next keeper", |card| card.keeper != first.keeper);
    killers::at_once(&[second.guard.unwrap(), second.keeper.unwrap()]);
    client.wire.call("pid", &json!({})).unwrap();
    kill(owner);
    ended(&stage, client, "owner_gone");
}

#[test]
fn while_all_of_ours_are_dead() {
    let stage = Stage::alone();
    let owner = owner(&stage);
    owned(&stage, "job", &owner);
    let mut client = server(&stage, "job", &[], &["--daemon", "--daemon-clean-env"]);
    let card = card(&stage, &client);
    let all = everybody(&stage);
    let ours = [card.shim, card.guard, card.keeper].map(Option::unwrap);
    until("the tree is recorded", || {
        (mainstay_testkit::card::members(&card.dir).len() >= 3).then_some(())
    });
    killers::at_once(&ours);
    client.wait();
    kill(owner);
    assert!(left_on_disk(&stage).contains(&"job".into()));
    // Anybody's next start, outside of the lease.
    let mut next = Client::open(&stage, &run(mainstay(), &[], stage.unruly::<&str>(&[])));
    until("the strays are gone", || {
        all.iter().all(|who| !identity::alive(*who)).then_some(())
    });
    until("the lease is gone", || {
        let left = left_on_disk(&stage);
        (!left.contains(&"job".into())).then_some(())
    });
    next.finish();
    until_nothing_on_disk(&stage);
}

#[test]
fn a_reused_pid_is_no_owner() {
    let stage = Stage::new();
    let owner = owner(&stage);
    owned(&stage, "job", &owner);
    // As if the owner had died and another process had got its pid.
    let file = state_dir(stage.home()).join("lease/job/term.json");
    let mut term: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let start = term["owner"]["start"].as_u64().unwrap();
    term["owner"]["start"] = json!(start - 1);
    fs::write(&file, term.to_string()).unwrap();
    let list = lease(&stage, &["list"]);
    assert_eq!(list[0]["state"], "over", "{list}");
    let (_, stderr) = refused(&stage, &["renew", "job"]);
    assert!(stderr.contains("its owner cat (pid "), "{stderr}");
    // The name is free again, also for the same owner.
    owned(&stage, "job", &owner);
    assert_eq!(lease(&stage, &["list"])[0]["state"], "open");
    // And that owner may say so twice; another one may not.
    let pid = owner.id().to_string();
    let again = lease(&stage, &["open", "job", "--owner", &pid, "--ttl", "1h"]);
    assert_eq!(
        (&again["renewed"], &again["ttl_ms"]),
        (&json!(true), &json!(3_600_000))
    );
    let (code, stderr) = refused(&stage, &["open", "job"]);
    assert_eq!(code, 1);
    assert!(
        stderr.contains("is open already, owned by cat (pid "),
        "{stderr}"
    );
    kill(owner);
    let closed = lease(&stage, &["close", "job"]);
    assert!(closed["was"]["over"]["owner_gone"].is_object(), "{closed}");
    until_nothing_on_disk(&stage);
}

#[test]
fn by_a_restart_of_the_machine() {
    let stage = Stage::new();
    lease(&stage, &["open", "job", "--ttl", "10m"]);
    let file = state_dir(stage.home()).join("lease/job/term.json");
    let mut term: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    term["realm"]["boot"] = json!("00000000");
    fs::write(&file, term.to_string()).unwrap();
    let list = lease(&stage, &["list"]);
    assert_eq!(
        (&list[0]["state"], &list[0]["over"]),
        (&json!("over"), &json!("rebooted"))
    );
    lease(&stage, &["open", "job"]);
    assert_eq!(lease(&stage, &["list"])[0]["state"], "open");
    lease(&stage, &["close", "job"]);
    until_nothing_on_disk(&stage);
}
