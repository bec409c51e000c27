//! A link that lives is shown with its whole tree; one whose owners were killed is shown as dead.

mod support;
use mainstay::registry::Entry;
use mainstay_core::event::Seen;
use mainstay_core::ids::LinkId;
use support::{FakeTree, Home, card, seen};

#[test]
fn the_living_and_the_dead() {
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

    let rows = home.mainstay(&["ps", "--tree", "--json"]).json();
    let below: Vec<(i64, u64)> = rows[0]["tree"]
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

    let table = home.mainstay(&["ps", "--tree"]).stdout;
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0],
        [
            "SERVER", "STATE", "CLIENT", "TIER", "PID", "TREE", "RSS", "SWAP", "UPTIME"
        ]
    );
    let server = tree.server.to_string();
    assert_eq!(
        lines[1][..6],
        ["playwright", "ready", "claude", "subreaper", &server, "2"]
    );
    assert_eq!(lines[2][..2], ["└", &server]);
    let child = tree.child.to_string();
    assert_eq!(lines[3][..2], ["└", &child]);
    assert_eq!(lines[3][lines[3].len() - 2..], ["sleep", "1000"]);
    assert_eq!(lines[4][..6], ["zed", "dead", "-", "subreaper", "-", "0"]);
    assert!(
        table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
}
