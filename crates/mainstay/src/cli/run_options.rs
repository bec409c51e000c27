//! Parses the options of `run`.
//!
//! Each row of the table of limits makes an option, a config key and a line of the reference.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use mainstay_http_core::headers::is_token;
use mainstay_keeper::default_name::NAME_CHARS;
use mainstay_protocol::lease::{NameTrouble, name_trouble};
use mainstay_protocol::limits::{Limit, TABLE, Unit};
use mainstay_protocol::policy::Retry;
use mainstay_protocol::tier::Tier;
use mainstay_store::config::target::{Target, UrlError};
use mainstay_store::config::{Settings, quantity};

/// The options of `run`.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct RunOptions {
    /// Name of the server in `ps`, `stop`, events and the config file [default: taken from the command]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<String>,

    /// How the server's process tree is contained: subreaper, cgroup, scope or pidns [default: the strongest possible]
    #[arg(long, value_name = "TIER")]
    pub tier: Option<Tier>,

    /// Do not start the server unless its process tree is contained at least this strongly
    #[arg(long, value_name = "TIER")]
    pub require_tier: Option<Tier>,

    /// Which requests are sent again if the server dies before it answers: never (none), safe (requests that only read) or
    /// annotated (also calls of tools that are marked read-only or idempotent) [default: safe]
    #[arg(long, value_name = "WHAT")]
    pub retry: Option<Retry>,

    /// Do not start the server before it is needed; until then, answer from what an earlier session has shown
    #[arg(long)]
    pub lazy: bool,

    /// After a restart, notify the client of changed lists even if the server has not declared that it does so
    #[arg(long)]
    pub advertise_list_changed: bool,

    /// Restart the server between two requests when this file or directory changes; may be given several times
    #[arg(long, value_name = "PATH")]
    pub watch: Vec<PathBuf>,

    /// Do not remember the server's handshake and lists, and do not use remembered ones
    #[arg(long, alias = "no-record")]
    pub no_cache: bool,

    /// The client is `mainstay learn`: ask the server itself, and remember its answers for all clients
    #[arg(long, hide = true)]
    pub learn: bool,

    /// Start the server in this lease: it ends with the lease [default: the variable `MAINSTAY_LEASE`]
    #[arg(long, value_name = "NAME", value_parser = lease)]
    pub lease: Option<String>,
    /// Append every message of the session to this file, secrets hidden (see `mainstay tap --from`)
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Do not hide secrets in the file of --record
    #[arg(long)]
    pub record_secrets: bool,
    /// The URL of a streamable-HTTP server, instead of a command; its sessions are always closed at the end
    #[arg(long, value_name = "URL", value_parser = url)]
    pub url: Option<String>,

    /// A header for --url, like `X-Team: blue`; may be given several times. It is never logged and is hidden in the process
    /// list, but --header-env is safer for a secret
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub header: Vec<(String, String)>,

    /// A header for --url whose value is in a variable: `Authorization=MY_TOKEN`; may be given several times
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = header_env)]
    pub header_env: Vec<(String, String)>,

    /// The limits that were given as options.
    #[command(flatten)]
    pub limits: LimitOptions,

    /// The server command with its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

impl RunOptions {
    /// The settings that the options set.
    pub fn settings(&self) -> Settings {
        Settings {
            limits: self.limits.0.clone(),
            tier: self.tier,
            require_tier: self.require_tier,
            retry: self.retry,
            lazy: self.lazy.then_some(true),
            advertise: self.advertise_list_changed.then_some(true),
            watch: (!self.watch.is_empty()).then(|| self.watch.clone()),
            cache: self.no_cache.then_some(false),
            frames: self.record.clone(),
            secrets: self.record_secrets.then_some(true),
            notify: None,
        }
    }

    /// The options as arguments for another `mainstay run`, without name and command.
    pub fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut with =
            |name: &str, value: OsString| words.extend([format!("--{name}").into(), value]);
        if let Some(tier) = self.tier {
            with("tier", tier.to_string().into());
        }
        if let Some(tier) = self.require_tier {
            with("require-tier", tier.to_string().into());
        }
        if let Some(retry) = self.retry {
            with("retry", retry.word().into());
        }
        for path in &self.watch {
            with("watch", path.clone().into());
        }
        for (flag, given) in [
            ("--lazy", self.lazy),
            ("--advertise-list-changed", self.advertise_list_changed),
            ("--no-cache", self.no_cache),
        ] {
            words.extend(given.then(|| OsString::from(flag)));
        }
        for limit in &TABLE {
            if let Some(value) = self.limits.0.get(limit.name) {
                let value = quantity::show(limit.unit, *value);
                words.extend([format!("--{}", limit.name).into(), value.into()]);
            }
        }
        words
    }

    /// Parses `[--name NAME] -- COMMAND...`, the usual call in a client's config, without clap, because a client waits for it.
    /// Returns none for anything else, mistakes included.
    pub fn parse_plain(words: &[OsString]) -> Option<Self> {
        let (given, command) = match words {
            [dashes, command @ ..] if dashes == "--" => (None, command),
            [option, given, dashes, command @ ..] if option == "--name" && dashes == "--" => {
                (Some(given.to_str()?), command)
            }
            _ => return None,
        };
        // Clap reports these mistakes: a value that looks like an option, and a missing command.
        if command.is_empty() || given.is_some_and(|given| given.starts_with('-')) {
            return None;
        }
        Some(Self {
            name: given.map(name).transpose().ok()?,
            command: command.to_vec(),
            ..Self::default()
        })
    }

    /// Parses the options with clap. `words` does not contain `run` itself.
    pub fn parse_words<W: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Self, clap::Error> {
        let command = Self::augment_args(Command::new("run").no_binary_name(true));
        Self::from_arg_matches(&command.try_get_matches_from(words)?)
    }
}

/// Adds one option for each limit of the table.
pub fn limit_args<L>(
    command: Command,
    table: &'static [Limit<L>],
    heading: &'static str,
) -> Command {
    table.iter().fold(command, |command, limit| {
        let shown = quantity::show(limit.unit, limit.default);
        command.arg(
            Arg::new(limit.name)
                .long(limit.name)
                .value_name(value_name(limit.unit))
                .help(format!("{} [default: {shown}]", limit.help))
                .help_heading(heading)
                .action(ArgAction::Set)
                .value_parser(move |text: &str| quantity::parse(limit, text)),
        )
    })
}

/// The limits of the table that were given.
pub fn given_limits<L>(
    matches: &ArgMatches,
    table: &'static [Limit<L>],
) -> BTreeMap<&'static str, u64> {
    let given = |limit: &'static Limit<L>| Some((limit.name, *matches.get_one::<u64>(limit.name)?));
    table.iter().filter_map(given).collect()
}

/// Values by the name of the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitOptions(pub BTreeMap<&'static str, u64>);

impl Args for LimitOptions {
    fn augment_args(command: Command) -> Command {
        limit_args(command, &TABLE, "Limits")
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LimitOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(given_limits(matches, &TABLE)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

/// The placeholder of a value in the help.
fn value_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Time => "TIME",
        Unit::Size => "SIZE",
        Unit::Count => "COUNT",
    }
}

pub(super) fn lease(text: &str) -> Result<String, NameTrouble> {
    match name_trouble(text) {
        None => Ok(text.into()),
        Some(trouble) => Err(trouble),
    }
}

fn url(text: &str) -> Result<String, UrlError> {
    Target::parse(text).map(|_| text.into())
}

/// Parses `Name: value`.
pub fn header(text: &str) -> Result<(String, String), HeaderForm> {
    let parts = text.split_once(':');
    let parts = parts.filter(|(name, _)| is_token(name.trim()));
    let (name, value) = parts.ok_or(HeaderForm::Value)?;
    Ok((name.trim().into(), value.trim().into()))
}

fn header_env(text: &str) -> Result<(String, String), HeaderForm> {
    let parts = text.split_once('=');
    let parts = parts.filter(|(name, variable)| is_token(name.trim()) && !variable.is_empty());
    let (name, variable) = parts.ok_or(HeaderForm::Variable)?;
    Ok((name.trim().into(), variable.into()))
}

/// How a header should have been written. The text that was written may be a secret, so it is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderForm {
    /// With its value.
    Value,
    /// With the name of a variable.
    Variable,
}

impl fmt::Display for HeaderForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Value => "write it like `Name: value`",
            Self::Variable => "write it like `Authorization=MY_TOKEN`",
        })
    }
}

impl Error for HeaderForm {}

pub(super) fn name(text: &str) -> Result<String, ServerNameError> {
    if text.trim().is_empty() {
        return Err(ServerNameError::Empty);
    }
    if text.chars().count() > NAME_CHARS {
        return Err(ServerNameError::Long);
    }
    if text.chars().any(char::is_control) {
        return Err(ServerNameError::Control);
    }
    Ok(text.into())
}

/// Why a text cannot be the name of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerNameError {
    Empty,
    Long,
    Control,
}

impl fmt::Display for ServerNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a name cannot be empty"),
            Self::Long => write!(f, "a name has {NAME_CHARS} characters at most"),
            Self::Control => f.write_str("a name cannot have control characters"),
        }
    }
}

impl Error for ServerNameError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<RunOptions, String> {
        RunOptions::parse_words(line.split_whitespace()).map_err(|error| error.to_string())
    }

    #[test]
    fn every_limit_is_an_option() {
        for limit in &TABLE {
            let text = quantity::show(limit.unit, limit.max);
            let options = parse(&format!("--{} {text} -- x", limit.name)).unwrap();
            assert_eq!(options.limits.0, BTreeMap::from([(limit.name, limit.max)]));
        }
        assert_eq!(parse("-- x").unwrap().limits, LimitOptions::default());
    }

    #[test]
    fn limits_are_written_as_people_write_them() {
        for (line, name, value) in [
            ("--memory-max 2G -- x", "memory-max", 2 << 30),
            ("--memory-max 512MB -- x", "memory-max", 512 << 20),
            ("--hibernate 1d -- x", "hibernate", 86_400_000),
            ("--hibernate 10min -- x", "hibernate", 600_000),
        ] {
            let options = parse(line).unwrap();
            assert_eq!(options.limits.0, BTreeMap::from([(name, value)]), "{line}");
        }
    }

    #[test]
    fn the_command_keeps_its_own_options() {
        for line in [
            "--name a -- npx -y pkg --name b",
            "--name a npx -y pkg --name b",
        ] {
            let options = parse(line).unwrap();
            assert_eq!(options.name.as_deref(), Some("a"));
            assert_eq!(options.command, ["npx", "-y", "pkg", "--name", "b"]);
        }
        let dashes = parse("-- npx -- x").unwrap();
        assert_eq!(dashes.command, ["npx", "--", "x"]);
    }

    #[test]
    fn the_quick_parser_agrees_with_clap() {
        for (line, plain) in [
            ("-- x", true),
            ("-- x --name b", true),
            ("-- x -- y", true),
            ("-- -- y", true),
            ("-- --name a -- y", true),
            ("--name a -- npx -y pkg", true),
            ("--name a -- --lazy", true),
            ("", false),
            ("--", false),
            ("--name a", false),
            ("--name a --", false),
            ("--name -- -- x", false),
            ("--name -a -- x", false),
            ("--name --lazy -- x", false),
            ("--name=a -- x", false),
            ("--name a --lazy -- x", false),
            ("--lazy -- x", false),
            ("x", false),
            (&format!("--name {} -- x", "n".repeat(64)), true),
            (&format!("--name {} -- x", "n".repeat(65)), false),
        ] {
            let words: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
            let read = RunOptions::parse_plain(&words);
            assert_eq!(read.is_some(), plain, "{line}");
            if let Some(read) = read {
                assert_eq!(Some(read), parse(line).ok(), "{line}");
            }
        }
        for name in ["", " ", "a\tb"] {
            let words = ["--name", name, "--", "x"].map(OsString::from);
            assert_eq!(RunOptions::parse_plain(&words), None);
            assert!(RunOptions::parse_words(words).is_err());
        }
    }

    #[test]
    fn mistakes_in_options_of_run_are_explained() {
        for (line, problem) in [
            ("--nmae a -- x", "unexpected argument '--nmae' found"),
            ("--grace-eof 2 -- x", "`2` is not a time"),
            ("--grace-eof 1h -- x", "`1h` is out of range (0 to 10m)"),
            ("--tier jail -- x", "unknown tier `jail`"),
            (
                "--retry always -- x",
                "not a way to retry: say never, safe or annotated",
            ),
            ("--watch= -- x", "a value is required for '--watch <PATH>'"),
            (&format!("--name {} -- x", "n".repeat(65)), "64 characters"),
            ("--url ftp://h/", "`ftp` is not spoken"),
            (
                "--url http://h/ --header secret",
                "write it like `Name: value`",
            ),
            (
                "--url http://h/ --header-env A",
                "write it like `Authorization=MY_TOKEN`",
            ),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }
}
