//! `run --lease` in a lease that is unknown or over: the client is told why, as an answer and by an exit code, and no server is
//! started; not even in the moment in which the lease is closed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod leased;

use std::fs;
use std::path::Path;

use leased::{argv, assert_gone, lease, mainstay, until_nothing_on_disk};
use mainstay_core::ids::Identity;
use mainstay_os::census;
use mainstay_os::identity::Handle;
use mainstay_testkit::card::state_dir;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::{Deadline, HANG_STOP, until};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Asks for the opening; the answer's words, and the exit code.
fn opening(client: &mut Client) -> (String, i32) {
    let id = client.wire.ask("initialize", &json!({})).unwrap();
    let line = client.wire.line().unwrap().unwrap();
    let answer: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(answer["id"], id);
    let words = answer["error"]["message"].as_str().unwrap().to_owned();
    let (status, _) = client.finish();
    (words, status.code().unwrap())
}

fn nobody_was_started(stage: &Stage) {
    assert_eq!(stage.events("start").len(), 0);
    stage.census.assert_empty();
    assert!(!stage.path("generations").exists());
}

#[test]
fn unknown_or_closed() {
    let stage = Stage::new();
    let count = stage.path("generations");
    let habits = ["--generations", count.to_str().unwrap()];
    let argv = argv(&stage, "job", &[], &habits);
    for _ in 0..2 {
        let (words, code) = opening(&mut Launch::new(&stage, &argv).start());
        assert!(
            words.contains("no lease `job` is open; open it: `mainstay lease open job`"),
            "{words}"
        );
        assert_eq!(code, 125);
        lease(&stage, &["open", "job"]);
        lease(&stage, &["close", "job"]);
    }
    nobody_was_started(&stage);
    until_nothing_on_disk(&stage);
}

#[test]
fn lazy_as_well() {
    let stage = Stage::new();
    let count = stage.path("generations");
    let habits = ["--generations", count.to_str().unwrap()];
    let argv = argv(&stage, "job", &["--lazy"], &habits);
    let (words, code) = opening(&mut Launch::new(&stage, &argv).start());
    assert!(words.contains("no lease `job` is open"), "{words}");
    assert_eq!(code, 125);
    nobody_was_started(&stage);
}

#[test]
fn by_the_variable_unless_the_option_is_given() {
    let stage = Stage::new();
    lease(&stage, &["open", "good"]);
    let with = |options: &[&str], value: &str| {
        let argv = run(mainstay(), options, stage.unruly::<&str>(&[]));
        let launch = Launch::new(&stage, &argv);
        launch
            .with(|command| command.env("MAINSTAY_LEASE", value))
            .start()
    };
    let (words, _) = opening(&mut with(&[], "bad"));
    assert!(words.contains("no lease `bad` is open"), "{words}");
    let mut bad = with(&[], "no/such");
    assert_eq!(bad.wait().code(), Some(2));
    assert!(bad.stderr_text().contains("MAINSTAY_LEASE names no lease"));
    assert_eq!(stage.events("start").len(), 0);
    for (options, value) in [(&["--lease", "good"][..], "bad"), (&[], "good"), (&[], "")] {
        let mut client = with(options, value);
        client.wire.initialize().unwrap();
        let card = leased::card(&stage, &client);
        let leased = if value.is_empty() {
            Value::Null
        } else {
            json!("good")
        };
        assert_eq!(card.json.get("lease").unwrap_or(&Value::Null), &leased);
        // The server has it as the client gave it.
        let given = census::variable(card.server.unwrap().pid, "MAINSTAY_LEASE");
        assert_eq!(given.as_deref(), Some(value));
        client.finish();
    }
    lease(&stage, &["close", "good"]);
    until_nothing_on_disk(&stage);
}

/// The keeper that shows itself in a lease, as soon as it does.
fn shown(directory: &Path) -> Option<Identity> {
    let entry = fs::read_dir(directory).unwrap().flatten().find(|entry| {
        let name = entry.file_name();
        name.len() == 8
            && name
                .to_string_lossy()
                .bytes()
                .all(|b| b.is_ascii_hexdigit())
    })?;
    let tenant: Value = serde_json::from_slice(&fs::read(entry.path()).ok()?).ok()?;
    serde_json::from_value(tenant["keeper"].clone()).ok()
}

/// Stops a process; returns when it is stopped, or gone.
fn freeze(who: Identity) -> Option<Handle> {
    let handle = Handle::open(who).ok()?;
    handle.signal(Signal::STOP).ok()?;
    until("it is stopped, or gone", || {
        let stat = census::stat(who.pid).ok();
        stat.is_none_or(|stat| stat.state == b'T' || stat.dead())
            .then_some(())
    });
    Some(handle)
}

/// Closes the lease while a keeper is stopped, and has it go on when the lease is marked; what `close` says.
fn close_around(stage: &Stage, keeper: Option<Handle>, meanwhile: impl FnOnce()) -> Value {
    let mut close = leased::command(stage, &["close", "job", "--json"]);
    let close = close.stdout(std::process::Stdio::piped()).spawn().unwrap();
    stage.event("lease_ended");
    meanwhile();
    if let Some(keeper) = keeper {
        keeper.signal(Signal::CONT).unwrap();
    }
    leased::told(&close.wait_with_output().unwrap())
}

/// A keeper that is in the lease and has no server yet is stopped; the lease is closed; the client asks for what needs a server;
/// then the keeper finds all of that at once.
#[test]
fn closed_between_showing_and_starting() {
    let stage = Stage::new();
    lease(&stage, &["open", "job"]);
    let argv = argv(&stage, "job", &["--lazy"], &[]);
    let mut client = Launch::new(&stage, &argv).start();
    let directory = state_dir(stage.home()).join("lease/job");
    let keeper = until("the keeper shows itself", || shown(&directory));
    until("it rests", || {
        let cards = stage.cards();
        cards.iter().find(|card| card.json["state"] == "resting")?;
        Some(())
    });
    let stopped = freeze(keeper).unwrap();
    let mut asked = 0;
    let closed = close_around(&stage, Some(stopped), || {
        asked = client.wire.ask("initialize", &json!({})).unwrap();
    });
    assert_gone(&[keeper]);
    assert_eq!((&closed["ok"], &closed["left"]), (&json!(true), &json!(0)));
    // Which of the two it finds first is not sure: the request is answered in words, or the pipe is at its end.
    if let Ok(answer) = client.wire.answer(asked) {
        let words = answer["error"]["message"].as_str().unwrap();
        assert!(words.contains("the lease `job` was closed by"), "{words}");
    }
    client.finish();
    nobody_was_started(&stage);
    until_nothing_on_disk(&stage);
}

/// The same for one that starts its server at once: stopped wherever it is by then.
#[test]
fn closed_while_it_is_starting() {
    for _ in 0..10 {
        let stage = Stage::new();
        lease(&stage, &["open", "job"]);
        let directory = state_dir(stage.home()).join("lease/job");
        let mut client = Launch::new(&stage, &argv(&stage, "job", &[], &[])).start();
        // Without a pause: what is looked for lasts for less than a millisecond.
        let end = Deadline::after(HANG_STOP);
        let keeper = loop {
            if let Some(keeper) = shown(&directory) {
                break keeper;
            }
            assert!(!end.passed(), "nobody shows itself");
        };
        let closed = close_around(&stage, freeze(keeper), || {});
        // Started or not, nothing is there once `close` has returned.
        for event in stage.events("start") {
            let stat = census::stat(event["pid"].as_i64().unwrap() as i32);
            assert!(stat.is_err() || stat.is_ok_and(|stat| stat.dead()));
        }
        assert_gone(&[keeper]);
        assert_eq!((&closed["ok"], &closed["left"]), (&json!(true), &json!(0)));
        client.finish();
        stage.census.assert_empty();
        until_nothing_on_disk(&stage);
    }
}
