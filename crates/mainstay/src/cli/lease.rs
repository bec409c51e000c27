//! `mainstay lease`: named scopes that own servers, for host programs that run longer than their sessions.

mod list;

use clap::{Args, Subcommand};
use mainstay_keeper::lease::{self, Closed, EndedServer, Opened, Was, Wish};
use mainstay_os::clock;
use mainstay_protocol::event::Seen;
use mainstay_protocol::lease::{Over, Term};
use mainstay_protocol::limits::{LEASE_TTL_MS, Unit};
use mainstay_report::happening::seen;
use mainstay_report::measure::{fine, span};
use mainstay_report::{Exit, Report, talk};
use mainstay_store::config::quantity;
use mainstay_store::paths::Paths;
use serde::Serialize;

use super::run_options;
use mainstay_report::printer::Printer;

/// The options of `lease`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Open a lease that ends with a time, with an owner process, or with the first of both
    Open(OpenOptions),
    /// Start the time of an open lease again
    Renew(RenewOptions),
    /// End every server of a lease, wait until nothing is left, and say what was ended
    Close(CloseOptions),
    /// Show all leases
    List(ListOptions),
}

/// The options of `lease open`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay lease open job-17 --owner $$         until this shell ends
  mainstay lease open job-17 --ttl 10m          until it has not been renewed for ten minutes
  MAINSTAY_LEASE=job-17 mainstay run -- npx -y @playwright/mcp
  mainstay lease close job-17

If the same owner has this lease open already, it is renewed. If another owner has it, that is an error.")]
pub struct OpenOptions {
    /// The name: letters, digits, `.`, `_`, `-`
    #[arg(value_parser = run_options::lease)]
    pub name: String,
    /// How long the lease lasts without renewal; time in which the machine sleeps does not count [default: 10m without --owner]
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    pub ttl: Option<u64>,
    /// The process with which the lease ends
    #[arg(long, value_name = "PID")]
    pub owner: Option<i32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `lease renew`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay lease renew job-17
  mainstay lease renew job-17 --ttl 1h")]
pub struct RenewOptions {
    /// The name of the lease
    #[arg(value_parser = run_options::lease)]
    pub name: String,
    /// How long the lease lasts from now on [default: as long as before]
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    pub ttl: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `lease close`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay lease close job-17
  mainstay lease close job-17 --json | jq .left
  mainstay lease close job-17 --wait 0      do not wait; the servers end by themselves

It is not an error if the lease is closed already or was never open.")]
pub struct CloseOptions {
    /// The name of the lease
    #[arg(value_parser = run_options::lease)]
    pub name: String,
    /// Wait at most this long [default: as long as the grace times of the servers allow]
    #[arg(long, value_name = "TIME", num_args = 0..=1, value_parser = quantity::time)]
    pub wait: Option<Option<u64>>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `lease list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay lease list
  mainstay lease list --json | jq '.[] | select(.servers > 0) | .lease'")]
pub struct ListOptions {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs `mainstay lease`.
pub fn lease(verb: &Verb) -> Result<Exit, Report> {
    match verb {
        Verb::Open(options) => open(options),
        Verb::Renew(options) => renew(options),
        Verb::Close(options) => close(options),
        Verb::List(options) => list::list(options),
    }
}

/// A lease as `open` and `renew` show it.
#[derive(Clone, Debug, Serialize)]
struct LeaseTerms<'a> {
    /// The name of the lease.
    lease: &'a str,
    /// Whether the lease was open before.
    renewed: bool,
    /// The process with which the lease ends.
    owner: Option<&'a Seen>,
    /// How long the lease lasts without renewal.
    ttl_ms: Option<u64>,
    /// How much of that time is left.
    left_ms: Option<u64>,
    /// When the lease was opened.
    opened_at: &'a str,
}

fn open(options: &OpenOptions) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let owner = options.owner.map(owner).transpose()?;
    let wish = Wish {
        ttl_ms: options.ttl,
        owner,
        by: lease::caller(),
    };
    let opened = lease::open(&paths, &options.name, &wish)?;
    let renewed = match opened {
        Opened::New(_) => false,
        Opened::Again(_) => true,
    };
    show_terms(opened.term(), renewed, options.json)
}

fn renew(options: &RenewOptions) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let term = lease::renew(&paths, &options.name, options.ttl)?;
    show_terms(&term, true, options.json)
}

fn owner(pid: i32) -> Result<Seen, Report> {
    lease::process(pid).ok_or_else(|| {
        Report::new(
            Exit::NotFound,
            format!("no process has the pid {pid}, so it cannot own the lease"),
        )
        .hint(format!(
            "name a process that runs, or give a time: `--ttl {}`",
            quantity::show(Unit::Time, LEASE_TTL_MS)
        ))
    })
}

fn show_terms(term: &Term, renewed: bool, json: bool) -> Result<Exit, Report> {
    let left_ms = term.left_ms(clock::now());
    let terms = LeaseTerms {
        lease: &term.name,
        renewed,
        owner: term.owner.as_ref(),
        ttl_ms: term.ttl_ms,
        left_ms,
        opened_at: &term.opened_at,
    };
    let mut printer = Printer::new();
    if json {
        printer.json(&terms)?;
        return Ok(Exit::Ok);
    }
    let owner = terms
        .owner
        .map(|owner| format!("until {} ends", seen(owner)));
    let time = left_ms.map(|ms| format!("for {} if not renewed", span(ms.next_multiple_of(1_000))));
    let bounds: Vec<String> = owner.into_iter().chain(time).collect();
    let word = if renewed { "renewed" } else { "open" };
    printer.text(&format!("{}: {word} {}\n", term.name, bounds.join(", ")))?;
    Ok(Exit::Ok)
}

/// The result of `close`, with sums, so that a script does not have to add them up.
#[derive(Clone, Debug, Serialize)]
struct CloseSummary<'a> {
    /// Whether no process of the servers is left.
    ok: bool,
    /// How many processes were ended.
    ended: u32,
    /// How many processes are left.
    left: usize,
    /// The lease, and the result for each server.
    #[serde(flatten)]
    closed: &'a Closed,
}

fn close(options: &CloseOptions) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let wait_ms = options.wait.flatten();
    let closed = lease::close(&paths, &options.name, lease::caller(), wait_ms)?;
    // With `--wait 0` the user does not ask for a confirmation.
    let ok = closed.confirmed() || (wait_ms == Some(0) && closed.left() == 0);
    let mut printer = Printer::new();
    if options.json {
        printer.json(&CloseSummary {
            ok,
            ended: closed.servers.iter().map(|server| server.ended).sum(),
            left: closed.left(),
            closed: &closed,
        })?;
    } else {
        printer.text(&describe(&closed))?;
        for server in &closed.servers {
            if let (Some(error), false) = (&server.error, ok) {
                talk(&format!("error: {}: {error}\n", server.server));
            }
        }
    }
    if ok {
        return Ok(Exit::Ok);
    }
    Ok(if closed.left() > 0 {
        Exit::Unhealthy
    } else {
        Exit::Stuck
    })
}

fn describe(closed: &Closed) -> String {
    let name = &closed.lease;
    let mut text = match &closed.was {
        Was::Open if closed.servers.is_empty() => format!("{name}: closed; it had no servers\n"),
        Was::Open => format!("{name}: closed\n"),
        Was::Unknown => format!("{name}: not open; closed before, or never opened\n"),
        Was::Over(Over::Closed { .. }) => format!("{name}: closed already\n"),
        Was::Over(over) => format!("{name}: the lease {over}\n"),
    };
    for server in &closed.servers {
        text.push_str("  ");
        text.push_str(&describe_server(server));
        text.push('\n');
    }
    text
}

fn describe_server(result: &EndedServer) -> String {
    let EndedServer {
        server, pid, ended, ..
    } = result;
    if result.error.is_some() {
        return format!("{server}: not confirmed");
    }
    let pid = pid.map_or_else(|| "no process".into(), |pid| format!("pid {pid}"));
    let names: Vec<String> = result.left.iter().map(seen).collect();
    let names = if names.is_empty() {
        String::new()
    } else {
        format!(": {}", names.join(", "))
    };
    let (left, ms) = (result.left.len(), fine(result.ms));
    format!("{server} ({pid}): ended {ended} in {ms}, {left} left{names}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_protocol::ids::LinkId;

    #[test]
    fn closing_a_lease_lists_each_ended_server() {
        let closed = Closed {
            lease: "job-17".into(),
            was: Was::Open,
            servers: vec![EndedServer {
                id: LinkId(1),
                server: "atai".into(),
                pid: Some(7),
                ended: 3,
                left: vec![mainstay_report::samples::seen(9, "x")],
                ms: 12,
                error: None,
            }],
        };
        assert_eq!(
            describe(&closed),
            "job-17: closed\n  atai (pid 7): ended 3 in 12 ms, 1 left: x (9)\n"
        );
        assert!(!closed.confirmed());
    }
}
