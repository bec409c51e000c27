//! `mainstay serve`: an HTTP front for servers that speak stdio.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use mainstay_core::ids::LinkId;
use mainstay_core::serve::limits::TABLE;
use mainstay_os::{role, title};

use super::default_name;
use super::run_options::{RunOptions, given_limits, limit_args};
use crate::config::serving::{self, User};
use crate::config::{Config, ServerConfig, Serving, resolve};
use crate::exit::Exit;
use crate::http::target::Target;
use crate::paths::Paths;
use crate::report::{Report, plain};
use crate::serve::{self, Served, Settled};
use crate::view::printer::Printer;

/// What `serve` was told.
#[derive(Debug, Args)]
#[command(
    override_usage = "mainstay serve [OPTIONS] [--] [COMMAND]...\n       mainstay serve [OPTIONS] --upstream <URL>"
)]
#[command(after_help = "Examples:
  mainstay serve --listen 127.0.0.1:8808 -- npx -y @playwright/mcp      at http://127.0.0.1:8808/mcp
  mainstay serve                       every [server.NAME] of the config file, at /NAME/mcp
  mainstay serve --listen 0 --json     a free port; where, as JSON
  mainstay serve --allow-user 1001     another user of this machine may use them, too
  mainstay serve --session-ttl 10m --session-cap 100 -- uvx mcp-server-time
  mainstay serve --share -- uvx mcp-server-time                         one server for every session
  mainstay serve --upstream http://127.0.0.1:3000/mcp                   sessions there get a ttl, a cap and an end

Each session of a client up to protocol 2025-11-25 has a server of its own, or with --share a part in one that ends
with the last of them; clients of 2026-07-28 share one. All live as `mainstay run` servers: see them with ps, why and
events. /healthz and /metrics are there too. SIGHUP reads the config file anew; SIGTERM answers what is in flight and
ends every session and server, a second one does not wait.

Exit code: 0 stopped as told, 1 a server had not ended in time, 125 it could not listen or its config is wrong.")]
pub struct Options {
    /// Where to listen; beyond this machine only with --token-file [default: 127.0.0.1:8808]
    #[arg(long, value_name = "ADDRESS", value_parser = serving::address)]
    pub listen: Option<SocketAddr>,

    /// Let only those in who bear the token in this file (Authorization: Bearer …)
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// A name that clients may call us by, beside localhost and its addresses; may be given several times
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,

    /// A web site whose pages may call us, as `https://example.com`; may be given several times
    #[arg(long, value_name = "ORIGIN")]
    pub allow_origin: Vec<String>,

    /// A user of this machine who may use us without a token, beside you and root: an id, a name in /etc/passwd, or `any` for
    /// everybody who can connect; may be given several times
    #[arg(long, value_name = "USER", value_parser = serving::user)]
    pub allow_user: Vec<User>,

    /// Pass on to this HTTP server instead of starting one: its sessions get --session-ttl, --session-cap and their end
    #[arg(long, value_name = "URL", value_parser = Target::parse, conflicts_with = "command")]
    pub upstream: Option<Target>,

    /// Let all sessions of clients up to protocol 2025-11-25 share one server, too: only for a server that keeps nothing
    /// apart per client. It is offered no sampling, elicitation or roots, and cannot ask
    #[arg(long, conflicts_with = "upstream")]
    pub share: bool,

    /// Say where we listen as JSON
    #[arg(long)]
    pub json: bool,

    /// Limits of the front that were given.
    #[command(flatten)]
    pub limits: FrontLimits,

    /// How the servers are run.
    #[command(flatten)]
    pub run: RunOptions,
}

/// Limits of the front by their name in the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontLimits(pub std::collections::BTreeMap<&'static str, u64>);

impl Args for FrontLimits {
    fn augment_args(command: Command) -> Command {
        limit_args(command, &TABLE, "Limits of the front")
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FrontLimits {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(given_limits(matches, &TABLE)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

/// Serves until it is told to stop.
pub fn serve(options: &Options) -> Result<Exit, Report> {
    role::close_inherited();
    // Keepers note who their client is; by this name `ps` and `why` tell it from any other process of ours.
    rustix::thread::set_name(c"mainstay-serve").ok();
    hide_secrets(options);
    let paths = Paths::find()?;
    let settle = || settled(options, &Config::load(&paths)?);
    let mut printer = Printer::new();
    let mut tell = |listening: &serve::Listening| {
        let told = if options.json {
            printer.json_line(listening)
        } else {
            let lines = listening
                .endpoints
                .iter()
                .map(|one| format!("{} at {}\n", one.server, one.url));
            printer.text(&lines.collect::<String>())
        };
        told.map(drop)
    };
    serve::serve(paths.clone(), random_id()?, &settle, &mut tell)
}

/// What of a URL may be a secret is not for everybody who looks at the process list.
fn hide_secrets(options: &Options) {
    if let Some(target) = &options.upstream {
        title::hide(&target.secrets());
    }
}

/// Options and config file together.
fn settled(options: &Options, config: &Config) -> Result<Settled, Report> {
    let given = Serving {
        listen: options.listen,
        token_file: options.token_file.clone(),
        hosts: options.allow_host.clone(),
        origins: options.allow_origin.clone(),
        users: options.allow_user.clone(),
        limits: options.limits.0.clone(),
    };
    let serving = given.over(&config.serve);
    let (listen, door) = serving.door()?;
    Ok(Settled {
        listen,
        limits: serving.limits(),
        door,
        servers: servers(options, config)?,
    })
}

fn servers(options: &Options, config: &Config) -> Result<Vec<Served>, Report> {
    let run = &options.run;
    if let Some(target) = &options.upstream {
        let name = run.name.clone().unwrap_or_else(|| target.authority());
        return Ok(vec![Served {
            path: "/mcp".into(),
            // Another address is another server.
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
        .hint("pass on to an HTTP server with --upstream URL, or write [server.NAME] with its `url` into the config file"));
    }
    if !run.command.is_empty() || run.name.is_some() {
        let name = run
            .name
            .clone()
            .unwrap_or_else(|| default_name::of(&run.command));
        // What `run` would refuse is refused now, and not to the first client.
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
            .hint("write a command behind `--`: `mainstay serve -- npx -y @playwright/mcp`, or [server.NAME] tables into the config file"));
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
                    format!("[server.{name}] cannot be served: its name cannot stand in a path"),
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
    use crate::config::quantity;
    use clap::Parser;

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
    fn every_limit_of_the_front_is_an_option_and_none_is_one_of_run() {
        for limit in &TABLE {
            let text = quantity::show(limit.unit, limit.max);
            let options = parse(&format!("--{} {text} -- x", limit.name));
            assert_eq!(options.limits.0.get(limit.name), Some(&limit.max));
            assert!(
                mainstay_core::limits::TABLE
                    .iter()
                    .all(|other| other.name != limit.name)
            );
        }
    }

    #[test]
    fn run_gets_the_options_that_are_its_own() {
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
    fn every_server_of_the_config_has_its_path() {
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
