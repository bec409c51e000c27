//! `mainstay doctor`: checks this machine and prints what is in order and what is not, with hints.
//!
//! It only changes the state directories: it creates missing ones, because that is how it checks that they can be used.

mod checks;
mod clients;
mod recent;
mod screen;

use std::env;

use clap::Args;
use mainstay_os::tier::{self, Choice, Place, Refusal, Wish};
use mainstay_os::{adopter, cap, census, identity};
use mainstay_protocol::event::Detached;
use mainstay_protocol::ids::{LinkId, Tag};
use mainstay_protocol::tier::{Tier, WhyNot};
use mainstay_report::{Exit, Report};
use mainstay_store::paths::Paths;
use mainstay_store::registry;
use serde::Serialize;

use mainstay_report::printer::Printer;
use screen::Screen;

/// The options of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay doctor
  mainstay doctor --verbose            every check with its details, and where all files are
  mainstay doctor --json | jq '.findings[] | select(.status == \"problem\")'

Exit code: 0 healthy (notes included), 1 a problem was found.")]
pub struct Options {
    /// Show every check with its details, and where all files are
    #[arg(long, short, conflicts_with = "json")]
    pub verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How process trees are contained on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Containment {
    /// The tier that a server started now would get.
    pub tier: Tier,
    /// Why no stronger tier is used.
    pub why_not: Vec<WhyNot>,
    /// Whether the guard would leave the client's process tree.
    pub detached: Detached,
    /// Why mainstay must measure the memory for `--memory-max`; null if the kernel enforces the limit.
    pub memory_why_not: Option<String>,
}

/// Chooses a tier as for a server that is started now. None if `/proc` cannot be read.
fn containment() -> Option<Containment> {
    let tag = Tag {
        realm: identity::realm().ok()?,
        owner: identity::me().ok()?,
        link: LinkId(0),
    };
    // The weakest tier is always possible, so this choice only fails for other reasons.
    let Choice {
        tier,
        why_not,
        place,
        ..
    } = tier::choose(Wish::Strongest, &tag).ok()?;
    let memory = match place {
        Place::Cgroup(leaf) => {
            let possible = cap::possible(leaf.path());
            // The leaf was only created for this check; no process was in it.
            leaf.remove().ok();
            possible
        }
        Place::Scope(pending) => pending.memory_cap(),
        Place::Subreaper | Place::Pidns => Err(Refusal::NoLeaf),
    };
    let verdict = adopter::judge(adopter::INIT);
    let detached = if verdict.reaps {
        Detached::Yes
    } else {
        Detached::No { why: verdict.why }
    };
    Some(Containment {
        tier,
        why_not,
        detached,
        memory_why_not: memory.err().map(|refusal| refusal.to_string()),
    })
}

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// In order.
    Ok,
    /// Not a fault, but worth knowing.
    Note,
    /// A fault that should be repaired.
    Problem,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check.
    pub check: &'static str,
    /// How serious the result is.
    pub status: Status,
    /// What was found.
    pub what: String,
    /// The command that says more about it, or repairs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What it consists of, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

impl Finding {
    fn new(check: &'static str, status: Status, what: impl Into<String>) -> Self {
        Self {
            check,
            status,
            what: what.into(),
            command: None,
            hint: None,
            details: Vec::new(),
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn command(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }
}

/// The files and directories of mainstay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Places {
    /// The directory for everything that mainstay writes.
    pub state: String,
    /// The directory of the event files.
    pub events: String,
    /// The directory with one directory per link.
    pub run: String,
    /// One file per configuration.
    pub cache: String,
    /// One directory per lease.
    pub leases: String,
    /// One file per HTTP session that must still be closed.
    pub sessions: String,
    /// What `adopt` and `release` replaced in config files of clients.
    pub backups: String,
    /// The config file; none if HOME is not ours.
    pub config: Option<String>,
    /// The program that runs now.
    pub program: Option<String>,
}

/// The result of all checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// True if no check has found a problem.
    pub healthy: bool,
    /// The version of mainstay.
    pub version: &'static str,
    /// The files and directories of mainstay.
    pub paths: Places,
    /// How process trees are contained; null if that could not be found out.
    pub containment: Option<Containment>,
    /// The result of each check.
    pub findings: Vec<Finding>,
}

/// Runs `mainstay doctor`.
pub fn doctor(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let health = examine(&paths);
    let mut printer = Printer::new();
    if options.json {
        printer.json(&health)?;
    } else {
        let screen = Screen {
            columns: printer.columns(),
            colour: printer.colour(),
            verbose: options.verbose,
        };
        printer.text(&screen::render(&health, screen))?;
    }
    Ok(if health.healthy {
        Exit::Ok
    } else {
        Exit::Unhealthy
    })
}

fn examine(paths: &Paths) -> Health {
    let containment = containment();
    let mut findings = checks::containment(containment.as_ref());
    findings.extend(checks::namespace());
    findings.extend(checks::inotify());
    findings.extend(checks::paths(paths));
    findings.push(checks::config(paths));
    // One list of the links and one of the processes, for all checks.
    let listed = registry::list(paths);
    let pids = census::pids();
    findings.extend(checks::links(paths, &listed));
    findings.push(checks::leftovers(&pids, &listed));
    findings.extend(checks::orphans(&pids));
    findings.extend(checks::events(paths, &listed));
    findings.push(checks::cache(paths));
    findings.push(checks::sessions(paths));
    findings.extend(clients::adopted(paths));
    Health {
        healthy: findings
            .iter()
            .all(|finding| finding.status != Status::Problem),
        version: env!("CARGO_PKG_VERSION"),
        paths: Places {
            state: paths.state().display(),
            events: paths.events().display(),
            run: paths.run().display(),
            cache: paths.cache().display(),
            leases: paths.lease().display(),
            sessions: paths.sessions().display(),
            backups: paths.backups().display(),
            config: paths.config_file().map(|file| file.display().to_string()),
            program: env::current_exe()
                .ok()
                .map(|file| file.display().to_string()),
        },
        containment,
        findings,
    }
}
