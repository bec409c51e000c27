//! A container whose shim, guard and keeper were all killed is ended by whoever sweeps next, and not forgotten before that.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod engine;
mod leased;

use std::ffi::OsString;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

use engine::{ID, calls, docker, errands, is_up, lose, named, question, wrapped};
use leased::{lease, mainstay};
use mainstay_testkit::card::Card;
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::{children_executed, until};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::fs::{FlockOperation, flock};
use serde_json::json;

/// A session of which nobody of ours is left; its card.
fn dead(stage: &Stage, argv: &[OsString]) -> Card {
    let mut client = Client::open(stage, argv);
    let card = stage.card();
    let ours = [card.shim, card.guard, card.keeper];
    killers::at_once(&ours.into_iter().flatten().collect::<Vec<_>>());
    client.wait();
    assert!(is_up(stage));
    card
}

/// Anybody's start.
fn start(stage: &Stage) -> Client {
    Client::open(stage, &run(mainstay(), &[], stage.unruly::<&str>(&[])))
}

#[test]
fn by_the_next_start() {
    let stage = Stage::new();
    let card = dead(&stage, &wrapped(&stage, &[], &[]));
    let mut next = start(&stage);
    let sweep = stage.event_that("sweep", |event| event["by"] == json!(["cid"]));
    assert_eq!(sweep["of"], card.id.as_str());
    assert_eq!(sweep["owner"]["pid"], card.keeper.unwrap().pid);
    assert_eq!(sweep["ended"], json!([named()]));
    assert_eq!(sweep["left"], json!([]));
    assert_eq!(errands(&stage), [format!("kill {ID}")]);
    until("its directory is gone", || {
        (!card.dir.exists()).then_some(())
    });
    assert!(next.finish().0.success());
    stage.census.assert_empty();
}

#[test]
fn by_a_later_one_if_the_engine_cannot_yet() {
    let stage = Stage::new();
    let card = dead(&stage, &wrapped(&stage, &[], &[]));
    lose(&stage, true);
    let mut next = start(&stage);
    let sweep = stage.event_that("sweep", |event| event["left"] == json!([named()]));
    assert_eq!(sweep["ended"], json!([]));
    assert_eq!(errands(&stage), [format!("kill {ID}"), question()]);
    assert!(next.finish().0.success());
    stage.census.assert_empty();
    assert!(card.dir.exists());

    lose(&stage, false);
    let mut later = start(&stage);
    stage.event_that("sweep", |event| event["ended"] == json!([named()]));
    until("its directory is gone", || {
        (!card.dir.exists()).then_some(())
    });
    assert!(later.finish().0.success());
    stage.census.assert_empty();
}

#[test]
fn by_the_next_guard_if_the_shim_lives() {
    let stage = Stage::new();
    let mut client = Client::open(&stage, &wrapped(&stage, &["--grace-eof", "60s"], &[]));
    let card = stage.card();
    killers::at_once(&[card.guard.unwrap(), card.keeper.unwrap()]);
    assert!(client.wire.call("pid", &json!({})).unwrap()["pid"].is_i64());
    let calls = calls(&stage);
    assert_eq!(calls[1], format!("kill {ID}"), "{calls:?}");
    assert!(calls[2].starts_with("run --cidfile "), "{calls:?}");
    assert!(client.finish().0.success());
    stage.census.assert_empty();
}

#[test]
fn by_whoever_closes_its_lease() {
    let stage = Stage::new();
    lease(&stage, &["open", "job"]);
    let argv = run(mainstay(), &["--lease", "job"], docker(&stage, &[]));
    let card = dead(&stage, &argv);
    let closed = lease(&stage, &["close", "job"]);
    assert_eq!(closed["ok"], true, "{closed}");
    assert_eq!(errands(&stage), [format!("kill {ID}")]);
    assert!(!card.dir.exists());
    stage.census.assert_empty();
}

/// The lock of a link's directory, as a sweep of another start has it, or a guard that was killed and is not gone yet.
fn hold(card: &Card) -> File {
    let lock = File::options().write(true).open(card.dir.join("lock"));
    let lock = lock.unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    lock
}

/// Notes who opens and closes the lock of a link's directory.
struct Looks(OwnedFd);

impl Looks {
    /// Far more than a command needs that does not wait for the lock.
    const MANY: usize = 20;

    fn at(card: &Card) -> Self {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        // Both, for the kernel tells two equal ones in a row as one.
        let what = WatchFlags::OPEN | WatchFlags::CLOSE_WRITE;
        inotify::add_watch(&fd, card.dir.join("lock"), what).unwrap();
        Self(fd)
    }

    /// Waits until a command waits for the lock, or has ended without that.
    fn await_many(self, command: &mut Child) {
        let mut room = [MaybeUninit::uninit(); 1024];
        let mut reader = Reader::new(self.0, &mut room);
        let mut seen = 0;
        until("it waits for the lock or ends", || {
            while reader.next().is_ok() {
                seen += 1;
            }
            let ended = command.try_wait().unwrap().is_some();
            (ended || seen >= Self::MANY).then_some(())
        });
    }
}

#[test]
fn by_whoever_closes_its_lease_as_soon_as_the_lock_is_free() {
    let stage = Stage::new();
    lease(&stage, &["open", "job"]);
    let argv = run(mainstay(), &["--lease", "job"], docker(&stage, &[]));
    let card = dead(&stage, &argv);
    let lock = hold(&card);
    let mut close = leased::command(&stage, &["close", "job", "--json"]);
    let looks = Looks::at(&card);
    let mut close = close.stdout(Stdio::piped()).spawn().unwrap();
    looks.await_many(&mut close);
    drop(lock);
    let closed = leased::told(&close.wait_with_output().unwrap());
    assert_eq!(closed["ok"], true, "{closed}");
    assert_eq!(errands(&stage), [format!("kill {ID}")]);
    assert!(!card.dir.exists());
    stage.census.assert_empty();
}

#[test]
fn or_is_named_as_left_if_the_lock_is_never_free() {
    let stage = Stage::new();
    lease(&stage, &["open", "job"]);
    let argv = run(mainstay(), &["--lease", "job"], docker(&stage, &[]));
    let card = dead(&stage, &argv);
    let lock = hold(&card);
    let mut close = leased::command(&stage, &["close", "job", "--json"]);
    let output = close.output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let closed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(closed["ok"], false, "{closed}");
    assert_eq!(closed["servers"][0]["left"], json!([named()]), "{closed}");
    assert!(is_up(&stage));
    drop(lock);
    children_executed();
    let mut next = start(&stage);
    stage.event_that("sweep", |event| event["ended"] == json!([named()]));
    assert!(next.finish().0.success());
    stage.census.assert_empty();
}
