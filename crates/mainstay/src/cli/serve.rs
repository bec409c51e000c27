//! `mainstay serve`: offers stdio servers over HTTP.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use mainstay_http::serve::{self, Served, Settled};
use mainstay_http_core::serve::limits::TABLE;
use mainstay_os::{activation, title};
use mainstay_protocol::ids::LinkId;
use mainstay_report::{Exit, Report, plain};
use mainstay_store::config::serving::{self, User};
use mainstay_store::config::target::Target;
use mainstay_store::config::{Config, ServerConfig, Serving};
use mainstay_store::paths::Paths;

use super::run_options::{RunOptions, given_limits, limit_args};
use super::run_resolve::resolve;
use mainstay_keeper::default_name;
use mainstay_report::printer::Printer;

/// The options of `serve`.
#[derive(Debug, Args)]
#[command(
    override_usage = "mainstay serve [OPTIONS] [--] [COMMAND]...\n       mainstay serve [OPTIONS] --upstream <URL>"
)]
#[command(after_help = "Examples:
  mainstay serve --listen 127.0.0.1:8808 -- npx -y @playwright/mcp      at http://127.0.0.1:8808/mcp
  mainstay serve                       every [server.NAME] in the config file, at /NAME/mcp
  mainstay serve --listen 0 --json     a free port, printed as JSON
  mainstay serve --allow-user 1001     another user of this machine may connect too
  mainstay serve --session-ttl 10m --session-cap 100 -- uvx mcp-server-time
  mainstay serve --share -- uvx mcp-server-time                         one server for all sessions
  mainstay serve --upstream http://127.0.0.1:3000/mcp                   limit and end the sessions of an HTTP server

Clients up to protocol 2025-11-25 get one server per session (one for all with --share). Clients of 2026-07-28 always
share one. `ps`, `why` and `events` show these servers too. There are also /healthz and /metrics. SIGHUP reads the config
file again. SIGTERM answers requests in flight, then ends all sessions and servers; a second SIGTERM does not wait.

Exit code: 0 stopped by a signal, 1 a server did not end in time, 125 it could not listen or its config is wrong.")]
pub struct Options {
    /// The address to listen on; other machines can connect only with --token-file. A socket that systemd passes is used
    /// instead [default: 127.0.0.1:8808]
    #[arg(long, value_name = "ADDRESS", value_parser = serving::address)]
    pub listen: Option<SocketAddr>,

    /// Accept only requests with the token in this file (Authorization: Bearer …)
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// A host name that clients may use, beside localhost and its addresses; may be given several times
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,

    /// A web site whose pages may send requests, as `https://example.com`; may be given several times
    #[arg(long, value_name = "ORIGIN")]
    pub allow_origin: Vec<String>,

    /// A user of this machine who may connect without a token, beside you and root: an id, a name in /etc/passwd, or `any` for
    /// all users; may be given several times
    #[arg(long, value_name = "USER", value_parser = serving::user)]
    pub allow_user: Vec<User>,

    /// Pass requests on to this HTTP server instead of starting one; its sessions get --session-ttl and --session-cap and are
    /// closed at their end
    #[arg(long, value_name = "URL", value_parser = Target::parse, conflicts_with = "command")]
    pub upstream: Option<Target>,

    /// Let all sessions of clients up to protocol 2025-11-25 share one server: only for a server that keeps no state per
    /// client. It cannot send requests to its clients (sampling, elicitation, roots)
    #[arg(long, conflicts_with = "upstream")]
    pub share: bool,

    /// Print the addresses as JSON
    #[arg(long)]
    pub json: bool,

    /// The limits of `serve` that were given as options.
    #[command(flatten)]
    pub limits: ServeLimits,

    /// The options of `run` for the servers.
    #[command(flatten)]
    pub run: RunOptions,
}

/// Values by the name of the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServeLimits(pub std::collections::BTreeMap<&'static str, u64>);

impl Args for ServeLimits {
    fn augment_args(command: Command) -> Command {
        limit_args(command, &TABLE, "Limits of serve")
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeLimits {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(given_limits(matches, &TABLE)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

/// Runs `mainstay serve` until a signal ends it.
pub fn serve(options: &Options) -> Result<Exit, Report> {
    let passed = activation::listener().map_err(unusable)?;
    // Keepers record the name of their client: with this one, `ps` and `why` show that the client is `serve`.
    rustix::thread::set_name(c"mainstay-serve").ok();
    hide_secrets(options);
    let paths = Paths::find()?;
    let address = passed.as_ref().map(|(_, address)| *address);
    let settle = || settled(options, &Config::load(&paths)?, address);
    let mut printer = Printer::new();
    let mut print_addresses = |listening: &serve::Listening| {
        let printed = if options.json {
            printer.json_line(listening)
        } else {
            let lines = listening
                .endpoints
                .iter()
                .map(|one| format!("{} at {}\n", one.server, one.url));
            printer.text(&lines.collect::<String>())
        };
        printed.map(drop)
    };
    serve::serve(
        paths.clone(),
        random_id()?,
        passed.map(|(socket, _)| socket),
        &settle,
        &mut print_addresses,
    )
}

fn unusable(problem: activation::Unusable) -> Report {
    Report::new(Exit::Failed, "cannot use the socket that systemd passed")
        .because(problem.to_string())
        .hint("write one line `ListenStream=127.0.0.1:8808` into the socket unit, and no `Accept=yes`")
}

/// Removes secrets in the URL from our command line, which every user can see in the process list.
fn hide_secrets(options: &Options) {
    if let Some(target) = &options.upstream {
        title::hide(&target.secrets());
    }
}

/// Combines the options and the config file. The address of a passed socket takes precedence.
fn settled(
    options: &Options,
    config: &Config,
    passed: Option<SocketAddr>,
) -> Result<Settled, Report> {
    let given = Serving {
        listen: passed.or(options.listen),
        token_file: options.token_file.clone(),
        hosts: options.allow_host.clone(),
        origins: options.allow_origin.clone(),
        users: options.allow_user.clone(),
        limits: options.limits.0.clone(),
    };
    let serving = given.over(&config.serve);
    let (listen, access) = serving.access()?;
    Ok(Settled {
        listen,
        limits: serving.limits(),
        access,
        servers: servers(options, config)?,
    })
}

fn servers(options: &Options, config: &Config) -> Result<Vec<Served>, Report> {
    let run = &options.run;
    if let Some(target) = &options.upstream {
        let name = run.name.clone().unwrap_or_else(|| target.authority());
        return Ok(vec![Served {
            path: "/mcp".into(),
            // The URL is part of the server's identity: another URL is another server.
            words: vec![target.url().into()],
            name,
            config: ServerConfig::default(),
            share: false,
            upstream: Some(target.clone()),
        }]);
    }
    if run.url.is_some() || !run.header.is_empty() || !run.header_env.is_empty() {
        return Err(Report::new(
            Exit::Usage,
            "--url, --header and --header-env are options of `run`",
        )
        .hint("use --upstream URL to pass requests on to an HTTP server, or write [server.NAME] with a `url` into the config file"));
    }
    if !run.command.is_empty() || run.name.is_some() {
        let name = run
            .name
            .clone()
            .unwrap_or_else(|| default_name::of(&run.command));
        // Mistakes that `run` would refuse are reported now, not to the first client.
        resolve(run, config)?;
        return Ok(vec![served(
            "/mcp".into(),
            name.clone(),
            options,
            config.server(&name),
        )]);
    }
    let named: Vec<_> = config
        .servers
        .iter()
        .filter(|(_, server)| server.command.is_some() || server.url.is_some())
        .map(|(name, _)| name.clone())
        .collect();
    if named.is_empty() {
        return Err(Report::new(Exit::Usage, "there is nothing to serve")
            .hint("write a command after `--`: `mainstay serve -- npx -y @playwright/mcp`, or [server.NAME] tables into the config file"));
    }
    named
        .into_iter()
        .map(|name| {
            if !name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte))
            {
                return Err(Report::new(
                    Exit::Failed,
                    format!("[server.{name}] cannot be served, because its name cannot be part of a URL path"),
                )
                .hint("use letters, digits, `-`, `_`, `.` and `~`"));
            }
            let path = format!("/{name}/mcp");
            Ok(served(path, name.clone(), options, config.server(&name)))
        })
        .collect()
}

fn served(path: String, name: String, options: &Options, config: ServerConfig) -> Served {
    let run = &options.run;
    let mut words: Vec<OsString> = vec!["--name".into(), name.clone().into()];
    words.extend(run.words());
    if !run.command.is_empty() {
        words.push("--".into());
        words.extend(run.command.iter().cloned());
    }
    Served {
        path,
        name,
        words,
        share: options.share || config.share,
        config,
        upstream: None,
    }
}

fn random_id() -> Result<LinkId, Report> {
    super::run::random_id()
        .map_err(|error| Report::new(Exit::Failed, "cannot serve").because(plain(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use mainstay_store::config::quantity;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str) -> Options {
        Alone::try_parse_from(std::iter::once("serve").chain(line.split_whitespace()))
            .unwrap()
            .options
    }

    #[test]
    fn every_limit_of_serve_is_an_option_and_none_has_a_name_of_run() {
        for limit in &TABLE {
            let text = quantity::show(limit.unit, limit.max);
            let options = parse(&format!("--{} {text} -- x", limit.name));
            assert_eq!(options.limits.0.get(limit.name), Some(&limit.max));
            assert!(
                mainstay_protocol::limits::TABLE
                    .iter()
                    .all(|other| other.name != limit.name)
            );
        }
    }

    #[test]
    fn options_of_run_are_passed_on_to_run() {
        let options = parse(
            "--listen 0 --session-cap 5 --grace-eof 3s --lazy --retry never -- a b --listen 3",
        );
        let servers = servers(&options, &Config::default()).unwrap();
        assert_eq!(servers.len(), 1);
        assert_eq!(servers[0].path, "/mcp");
        let words: Vec<_> = servers[0]
            .words
            .iter()
            .map(|word| word.to_str().unwrap())
            .collect();
        assert_eq!(
            words,
            [
                "--name",
                "a",
                "--retry",
                "never",
                "--lazy",
                "--grace-eof",
                "3s",
                "--",
                "a",
                "b",
                "--listen",
                "3"
            ]
        );
        let again = RunOptions::parse_words(&words).unwrap();
        assert_eq!(again.settings(), options.run.settings());
    }

    #[test]
    fn every_server_in_the_config_gets_its_own_path() {
        let mut config = Config::default();
        for (name, command) in [("files", Some("f")), ("none", None), ("time", Some("t"))] {
            let server = ServerConfig {
                command: command.map(String::from),
                ..ServerConfig::default()
            };
            config.servers.insert(name.into(), server);
        }
        let paths: Vec<_> = servers(&parse(""), &config)
            .unwrap()
            .into_iter()
            .map(|one| one.path)
            .collect();
        assert_eq!(paths, ["/files/mcp", "/time/mcp"]);
        config.servers.get_mut("time").unwrap().share = true;
        let shares = |line: &str| -> Vec<_> {
            let all = servers(&parse(line), &config).unwrap();
            all.into_iter().map(|one| one.share).collect()
        };
        assert_eq!(shares(""), [false, true]);
        assert_eq!(shares("--share"), [true, true]);
        let one = servers(&parse("--name time"), &config).unwrap();
        assert_eq!(one[0].path, "/mcp");
        assert!(servers(&parse(""), &Config::default()).is_err());
    }
}
