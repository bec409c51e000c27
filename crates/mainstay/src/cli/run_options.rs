//! The options of `run`, parsed and nothing more.
//!
//! One option per row of the limits table, so that a new limit is an option, a config key and a line of the
//! reference by being in the table.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use mainstay_core::http::headers::is_token;
use mainstay_core::limits::{Limit, TABLE, Unit};
use mainstay_core::policy::Retry;
use mainstay_core::tier::Tier;

use crate::config::{Settings, quantity};
use crate::http::target::Target;

/// The longest server name.
pub const NAME_CHARS: usize = 64;

/// What `run` was told.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct RunOptions {
    /// Name of the server in `ps`, `stop`, events and the config file [default: taken from the command]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<String>,

    /// Hold the tree this way instead of the strongest: subreaper, cgroup, scope or pidns
    #[arg(long, value_name = "TIER", value_parser = tier)]
    pub tier: Option<Tier>,

    /// Do not start the server at all unless its tree is held at least this strongly
    #[arg(long, value_name = "TIER", value_parser = tier)]
    pub require_tier: Option<Tier>,

    /// What is sent again if the server dies in the middle: never (nothing), safe (what only reads, by the
    /// protocol) or annotated (also calls of tools annotated as read-only or idempotent) [default: safe]
    #[arg(long, value_name = "WHAT", value_parser = retry)]
    pub retry: Option<Retry>,

    /// Do not start the server before it is needed; what an earlier session showed is answered from its record
    #[arg(long)]
    pub lazy: bool,

    /// Tell the client of changed lists after a restart, also where the server did not say that it would
    #[arg(long)]
    pub advertise_list_changed: bool,

    /// Restart the server between two requests when this file or directory changes; may be given several times
    #[arg(long, value_name = "PATH")]
    pub watch: Vec<PathBuf>,

    /// Neither remember how this server opens nor use what is remembered
    #[arg(long)]
    pub no_record: bool,

    /// Start the server in this lease, and end it with the lease [default: what the variable `MAINSTAY_LEASE` names]
    #[arg(long, value_name = "NAME", value_parser = lease)]
    pub lease: Option<String>,
    /// Write every frame of the session to the end of this file, secrets hidden (see `mainstay tap --from`)
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Do not hide secrets in the file under --record
    #[arg(long)]
    pub record_secrets: bool,
    /// The URL of a streamable-HTTP server, instead of a command; its sessions are always closed
    #[arg(long, value_name = "URL", value_parser = url, conflicts_with = "command")]
    pub url: Option<String>,

    /// A header for --url, like `X-Team: blue`; may be given several times. Never logged, and never on a command line of
    /// ours; still, --header-env is the better place for a secret
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub header: Vec<(String, String)>,

    /// A header for --url whose value is in a variable: `Authorization=MY_TOKEN`; may be given several times
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = header_env)]
    pub header_env: Vec<(String, String)>,

    /// Limits that were given.
    #[command(flatten)]
    pub limits: LimitOptions,

    /// The server command with its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

impl RunOptions {
    /// What was set by options.
    pub fn settings(&self) -> Settings {
        Settings {
            limits: self.limits.0.clone(),
            tier: self.tier,
            require_tier: self.require_tier,
            retry: self.retry,
            lazy: self.lazy.then_some(true),
            advertise: self.advertise_list_changed.then_some(true),
            watch: (!self.watch.is_empty()).then(|| self.watch.clone()),
            record: self.no_record.then_some(false),
            frames: self.record.clone(),
            secrets: self.record_secrets.then_some(true),
        }
    }

    /// These options as words, without name and command.
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
            ("--no-record", self.no_record),
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

    /// Reads `[--name NAME] -- COMMAND...`, which is how clients call us, without setting up the table of all options: a client waits
    /// for that. None for anything else, mistakes included.
    pub fn parse_plain(words: &[OsString]) -> Option<Self> {
        let (given, command) = match words {
            [dashes, command @ ..] if dashes == "--" => (None, command),
            [option, given, dashes, command @ ..] if option == "--name" && dashes == "--" => {
                (Some(given.to_str()?), command)
            }
            _ => return None,
        };
        // A value that looks like an option is a mistake, and a command must be there.
        if command.is_empty() || given.is_some_and(|given| given.starts_with('-')) {
            return None;
        }
        Some(Self {
            name: given.map(name).transpose().ok()?,
            command: command.to_vec(),
            ..Self::default()
        })
    }

    /// Reads options from words, without the verb.
    pub fn parse_words<W: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Self, clap::Error> {
        let command = Self::augment_args(Command::new("run").no_binary_name(true));
        Self::from_arg_matches(&command.try_get_matches_from(words)?)
    }
}

/// One option for each limit of a table.
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

/// Those of a table that were given.
pub fn given_limits<L>(
    matches: &ArgMatches,
    table: &'static [Limit<L>],
) -> BTreeMap<&'static str, u64> {
    let given = |limit: &'static Limit<L>| Some((limit.name, *matches.get_one::<u64>(limit.name)?));
    table.iter().filter_map(given).collect()
}

/// Limits by their name in the table.
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

/// How a value of this unit is named in the help.
fn value_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Time => "TIME",
        Unit::Size => "SIZE",
        Unit::Count => "COUNT",
    }
}

pub(super) fn lease(text: &str) -> Result<String, String> {
    match mainstay_core::lease::name_trouble(text) {
        None => Ok(text.into()),
        Some(problem) => Err(problem),
    }
}

fn tier(word: &str) -> Result<Tier, String> {
    word.parse()
        .map_err(|problem: mainstay_core::tier::UnknownTier| problem.to_string())
}

fn retry(word: &str) -> Result<Retry, String> {
    word.parse()
        .map_err(|problem: mainstay_core::policy::UnknownRetry| problem.to_string())
}

fn url(text: &str) -> Result<String, String> {
    Target::parse(text).map(|_| text.into())
}

/// A header as it is written: `Name: value`.
pub fn header(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once(':');
    let parts = parts.filter(|(name, _)| is_token(name.trim()));
    let (name, value) = parts.ok_or("write it like `Name: value`")?;
    Ok((name.trim().into(), value.trim().into()))
}

fn header_env(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=');
    let parts = parts.filter(|(name, variable)| is_token(name.trim()) && !variable.is_empty());
    let (name, variable) = parts.ok_or("write it like `Authorization=MY_TOKEN`")?;
    Ok((name.trim().into(), variable.into()))
}

fn name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("a name cannot be empty".into());
    }
    if text.chars().count() > NAME_CHARS {
        return Err(format!("a name has {NAME_CHARS} characters at most"));
    }
    if text.chars().any(char::is_control) {
        return Err("a name cannot have control characters".into());
    }
    Ok(text.into())
}

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
    fn what_is_read_without_the_table_is_what_the_table_says() {
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
    fn mistakes_are_told() {
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
            ("--url http://h/ -- x", "cannot be used with"),
            (
                "--url http://h/ --header secret",
                "write it like `Name: value`",
            ),
            (
                "--url http://h/ --header-env A",
                "write it like `Authorization=MY_TOKEN`",
            ),
        ] {
            let told = parse(line).unwrap_err();
            assert!(told.contains(problem), "{told}");
        }
    }
}
