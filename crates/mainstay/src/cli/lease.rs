//! `mainstay lease`: named scopes that own servers, for hosts that outlive their sessions.

mod list;

use clap::{Args, Subcommand};
use mainstay_core::event::Seen;
use mainstay_core::lease::{Over, Term};
use mainstay_core::limits::{LEASE_TTL_MS, Unit};
use mainstay_os::clock;
use serde::Serialize;

use super::run_options;
use crate::config::quantity;
use crate::exit::Exit;
use crate::lease::{self, Closed, EndedServer, Opened, Was, Wish};
use crate::paths::Paths;
use crate::report::{Report, talk};
use crate::view::happening::seen;
use crate::view::measure::{fine, span};
use crate::view::printer::Printer;

pub use list::gather as rows;

/// What `lease` was told.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Open a lease, bound to a time, an owner process, or both
    Open(OpenOptions),
    /// Give an open lease its time again
    Renew(RenewOptions),
    /// End every server of a lease, wait until nothing is left, and say what was ended
    Close(CloseOptions),
    /// Show all leases
    List(ListOptions),
}

/// What `lease open` was told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay lease open job-17 --owner $$         until this shell ends
  mainstay lease open job-17 --ttl 10m          until nobody has renewed it for ten minutes
  MAINSTAY_LEASE=job-17 mainstay run -- npx -y @playwright/mcp
  mainstay lease close job-17

A lease of the same owner that is open already is renewed; one of another owner is an error.")]
pub struct OpenOptions {
    /// Its name: letters, digits, `.`, `_`, `-`
    #[arg(value_parser = run_options::lease)]
    pub name: String,
    /// How long it lasts without being renewed; a machine that sleeps does not count [default: 10m without --owner]
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    pub ttl: Option<u64>,
    /// The process whose end is the lease's end
    #[arg(long, value_name = "PID")]
    pub owner: Option<i32>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// What `lease renew` was told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay lease renew job-17
  mainstay lease renew job-17 --ttl 1h")]
pub struct RenewOptions {
    /// Its name
    #[arg(value_parser = run_options::lease)]
    pub name: String,
    /// How long it lasts from now on [default: as long as before]
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    pub ttl: Option<u64>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// What `lease close` was told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay lease close job-17
  mainstay lease close job-17 --json | jq .left
  mainstay lease close job-17 --wait 0      only mark it; the servers end by themselves

A lease that is closed already, or was never open, is no error.")]
pub struct CloseOptions {
    /// Its name
    #[arg(value_parser = run_options::lease)]
    pub name: String,
    /// Wait no longer than this [default: as long as the servers' own stop ladders may take]
    #[arg(long, value_name = "TIME", num_args = 0..=1, value_parser = quantity::time)]
    pub wait: Option<Option<u64>>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// What `lease list` was told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay lease list
  mainstay lease list --json | jq '.[] | select(.servers > 0) | .lease'")]
pub struct ListOptions {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Does it.
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
struct Agreed<'a> {
    /// Its name.
    lease: &'a str,
    /// Whether it was open before.
    renewed: bool,
    /// The process whose end is its end.
    owner: Option<&'a Seen>,
    /// How long it lasts without being renewed.
    ttl_ms: Option<u64>,
    /// How long that is from now.
    left_ms: Option<u64>,
    /// When it was opened.
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
    show_agreed(opened.term(), renewed, options.json)
}

fn renew(options: &RenewOptions) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let term = lease::renew(&paths, &options.name, options.ttl)?;
    show_agreed(&term, true, options.json)
}

fn owner(pid: i32) -> Result<Seen, Report> {
    lease::process(pid).ok_or_else(|| {
        Report::new(
            Exit::NotFound,
            format!("no process {pid} is there to own the lease"),
        )
        .hint(format!(
            "name one that lives, or give a time: `--ttl {}`",
            quantity::show(Unit::Time, LEASE_TTL_MS)
        ))
    })
}

fn show_agreed(term: &Term, renewed: bool, json: bool) -> Result<Exit, Report> {
    let left_ms = term.left_ms(clock::now());
    let agreed = Agreed {
        lease: &term.name,
        renewed,
        owner: term.owner.as_ref(),
        ttl_ms: term.ttl_ms,
        left_ms,
        opened_at: &term.opened_at,
    };
    let mut printer = Printer::new();
    if json {
        printer.json(&agreed)?;
        return Ok(Exit::Ok);
    }
    let owner = agreed
        .owner
        .map(|owner| format!("until {} ends", seen(owner)));
    let time = left_ms.map(|ms| format!("for {} if not renewed", span(ms.next_multiple_of(1_000))));
    let bounds: Vec<String> = owner.into_iter().chain(time).collect();
    let word = if renewed { "renewed" } else { "open" };
    printer.text(&format!("{}: {word} {}\n", term.name, bounds.join(", ")))?;
    Ok(Exit::Ok)
}

/// What `close` says: the sums first, so that a program needs no loop.
#[derive(Clone, Debug, Serialize)]
struct Told<'a> {
    /// Whether nothing of its servers is left.
    ok: bool,
    /// How many processes were ended.
    ended: u32,
    /// How many are left.
    left: usize,
    /// The lease, and what became of each server.
    #[serde(flatten)]
    closed: &'a Closed,
}

fn close(options: &CloseOptions) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let wait_ms = options.wait.flatten();
    let closed = lease::close(&paths, &options.name, lease::caller(), wait_ms)?;
    // Whoever does not want to wait has what it wanted.
    let ok = closed.confirmed() || (wait_ms == Some(0) && closed.left() == 0);
    let mut printer = Printer::new();
    if options.json {
        printer.json(&Told {
            ok,
            ended: closed.servers.iter().map(|server| server.ended).sum(),
            left: closed.left(),
            closed: &closed,
        })?;
    } else {
        printer.text(&told(&closed))?;
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

fn told(closed: &Closed) -> String {
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
        text.push_str(&told_server(server));
        text.push('\n');
    }
    text
}

fn told_server(told: &EndedServer) -> String {
    let EndedServer {
        server, pid, ended, ..
    } = told;
    if told.error.is_some() {
        return format!("{server}: not confirmed");
    }
    let pid = pid.map_or_else(|| "no process".into(), |pid| format!("pid {pid}"));
    let names: Vec<String> = told.left.iter().map(seen).collect();
    let names = if names.is_empty() {
        String::new()
    } else {
        format!(": {}", names.join(", "))
    };
    let (left, ms) = (told.left.len(), fine(told.ms));
    format!("{server} ({pid}): ended {ended} in {ms}, {left} left{names}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_core::ids::LinkId;

    #[test]
    fn what_was_ended_is_told_server_by_server() {
        let closed = Closed {
            lease: "job-17".into(),
            was: Was::Open,
            servers: vec![EndedServer {
                id: LinkId(1),
                server: "atai".into(),
                pid: Some(7),
                ended: 3,
                left: vec![crate::samples::seen(9, "x")],
                ms: 12,
                error: None,
            }],
        };
        assert_eq!(
            told(&closed),
            "job-17: closed\n  atai (pid 7): ended 3 in 12 ms, 1 left: x (9)\n"
        );
        assert!(!closed.confirmed());
    }
}
