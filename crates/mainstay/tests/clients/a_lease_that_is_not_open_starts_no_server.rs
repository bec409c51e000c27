//! `run --lease` with a lease that is unknown or over: the client gets the reason in an answer and by the exit code, and no
//! server is started, not even in the moment in which the lease is closed.
//! guards: No server is started in a lease that is unknown, over or being closed.

use std::fs;
use std::path::Path;

use mainstay_os::census;
use mainstay_os::identity::Handle;
use mainstay_protocol::ids::Identity;
use mainstay_testkit::card::state_dir;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::{Deadline, HANG_STOP, until};

use crate::support::leased::{self, argv, assert_gone, lease, mainstay, until_nothing_on_disk};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Sends `initialize`. Returns the error message and the exit code.
fn opening(client: &mut Client) -> (String, i32) {
    let id = client.wire.ask("initialize", &json!({})).unwrap();
    let line = client.wire.line().unwrap().unwrap();
    let answer: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(answer["id"], id);
    let words = answer["error"]["message"].as_str().unwrap().to_owned();
    let (status, _) = client.finish();
    (words, status.code().unwrap())
}

fn no_server_was_started(stage: &Stage) {
    assert_eq!(stage.events("start").len(), 0);
    stage.census.assert_empty();
    assert!(!stage.path("generations").exists());
}

#[test]
fn no_server_starts_in_an_unknown_or_closed_lease() {
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
    no_server_was_started(&stage);
    until_nothing_on_disk(&stage);
}

#[test]
fn no_lazy_server_starts_in_an_unknown_lease() {
    let stage = Stage::new();
    let count = stage.path("generations");
    let habits = ["--generations", count.to_str().unwrap()];
    let argv = argv(&stage, "job", &["--lazy"], &habits);
    let (words, code) = opening(&mut Launch::new(&stage, &argv).start());
    assert!(words.contains("no lease `job` is open"), "{words}");
    assert_eq!(code, 125);
    no_server_was_started(&stage);
}

#[test]
fn the_lease_option_wins_over_the_variable() {
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
    assert!(
        bad.stderr_text()
            .contains("the variable MAINSTAY_LEASE is not the name of a lease")
    );
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
        // The server gets the variable as the client gave it.
        let given = census::variable(card.server.unwrap().pid, "MAINSTAY_LEASE");
        assert_eq!(given.as_deref(), Some(value));
        client.finish();
    }
    lease(&stage, &["close", "good"]);
    until_nothing_on_disk(&stage);
}

/// The keeper that has written its file into the lease, if there is one.
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

/// Stops a process and waits until it is stopped or gone.
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

/// Closes the lease while a keeper is stopped, and continues the keeper once the lease is marked as closed. Returns the output of
/// `close`.
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

/// A keeper has entered the lease and is stopped before it has a server. Then the lease is closed and the client sends a request
/// that needs a server. When the keeper goes on, it finds both at once.
#[test]
fn no_server_starts_if_the_lease_closes_before_the_start() {
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
    // The keeper may find either first: the request gets an error, or the pipe is closed.
    if let Ok(answer) = client.wire.answer(asked) {
        let words = answer["error"]["message"].as_str().unwrap();
        assert!(words.contains("the lease `job` was closed by"), "{words}");
    }
    client.finish();
    no_server_was_started(&stage);
    until_nothing_on_disk(&stage);
}

/// Like the test above, but with a keeper that starts its server at once. It is stopped wherever it is by then.
#[test]
fn a_starting_server_ends_if_its_lease_closes() {
    for _ in 0..10 {
        let stage = Stage::new();
        lease(&stage, &["open", "job"]);
        let directory = state_dir(stage.home()).join("lease/job");
        let mut client = Launch::new(&stage, &argv(&stage, "job", &[], &[])).start();
        // The loop does not sleep, because the moment that it looks for lasts less than a millisecond.
        let end = Deadline::after(HANG_STOP);
        let keeper = loop {
            if let Some(keeper) = shown(&directory) {
                break keeper;
            }
            assert!(!end.passed(), "no keeper enters the lease");
        };
        let closed = close_around(&stage, freeze(keeper), || {});
        // Started or not, no server runs once `close` has returned.
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
