//! `mainstay watch`: servers that come and go, whoever started them.

use clap::{ArgGroup, Args};
use mainstay_os::identity;

use crate::config::quantity;
use crate::exit::Exit;
use crate::report::Report;
use crate::watch::whom::{Client, Whom};
use crate::watch::{self, Until, Wanted};

/// What `watch` was told.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[command(
    group = ArgGroup::new("whom").required(true).args(["pid", "client", "all"]),
    after_help = "Examples:
  mainstay watch 1480540                 the servers of this client, until it ends
  mainstay watch --client claude         of every Claude Code that runs or will
  mainstay watch --all --once            every stdio server of yours that is there now
  mainstay watch --all --for 10m --json | jq 'select(.what == \"gone\")'

A server is told when it comes (NEW) and when it goes (GONE), with its exit status or signal; the
server behind a slow launcher as MOVED. While `sudo mainstay trace-signals` runs, the sender of the
signal is told too. Servers under mainstay are marked. Times are UTC.
Exit code 1: the client ended, and servers of it stayed behind for 5 s (told as LEFT)."
)]
pub struct Options {
    /// The client
    #[arg(value_name = "PID")]
    pub pid: Option<i32>,
    /// Every process that looks like this client: claude, codex, gemini, … or the name of a program
    #[arg(long, value_name = "NAME")]
    pub client: Option<String>,
    /// Every process of yours whose stdin and stdout are another one's pipes or sockets
    #[arg(long)]
    pub all: bool,
    /// Tell who is there, and end
    #[arg(long, conflicts_with = "for_ms")]
    pub once: bool,
    /// End after this time, as in `30s`, `10m`
    #[arg(long = "for", value_name = "TIME", value_parser = quantity::time)]
    pub for_ms: Option<u64>,
    /// Do not ask the kernel to tell of new processes; look every second instead
    #[arg(long)]
    pub no_connector: bool,
    /// Tell on stderr, at the end, what the watching itself has cost
    #[arg(long)]
    pub stats: bool,
    /// One line of JSON each
    #[arg(long)]
    pub json: bool,
}

/// Watches.
pub fn watch(options: &Options) -> Result<Exit, Report> {
    let whom = match (options.pid, &options.client) {
        (Some(pid), _) => Whom::Process(identity::of(pid).map_err(|_| {
            Report::new(Exit::NotFound, format!("no process has the pid {pid}"))
                .hint("`mainstay watch --client claude` finds clients by their name")
        })?),
        (None, Some(name)) => Whom::Client(Client::named(name)),
        (None, None) => Whom::All,
    };
    watch::watch(&Wanted {
        whom,
        until: match (options.once, options.for_ms) {
            (true, _) => Until::Once,
            (false, Some(ms)) => Until::After(ms),
            (false, None) => Until::Stopped,
        },
        connector: !options.no_connector && !options.once,
        json: options.json,
        stats: options.stats,
    })
}
