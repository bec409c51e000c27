//! The commands, one file each. A command takes its options and returns an exit code or an error report.

pub mod adopt;
pub mod bridge;
pub mod cache;
pub mod complete;
pub mod demo;
pub mod doctor;
pub mod events;
pub mod guardian;
mod help;
mod known;
pub mod learn;
pub mod lease;
pub mod logs;
pub mod metrics;
pub mod mistaken;
pub mod ps;
pub mod reap;
pub mod release;
pub mod restart;
pub mod run;
pub mod run_options;
mod run_refused;
mod run_resolve;
mod run_without_keeper;
pub mod select;
pub mod serve;
pub mod sessions;
mod shell_words;
pub mod stop;
pub mod tap;
pub mod timeline;
pub mod trace_signals;
pub mod version;
pub mod watch;
pub mod why;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use mainstay_http::unclosed::background;
use mainstay_report::paint::ColourChoice;
use mainstay_report::{Exit, Report};
use mainstay_store::paths::Paths;

use run_options::RunOptions;

/// Runs MCP servers that end with their client and restart after a crash
#[derive(Debug, Parser)]
#[command(
    name = "mainstay",
    version = version::SHORT,
    long_version = version::LONG.as_str(),
    after_help = "Examples:
  mainstay adopt                             put all your servers behind mainstay; it asks first
  mainstay run -- npx -y @playwright/mcp     what a client's config calls instead of npx
  mainstay ps                                servers that run, with their client and memory
  mainstay events --follow                   starts, exits and restarts, as they happen
  mainstay why playwright                    why the server ended, and how certain that is
  mainstay logs playwright -f                what it writes to stderr
  mainstay tap playwright                    its messages, as they pass

Every command that shows something has --json. `mainstay COMMAND --help` has its options, examples and exit codes."
)]
pub struct Cli {
    /// When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub color: Colour,
    /// The command.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The values of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    #[default]
    Auto,
    Always,
    Never,
}

impl From<Colour> for ColourChoice {
    fn from(colour: Colour) -> Self {
        match colour {
            Colour::Auto => Self::Auto,
            Colour::Always => Self::Always,
            Colour::Never => Self::Never,
        }
    }
}

impl Cli {
    /// Reads the arguments of this process. `run` is parsed alone, because a client waits for it, and because the options of all
    /// other commands would cost time and memory. Everything else, mistakes in `run` included, is parsed by the full parser,
    /// so that help and errors are the same everywhere.
    pub fn read() -> Result<Self, clap::Error> {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        if let [verb, words @ ..] = &words[..]
            && verb == "run"
            && let Some(options) =
                RunOptions::parse_plain(words).or_else(|| RunOptions::parse_words(words).ok())
        {
            return Ok(Self {
                color: Colour::Auto,
                verb: Verb::Run(Box::new(options)),
            });
        }
        Self::try_parse().or_else(|error| {
            if error.use_stderr() {
                return Err(error);
            }
            // Help is asked for: only then is its layout worth its time.
            let matches = help::lay_out(Self::command()).try_get_matches()?;
            Self::from_arg_matches(&matches)
        })
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a server for a client: the server and everything it starts end with the client
    #[command(
        override_usage = "mainstay run [OPTIONS] [--] [COMMAND]...\n       mainstay run [OPTIONS] --url <URL>"
    )]
    #[command(after_help = "Examples:
  mainstay run -- npx -y @playwright/mcp
  mainstay run --name files --grace-eof 5s -- npx -y @modelcontextprotocol/server-filesystem /srv
  mainstay run --watch src -- python server.py     restarted when a file in src changes
  mainstay run --lease job-17 -- npx -y @playwright/mcp     ends with the lease
  mainstay run --url https://example.com/mcp --header-env Authorization=MY_TOKEN
  mainstay run --linger 5m -- npx -y @playwright/mcp     kept if the client kills mainstay and reconnects
  mainstay run --name files            command and limits from [server.files] in the config file

Events are in ~/.local/state/mainstay. Without a usable HOME they are in $XDG_RUNTIME_DIR/mainstay, or in
mainstay-UID in $TMPDIR or /tmp.

Exit code: the server's own; 128 + n if signal n ended the server; 127 no such command, 126 not executable,
125 mainstay itself failed.")]
    Run(Box<RunOptions>),
    /// Send the servers in your clients' configs through mainstay, after it has shown the change
    Adopt(adopt::Options),
    /// Give the servers in your clients' configs their own commands back
    Release(release::Options),
    /// Open each adopted server once and remember its tools, so that the first session has them at once
    Learn(learn::Options),
    /// Offer stdio servers over HTTP, with sessions that end and servers that restart after a crash
    Serve(Box<serve::Options>),
    /// Show the servers that run under mainstay
    #[command(alias = "list", alias = "status")]
    Ps(ps::Options),
    /// End servers and all their processes
    #[command(alias = "kill")]
    Stop(stop::Options),
    /// Restart servers without disconnecting their clients
    Restart(restart::Options),
    /// Show what happened: starts, exits and restarts, with their reasons
    Events(events::Options),
    /// Show what a server writes to stderr, now and before
    #[command(alias = "log")]
    Logs(logs::Options),
    /// Explain why a server ended, how certain that is, and what followed
    Why(why::Options),
    /// Open, renew, close and list leases: named scopes that own servers
    #[command(
        subcommand,
        after_help = "Examples:
  mainstay lease open job-17 --owner $$
  mainstay run --lease job-17 -- npx -y @playwright/mcp
  mainstay lease close job-17

A lease ends when it is closed, when its time is up, or when its owner process ends. Then all its servers are ended,
with everything that they started, even if a mainstay process was killed before."
    )]
    Lease(lease::Verb),
    /// Show the messages between a running server and its client, as they pass
    Tap(tap::Options),
    /// Show servers that start and end, with their exit status, whether or not mainstay started them
    Watch(watch::Options),
    /// Find MCP servers whose client is gone, and end them with --yes
    Reap(reap::Options),
    /// Print figures of all servers for Prometheus: memory, restarts, requests and their durations
    Metrics(metrics::Options),
    /// Show which process sends which signal to which process (needs root)
    TraceSignals(trace_signals::Options),
    /// Check this machine: containment, paths, config, leftovers
    Doctor(doctor::Options),
    /// List or clear the cache of handshakes and lists that makes starts fast
    #[command(
        subcommand,
        after_help = "Examples:
  mainstay cache list                what is in the cache, for which server
  mainstay cache clear playwright    if a server shows old tools"
    )]
    Cache(cache::Verb),
    /// List HTTP sessions that are not closed yet, and close them
    #[command(after_help = "Examples:
  mainstay sessions                  each unclosed session: where, since when, and why it is still open
  mainstay sessions close            one DELETE for each session whose mainstay process is dead
  mainstay sessions close --wait     again and again, until all are closed
  mainstay sessions close --url https://example.com/mcp --header 'Authorization: Bearer …'
                                     if the secret was on a command line

Other commands, except `doctor` and `demo`, also close such sessions in the background.
Exit code: 0 if no session is left to be closed, else 1.")]
    Sessions(sessions::Options),
    /// The old name of `sessions`
    #[command(hide = true)]
    Debts(sessions::DebtsOptions),
    /// The old name of `cache clear`
    #[command(hide = true)]
    Forget(cache::ForgetOptions),
    /// Show what mainstay does, with demo servers of its own
    Demo(demo::Options),
    /// The systemd unit that ends process trees if all other mainstay processes were killed
    #[command(hide = true)]
    Guardian,
    /// The process that `run --url` starts as its server: translates between stdio and HTTP
    #[command(hide = true)]
    Bridge(bridge::Options),
    /// Print the names of servers for the completion of a shell
    #[command(hide = true)]
    Complete(complete::Options),
}

impl Verb {
    /// Runs the command.
    pub fn perform(self) -> Result<Exit, Report> {
        // Called first and alone: the processes of `run` keep this stack for the life of the server, so it should stay small.
        if let Self::Run(options) = self {
            return run::run(options);
        }
        self.perform_other()
    }

    #[inline(never)]
    fn perform_other(self) -> Result<Exit, Report> {
        if self.closes_in_background()
            && let Ok(paths) = Paths::find()
        {
            if let Some(report) = paths.detour() {
                report.warn();
            }
            background::close_in_background(&paths);
        }
        match self {
            Self::Run(options) => run::run(options),
            Self::Adopt(options) => adopt::adopt(&options),
            Self::Release(options) => release::release(&options),
            Self::Learn(options) => learn::learn(&options),
            Self::Serve(options) => serve::serve(&options),
            Self::Ps(options) => ps::ps(&options),
            Self::Stop(options) => stop::stop(&options),
            Self::Restart(options) => restart::restart(&options),
            Self::Events(options) => events::events(&options),
            Self::Logs(options) => logs::logs(&options),
            Self::Why(options) => why::why(&options),
            Self::Lease(verb) => lease::lease(&verb),
            Self::Tap(options) => tap::tap(&options),
            Self::Watch(options) => watch::watch(&options),
            Self::Reap(options) => reap::reap(&options),
            Self::Metrics(options) => metrics::metrics(&options),
            Self::TraceSignals(options) => trace_signals::trace_signals(&options),
            Self::Doctor(options) => doctor::doctor(&options),
            Self::Cache(verb) => cache::cache(&verb),
            Self::Forget(options) => cache::forget(&options),
            Self::Demo(options) => demo::demo(&options),
            Self::Guardian => guardian::guardian(),
            Self::Bridge(_) => mainstay_http::bridge::bridge(),
            Self::Sessions(options) => sessions::sessions(&options),
            Self::Debts(options) => sessions::debts(&options),
            Self::Complete(options) => Ok(complete::complete(&options)),
        }
    }

    /// True if HTTP sessions of dead processes are closed in the background of this command. `run`, `serve` and the bridge
    /// close them themselves. `sessions` and `doctor` only show them. The others may run as another user or with another
    /// home directory.
    fn closes_in_background(&self) -> bool {
        match self {
            Self::Ps(_)
            | Self::Stop(_)
            | Self::Restart(_)
            | Self::Events(_)
            | Self::Logs(_)
            | Self::Why(_)
            | Self::Lease(_)
            | Self::Tap(_)
            | Self::Watch(_)
            | Self::Metrics(_)
            | Self::Cache(_)
            | Self::Reap(_)
            | Self::Forget(_) => true,
            Self::Run(_)
            | Self::Adopt(_)
            | Self::Release(_)
            | Self::Learn(_)
            | Self::Serve(_)
            | Self::Bridge(_)
            | Self::Sessions(_)
            | Self::Debts(_)
            | Self::Doctor(_)
            | Self::TraceSignals(_)
            | Self::Demo(_)
            | Self::Complete(_)
            | Self::Guardian => false,
        }
    }

    /// Whether the exit code of this command is the server's, so that our own errors need other codes.
    pub fn is_run(&self) -> bool {
        matches!(self, Self::Run(_))
    }
}
