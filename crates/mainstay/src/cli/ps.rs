//! `mainstay ps`: every link of this user, by one pass over the process table.

use std::collections::HashMap;

use clap::Args;
use mainstay_core::event::Seen;
use mainstay_core::ids::{LinkId, Realm};
use mainstay_core::tier::{Tier, WhyNot};
use mainstay_os::census::{self, Stat};
use mainstay_os::{clock, identity};
use serde::Serialize;

use crate::exit::Exit;
use crate::paths::Paths;
use crate::registry::forest::{Forest, Node};
use crate::registry::{self, Card, Listed};
use crate::report::{Report, plain, talk};
use crate::view::measure::{memory, span};
use crate::view::paint::Tone;
use crate::view::printer::Printer;
use crate::view::table::{Cell, Column, Table};

/// What `ps` was told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay ps
  mainstay ps --tree
  mainstay ps --lease job-17
  mainstay ps --json | jq '.[] | select(.rss_kib > 500000) | .server'

TREE is the number of processes, RSS and SWAP are sums over them. With --tree also
why no stronger tier is in force.")]
pub struct Options {
    /// Show the processes below each server, and why no stronger tier is in force
    #[arg(long, short)]
    pub tree: bool,
    /// Only the servers of this lease
    #[arg(long, value_name = "NAME")]
    pub lease: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// One link.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The link.
    pub id: LinkId,
    /// The server's name.
    pub server: String,
    /// The lease that it was started in.
    pub lease: Option<String>,
    /// Its state; `dead` if guard and keeper are gone, `elsewhere` if it runs in another pid or time namespace.
    pub state: String,
    /// Which life of the server this is.
    pub generation: u32,
    /// Whom it serves.
    pub client: Option<Seen>,
    /// The tier in force.
    pub tier: Option<Tier>,
    /// Why no stronger one is.
    pub why_not: Vec<WhyNot>,
    /// The server process, if it lives.
    pub pid: Option<i32>,
    /// The keeper, if it lives.
    pub keeper: Option<i32>,
    /// How many processes the tree has.
    pub processes: usize,
    /// Resident memory of the tree.
    pub rss_kib: u64,
    /// Swapped-out memory of the tree.
    pub swap_kib: u64,
    /// How long the server process has lived.
    pub uptime_ms: Option<u64>,
    /// When the link began.
    pub started_at: String,
    /// The server command.
    pub argv: Vec<String>,
    /// The tree, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<Vec<Process>>,
}

/// One process of a tree.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    /// Its pid.
    pub pid: i32,
    /// Its parent now.
    pub ppid: i32,
    /// 0 for the server and for whoever detached from it.
    pub depth: usize,
    /// Its command line, or its short name if that cannot be read.
    pub command: String,
    /// Resident memory.
    pub rss_kib: u64,
    /// Swapped-out memory.
    pub swap_kib: u64,
}

/// Shows the links.
pub fn ps(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let mut rows = gather(&paths, options.tree)?;
    if options.lease.is_some() {
        rows.retain(|row| row.lease == options.lease);
    }
    let mut printer = Printer::new();
    if options.json {
        printer.json(&rows)?;
    } else if rows.is_empty() {
        talk(
            "no servers: start one with `mainstay run -- COMMAND` in place of COMMAND in a client's config\n",
        );
    } else {
        let text = render(&rows, printer.columns(), printer.colour());
        printer.text(&text)?;
    }
    Ok(Exit::Ok)
}

/// Every link of this user.
pub fn gather(paths: &Paths, with_tree: bool) -> Result<Vec<Row>, Report> {
    let trouble = |what: String, error: std::io::Error| {
        Report::new(Exit::State, format!("cannot read {what}"))
            .because(plain(&error))
            .hint("`mainstay doctor` looks for the reason")
    };
    let listed = registry::list(paths).map_err(|error| trouble(paths.run().display(), error))?;
    if listed.is_empty() {
        return Ok(Vec::new());
    }
    let table = census::all().map_err(|error| trouble("/proc".into(), error))?;
    let here = identity::realm().map_err(|error| trouble("/proc".into(), error))?;
    let forest = Forest::new(&table);
    Ok(listed
        .into_iter()
        .filter_map(|listed| row(listed, &forest, &here, with_tree))
        .collect())
}

fn row(listed: Listed, forest: &Forest<'_>, here: &Realm, with_tree: bool) -> Option<Row> {
    let Listed { card, alive, .. } = listed;
    // One that is being made or removed has no card.
    let card = card?;
    let visible = card.realm == *here;
    let find = |seen: &Option<Seen>| -> Option<&Stat> {
        forest.find(seen.as_ref().filter(|_| visible)?.who)
    };
    let server = find(&card.server);
    let keeper = find(&card.keeper).map(|stat| stat.pid);
    let nodes = if visible {
        forest.tree(&card)
    } else {
        Vec::new()
    };
    let tree: Vec<Process> = nodes.iter().map(|node| process(node, with_tree)).collect();
    let state = match (alive, visible) {
        (false, _) => "dead".into(),
        (true, false) => "elsewhere".into(),
        (true, true) => card.state.clone(),
    };
    Some(Row {
        id: card.id,
        state,
        pid: server.map(|stat| stat.pid),
        keeper,
        processes: tree.len(),
        rss_kib: tree.iter().map(|process| process.rss_kib).sum(),
        swap_kib: tree.iter().map(|process| process.swap_kib).sum(),
        // Start times count in hundredths of a second since boot.
        uptime_ms: server.map(|stat| clock::since_boot_ms().saturating_sub(stat.start * 10)),
        tree: with_tree.then_some(tree),
        ..Row::of(card)
    })
}

impl Row {
    /// What the card alone says.
    fn of(card: Card) -> Self {
        Self {
            id: card.id,
            server: card.name,
            lease: card.lease,
            state: card.state,
            generation: card.generation,
            client: card.client,
            tier: card.tier,
            why_not: card.why_not,
            pid: None,
            keeper: None,
            processes: 0,
            rss_kib: 0,
            swap_kib: 0,
            uptime_ms: None,
            started_at: card.started_at,
            argv: card.argv,
            tree: None,
        }
    }
}

fn process(node: &Node<'_>, with_command: bool) -> Process {
    let Stat { pid, ppid, .. } = *node.stat;
    let memory = census::memory(pid);
    let command = if with_command {
        census::cmdline(pid).join(" ")
    } else {
        String::new()
    };
    Process {
        pid,
        ppid,
        depth: node.depth,
        command: if command.is_empty() {
            node.stat.comm.clone()
        } else {
            command
        },
        rss_kib: memory.rss_kib,
        swap_kib: memory.swap_kib,
    }
}

fn render(rows: &[Row], columns: usize, colour: bool) -> String {
    let mut count: HashMap<&str, usize> = HashMap::new();
    for row in rows {
        *count.entry(&row.server).or_default() += 1;
    }
    // The id is shown only where the name is not enough.
    let with_id = count.values().any(|&links| links > 1);
    let mut titles = vec![Column::Name("SERVER")];
    titles.extend(with_id.then_some(Column::Number("ID")));
    let with_lease = rows.iter().any(|row| row.lease.is_some());
    titles.extend(with_lease.then_some(Column::Text("LEASE")));
    titles.extend([
        Column::Text("STATE"),
        Column::Text("CLIENT"),
        Column::Text("TIER"),
        Column::Number("PID"),
        Column::Number("TREE"),
        Column::Number("RSS"),
        Column::Number("SWAP"),
        Column::Number("UPTIME"),
    ]);
    let mut table = Table::new(&titles);
    for row in rows {
        let mut cells: Vec<Cell> = vec![row.server.as_str().into()];
        cells.extend(with_id.then(|| row.id.to_string().into()));
        let tone = match row.state.as_str() {
            "ready" => Tone::Good,
            "dead" => Tone::Bad,
            _ => Tone::Warn,
        };
        let or_none = |text: Option<String>| Cell::from(text.unwrap_or_else(|| "-".into()));
        cells.extend(with_lease.then(|| or_none(row.lease.clone())));
        cells.extend([
            Cell::new(row.state.as_str(), tone),
            or_none(row.client.as_ref().map(|client| client.comm.clone())),
            row.tier.map_or("-", Tier::word).into(),
            or_none(row.pid.map(|pid| pid.to_string())),
            row.processes.to_string().into(),
            memory(row.rss_kib).into(),
            memory(row.swap_kib).into(),
            or_none(row.uptime_ms.map(span)),
        ]);
        table.row(cells);
        for why in row.why_not.iter().filter(|_| row.tree.is_some()) {
            table.below(&format!("  {why}"));
        }
        for process in row.tree.iter().flatten() {
            table.below(&format!(
                "{}└ {} {}  {}",
                "  ".repeat(process.depth + 1),
                process.pid,
                memory(process.rss_kib),
                process.command
            ));
        }
    }
    table.render(columns, colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(server: &str, id: u32) -> Row {
        Row {
            id: LinkId(id),
            server: server.into(),
            lease: None,
            state: "ready".into(),
            generation: 1,
            client: Some(crate::samples::seen(4000, "claude")),
            tier: Some(Tier::Subreaper),
            why_not: Vec::new(),
            pid: Some(4711),
            keeper: Some(4700),
            processes: 7,
            rss_kib: 318_464,
            swap_kib: 0,
            uptime_ms: Some(7_500_000),
            started_at: String::new(),
            argv: Vec::new(),
            tree: None,
        }
    }

    #[test]
    fn the_usual_table_fits_eighty_columns() {
        let mut fetch = row("mcp-server-fetch-with-a-long-name", 2);
        fetch.pid = None;
        fetch.client = None;
        fetch.uptime_ms = None;
        fetch.state = "starting".into();
        let text = render(&[row("playwright", 1), fetch], 80, false);
        assert_eq!(
            text,
            "\
SERVER            STATE     CLIENT  TIER        PID  TREE      RSS  SWAP  UPTIME
playwright        ready     claude  subreaper  4711     7  311 MiB     0   2h05m
mcp-server-fetc…  starting  -       subreaper     -     7  311 MiB     0       -
"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn the_lease_is_shown_where_there_is_one() {
        let mut leased = row("playwright", 1);
        leased.lease = Some("job-17".into());
        let text = render(&[leased, row("fetch", 2)], 80, false);
        assert_eq!(
            text,
            "\
SERVER      LEASE   STATE  CLIENT  TIER        PID  TREE      RSS  SWAP  UPTIME
playwright  job-17  ready  claude  subreaper  4711     7  311 MiB     0   2h05m
fetch       -       ready  claude  subreaper  4711     7  311 MiB     0   2h05m
"
        );
    }

    #[test]
    fn the_id_is_shown_where_a_name_is_not_enough() {
        let text = render(&[row("a", 1), row("a", 2)], 80, false);
        assert!(
            text.contains("00000001") && text.contains("00000002"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn a_tree_is_indented_below_its_server() {
        let mut row = row("a", 1);
        let process = |pid, depth| Process {
            pid,
            ppid: 1,
            depth,
            command: "node server.js".into(),
            rss_kib: 2_048,
            swap_kib: 0,
        };
        row.why_not = vec![WhyNot {
            tier: Tier::Scope,
            reason: "no systemd user manager".into(),
        }];
        assert!(!render(std::slice::from_ref(&row), 80, false).contains("scope"));
        row.tree = Some(vec![process(4711, 0), process(4712, 1)]);
        let text = render(&[row], 80, false);
        assert!(
            text.ends_with(
                "\n  not scope: no systemd user manager
  └ 4711 2.0 MiB  node server.js\n    └ 4712 2.0 MiB  node server.js\n"
            ),
            "{text}"
        );
    }
}
