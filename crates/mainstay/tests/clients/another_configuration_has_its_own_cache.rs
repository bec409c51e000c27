//! A cache file belongs to one configuration. With other arguments, another variable, another program file or `--no-cache`, the
//! server itself is asked. A lazy link shows which it was: it starts a server only if the cache has no answer.
//! guards: The cache answers only for the configuration that it was made from.

use std::ffi::OsString;
use std::fs::{self, File};
use std::time::{Duration, UNIX_EPOCH};

use crate::support::play::{self, end, plain, starts};
use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Launch;
use mainstay_testkit::stage::{Source, Stage, run};

/// The server, started through its own program file.
fn server(stage: &Stage, flags: &[&str]) -> Vec<OsString> {
    let program = stage.path("serve");
    if !program.exists() {
        let text = "#!/bin/sh\nexec python3 -S plain.py \"$@\"\n";
        stage.program(&program, Source::Text(text));
        plain(stage, &[]);
    }
    let mut argv = vec![program.into()];
    argv.extend(flags.iter().map(Into::into));
    argv
}

/// Opens a session and ends it. Returns how many servers were started.
fn session(
    stage: &Stage,
    options: &[&str],
    flags: &[&str],
    variable: Option<(&str, &str)>,
) -> usize {
    let variable = variable.map(|(name, value)| (name.to_string(), value.to_string()));
    session_with(stage, options, flags, variable)
}

fn session_with(
    stage: &Stage,
    options: &[&str],
    flags: &[&str],
    variables: impl IntoIterator<Item = (String, String)>,
) -> usize {
    let before = starts(stage);
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let argv = run(mainstay, options, server(stage, flags));
    let mut client = Launch::new(stage, &argv)
        .with(|command| command.envs(variables))
        .start();
    client.wire.initialize().unwrap();
    let needed = starts(stage) - before;
    end(client);
    stage.census.assert_empty();
    needed
}

fn age(stage: &Stage, file: &str, seconds: u64) {
    let file = File::options().write(true).open(stage.path(file)).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds))
        .unwrap();
}

#[test]
fn only_the_same_configuration_uses_the_cache() {
    let stage = Stage::new();
    let lazy = ["--lazy"];
    assert_eq!(session(&stage, &lazy, &[], None), 1, "nothing is known yet");
    assert_eq!(session(&stage, &lazy, &[], None), 0, "the same");
    assert_eq!(
        session(&stage, &lazy, &["--more"], None),
        1,
        "other arguments"
    );
    assert_eq!(session(&stage, &lazy, &["--more"], None), 0);
    let account = Some(("PLAIN_TOKEN", "another account"));
    assert_eq!(session(&stage, &lazy, &[], account), 1, "another variable");
    assert_eq!(session(&stage, &lazy, &[], account), 0);
    assert_eq!(
        session(&stage, &lazy, &[], Some(("TERM", "dumb"))),
        0,
        "another terminal"
    );
    age(&stage, "serve", 1_000_000_000);
    assert_eq!(session(&stage, &lazy, &[], None), 1, "another program file");
    assert_eq!(session(&stage, &lazy, &[], None), 0);
}

#[test]
fn no_cache_neither_writes_nor_reads() {
    let stage = Stage::new();
    let without = ["--lazy", "--no-cache"];
    assert_eq!(session(&stage, &without, &[], None), 1);
    let kept =
        || fs::read_dir(stage.path(".local/state/mainstay/cache")).map_or(0, Iterator::count);
    assert_eq!(kept(), 0);
    assert_eq!(
        session(&stage, &["--lazy"], &[], None),
        1,
        "there is nothing to read"
    );
    assert_eq!(kept(), 2, "the record, and what its environment was");
    assert_eq!(session(&stage, &["--lazy"], &[], None), 0);
    assert_eq!(session(&stage, &without, &[], None), 1, "it is not read");
}

#[test]
fn variables_that_differ_in_each_session_do_not_count() {
    let stage = Stage::new();
    let lazy = ["--lazy"];
    let known = |n: usize| {
        let variables = [
            ("CLAUDE_CODE_MESSAGING_TOKEN", format!("token {n}")),
            ("CLAUDE_CODE_MESSAGING_SOCKET", format!("/tmp/{n}.sock")),
            ("CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS", format!("id {n}")),
            ("CLAUDE_CODE_ENTRYPOINT", format!("entry {n}")),
        ];
        variables.map(|(name, value)| (name.to_string(), value))
    };
    let starts: Vec<usize> = (0..3)
        .map(|n| session_with(&stage, &lazy, &[], known(n)))
        .collect();
    assert_eq!(starts, [1, 0, 0], "the profile of the client knows");
    let unknown = |n: usize| [("SOME_SESSION".to_string(), n.to_string())];
    let starts: Vec<usize> = (0..6)
        .map(|n| session_with(&stage, &lazy, &["--x"], unknown(n)))
        .collect();
    assert_eq!(starts, [1, 1, 1, 0, 0, 0], "three openings have shown it");
    let credential = |n: usize| [("SOME_TOKEN".to_string(), n.to_string())];
    let starts: Vec<usize> = (0..5)
        .map(|n| session_with(&stage, &lazy, &["--y"], credential(n)))
        .collect();
    assert_eq!(starts, [1; 5], "that may be another account each time");
}

#[test]
fn another_script_of_the_same_interpreter_has_its_own_cache() {
    let stage = Stage::new();
    let session = || {
        let before = starts(&stage);
        end(play::open(&stage, &["--lazy"], &[]));
        starts(&stage) - before
    };
    assert_eq!((session(), session()), (1, 0));
    age(&stage, "plain.py", 1_000_000_000);
    assert_eq!((session(), session()), (1, 0));
    stage.census.assert_empty();
}
