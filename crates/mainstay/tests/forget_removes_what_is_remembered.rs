//! `forget` by name, of all, and of nobody; `doctor` tells how much there is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;
use std::path::Path;

use mainstay::recollection::{Configuration, Recollection};
use mainstay_core::message::remembered::Remembered;
use support::Home;

/// Remembers an opening of a server that was started with an argument.
fn remember(home: &Home, server: &str, argument: &str) {
    let configuration = Configuration {
        argv: &[server.into(), argument.into()],
        cwd: Path::new("/"),
        env: &[],
    };
    let mut remembered = Remembered::default();
    remembered.learn_opening(1, br#"{"protocolVersion":"2025-11-25"}"#);
    Recollection::of(&home.paths().record(), server, &configuration)
        .save(&[], &remembered)
        .unwrap();
}

/// What `doctor` says about records.
fn doctor(home: &Home) -> String {
    let shown = home.mainstay(&["doctor"]).stdout;
    let line = shown.lines().find(|line| line.contains("  record "));
    line.unwrap().into()
}

#[test]
fn by_name_and_all() {
    let home = Home::new();
    assert_eq!(doctor(&home), "ok       record  nothing remembered yet");
    for (server, argument) in [("fetch", "a"), ("fetch", "b"), ("play", "a")] {
        remember(&home, server, argument);
    }
    std::fs::write(
        home.paths()
            .record()
            .path()
            .join(format!("{:032x}.json", 7)),
        "torn",
    )
    .unwrap();
    assert_eq!(
        doctor(&home),
        "ok       record  4 configurations remembered with 2 KiB"
    );

    let told = home.mainstay(&["forget", "ftech"]);
    assert_eq!(
        (told.stderr.as_str(), told.code),
        (
            "error: nothing is remembered of a server called `ftech`\nhint: did you mean `fetch`?\n",
            Some(1)
        )
    );
    let told = home.mainstay(&["forget", "fetch"]);
    assert_eq!(
        (told.stdout.as_str(), told.code),
        ("forgot 2 records with 2 KiB\n", Some(0))
    );
    assert_eq!(home.mainstay(&["forget", "fetch"]).code, Some(1));
    let told = home.mainstay(&["forget", "--all", "--json"]).json();
    assert_eq!(told["records"], 2);
    let left = std::fs::read_dir(home.paths().record().path()).unwrap();
    assert_eq!(
        left.count(),
        0,
        "what was learned of environments is forgotten, too"
    );
    let told = home.mainstay(&["forget", "--all"]);
    assert_eq!(
        (told.stdout.as_str(), told.code),
        ("nothing was remembered\n", Some(0))
    );
}

#[test]
fn whom_must_be_said() {
    let home = Home::new();
    for arguments in [&["forget"][..], &["forget", "x", "--all"]] {
        let told = home.mainstay(arguments);
        assert_eq!(told.code, Some(2), "{}", told.stderr);
    }
    let told = home.mainstay(&["forget", "x"]);
    assert_eq!(
        told.stderr,
        "error: nothing is remembered of a server called `x`\nhint: nor of any other\n"
    );
}
