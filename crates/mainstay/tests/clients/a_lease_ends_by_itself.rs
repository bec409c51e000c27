//! A lease ends by its time or by the death of its owner, and its servers end with it. No command has to close it, and any of our
//! own processes may have been killed before.
//! guards: A lease ends with its time, its owner or the machine's boot, and needs no command for that.

use std::fs;
use std::process::{Child, Stdio};

use crate::support::leased::{
    all_processes, argv, card, lease, left_on_disk, mainstay, refused, server,
    until_nothing_on_disk,
};
use mainstay_os::identity;
use mainstay_testkit::card::state_dir;
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use serde_json::{Value, json};

/// An owner of a lease: a process that runs until our end of its pipe closes.
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

/// Asserts that the client's server ends and nothing is left.
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
fn a_lease_ends_when_its_time_is_up() {
    let stage = Stage::new();
    for name in ["short", "long"] {
        lease(&stage, &["open", name, "--ttl", "10m"]);
    }
    let mut long = server(&stage, "long", &[], &[]);
    let mut short = server(&stage, "short", &[], &["--daemon", "--setsid-child"]);
    let mine = card(&stage, &short).server.unwrap();
    // Renewed in time. When the other lease is over, the time of this renewal has passed as well.
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
    // A lease that is over cannot be renewed, not even by name.
    let (code, stderr) = refused(&stage, &["renew", "short"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("no lease `short` is open"), "{stderr}");
    lease(&stage, &["close", "long"]);
    long.wait();
    until_nothing_on_disk(&stage);
}

#[test]
fn a_lease_ends_with_its_owner() {
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
fn a_lease_ends_with_its_owner_after_a_keeper_was_killed() {
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
fn a_lease_ends_while_all_mainstay_processes_are_dead() {
    let stage = Stage::alone();
    let owner = owner(&stage);
    owned(&stage, "job", &owner);
    let daemons = ["--daemon", "--daemon-clean-env"];
    let mut client = Client::open_swept(&stage, &argv(&stage, "job", &[], &daemons));
    let card = card(&stage, &client);
    let all = all_processes(&stage);
    let ours = [card.shim, card.guard, card.keeper].map(Option::unwrap);
    until("the tree is recorded", || {
        (mainstay_testkit::card::members(&card.dir).len() >= 3).then_some(())
    });
    killers::at_once(&ours);
    client.wait();
    kill(owner);
    assert!(left_on_disk(&stage).contains(&"job".into()));
    // The next start of any server, outside of the lease.
    let mut next = Client::open(&stage, &run(mainstay(), &[], stage.unruly::<&str>(&[])));
    until("the leftovers are gone", || {
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
fn a_reused_pid_does_not_own_a_lease() {
    let stage = Stage::new();
    let owner = owner(&stage);
    owned(&stage, "job", &owner);
    // The file looks as if the owner had died and another process had got its pid.
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
    // The same owner may open it twice. Another one may not.
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
fn a_lease_ends_with_a_restart_of_the_machine() {
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
