//! The server gets the arguments, environment, directory and umask that its client set. Nothing of ours leaks into it: no
//! descriptor, no signal mask, no ignored signal.
//! guards: A server gets exactly what its client gave, and nothing of ours.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use mainstay_protocol::ids::TAG_VARIABLE;
use mainstay_testkit::built::{under_test, unruly};
use mainstay_testkit::client::{Carrier, Launch};
use mainstay_testkit::stage::{Stage, run};
use serde_json::{Value, json};

fn given(stage: &Stage, carrier: Carrier, server: Vec<OsString>, behind: &[&str]) -> Value {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let mut argv: Vec<OsString> = behind.iter().map(Into::into).collect();
    argv.extend(run(mainstay, &[], server));
    fs::create_dir_all(stage.path("a project")).expect("the HOME takes a directory");
    let mut client = Launch::new(stage, &argv)
        .carrier(carrier)
        .with(|command| {
            command
                .current_dir(stage.path("a project"))
                .env(
                    "PATH",
                    unruly().parent().expect("a program is in a directory"),
                )
                .env("GREETING", "grüß\tGott=1")
                .env("EMPTY", "")
                .env("_", "underscore")
        })
        .start();
    client.wire.initialize().expect("the opening is answered");
    let given = client
        .wire
        .call("env", &json!({}))
        .expect("the call is answered");
    assert!(client.finish().0.success());
    given
}

#[test]
fn the_server_has_the_clients_arguments_environment_and_directory() {
    let stage = Stage::new();
    let words = [
        "--mark",
        stage.census.mark(),
        "--stderr",
        "",
        "--stderr",
        "two words \"quoted\" $HOME *",
    ];
    // Found on the PATH, with its name as it was given.
    let mut server: Vec<OsString> = vec!["unruly".into()];
    server.extend(words.iter().map(Into::into));
    let given = given(&stage, Carrier::Pipes, server, &[]);
    let mut argv = vec!["unruly"];
    argv.extend(words);
    assert_eq!(given["argv"], json!(argv));
    assert_eq!(given["cwd"], json!(stage.path("a project")));
    let mut environment: BTreeMap<String, String> =
        serde_json::from_value(given["env"].clone()).unwrap();
    let tag = environment
        .remove(TAG_VARIABLE)
        .expect("the tree is tagged");
    assert!(tag.parse::<mainstay_protocol::ids::Tag>().is_ok(), "{tag}");
    let expected: BTreeMap<String, String> = [
        ("HOME", stage.home().to_str().unwrap()),
        ("PATH", unruly().parent().unwrap().to_str().unwrap()),
        ("MAINSTAY_TEST", stage.census.mark()),
        ("GREETING", "grüß\tGott=1"),
        ("EMPTY", ""),
        ("_", "underscore"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    assert_eq!(environment, expected);
    stage.census.assert_empty();
}

#[test]
fn the_server_has_the_clients_umask_and_descriptors() {
    for carrier in [Carrier::Pipes, Carrier::Sockets] {
        let stage = Stage::new();
        // The client also leaks one of its descriptors to us. The server does not get that either.
        let behind = [
            "/bin/sh",
            "-c",
            "umask 0027; exec 7</dev/null; exec \"$@\"",
            "sh",
        ];
        let given = given(&stage, carrier, stage.unruly::<&str>(&[]), &behind);
        assert_eq!(given["umask"], "0027");
        let fds: Vec<i64> = given["fds"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|fd| fd[0].as_i64())
            .collect();
        assert_eq!(fds, [0, 1, 2], "{}", given["fds"]);
        assert_eq!(
            given["session"], given["pid"],
            "it leads a session of its own"
        );
        stage.census.assert_empty();
    }
}

/// A keeper runs with its own scheduling policy. The server is scheduled as its client was.
#[test]
fn the_server_has_the_clients_scheduling_policy() {
    const USUAL: u32 = 0;
    const BATCH: u32 = 3;
    let stage = Stage::new();
    let given = given(&stage, Carrier::Pipes, stage.unruly::<&str>(&[]), &[]);
    assert_eq!(given["policy"], USUAL);
    assert_eq!(given["policy_of_the_keeper"], BATCH);
    stage.census.assert_empty();
}

#[test]
fn the_server_has_the_clients_signal_mask_and_ignored_signals() {
    let stage = Stage::new();
    // A Rust program ignores SIGPIPE before its main. A shell's `cat` shows what was really inherited.
    let status = stage.path("status");
    let script = format!(
        "/bin/cat /proc/self/status > {}; exec \"$@\"",
        status.display()
    );
    let mut server: Vec<OsString> = ["/bin/sh", "-c", &script, "sh"]
        .iter()
        .map(Into::into)
        .collect();
    server.extend(stage.unruly::<&str>(&[]));
    given(&stage, Carrier::Pipes, server, &[]);
    let status = fs::read_to_string(status).unwrap();
    let field = |name: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    assert_eq!(field("SigBlk:"), 0);
    // Signals that the client itself ignores (nohup, a CI runner) are its own choice, so they are passed on.
    let ours = fs::read_to_string("/proc/self/status").unwrap();
    let ours = ours
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap();
    let ours = u64::from_str_radix(ours.trim(), 16).unwrap();
    let pipe = 1 << (13 - 1);
    assert_eq!(field("SigIgn:") & !(ours & !pipe), 0);
    stage.census.assert_empty();
}
