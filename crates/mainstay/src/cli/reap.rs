//! `mainstay reap`: servers that were not started through mainstay, and the end of those whose client is gone.

mod hook;

use clap::{ArgGroup, Args};
use mainstay_core::reap::Verdict;
use mainstay_keeper::notify::{self, Notice};
use mainstay_os::{identity, role};
use mainstay_protocol::limits;
use mainstay_report::happening::seen;
use mainstay_report::measure::processes;
use mainstay_report::{Exit, Report, talk};
use mainstay_store::config::{Config, Settings, quantity};
use mainstay_store::paths::Paths;
use serde::Serialize;

use mainstay_observe::reap::end::{self, Done, Victim};
use mainstay_observe::reap::view::{self, Ends, Screen};
use mainstay_observe::reap::{self, Server, Wanted, install};
use mainstay_report::printer::Printer;

/// What `reap` was told.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[command(group = ArgGroup::new("setup").args(["install", "uninstall"]))]
#[command(after_help = "Examples:
  mainstay reap                      every MCP server without mainstay, and what it is; ends none
  mainstay reap --yes                end the orphans, at most 20
  mainstay reap --yes 4711           end only the orphan with this process
  mainstay reap --yes --stale        also clients that run without their terminal
  mainstay reap --install            look every 30 minutes and report; with --act also end orphans
  mainstay reap --install --hook     report when a session of Claude Code ends
  mainstay reap --json | jq '.servers[] | select(.verdict == \"orphan\") | .pid'

An orphan is a server of which no living process holds the client's end of its pipes: the kernel
says so. A server in use, a client, a service, a container and your own shells are never ended.
In the config file, `protect = [\"word\"]` below `[reap]` spares commands that contain the word.
Exit code 1: a process could not be ended, or none of these pids is a server.")]
pub struct Options {
    /// Only the servers with these processes
    #[arg(value_name = "PID")]
    pub pids: Vec<i32>,
    /// End the orphans
    #[arg(long)]
    pub yes: bool,
    /// With --yes: also end clients whose terminal is gone and that are idle, with their servers
    #[arg(long)]
    pub stale: bool,
    /// End at most so many servers
    #[arg(long, value_name = "COUNT", default_value_t = limits::REAP_MAX)]
    pub max: usize,
    /// A younger server is no orphan yet
    #[arg(long = "min-age", value_name = "TIME", value_parser = quantity::time, default_value = "10s", overrides_with = "min_age_ms")]
    pub min_age_ms: u64,
    /// Also list processes without a client that show no sign of MCP
    #[arg(long)]
    pub all: bool,
    /// Look every 30 minutes: by a systemd user timer, else by cron
    #[arg(long, conflicts_with_all = ["yes", "pids"])]
    pub install: bool,
    /// With --install: end orphans instead of only reporting them
    #[arg(long, requires = "install")]
    pub act: bool,
    /// Remove what --install wrote
    #[arg(long, conflicts_with_all = ["yes", "pids"])]
    pub uninstall: bool,
    /// With --install or --uninstall: a `SessionEnd` hook in Claude Code's settings.json instead of a timer
    #[arg(long, requires = "setup")]
    pub hook: bool,
    /// With --install or --uninstall: show what would be written or removed, and change nothing
    #[arg(long, requires = "setup")]
    pub dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Everything, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Survey {
    /// The servers that were found.
    pub servers: Vec<Server>,
    /// The trees that were ended; empty without --yes.
    pub done: Vec<Done>,
    /// Orphans that were not ended because of --max.
    pub postponed: usize,
}

/// Lists, and ends what it is told to.
pub fn reap(options: &Options) -> Result<Exit, Report> {
    match (options.install, options.uninstall, options.hook) {
        (true, _, true) => return hook::install(options.act, options.dry_run),
        (true, _, false) => return install::install(options.act, options.dry_run),
        (false, true, true) => return hook::uninstall(options.dry_run),
        (false, true, false) => return install::uninstall(options.dry_run),
        (false, false, _) => {}
    }
    let paths = Paths::find()?;
    let config = Config::load(&paths)?;
    let wanted = Wanted {
        min_age_ms: options.min_age_ms,
        protect: config.protect,
        pids: options.pids.clone(),
    };
    let servers = reap::survey(&wanted)?;
    let mut printer = Printer::new();
    if !options.json {
        check_pids(&options.pids, &servers)?;
        show(&mut printer, &servers, options)?;
    }
    let victims = if options.yes {
        end::victims(&servers, options.stale)
    } else {
        Vec::new()
    };
    let postponed = victims.len().saturating_sub(options.max);
    let done = end_all(&victims, &servers, options, &mut printer)?;
    let survey = Survey {
        postponed,
        done,
        servers: servers.clone(),
    };
    if options.json {
        printer.json(&survey)?;
    } else if options.yes {
        tell_end(&mut printer, &survey)?;
    }
    if !options.yes {
        notify(&survey.servers, &config.defaults, &paths);
    }
    let left = survey.done.iter().any(|done| !done.left.is_empty());
    Ok(if left { Exit::Unhealthy } else { Exit::Ok })
}

/// Tells the user of orphans by the command of the config file. A user who has typed the command sees them on the terminal.
fn notify(servers: &[Server], settings: &Settings, paths: &Paths) {
    let orphans = servers
        .iter()
        .filter(|server| server.verdict == Verdict::Orphan);
    let count = orphans.count();
    let typed = (0..3).any(|fd| rustix::termios::isatty(role::standard(fd)));
    if let Some(command) = &settings.notify
        && count > 0
        && !typed
    {
        notify::run(command, paths, &Notice::orphans(count));
    }
}

/// Says which of these processes are no servers. An error if none is one.
fn check_pids(pids: &[i32], servers: &[Server]) -> Result<(), Report> {
    let is_server = |pid: &i32| servers.iter().any(|server| server.processes.contains(pid));
    let (found, others): (Vec<i32>, Vec<i32>) = pids.iter().partition(|pid| is_server(pid));
    let problems = others.iter().map(|&pid| match identity::of(pid) {
        Ok(_) => format!("process {pid} is no MCP server without mainstay"),
        Err(_) => format!("process {pid} does not exist"),
    });
    let problems: Vec<String> = problems.collect();
    if found.is_empty() && !problems.is_empty() {
        return Err(Report::new(Exit::NotFound, problems.join(", "))
            .hint("`mainstay reap` lists the servers and their processes"));
    }
    for problem in problems {
        talk(&format!("note: {problem}\n"));
    }
    Ok(())
}

fn show(printer: &mut Printer, servers: &[Server], options: &Options) -> Result<(), Report> {
    let screen = Screen {
        columns: printer.columns(),
        colour: printer.colour(),
        all: options.all,
        ends: match (options.yes, options.stale) {
            (false, _) => Ends::Nothing,
            (true, false) => Ends::Orphans,
            (true, true) => Ends::AlsoStale,
        },
    };
    let text = view::render(servers, screen);
    if servers.is_empty() {
        talk("no MCP server runs without mainstay\n");
    }
    printer.text(&text)?;
    Ok(())
}

fn end_all(
    victims: &[Victim<'_>],
    servers: &[Server],
    options: &Options,
    printer: &mut Printer,
) -> Result<Vec<Done>, Report> {
    let orphans = end::processes_of_orphans(servers);
    let count = victims.len().min(options.max);
    let mut all = Vec::new();
    for (number, victim) in (1..).zip(victims.iter().take(options.max)) {
        let done = end::end(victim, &orphans);
        if !options.json {
            printer.text(&format!("[{number}/{count}] {}\n", told(&done)))?;
        }
        all.push(done);
    }
    Ok(all)
}

fn told(done: &Done) -> String {
    let name = format!("{} ({})", done.name, done.who.pid);
    if let Some(why) = &done.spared {
        return format!("{name}: spared, {why}");
    }
    let left: Vec<String> = done.left.iter().map(seen).collect();
    let names = if left.is_empty() {
        String::new()
    } else {
        format!(": {}", left.join(", "))
    };
    format!(
        "{name}: ended {}, {} left{names}",
        processes(done.ended),
        left.len()
    )
}

fn tell_end(printer: &mut Printer, survey: &Survey) -> Result<(), Report> {
    let ended: usize = survey.done.iter().map(|done| done.ended).sum();
    let left: usize = survey.done.iter().map(|done| done.left.len()).sum();
    let mut text = format!("ended {}, {left} left\n", processes(ended));
    if survey.postponed > 0 {
        let more = format!("{} more: run it again, or raise --max\n", survey.postponed);
        text.push_str(&more);
    }
    printer.text(&text)?;
    Ok(())
}
