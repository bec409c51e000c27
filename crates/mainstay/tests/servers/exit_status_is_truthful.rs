//! We exit with the server's own status: its code, or 128 + n for a signal. If a server dies and the session goes on, the status
//! of the last generation counts.
//! guards: The exit status of `mainstay run` is that of the last server.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;

use mainstay_testkit::built::under_test;
use mainstay_testkit::client::{Client, Launch};
use mainstay_testkit::stage::{Stage, run};
use serde_json::{Value, json};

fn open(stage: &Stage, habits: &[&str]) -> Client {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    Client::open(stage, &run(mainstay, &[], stage.unruly(habits)))
}

/// A client that ignores SIGCHLD passes that on to the processes it starts. Their children cannot be waited for.
#[test]
fn the_exit_status_is_true_under_a_client_that_ignores_sigchld() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let mut argv: Vec<OsString> = ["sh", "-c", "trap '' CHLD; exec \"$@\"", "sh"]
        .iter()
        .map(Into::into)
        .collect();
    let server = ["sh", "-c", "read line; sh -c 'exit 3'; exit $((40 + $?))"];
    argv.extend(run(mainstay, &[], server.iter().map(Into::into).collect()));
    let mut client = Launch::new(&stage, &argv).start();
    let (status, _) = client.finish();
    assert_eq!(status.code(), Some(43), "{}", client.stderr_text());
    stage.census.assert_empty();
}

#[test]
fn the_exit_status_after_a_clean_end_is_0() {
    for code in ["0", "3", "77", "255"] {
        let stage = Stage::new();
        let (status, rest) = open(&stage, &["--exit-code", code]).finish();
        assert_eq!(
            status.code().map(|code| code.to_string()).as_deref(),
            Some(code)
        );
        assert_eq!(rest, b"");
        stage.census.assert_empty();
        let exit = stage.event("exit");
        assert_eq!(
            exit["status"],
            json!({"code": code.parse::<i32>().unwrap()})
        );
    }
}

#[test]
fn the_exit_status_is_that_of_the_last_generation() {
    let stage = Stage::new();
    let mut client = open(&stage, &["--exit-code", "5"]);
    let answer = client.wire.call("crash", &json!({"signal": 9})).unwrap();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    client.wire.call("pid", &json!({})).unwrap();
    let (status, rest) = client.finish();
    assert_eq!((status.code(), rest), (Some(5), Vec::new()));
    stage.census.assert_empty();
}

#[test]
fn the_exit_status_without_a_restart_is_that_of_the_dead_server() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let options = ["--restart-budget", "1"];
    let argv = run(mainstay, &options, stage.unruly::<&str>(&[]));
    let mut client = Client::open(&stage, &argv);
    client.wire.call("crash", &json!({"signal": 11})).unwrap();
    stage.event("abandoned");
    let (status, rest) = client.finish();
    assert_eq!((status.code(), rest), (Some(128 + 11), Vec::new()));
    stage.census.assert_empty();
}

#[test]
fn half_a_line_is_not_an_answer() {
    let stage = Stage::new();
    let mut client = open(&stage, &["--die-mid-line"]);
    let id = client
        .wire
        .ask("tools/call", &json!({"name": "pid"}))
        .unwrap();
    let line = client.wire.line().unwrap().expect("the pipe stays open");
    let answer: Value = serde_json::from_slice(&line).expect("a whole line");
    assert_eq!(answer["id"], id);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let (status, rest) = client.finish();
    assert_eq!((status.code(), rest), (Some(0), Vec::new()));
    stage.census.assert_empty();
}

#[test]
fn the_exit_status_of_a_killed_shim_is_its_signal() {
    let stage = Stage::new();
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let argv = run(
        mainstay,
        &["--grace-eof", "200ms", "--linger", "0"],
        stage.unruly::<&str>(&[]),
    );
    for signal in [
        rustix::process::Signal::TERM,
        rustix::process::Signal::INT,
        rustix::process::Signal::HUP,
    ] {
        let mut client = Launch::new(&stage, &argv).start();
        client.wire.initialize().unwrap();
        mainstay_os::identity::Handle::open(client.who)
            .unwrap()
            .signal(signal)
            .unwrap();
        let status = client.wait();
        let told = status
            .signal()
            .or_else(|| status.code().map(|code| code - 128));
        assert_eq!(told, Some(signal.as_raw()), "{status:?}");
        stage.census.assert_empty();
    }
}
