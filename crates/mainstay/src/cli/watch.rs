//! `mainstay watch`: shows servers that start and end, whether or not mainstay started them.

use clap::{ArgGroup, Args};
use mainstay_os::identity;
use mainstay_report::{Exit, Report, talk};
use mainstay_store::config::quantity;

use mainstay_observe::watch::selection::{Client, Selection};
use mainstay_observe::watch::{self, Until, Wanted};

/// The options of `watch`.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[command(
    group = ArgGroup::new("clients").required(true).args(["pid", "client", "all"]),
    after_help = "Examples:
  mainstay watch 1480540                 servers of this client process, until it ends
  mainstay watch --client claude         servers of every Claude Code, running or started later
  mainstay watch --all --once            all your stdio servers that run now
  mainstay watch --all --for 10m --json | jq 'select(.what == \"gone\")'

RUNS: a server was there before. NEW: it has started. GONE: it has ended, with its exit status or signal.
MOVED: a slow launcher (npx, uvx) has started its server. LEFT: it still runs 5 s after its client has
ended. ORPHAN: its client is gone; `mainstay reap` ends it. Under mainstay, client, pid and memory are
those that the link serves. While `sudo mainstay trace-signals` runs, GONE also names the sender of the
signal. Times are local; in JSON they are UTC. Exit code 1: servers were LEFT."
)]
pub struct Options {
    /// The pid of the client
    #[arg(value_name = "PID", value_parser = pid)]
    pub pid: Option<i32>,
    /// All processes of this client: claude, codex, gemini, … or the name of a program
    #[arg(long, value_name = "NAME")]
    pub client: Option<String>,
    /// All processes of yours that talk to one of their parents over stdin and stdout
    #[arg(long)]
    pub all: bool,
    /// Show a table of the servers that run now, and exit
    #[arg(long, conflicts_with = "for_ms")]
    pub once: bool,
    /// End after this time, as in `30s`, `10m`
    #[arg(long = "for", value_name = "TIME", value_parser = quantity::time)]
    pub for_ms: Option<u64>,
    /// Do not let the kernel report new processes; list all processes every second instead
    #[arg(long)]
    pub no_connector: bool,
    /// At the end, print on stderr how much processor time `watch` has used
    #[arg(long)]
    pub stats: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// Parses a pid. A word is probably the name of a client.
fn pid(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(pid) => Ok(pid),
        Err(_) if text.starts_with(char::is_alphabetic) => Err(format!(
            "a pid is a number; did you mean `mainstay watch --client {text}`?"
        )),
        Err(_) => Err("a pid is a number".into()),
    }
}

/// Runs `mainstay watch`.
pub fn watch(options: &Options) -> Result<Exit, Report> {
    let selection = match (options.pid, &options.client) {
        (Some(pid), _) => Selection::Process(identity::of(pid).map_err(|_| {
            Report::new(Exit::NotFound, format!("no process has the pid {pid}"))
                .hint("`mainstay watch --client claude` finds clients by their name")
        })?),
        (None, Some(name)) => Selection::Client(Client::named(name)),
        (None, None) => Selection::All,
    };
    let until_stopped = !options.once && options.for_ms.is_none();
    if until_stopped && !options.json && rustix::termios::isatty(std::io::stderr()) {
        talk("servers are shown as they start and end; Ctrl-C ends it\n");
    }
    watch::watch(&Wanted {
        selection,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_in_place_of_a_pid_is_taken_for_a_client() {
        assert_eq!(pid("4711"), Ok(4711));
        assert_eq!(
            pid("claude").unwrap_err(),
            "a pid is a number; did you mean `mainstay watch --client claude`?"
        );
        assert_eq!(pid("99999999999").unwrap_err(), "a pid is a number");
    }
}
