//! If shim, guard and keeper were all killed, the next sweep ends the container. Its note stays until then.
//! guards: The container of a wholly killed link is ended by the next sweep and not forgotten before.

use std::ffi::OsString;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

use crate::support::engine::{
    ID, calls, calls_in, docker, engine_calls, engine_in, is_up, lose, named, question, wrapped,
};
use crate::support::leased::{self, lease, mainstay};
use mainstay_testkit::card::Card;
use mainstay_testkit::client::Client;
use mainstay_testkit::killers;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::{children_executed, until};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::fs::{FlockOperation, flock};
use serde_json::json;

/// A session whose shim, guard and keeper were killed after the sweep of its start. Returns its card.
fn dead(stage: &Stage, argv: &[OsString]) -> Card {
    let mut client = Client::open_swept(stage, argv);
    let card = kill(stage, &mut client);
    assert!(is_up(stage));
    card
}

/// Kills shim, guard and keeper of a session at once. Returns its card.
fn kill(stage: &Stage, client: &mut Client) -> Card {
    let card = leased::card(stage, client);
    let ours = [card.shim, card.guard, card.keeper];
    killers::at_once(&ours.into_iter().flatten().collect::<Vec<_>>());
    client.wait();
    card
}

/// Starts any server, which sweeps first.
fn start(stage: &Stage) -> Client {
    Client::open(stage, &run(mainstay(), &[], stage.unruly::<&str>(&[])))
}

#[test]
fn the_next_start_ends_the_container_of_a_dead_link() {
    let stage = Stage::new();
    let card = dead(&stage, &wrapped(&stage, &[], &[]));
    let mut next = start(&stage);
    let sweep = stage.event_that("leftovers_ended", |event| event["by"] == json!(["cid"]));
    assert_eq!(sweep["of"], card.id.as_str());
    assert_eq!(sweep["owner"]["pid"], card.keeper.unwrap().pid);
    assert_eq!(sweep["ended"], json!([named()]));
    assert_eq!(sweep["left"], json!([]));
    assert_eq!(engine_calls(&stage), [format!("kill {ID}")]);
    until("its directory is gone", || {
        (!card.dir.exists()).then_some(())
    });
    assert!(next.finish().0.success());
    stage.census.assert_empty();
}

#[test]
fn a_later_start_ends_the_container_if_the_engine_failed_at_first() {
    let stage = Stage::new();
    let card = dead(&stage, &wrapped(&stage, &[], &[]));
    lose(&stage, true);
    let mut next = start(&stage);
    let sweep = stage.event_that("leftovers_ended", |event| event["left"] == json!([named()]));
    assert_eq!(sweep["ended"], json!([]));
    assert_eq!(engine_calls(&stage), [format!("kill {ID}"), question()]);
    assert!(next.finish().0.success());
    stage.census.assert_empty();
    assert!(card.dir.exists());

    lose(&stage, false);
    let mut later = start(&stage);
    stage.event_that("leftovers_ended", |event| {
        event["ended"] == json!([named()])
    });
    until("its directory is gone", || {
        (!card.dir.exists()).then_some(())
    });
    assert!(later.finish().0.success());
    stage.census.assert_empty();
}

#[test]
fn the_next_guard_ends_the_container_if_the_shim_lives() {
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
fn lease_close_ends_the_container_of_a_dead_link() {
    let stage = Stage::new();
    lease(&stage, &["open", "job"]);
    let argv = run(mainstay(), &["--lease", "job"], docker(&stage, &[]));
    let card = dead(&stage, &argv);
    let closed = lease(&stage, &["close", "job"]);
    assert_eq!(closed["ok"], true, "{closed}");
    assert_eq!(engine_calls(&stage), [format!("kill {ID}")]);
    assert!(!card.dir.exists());
    stage.census.assert_empty();
}

/// Locks a link's directory, like the sweep of another start, or like a killed guard that still exists.
fn hold(card: &Card) -> File {
    let lock = File::options().write(true).open(card.dir.join("lock"));
    let lock = lock.unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    lock
}

/// Counts how often the lock of a link's directory is opened and closed.
struct Looks(OwnedFd);

impl Looks {
    /// Far more than a command needs that does not wait for the lock.
    const MANY: usize = 20;

    fn at(card: &Card) -> Self {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        // Both flags, because the kernel merges two equal events in a row.
        let what = WatchFlags::OPEN | WatchFlags::CLOSE_WRITE;
        inotify::add_watch(&fd, card.dir.join("lock"), what).unwrap();
        Self(fd)
    }

    /// Waits until the command waits for the lock, or has ended without waiting.
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
fn lease_close_ends_the_container_as_soon_as_the_lock_is_free() {
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
    assert_eq!(engine_calls(&stage), [format!("kill {ID}")]);
    assert!(!card.dir.exists());
    stage.census.assert_empty();
}

#[test]
fn lease_close_names_the_container_as_left_if_the_lock_is_never_free() {
    let stage = Stage::new();
    lease(&stage, &["open", "job"]);
    let argv = run(mainstay(), &["--lease", "job"], docker(&stage, &[]));
    let card = dead(&stage, &argv);
    let lock = hold(&card);
    close_leaves_it(&stage);
    drop(lock);
    children_executed();
    let mut next = start(&stage);
    stage.event_that("leftovers_ended", |event| {
        event["ended"] == json!([named()])
    });
    assert!(next.finish().0.success());
    stage.census.assert_empty();
}

/// Asserts that `lease close` fails, names the container as left and lets it run.
fn close_leaves_it(stage: &Stage) {
    let mut close = leased::command(stage, &["close", "job", "--json"]);
    let output = close.output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let closed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(closed["ok"], false, "{closed}");
    assert_eq!(closed["servers"][0]["left"], json!([named()]), "{closed}");
    assert!(is_up(stage));
}

#[test]
fn an_earlier_sweep_does_not_hide_the_container_from_lease_close() {
    let stage = Stage::new();
    // A dead session, whose engine keeps the next sweep waiting while the file `slow` is there.
    let folder = stage.path("slow-engine");
    fs::create_dir(&folder).unwrap();
    let engine = engine_in(&stage, &folder, "podman", &[]);
    kill(
        &stage,
        &mut Client::open_swept(&stage, &run(mainstay(), &[], engine)),
    );
    fs::write(folder.join("slow"), "").unwrap();

    lease(&stage, &["open", "job"]);
    let argv = run(mainstay(), &["--lease", "job"], docker(&stage, &[]));
    let mut client = Client::open(&stage, &argv);
    until("the sweep has looked for dead sessions and waits", || {
        calls_in(&folder)
            .contains(&format!("kill {ID}"))
            .then_some(())
    });
    let card = kill(&stage, &mut client);
    let lock = hold(&card);
    fs::remove_file(folder.join("slow")).unwrap();
    stage.census.wait_swept();
    close_leaves_it(&stage);
    drop(lock);
    children_executed();
    let mut next = start(&stage);
    let sweep = stage.event_that("leftovers_ended", |event| event["of"] == card.id.as_str());
    assert_eq!(sweep["ended"], json!([named()]), "{sweep}");
    assert!(next.finish().0.success());
    stage.census.assert_empty();
}
