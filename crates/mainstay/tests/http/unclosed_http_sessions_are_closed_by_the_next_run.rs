//! A session that a killed mainstay had opened is closed by the next start of mainstay. While its owner lives, no other process
//! closes it.
//! guards: A session that a killed mainstay left open is closed by the next start, and never while its owner lives.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::bridged::{Bridged, argv, mainstay, unclosed};
use mainstay_os::census::Stat;
use mainstay_os::identity::Handle;
use mainstay_testkit::card::state_dir;
use mainstay_testkit::client::Launch;
use mainstay_testkit::httpd::{Fault, Httpd};
use mainstay_testkit::killers;
use mainstay_testkit::skip;
use mainstay_testkit::stage::{Stage, run};
use mainstay_testkit::wait::until;
use rustix::process::Signal;
use serde_json::json;

/// Kills shim, guard, keeper and bridge at once.
fn kill_everything(mut play: Bridged) -> (Stage, Httpd) {
    let card = play.stage.card_that("has a server", |card| {
        let lives = card.shim.is_some_and(mainstay_os::identity::alive);
        lives && card.server.is_some()
    });
    let ours: Vec<_> = [card.shim, card.guard, card.keeper, card.server]
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(ours.len(), 4);
    // Stopped processes start no further process. The sweep of this start may run beside them, and would close the session of a
    // dead owner. So it must have ended before the four are killed.
    for who in &ours {
        let handle = Handle::open(*who).unwrap();
        handle.signal(Signal::STOP).unwrap();
    }
    until("only the four are there", || {
        let mut living = play.stage.census.living();
        // The witness dies with its keeper.
        living.retain(|stat| stat.comm != "mcp-witness");
        let only = |stat: &Stat| ours.contains(&stat.who());
        (living.len() == 4 && living.iter().all(only)).then_some(())
    });
    killers::at_once(&ours);
    play.client.wait();
    until("the four are dead", || {
        ours.iter()
            .all(|who| !mainstay_os::identity::alive(*who))
            .then_some(())
    });
    (play.stage, play.http)
}

/// A client that gives its server a variable.
fn with_variable(stage: Stage, http: Httpd, name: &str, value: &str) -> Bridged {
    let option = format!("Authorization={name}");
    let argv = argv(&http, &["--header-env", &option]);
    let launch = Launch::new(&stage, &argv).with(|command| command.env(name, value));
    let mut client = launch.start();
    client.wire.initialize().unwrap();
    Bridged {
        client,
        stage,
        http,
    }
}

/// The sessions that the server got a DELETE for, and the credentials of each.
fn deletes(http: &Httpd) -> Vec<(String, String)> {
    let sent = http.sent().into_iter().filter(|one| one.verb == "DELETE");
    sent.map(|one| {
        let value = |name: &str| one.headers.get(name).cloned().unwrap_or_default();
        (value("mcp-session-id"), value("authorization"))
    })
    .collect()
}

#[test]
fn the_next_start_of_any_server_closes_it() {
    let (stage, http) = kill_everything(Bridged::open(&[]));
    assert_eq!(http.open(), 1, "no process was left to close it");
    let notes = unclosed(&stage);
    assert_eq!(notes.len(), 1);
    assert_eq!(
        (&notes[0]["in_use"], &notes[0]["url"]),
        (&json!(false), &json!(http.url()))
    );
    // A different server.
    let program = mainstay_testkit::built::under_test(env!("CARGO_BIN_EXE_mainstay"));
    let mut other = Launch::new(&stage, &run(program, &[], stage.unruly::<&str>(&[]))).start();
    other.wire.initialize().unwrap();
    http.empty();
    stage.event("session_closed_late");
    until("its note is gone", || {
        unclosed(&stage).is_empty().then_some(())
    });
    other.finish();
}

#[test]
fn a_start_that_exits_at_once_closes_it_too() {
    let (stage, http) = kill_everything(Bridged::open(&[]));
    let program = mainstay_testkit::built::under_test(env!("CARGO_BIN_EXE_mainstay"));
    let argv = run(program, &[], vec!["/bin/true".into()]);
    http.next("DELETE", Fault::Hold);
    let mut other = Launch::new(&stage, &argv).start();
    other.wait();
    // The sweep sends the DELETE after all other processes of this start have exited.
    until("only the sweep is left", || {
        let living = stage.census.living();
        (living.len() == 1 && living[0].comm == "mcp-sweep").then_some(())
    });
    http.release();
    stage.event("session_closed_late");
    stage.census.assert_empty();
    assert!(unclosed(&stage).is_empty());
}

#[test]
fn the_successor_of_a_killed_bridge_closes_its_session() {
    let mut play = Bridged::open(&[]);
    let card = play
        .stage
        .card_that("has a server", |card| card.server.is_some());
    Handle::open(card.server.unwrap())
        .unwrap()
        .signal(Signal::KILL)
        .unwrap();
    // The link goes on: a new bridge, a new session, and the old one is closed.
    until("the old session is closed", || {
        (play.http.deleted() == ["session-1"]).then_some(())
    });
    assert_eq!(
        play.call("echo")["result"]["structuredContent"]["said"],
        "hello"
    );
    let (stage, http) = play.finish();
    assert_eq!((http.opened(), http.open()), (2, 0));
    assert!(unclosed(&stage).is_empty());
}

#[test]
fn sessions_of_living_owners_stay_open_and_those_of_dead_ones_are_closed() {
    let (stage, http) = kill_everything(Bridged::open(&[]));
    http.always("DELETE", Fault::Status(503, "busy"));
    let failed = mainstay(&stage, &["sessions", "close"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&failed.stdout).contains("HTTP 503"),
        "{failed:?}"
    );
    let notes = unclosed(&stage);
    assert_eq!(notes[0]["why"], "the server answered with HTTP 503");
    http.mend();
    let play = Bridged::on(stage, http, &[]);
    let mut play = play;
    play.client.wire.initialize().unwrap();
    let closed = play.mainstay(&["sessions", "close", "--json"]);
    assert!(closed.status.success(), "{closed:?}");
    assert_eq!(play.http.deleted(), ["session-1"]);
    assert_eq!(
        play.call("echo")["result"]["structuredContent"]["said"],
        "hello",
        "the living one is not touched"
    );
    let shown = play.mainstay(&["sessions"]);
    assert!(
        shown.status.success() && String::from_utf8_lossy(&shown.stdout).contains("in use"),
        "{shown:?}"
    );
    let (stage, http) = play.finish();
    assert_eq!(http.open(), 0);
    let nothing = mainstay(&stage, &["sessions"]);
    assert!(
        String::from_utf8_lossy(&nothing.stdout).contains("No unclosed session"),
        "{nothing:?}"
    );
}

#[test]
fn a_secret_from_a_flag_is_asked_for_and_never_written() {
    let http = Httpd::start();
    http.secret("x-key", "hunter2");
    let mut play = Bridged::on(Stage::new(), http, &["--header", "X-Key: hunter2"]);
    play.client.wire.initialize().unwrap();
    let (stage, http) = kill_everything(play);
    let notes = state_dir(stage.home()).join("sessions");
    let mut files = 0;
    for entry in fs::read_dir(&notes).unwrap().flatten() {
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{entry:?}");
        assert!(
            !fs::read_to_string(entry.path())
                .unwrap()
                .contains("hunter2")
        );
        files += u32::from(
            entry
                .path()
                .extension()
                .is_some_and(|ending| ending == "json"),
        );
    }
    assert_eq!(files, 1);
    assert_eq!(
        fs::metadata(&notes).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let refused = mainstay(&stage, &["sessions", "close"]);
    let told = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        unclosed(&stage)[0]["why"]
            .as_str()
            .unwrap()
            .contains("the header `x-key` came from a flag of `run`"),
        "{told}"
    );
    let closed = mainstay(&stage, &["sessions", "close", "--header", "X-Key: hunter2"]);
    assert!(closed.status.success(), "{closed:?}");
    assert_eq!(http.open(), 0);
}

#[test]
fn the_same_configuration_closes_it_with_its_own_secrets() {
    let http = Httpd::start();
    http.secret("x-key", "hunter2");
    let mut play = Bridged::on(Stage::new(), http, &["--header", "X-Key: hunter2"]);
    play.client.wire.initialize().unwrap();
    let (stage, http) = kill_everything(play);
    let next = Bridged::on(stage, http, &["--header", "X-Key: hunter2"]);
    until("it is closed", || {
        (next.http.deleted() == ["session-1"]).then_some(())
    });
    let (stage, _http) = next.finish();
    assert!(unclosed(&stage).is_empty());
}

#[test]
fn an_end_in_the_middle_of_the_opening_is_no_leak() {
    let play = Bridged::start(&["--no-cache"]);
    play.http.next("initialize", Fault::Hold);
    let mut play = play;
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    play.client.wire.ask("initialize", &params).unwrap();
    play.http.heard("initialize", 1);
    play.client.wire.close_write();
    play.http.release();
    play.client.wait();
    assert_eq!(play.http.opened(), 1);
    play.http.empty();
    play.stage.census.assert_empty();
    assert!(unclosed(&play.stage).is_empty());
}

#[test]
fn a_session_that_the_server_does_not_close_stays_owed() {
    let play = Bridged::open(&["--grace-eof", "500ms"]);
    play.http.always("DELETE", Fault::Hold);
    let (stage, http) = play.finish();
    assert_eq!(http.open(), 1);
    assert_eq!(unclosed(&stage).len(), 1);
    http.mend();
    assert!(mainstay(&stage, &["sessions", "close"]).status.success());
    assert_eq!(http.open(), 0);
}

#[test]
fn a_session_that_cannot_be_written_down_is_closed_and_refused() {
    let stage = Stage::new();
    let notes = state_dir(stage.home()).join("sessions");
    fs::create_dir_all(notes.parent().unwrap()).unwrap();
    // A file in place of the directory, so nothing can be written there.
    fs::write(&notes, "in the way").unwrap();
    let mut play = Bridged::on(stage, Httpd::start(), &["--no-cache"]);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let answer = play.ask("initialize", &params);
    let told = mainstay_testkit::wire::trouble(&answer);
    assert!(
        told.contains("opened and closed again") && told.contains("mainstay doctor"),
        "{told}"
    );
    assert_eq!(play.http.opened(), 1);
    play.http.empty();
}

/// Where PID 1 does not reap, a background process would stay as a zombie. There the command does only its own work.
#[test]
fn no_zombie_where_init_does_not_reap() {
    const PID_1: &str = "import subprocess, sys\n\
        code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n\
        print(code, open('/proc/1/task/1/children').read().split())";
    if !skip::root_or_skip("a PID namespace of its own needs root") {
        return;
    }
    let (stage, http) = kill_everything(Bridged::open(&[]));
    let program = mainstay_testkit::built::under_test(env!("CARGO_BIN_EXE_mainstay"));
    let shown = stage
        .command("unshare")
        .args(["--pid", "--fork", "--mount-proc", "python3", "-c", PID_1])
        .args([program.as_os_str(), "ps".as_ref()])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&shown.stdout),
        "0 []\n",
        "{shown:?}"
    );
    assert_eq!(http.open(), 1);
    assert_eq!(unclosed(&stage).len(), 1);
}

#[test]
fn any_command_closes_it_in_the_background() {
    let mut play = Bridged::open(&[]);
    for (number, words) in [
        &["ps"][..],
        &["events"],
        &["lease", "list"],
        &["forget", "--all"],
    ]
    .into_iter()
    .enumerate()
    {
        let (stage, http) = kill_everything(play);
        let shown = mainstay(&stage, words);
        assert!(
            shown.status.code().is_some_and(|code| code < 2),
            "{words:?}: {shown:?}"
        );
        let session = format!("session-{}", number + 1);
        until("it is closed", || {
            (http.deleted().last() == Some(&session)).then_some(())
        });
        until("its note is gone", || {
            unclosed(&stage).is_empty().then_some(())
        });
        play = Bridged::on(stage, http, &[]);
        play.client.wire.initialize().unwrap();
    }
    play.finish();
}

#[test]
fn a_death_in_the_middle_of_the_opening_is_reported() {
    let mut play = Bridged::start(&["--no-cache"]);
    play.http.next("initialize", Fault::Hold);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    play.client.wire.ask("initialize", &params).unwrap();
    play.http.heard("initialize", 1);
    let (stage, http) = kill_everything(play);
    assert!(mainstay(&stage, &["ps"]).status.success());
    let told = stage.event("session_given_up");
    assert_eq!(told["url"], http.url());
    until("it is not kept", || {
        unclosed(&stage).is_empty().then_some(())
    });
}

#[test]
fn a_secret_is_given_to_one_server_only() {
    let (first, second) = (Httpd::start(), Httpd::start());
    let mut stage = Stage::new();
    let mut servers = Vec::new();
    for http in [first, second] {
        http.secret("x-key", "hunter2");
        let mut play = Bridged::on(stage, http, &["--header", "X-Key: hunter2"]);
        play.client.wire.initialize().unwrap();
        let (left, http) = kill_everything(play);
        (stage, servers) = (left, {
            servers.push(http);
            servers
        });
    }
    let ambiguous = mainstay(&stage, &["sessions", "close", "--header", "X-Key: hunter2"]);
    assert_eq!(ambiguous.status.code(), Some(2), "{ambiguous:?}");
    let told = String::from_utf8_lossy(&ambiguous.stderr);
    assert!(
        told.contains("--url URL") && !told.contains("hunter2"),
        "{told}"
    );
    for (number, http) in servers.iter().enumerate() {
        let url = http.url();
        let closed = mainstay(
            &stage,
            &[
                "sessions",
                "close",
                "--url",
                &url,
                "--header",
                "X-Key: hunter2",
            ],
        );
        assert_eq!(
            closed.status.code(),
            Some(i32::from(number == 0)),
            "{closed:?}"
        );
        assert_eq!(http.open(), 0);
        let other = &servers[1 - number];
        assert_eq!(other.deleted().len(), usize::from(number == 1));
    }
}

#[test]
fn a_variable_of_one_server_is_sent_to_no_other() {
    let first = Httpd::start();
    first.secret("authorization", "Bearer of-a");
    let play = with_variable(Stage::new(), first, "TOKEN", "Bearer of-a");
    let (stage, first) = kill_everything(play);
    // Its bridge and its sweep see the note and have a variable of that name.
    let second = with_variable(stage, Httpd::start(), "TOKEN", "Bearer of-b");
    let (stage, _second) = second.finish();
    assert_eq!(deletes(&first), [], "another server's secret");
    let notes = unclosed(&stage);
    let why = notes[0]["why"].as_str().unwrap();
    assert!(
        why.contains("the variable TOKEN") && why.contains("sessions close --url URL"),
        "{why}"
    );
    // This value opened the session, so the server has seen it before and any command may send it again.
    let program = mainstay_testkit::built::under_test(env!("CARGO_BIN_EXE_mainstay"));
    let mut command = stage.command(program);
    let closed = command
        .env("TOKEN", "Bearer of-a")
        .args(["sessions", "close"])
        .output()
        .unwrap();
    assert!(closed.status.success(), "{closed:?}");
    assert_eq!(
        deletes(&first),
        [("session-1".into(), "Bearer of-a".into())]
    );
    assert_eq!(first.open(), 0);
}

#[test]
fn the_user_may_name_the_server_of_a_variable() {
    let http = Httpd::start();
    http.secret("authorization", "Bearer old");
    let play = with_variable(Stage::new(), http, "TOKEN", "Bearer old");
    let (stage, http) = kill_everything(play);
    http.secret("authorization", "Bearer new");
    let program = mainstay_testkit::built::under_test(env!("CARGO_BIN_EXE_mainstay"));
    let url = http.url();
    for (words, code) in [
        (&["sessions", "close"][..], 1),
        (&["sessions", "close", "--url", "http://127.0.0.1:9/mcp"], 1),
        (&["sessions", "close", "--url", &url], 0),
    ] {
        let mut command = stage.command(&program);
        let done = command.env("TOKEN", "Bearer new").args(words).output();
        let done = done.unwrap();
        assert_eq!(done.status.code(), Some(code), "{words:?}: {done:?}");
    }
    assert_eq!(deletes(&http), [("session-1".into(), "Bearer new".into())]);
    assert_eq!(http.open(), 0);
}

#[test]
fn a_404_to_another_account_settles_no_debt() {
    let play = with_variable(Stage::new(), Httpd::start(), "WORK", "Bearer work");
    let (stage, http) = kill_everything(play);
    // The server answers all other accounts that there is no such session.
    http.always("DELETE", Fault::Status(404, "no such session"));
    let home = with_variable(stage, http, "HOME_TOKEN", "Bearer home");
    let (stage, http) = home.finish();
    let asked = deletes(&http);
    assert!(
        asked.iter().all(|(session, _)| session == "session-2"),
        "it has no credentials for the first: {asked:?}"
    );
    assert_eq!(unclosed(&stage).len(), 1);
    // Another configuration with the same variable but another value.
    let other = with_variable(stage, http, "WORK", "Bearer other");
    until("it has asked", || {
        let asked = deletes(&other.http);
        let ours =
            |(session, token): &(String, String)| session == "session-1" && token == "Bearer other";
        asked.iter().any(ours).then_some(())
    });
    let (stage, http) = other.finish();
    let notes = unclosed(&stage);
    assert_eq!(notes.len(), 1);
    let why = notes[0]["why"].as_str().unwrap();
    assert!(why.contains("WORK") || why.contains("HTTP 404"), "{why}");
    assert_eq!(notes[0]["attempts"], 0, "that was no attempt of its own");
    // The configuration that opened the session is started again.
    http.mend();
    let work = with_variable(stage, http, "WORK", "Bearer work");
    until("it is closed", || {
        let closed = work.http.deleted();
        closed.iter().any(|one| one == "session-1").then_some(())
    });
    let (stage, _http) = work.finish();
    assert!(unclosed(&stage).is_empty());
}
