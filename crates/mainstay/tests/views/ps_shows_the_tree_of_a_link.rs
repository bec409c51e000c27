//! `ps` shows a living link with its whole tree, a link whose owners were killed as dead, and why a server was given up.
//! guards: `ps` shows the whole tree of a link, a link without owners as dead, and why a server was given up.

use mainstay_protocol::event::{Abandoned, Seen, What};
use mainstay_protocol::ids::LinkId;
use mainstay_store::ledger::Ledger;
use mainstay_store::registry::Entry;

use crate::support::home::{FakeTree, Home, card, seen};

#[test]
fn ps_shows_a_running_and_a_dead_link() {
    let home = Home::new();
    let paths = home.paths();
    let tree = FakeTree::start(&[]);
    let live = Entry::create(&paths, LinkId(0xab)).unwrap();
    let mut alive = card(0xab, "playwright");
    alive.keeper = Some(seen(tree.keeper));
    alive.server = Some(seen(tree.server));
    alive.client = Some(Seen {
        comm: "claude".into(),
        ..seen(std::process::id() as i32)
    });
    live.write(&alive).unwrap();
    drop(Entry::create(&paths, LinkId(0xcd)).map(|dead| dead.write(&card(0xcd, "zed"))));

    let shown = home.mainstay(&["ps", "--json"]);
    let rows = shown.json();
    assert_eq!(shown.code, Some(0));
    let play = &rows[0];
    assert_eq!(
        (&play["server"], &play["state"], &play["pid"]),
        (&"playwright".into(), &"ready".into(), &tree.server.into())
    );
    assert_eq!(
        (&play["processes"], &play["keeper"]),
        (&2.into(), &tree.keeper.into())
    );
    assert!(play["rss_kib"].as_u64().unwrap() > 0);
    assert!(play["uptime_ms"].is_u64());
    assert!(play.get("tree").is_none());
    assert_eq!(
        (&rows[1]["server"], &rows[1]["state"], &rows[1]["processes"]),
        (&"zed".into(), &"dead".into(), &0.into())
    );

    let below_rows = home.mainstay(&["ps", "--tree", "--json"]).json();
    let below: Vec<(i64, u64)> = below_rows[0]["tree"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| {
            (
                process["pid"].as_i64().unwrap(),
                process["depth"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        below,
        [(i64::from(tree.server), 0), (i64::from(tree.child), 1)]
    );

    assert_eq!(play["short_id"], "000000a");
    assert_eq!(
        play["client_directory"].as_str(),
        std::env::current_dir().unwrap().to_str()
    );
    assert_eq!(rows[1]["trouble"]["command"], "mainstay doctor");

    let table = home.outcome(home.command(&["ps", "--tree"]).env("COLUMNS", "80"));
    let lines: Vec<Vec<&str>> = table
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0],
        ["NAME", "STATE", "MEMORY", "UPTIME", "ID", "COMMAND"]
    );
    let me = std::process::id().to_string();
    assert_eq!(lines[1][..2], ["claude", &me]);
    assert_eq!(lines[2][..2], ["playwright", "ready"]);
    assert!(lines[2].contains(&"000000a"), "{table:?}");
    let (server, child) = (tree.server.to_string(), tree.child.to_string());
    assert_eq!(lines[3][..2], ["└", &server]);
    assert_eq!(lines[4][..2], ["└", &child]);
    assert_eq!(lines[4][lines[4].len() - 2..], ["sleep", "1000"]);
    assert_eq!(lines[5][..2], ["no", "client"]);
    assert_eq!(lines[6][..5], ["zed", "dead", "-", "-", "000000c"]);
    assert!(
        table
            .stdout
            .contains("its mainstay processes were killed: mainstay doctor\n"),
        "{table:?}"
    );
    assert!(table.stdout.contains("\n2 servers, "), "{table:?}");
    assert!(
        table.stdout.lines().all(|line| line.chars().count() <= 80),
        "{table:?}"
    );
    let wide = home.mainstay(&["ps", "--wide"]).stdout;
    for title in ["LEASE", "SWAP", "PID", "PROCS", "TIER"] {
        assert!(wide.contains(title), "{wide}");
    }
}

#[test]
fn ps_says_why_a_server_was_given_up_and_what_to_type() {
    let home = Home::new();
    let paths = home.paths();
    let entry = Entry::create(&paths, LinkId(0x2c76_0000)).unwrap();
    let mut crash = card(0x2c76_0000, "crash");
    crash.state = "abandoned".into();
    crash.started_at = "2026-01-01T00:00:00.000Z".into();
    entry.write(&crash).unwrap();
    let given_up = Abandoned {
        deaths: 5,
        failed_starts: 0,
        window_ms: 60_000,
        last: "exit code 1".into(),
        changed: None,
        probe_ms: 60_000,
    };
    let mut ledger = Ledger::open(&paths);
    ledger.record(LinkId(0x2c76_0000), "crash", What::Abandoned(given_up));
    let shown = home.mainstay(&["ps"]).stdout;
    let row = shown.lines().find(|line| line.contains("crash  abandoned"));
    let row = row.unwrap_or_else(|| panic!("{shown}"));
    assert!(row.contains("  2c76  "), "{shown}");
    assert!(
        row.ends_with("  5 deaths in 1 min: mainstay why crash"),
        "{shown}"
    );
    let rows = home.mainstay(&["ps", "--json"]).json();
    assert_eq!(rows[0]["trouble"]["reason"], "5 deaths in 1 min");
}
