//! `mainstay ps`: shows all links of this user, with one pass over the process table.

mod command;
mod live;
mod trouble;
pub mod view;

use std::cmp::Reverse;

use clap::{Args, ValueEnum};
use mainstay_os::census::{self, Stat};
use mainstay_os::{clock, identity};
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::{LinkId, Realm};
use mainstay_protocol::redact;
use mainstay_protocol::tier::{Tier, WhyNot};
use mainstay_report::measure::count;
use mainstay_report::short_id::short;
use mainstay_report::{Exit, Report, talk};
use mainstay_store::paths::Paths;
use mainstay_store::registry::trees::{self, ProcessTrees, TreeNode};
use mainstay_store::registry::{self, Card, Listed};
use serde::Serialize;

use mainstay_observe::reap::{self, Server, Wanted};
use mainstay_report::printer::Printer;
use trouble::Trouble;
use view::{Other, Screen};

/// The options of `ps`.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[command(after_help = "Examples:
  mainstay ps
  mainstay ps --watch --sort memory    redrawn every second, the largest first
  mainstay ps --tree                   with the processes of each server
  mainstay ps --all                    also servers that run without mainstay, and orphans
  mainstay ps --lease job-17
  mainstay ps --json | jq '.[] | select(.rss_kib > 500000) | .server'

Servers are listed below their client. ID is enough for `mainstay stop`, `restart` and `tap`. MEMORY and
SWAP are the sums of all processes of a server, PROCS is their number. TIER is the way to contain them;
--tree also shows why no stronger one is used. SWAP is left out if it is 0, TIER if it is the same
everywhere, PID and PROCS below 100 columns. States other than ready are explained below the list.")]
pub struct Options {
    /// Show the processes of each server, and why no stronger tier is used
    #[arg(long, short)]
    pub tree: bool,
    /// Also servers that were not started through mainstay; a terminal shows them without this option
    #[arg(long, conflicts_with = "lease")]
    pub all: bool,
    /// Only the servers of this lease
    #[arg(long, value_name = "NAME")]
    pub lease: Option<String>,
    /// What comes first: the most `memory`, the longest `uptime`, or by `name` of the server or `client`
    #[arg(long, value_name = "ORDER", hide_possible_values = true)]
    pub sort: Option<Sort>,
    /// Show all columns and cut nothing
    #[arg(long)]
    pub wide: bool,
    /// Redraw every second, until q or Ctrl-C; needs a terminal
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The orders of `--sort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    Memory,
    Uptime,
    Name,
    Client,
}

/// One link: one client with one server.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The id of the link.
    pub id: LinkId,
    /// The first digits of the id: enough for commands, as long as no other link begins like this.
    pub short_id: String,
    /// The server's name.
    pub server: String,
    /// The lease that the server was started in.
    pub lease: Option<String>,
    /// The state of the link, one of the [states](states.md): `dead` if guard and keeper are gone, `elsewhere` if it runs in another pid or time namespace.
    pub state: String,
    /// The number of this run of the server: 1 for the first, 2 after one restart.
    pub generation: u32,
    /// Why the server does not serve, and which command tells more.
    pub trouble: Option<Trouble>,
    /// The client.
    pub client: Option<Seen>,
    /// The client's working directory, if it can be read.
    pub client_directory: Option<String>,
    /// The tier in use.
    pub tier: Option<Tier>,
    /// Why no stronger tier is used.
    pub why_not: Vec<WhyNot>,
    /// The pid of the server, if it runs.
    pub pid: Option<i32>,
    /// The pid of the keeper, if it runs.
    pub keeper: Option<i32>,
    /// How many processes the server has.
    pub processes: usize,
    /// Resident memory of all of them.
    pub rss_kib: u64,
    /// Swapped-out memory of all of them.
    pub swap_kib: u64,
    /// How long the server process has run.
    pub uptime_ms: Option<u64>,
    /// When the link was started.
    pub started_at: String,
    /// The server command.
    pub argv: Vec<String>,
    /// The directory that the server runs in.
    pub directory: String,
    /// The processes of the server, with `--tree`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<Vec<Process>>,
}

/// One process of a server.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    /// Its pid.
    pub pid: i32,
    /// The pid of its parent.
    pub ppid: i32,
    /// Its depth in the process tree: 0 for the server and for processes that have detached from it.
    pub depth: usize,
    /// Its command line without what looks like a secret, or its short name if the command line cannot be read.
    pub command: String,
    /// Resident memory.
    pub rss_kib: u64,
    /// Swapped-out memory.
    pub swap_kib: u64,
}

/// Runs `mainstay ps`.
pub fn ps(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    if options.watch {
        return live::watch(options, &paths);
    }
    let (rows, unshown) = chosen(options, gather(&paths, options.tree)?);
    let mut printer = Printer::new();
    if options.wide {
        printer = printer.uncut();
    }
    let asked = options.all || (printer.terminal() && !options.json && options.lease.is_none());
    let others = if asked { others() } else { Vec::new() };
    if options.json && options.all {
        printer.json(&Both {
            links: rows,
            others,
        })?;
        return Ok(Exit::Ok);
    }
    if options.json {
        printer.json(&rows)?;
        return Ok(Exit::Ok);
    }
    if rows.is_empty() {
        talk(&none_found(options, unshown));
    }
    let screen = Screen {
        columns: printer.columns(),
        colour: printer.colour(),
        wide: options.wide,
        home: paths.home(),
    };
    let others: Vec<Other> = others.iter().map(Other::from).collect();
    printer.text(&view::render(&rows, &others, screen))?;
    Ok(Exit::Ok)
}

/// The rows that the options ask for, in their order, and how many others there are.
fn chosen(options: &Options, mut rows: Vec<Row>) -> (Vec<Row>, usize) {
    let all = rows.len();
    if options.lease.is_some() {
        rows.retain(|row| row.lease == options.lease);
    }
    if let Some(order) = options.sort {
        sort(&mut rows, order);
    }
    let unshown = all - rows.len();
    (rows, unshown)
}

fn sort(rows: &mut [Row], order: Sort) {
    // Rows with the same key keep the order of their names.
    match order {
        Sort::Memory => rows.sort_by_key(|row| Reverse(row.rss_kib + row.swap_kib)),
        Sort::Uptime => rows.sort_by_key(|row| Reverse(row.uptime_ms)),
        Sort::Name => rows.sort_by(|a, b| a.server.cmp(&b.server)),
        Sort::Client => rows.sort_by_key(|row| {
            let client = row.client.as_ref();
            (
                client.is_none(),
                client.map(|client| (client.comm.clone(), client.who.pid)),
            )
        }),
    }
}

/// What is said if no row is left.
fn none_found(options: &Options, unshown: usize) -> String {
    match &options.lease {
        Some(lease) if unshown > 0 => format!(
            "no server is in the lease `{lease}`; {} in no lease or in another one: `mainstay ps` lists them\n",
            match unshown {
                1 => "1 server runs".into(),
                unshown => format!("{} run", count(unshown, "server")),
            }
        ),
        Some(_) | None => {
            "no servers: in your client's config, replace COMMAND by `mainstay run -- COMMAND`\n"
                .into()
        }
    }
}

/// What `--all --json` prints.
#[derive(Debug, Serialize)]
struct Both {
    /// The links.
    links: Vec<Row>,
    /// Servers that were not started through mainstay.
    others: Vec<Server>,
}

/// Servers that were not started through mainstay. What a script reads from a pipe does not depend on them, unless it asks.
fn others() -> Vec<Server> {
    // The links are shown even if the process table cannot be read.
    let mut others = reap::survey(&Wanted::usual()).unwrap_or_default();
    others.retain(|server| server.speaks_mcp || server.client.is_some());
    others
}

/// All links of this user.
pub fn gather(paths: &Paths, with_tree: bool) -> Result<Vec<Row>, Report> {
    let unreadable = |error| Report::unreadable(paths.run().display(), &error);
    let listed = registry::list(paths).map_err(unreadable)?;
    if listed.is_empty() {
        return Ok(Vec::new());
    }
    let here = identity::realm().map_err(|error| Report::unreadable("/proc", &error))?;
    let cards = listed.iter().filter_map(|one| one.card.as_ref());
    let cards = cards.filter(|card| card.realm == here);
    let table = trees::table(cards).map_err(|error| Report::unreadable("/proc", &error))?;
    let forest = ProcessTrees::new(&table);
    let mut rows: Vec<Row> = listed
        .into_iter()
        .filter_map(|listed| row(listed, &forest, &here, with_tree))
        .collect();
    let ids: Vec<LinkId> = rows.iter().map(|row| row.id).collect();
    let names: Vec<String> = rows.iter().map(|row| row.server.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for row in &mut rows {
        row.short_id = short(row.id, &ids, &names);
        let same = names.iter().filter(|name| **name == row.server);
        let alone = same.count() == 1;
        row.trouble = trouble::of(paths, row, alone);
    }
    Ok(rows)
}

fn row(listed: Listed, forest: &ProcessTrees<'_>, here: &Realm, with_tree: bool) -> Option<Row> {
    let Listed { card, alive, .. } = listed;
    // A link that is being created or removed has no card.
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
    let client = card.client.as_ref().filter(|_| visible);
    let client_directory = client
        .filter(|client| identity::alive(client.who))
        .and_then(|client| census::directory(client.who.pid))
        .map(|path| path.to_string_lossy().into_owned());
    Some(Row {
        client_directory,
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
    /// The fields that come from the card.
    fn of(card: Card) -> Self {
        Self {
            id: card.id,
            short_id: card.id.to_string(),
            server: card.name,
            lease: card.lease,
            state: card.state,
            generation: card.generation,
            trouble: None,
            client: card.client,
            client_directory: None,
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
            directory: card.cwd,
            tree: None,
        }
    }
}

fn process(node: &TreeNode<'_>, with_command: bool) -> Process {
    let Stat { pid, ppid, .. } = *node.stat;
    let memory = census::memory(pid);
    let command = if with_command {
        redact::words(&census::cmdline(pid)).join(" ")
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

#[cfg(test)]
mod tests {
    use super::view::samples::row;
    use super::*;

    fn options(lease: Option<&str>, sort: Option<Sort>) -> Options {
        Options {
            tree: false,
            all: false,
            lease: lease.map(Into::into),
            sort,
            wide: false,
            watch: false,
            json: false,
        }
    }

    #[test]
    fn rows_are_sorted_by_memory_uptime_name_or_client() {
        let mut rows = vec![row("b", 1), row("c", 2), row("a", 3)];
        rows[0].rss_kib = 5;
        rows[1].uptime_ms = None;
        rows[2].client = None;
        for (order, names) in [
            (Sort::Memory, ["c", "a", "b"]),
            (Sort::Uptime, ["b", "a", "c"]),
            (Sort::Name, ["a", "b", "c"]),
            (Sort::Client, ["b", "c", "a"]),
        ] {
            let (sorted, _) = chosen(&options(None, Some(order)), rows.clone());
            let sorted: Vec<&str> = sorted.iter().map(|row| row.server.as_str()).collect();
            assert_eq!(sorted, names, "{order:?}");
        }
    }

    #[test]
    fn an_empty_lease_beside_other_servers_is_told_as_such() {
        let asked = options(Some("job-17"), None);
        let (rows, unshown) = chosen(&asked, vec![row("a", 1), row("b", 2)]);
        assert!(rows.is_empty());
        assert_eq!(
            none_found(&asked, unshown),
            "no server is in the lease `job-17`; 2 servers run in no lease or in another one: `mainstay ps` lists them\n"
        );
        assert!(none_found(&asked, 0).starts_with("no servers: "));
    }
}
