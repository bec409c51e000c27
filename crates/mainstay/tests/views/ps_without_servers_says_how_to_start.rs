//! No server runs, or none in a lease: `ps` prints one friendly line on stderr and empty data on stdout.
//! guards: `ps` without servers is not an error and prints nothing on stdout.

use mainstay_protocol::ids::LinkId;
use mainstay_store::registry::Entry;

use crate::support::home::{Home, card, outcome};

#[test]
fn ps_without_servers_is_not_an_error() {
    let home = Home::new();
    assert_eq!(
        home.mainstay(&["ps"]),
        outcome(
            "",
            "no servers: in your client's config, replace COMMAND by `mainstay run -- COMMAND`\n",
            0
        )
    );
    assert_eq!(home.mainstay(&["ps", "--json"]), outcome("[]\n", "", 0));
    assert!(
        !home.path().join(".local").exists(),
        "looking writes nothing"
    );
}

#[test]
fn an_empty_lease_beside_other_servers_is_told_as_such() {
    let home = Home::new();
    let entry = Entry::create(&home.paths(), LinkId(0xab)).unwrap();
    entry.write(&card(0xab, "playwright")).unwrap();
    assert_eq!(
        home.mainstay(&["ps", "--lease", "job-17"]),
        outcome(
            "",
            "no server is in the lease `job-17`; 1 server runs in no lease or in another one: `mainstay ps` lists them\n",
            0
        )
    );
}
