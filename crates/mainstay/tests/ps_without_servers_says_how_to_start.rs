//! Nobody runs: one friendly line on stderr, and empty data on stdout.

mod support;
use support::{Home, outcome};

#[test]
fn an_empty_list_is_no_error() {
    let home = Home::new();
    assert_eq!(
        home.mainstay(&["ps"]),
        outcome(
            "",
            "no servers: start one with `mainstay run -- COMMAND` in place of COMMAND in a client's config\n",
            0
        )
    );
    assert_eq!(home.mainstay(&["ps", "--json"]), outcome("[]\n", "", 0));
    assert!(
        !home.path().join(".local").exists(),
        "looking writes nothing"
    );
}
