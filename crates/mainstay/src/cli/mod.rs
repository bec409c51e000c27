//! The verbs, one file each: arguments in, exit code or report out.

pub mod bridge;
pub mod debts;
pub mod default_name;
pub mod demo;
pub mod doctor;
pub mod events;
pub mod forget;
pub mod guardian;
pub mod lease;
pub mod ps;
pub mod restart;
pub mod run;
pub mod run_options;
mod run_refused;
mod run_unmanned;
pub mod serve;
pub mod stop;
pub mod tap;
pub mod timeline;
pub mod trace_signals;
pub mod watch;
pub mod whom;
pub mod why;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use crate::exit::Exit;
use crate::paths::Paths;
use crate::report::Report;
use crate::sweeper;
use run_options::RunOptions;

/// The longest line of help.
const HELP_COLUMNS: usize = 100;

/// An MCP server lives exactly as long as somebody needs it
#[derive(Debug, Parser)]
#[command(
    name = "mainstay",
    version,
    max_term_width = HELP_COLUMNS,
    after_help = "Examples:
  mainstay run -- npx -y @playwright/mcp     what a client's config calls instead of npx
  mainstay ps                                who runs, for whom, how large
  mainstay events --follow                   what happens, as it happens
  mainstay why playwright                    who ended it, and how sure that is
  mainstay tap playwright                    its messages, as they pass

Every view has --json. Exit codes: `mainstay help run`, docs/reference/exit-codes.md"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

impl Cli {
    /// Reads the arguments of this process. `run`, for which a client waits, is read on its own: to set up the options
    /// of all other verbs would cost time, and memory that stays. Whatever is no plain `run` goes the long way, so
    /// that help and mistakes are told in the same words.
    pub fn read() -> Result<Self, clap::Error> {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        if let [verb, words @ ..] = &words[..]
            && verb == "run"
            && let Some(options) =
                RunOptions::parse_plain(words).or_else(|| RunOptions::parse_words(words).ok())
        {
            return Ok(Self {
                verb: Verb::Run(Box::new(options)),
            });
        }
        Self::try_parse()
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a server for a client: the server and everything it starts end with the client
    #[command(
        override_usage = "mainstay run [OPTIONS] [--] [COMMAND]...\n       mainstay run [OPTIONS] --url <URL>"
    )]
    #[command(after_help = "Examples:
  mainstay run -- npx -y @playwright/mcp
  mainstay run --name files --grace-eof 5s -- uvx mcp-server-filesystem /srv
  mainstay run --watch src -- python server.py     restarted whenever you have changed it
  mainstay run --lease job-17 -- npx -y @playwright/mcp     ended with the lease
  mainstay run --url https://example.com/mcp --header-env Authorization=MY_TOKEN
  mainstay run --linger 5m -- npx -y @playwright/mcp     kept warm if the client kills it and comes back
  mainstay run --name files            command and limits from [server.files] of the config file

Events are in ~/.local/state/mainstay; without a usable HOME in mainstay below $XDG_RUNTIME_DIR, else in
mainstay-UID below $TMPDIR or /tmp.

Exit code: the server's own; 128 + n if signal n ended it; 127 no such command, 126 not executable,
125 mainstay itself failed.")]
    Run(Box<RunOptions>),
    /// Serve servers over HTTP: sessions that end, servers that are contained and come back
    Serve(Box<serve::Options>),
    /// Show the servers that run under mainstay
    Ps(ps::Options),
    /// End servers, by name or id, with everything they started
    Stop(stop::Options),
    /// Put the next generation of servers in their place, by name or id, unnoticed by their clients
    Restart(restart::Options),
    /// Show what happened: starts, exits, who was ended and why
    Events(events::Options),
    /// Tell who or what ended a server, how sure that is, and what followed
    Why(why::Options),
    /// Open, renew, close and list leases: named scopes that own servers
    #[command(
        subcommand,
        after_help = "Examples:
  mainstay lease open job-17 --owner $$
  mainstay run --lease job-17 -- npx -y @playwright/mcp
  mainstay lease close job-17

A lease survives the death of any process of ours. It is over when it is closed, when its time is over, or when its
owner ends; then all its servers are ended with everything that they started."
    )]
    Lease(lease::Verb),
    /// Show the messages between a running server and its client, as they pass
    Tap(tap::Options),
    /// Show servers that come and go, with their exit status, whoever started them
    Watch(watch::Options),
    /// Show who sends which signal to whom (needs root)
    TraceSignals(trace_signals::Options),
    /// Check this machine: containment, paths, config, leftovers
    Doctor(doctor::Options),
    /// Forget what was remembered of servers' openings and lists
    Forget(forget::Options),
    /// Show which HTTP sessions must still be closed, and close them
    #[command(after_help = "Examples:
  mainstay debts                     what is owed, to whom, since when, and why it is not paid yet
  mainstay debts pay                 one DELETE for each session whose owner is dead
  mainstay debts pay --wait          again and again, until nothing is owed
  mainstay debts pay --url https://example.com/mcp --header 'Authorization: Bearer …'
                                     where the secret was on a command line

Any command but this one, `doctor` and `demo` also pays, aside. Exit code: 0 if nothing is left to be paid, 1 if something is.")]
    Debts(debts::Options),
    /// Show on a server of its own what mainstay does
    Demo(demo::Options),
    /// The unit that ends trees when every other process of ours was killed
    #[command(hide = true)]
    Guardian,
    /// The server of `run --url`: speaks HTTP on behalf of a keeper
    #[command(hide = true)]
    Bridge(bridge::Options),
}

impl Verb {
    /// Does it.
    pub fn perform(self) -> Result<Exit, Report> {
        // Apart: its three processes stand on this stack for as long as their server lives, and need no room for the others.
        if let Self::Run(options) = self {
            return run::run(options);
        }
        self.perform_apart()
    }

    #[inline(never)]
    fn perform_apart(self) -> Result<Exit, Report> {
        if self.pays_aside()
            && let Ok(paths) = Paths::find()
        {
            if let Some(report) = paths.detour() {
                report.warn();
            }
            sweeper::pay_debts_aside(&paths);
        }
        match self {
            Self::Run(options) => run::run(options),
            Self::Serve(options) => serve::serve(&options),
            Self::Ps(options) => ps::ps(&options),
            Self::Stop(options) => stop::stop(&options),
            Self::Restart(options) => restart::restart(&options),
            Self::Events(options) => events::events(&options),
            Self::Why(options) => why::why(&options),
            Self::Lease(verb) => lease::lease(&verb),
            Self::Tap(options) => tap::tap(&options),
            Self::Watch(options) => watch::watch(&options),
            Self::TraceSignals(options) => trace_signals::trace_signals(&options),
            Self::Doctor(options) => doctor::doctor(&options),
            Self::Forget(options) => forget::forget(&options),
            Self::Demo(options) => demo::demo(&options),
            Self::Guardian => guardian::guardian(),
            Self::Bridge(_) => crate::bridge::bridge(),
            Self::Debts(options) => debts::debts(&options),
        }
    }

    /// Whether HTTP sessions of dead processes are closed aside while this is done. `run`, `serve` and the bridge close
    /// them on their own ways; `debts` and `doctor` show what is owed, and so touch nothing; the others are not of this
    /// user, or not of this home.
    fn pays_aside(&self) -> bool {
        match self {
            Self::Ps(_)
            | Self::Stop(_)
            | Self::Restart(_)
            | Self::Events(_)
            | Self::Why(_)
            | Self::Lease(_)
            | Self::Tap(_)
            | Self::Watch(_)
            | Self::Forget(_) => true,
            Self::Run(_)
            | Self::Serve(_)
            | Self::Bridge(_)
            | Self::Debts(_)
            | Self::Doctor(_)
            | Self::TraceSignals(_)
            | Self::Demo(_)
            | Self::Guardian => false,
        }
    }

    /// Whether a server stands behind this verb, so that our own troubles must not look like its exit code.
    pub fn is_run(&self) -> bool {
        matches!(self, Self::Run(_))
    }
}
