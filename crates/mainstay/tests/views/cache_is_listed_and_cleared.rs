//! `cache list` shows what is in the cache; `cache clear` removes all of it, or the servers that are named. `doctor` counts.
//! guards: `cache clear` removes exactly the servers that the user names.

use std::path::Path;

use mainstay_protocol::message::lists::Which;
use mainstay_protocol::message::remembered::Remembered;
use mainstay_store::cache::{CacheFile, Configuration};

use crate::support::home::Home;

/// Fills the cache for a server that was started with this argument.
pub fn remember(home: &Home, server: &str, argument: &str) {
    let configuration = Configuration {
        argv: &[server.into(), argument.into()],
        cwd: Path::new("/"),
        env: &[],
    };
    let mut remembered = Remembered::default();
    remembered.learn_opening(1, br#"{"protocolVersion":"2025-11-25"}"#);
    remembered.learn_list(
        Some(1),
        Which::Tools,
        br#"{"tools":[{"name":"a"},{"name":"b"}]}"#,
    );
    CacheFile::of(&home.paths().cache(), server, &configuration)
        .save(&[], &remembered)
        .unwrap();
}

/// The line of `doctor` about the cache.
fn doctor(home: &Home) -> String {
    let shown = home.mainstay(&["doctor", "--verbose"]).stdout;
    let line = shown.lines().find(|line| line.contains("  cache "));
    line.unwrap().into()
}

fn files(home: &Home) -> usize {
    std::fs::read_dir(home.paths().cache().path())
        .unwrap()
        .count()
}

#[test]
fn the_list_shows_server_command_age_size_and_contents() {
    let home = Home::new();
    let empty = home.mainstay(&["cache", "list"]);
    assert_eq!(
        (empty.stdout.as_str(), empty.code),
        ("The cache is empty.\n", Some(0))
    );
    remember(&home, "fetch", "--token=hunter2");
    let text = home.mainstay(&["cache", "list"]).stdout;
    assert!(text.contains("fetch --token=[hidden]"), "{text}");
    assert!(text.contains("1 handshake, 2 tools"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    let json = home.mainstay(&["cache", "list", "--json"]).json();
    let kinds = ["answers", "variables"].map(|kind| {
        let all = json.as_array().unwrap();
        all.iter().filter(|one| one["kind"] == kind).count()
    });
    assert_eq!(kinds, [1, 1], "{json}");
    let mut answers = json.as_array().unwrap().iter();
    let answers = answers.rfind(|one| one["kind"] == "answers");
    let answers = answers.unwrap();
    assert_eq!(answers["server"], "fetch");
    assert_eq!(answers["contents"]["tools"], 2);
    let file = answers["file"].as_str().unwrap();
    assert!(file.contains("/.local/state/mainstay/cache/"), "{file}");
}

#[test]
fn named_servers_or_all_are_cleared() {
    let home = Home::new();
    assert!(
        doctor(&home).ends_with("cache      empty"),
        "{}",
        doctor(&home)
    );
    for (server, argument) in [("fetch", "a"), ("fetch", "b"), ("play", "a"), ("web", "a")] {
        remember(&home, server, argument);
    }
    let torn = home.paths().cache().path().join(format!("{:032x}.json", 7));
    std::fs::write(torn, "torn").unwrap();
    assert!(
        doctor(&home).contains("5 configurations with "),
        "{}",
        doctor(&home)
    );

    let unknown = home.mainstay(&["cache", "clear", "play", "ftech"]);
    assert_eq!(
        (unknown.stderr.as_str(), unknown.code),
        (
            "error: the cache has nothing of a server called `ftech`\nhint: did you mean `fetch`?\n",
            Some(1)
        )
    );
    assert_eq!(files(&home), 9, "a wrong name removes nothing");
    let cleared = home
        .mainstay(&["cache", "clear", "fetch", "play", "--json"])
        .json();
    assert_eq!(cleared["configurations"], 3, "{cleared}");
    assert_eq!(home.mainstay(&["cache", "clear", "fetch"]).code, Some(1));
    let cleared = home.mainstay(&["cache", "clear"]);
    assert!(
        cleared.stdout.starts_with("removed 2 configurations with "),
        "{}",
        cleared.stdout
    );
    assert_eq!(files(&home), 0, "the changing variables are removed, too");
    let cleared = home.mainstay(&["cache", "clear"]);
    assert_eq!(
        (cleared.stdout.as_str(), cleared.code),
        ("the cache was empty\n", Some(0))
    );
    let unknown = home.mainstay(&["cache", "clear", "x"]);
    assert_eq!(
        unknown.stderr,
        "error: the cache has nothing of a server called `x`\nhint: the cache is empty\n"
    );
}

#[test]
fn clear_also_removes_the_cache_of_an_earlier_version() {
    let home = Home::new();
    remember(&home, "fetch", "a");
    let old = home.paths().old_cache().make().unwrap();
    old.replace(&format!("{:032x}.json", 7), b"earlier")
        .unwrap();
    let cleared = home.mainstay(&["cache", "clear", "--json"]).json();
    assert_eq!(cleared["configurations"], 2, "{cleared}");
    assert!(!home.paths().old_cache().path().exists());
}
