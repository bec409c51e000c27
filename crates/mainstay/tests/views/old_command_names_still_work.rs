//! `debts`, `debts pay` and `forget` are the old names of `sessions`, `sessions close` and `cache clear`.
//! guards: Scripts that call `debts`, `debts pay` or `forget` work as before.

use super::cache_is_listed_and_cleared::remember;
use crate::support::home::Home;

#[test]
fn debts_lists_and_closes_sessions() {
    let home = Home::new();
    for (old, new) in [
        (&["debts"][..], &["sessions"][..]),
        (&["debts", "--json"], &["sessions", "--json"]),
        (&["debts", "pay"], &["sessions", "close"]),
    ] {
        let (old, new) = (home.mainstay(old), home.mainstay(new));
        assert_eq!((old.code, &old.stderr), (Some(0), &new.stderr));
        assert_eq!(old.stdout, new.stdout);
    }
    let old = home.mainstay(&["debts", "pay", "--json"]).json();
    assert_eq!((&old["paid"], &old["closed"]), (&0.into(), &0.into()));
    let new = home.mainstay(&["sessions", "close", "--json"]).json();
    assert!(new.get("paid").is_none(), "{new}");
    let all = [
        "debts",
        "pay",
        "--wait",
        "--url",
        "http://h/mcp",
        "--header",
        "a: b",
    ];
    assert_eq!(home.mainstay(&all).code, Some(0));
}

#[test]
fn forget_clears_one_server_or_all() {
    let home = Home::new();
    for (server, argument) in [("fetch", "a"), ("fetch", "b"), ("play", "a")] {
        remember(&home, server, argument);
    }
    assert_eq!(home.mainstay(&["forget", "ftech"]).code, Some(1));
    let forgotten = home.mainstay(&["forget", "fetch", "--json"]).json();
    assert_eq!(forgotten["records"], 2, "{forgotten}");
    assert_eq!(home.mainstay(&["forget", "fetch"]).code, Some(1));
    let forgotten = home.mainstay(&["forget", "--all", "--json"]).json();
    assert_eq!(forgotten["records"], 1, "{forgotten}");
    assert_eq!(home.mainstay(&["forget", "--all"]).code, Some(0));
}

/// `cache clear` without a name removes everything; the old command wants to be told.
#[test]
fn forget_needs_a_name_or_all() {
    let home = Home::new();
    for words in [&["forget"][..], &["forget", "x", "--all"]] {
        let refused = home.mainstay(words);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    }
}
