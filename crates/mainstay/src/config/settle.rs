//! From wishes to what is done: name, command, limits and tiers of one `run`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use mainstay_core::lease::{LEASE_VARIABLE, name_trouble};
use mainstay_core::limits::Limits;
use mainstay_core::policy::Policy;
use mainstay_core::tier::Tier;

use super::file::nearest;
use super::{Config, ServerConfig};
use crate::bridge::spec::{self, Header, Spec};
use crate::cli::default_name;
use crate::cli::run_options::RunOptions;
use crate::debts::Source;
use crate::exit::Exit;
use crate::report::Report;

/// What one `run` does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The server's name.
    pub name: String,
    /// The server command, never empty.
    pub argv: Vec<OsString>,
    /// Variables added to the server's environment.
    pub env: BTreeMap<String, String>,
    /// The directory it runs in; none is ours.
    pub cwd: Option<PathBuf>,
    /// Every limit.
    pub limits: Limits,
    /// The tier that is wished for.
    pub tier: Option<Tier>,
    /// The weakest tier that will do.
    pub require_tier: Option<Tier>,
    /// What is chosen beyond numbers.
    pub policy: Policy,
    /// Paths whose changes restart the server; relative ones are relative to its directory.
    pub watch: Vec<PathBuf>,
    /// Whether openings are remembered and used.
    pub record: bool,
    /// The lease that it is started in.
    pub lease: Option<String>,
    /// The file that all frames are recorded in; a relative path is relative to our directory.
    pub frames: Option<PathBuf>,
    /// Whether secrets are recorded, too.
    pub secrets: bool,
    /// How long a server is kept for a client that lives, if that is set anywhere.
    pub linger: Option<u64>,
}

/// Puts options, config file and built-in values together.
pub fn resolve(options: &RunOptions, config: &Config) -> Result<Settled, Report> {
    let name = name_of(options)?;
    let server = config.server(&name);
    let bridge = bridge_of(options, &server, &name)?;
    let argv = match (&bridge, &server.command) {
        (Some(bridge), _) => bridge.argv(),
        (None, _) if !options.command.is_empty() => options.command.clone(),
        (None, Some(command)) => std::iter::once(command)
            .chain(&server.args)
            .map(OsString::from)
            .collect(),
        (None, None) => return Err(no_command(&name, config)),
    };
    let settings = options.settings().over(&server.settings);
    if let (Some(wish), Some(floor)) = (settings.tier, settings.require_tier)
        && wish < floor
    {
        return Err(Report::new(
            Exit::Usage,
            format!("tier `{wish}` is wished for, but at least `{floor}` is required"),
        )
        .hint("leave one of the two out, or wish for the stronger one"));
    }
    let lease = lease(options)?;
    let mut env = server.env;
    if let Some(mut bridge) = bridge {
        bridge.retry = settings.policy().retry.word().into();
        bridge.drain_ms = settings.limits().grace_eof_ms / 2;
        env.insert(spec::VARIABLE.into(), bridge.to_variable());
    }
    Ok(Settled {
        name,
        argv,
        env,
        cwd: server.cwd,
        limits: settings.limits(),
        tier: settings.tier,
        require_tier: settings.require_tier,
        policy: settings.policy(),
        linger: settings.limits.get("linger").copied(),
        record: settings.record.unwrap_or(true),
        frames: settings.frames,
        secrets: settings.secrets.unwrap_or(false),
        watch: settings.watch.unwrap_or_default(),
        lease,
    })
}

/// The server's name: given, or made from what is started. The config file has no part in it.
pub fn name_of(options: &RunOptions) -> Result<String, Report> {
    match (&options.name, &options.url) {
        (Some(name), _) => Ok(name.clone()),
        (None, Some(url)) => Ok(default_name::of_url(url)),
        (None, None) if options.command.is_empty() => Err(Report::new(
            Exit::Usage,
            "no server command given",
        )
        .hint(
            "write it behind `--`: `mainstay run -- npx -y @playwright/mcp`, or name one of the config file with `--name`",
        )),
        (None, None) => Ok(default_name::of(&options.command)),
    }
}

/// The lease: by its option, else by the variable that a host gave with the environment.
fn lease(options: &RunOptions) -> Result<Option<String>, Report> {
    if let Some(name) = &options.lease {
        return Ok(Some(name.clone()));
    }
    let Some(name) = std::env::var_os(LEASE_VARIABLE).filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let name = name.to_string_lossy().into_owned();
    match name_trouble(&name) {
        None => Ok(Some(name)),
        Some(problem) => Err(Report::new(
            Exit::Usage,
            format!("{LEASE_VARIABLE} names no lease: {problem}"),
        )),
    }
}

/// The bridge to an HTTP server, if that is what is asked for.
fn bridge_of(
    options: &RunOptions,
    server: &ServerConfig,
    name: &str,
) -> Result<Option<Spec>, Report> {
    let (url, from) = match (&options.url, &server.url) {
        (Some(url), _) => (url, Source::Flag),
        (None, Some(url)) if options.command.is_empty() => (url, Source::Config(name.into())),
        (None, _) if options.header.is_empty() && options.header_env.is_empty() => return Ok(None),
        (None, _) => {
            return Err(
                Report::new(Exit::Usage, "--header and --header-env need a --url").hint(
                    "a server that is started by a command is given nothing but its arguments",
                ),
            );
        }
    };
    let mut headers = Vec::new();
    for (name, variable) in &server.header_env {
        headers.push(variable_header(name, variable)?);
    }
    let config = Source::Config(name.into());
    for (name, value) in &server.headers {
        headers.push(Header::new(name, config.clone(), Some(value)));
    }
    for (name, variable) in &options.header_env {
        headers.push(variable_header(name, variable)?);
    }
    for (name, value) in &options.header {
        headers.push(Header::new(name, Source::Flag, Some(value)));
    }
    let spec = Spec::new(name, url, from, headers);
    if let Some(ours) = spec.reserved() {
        return Err(Report::new(
            Exit::Usage,
            format!("the header `{ours}` is not for you to set: it belongs to the connection or to MCP itself"),
        )
        .hint("leave it out"));
    }
    Ok(Some(spec))
}

fn variable_header(name: &str, variable: &str) -> Result<Header, Report> {
    if std::env::var(variable).is_err() {
        return Err(Report::new(
            Exit::Usage,
            format!("the variable {variable}, which is to give the header `{name}`, is not set"),
        )
        .hint("set it in the client's configuration of this server: most clients pass few variables on"));
    }
    Ok(Header::new(name, Source::Variable(variable.into()), None))
}

fn no_command(name: &str, config: &Config) -> Report {
    let with_command: Vec<&str> = config
        .servers
        .iter()
        .filter(|(_, server)| server.command.is_some())
        .map(|(name, _)| name.as_str())
        .collect();
    let problem = if config.servers.contains_key(name) {
        format!("no server command given, and [server.{name}] in the config file has none")
    } else {
        format!("no server command given, and the config file has no [server.{name}]")
    };
    let report = Report::new(Exit::Usage, problem);
    match nearest(name, &with_command) {
        Some(near) => report.hint(format!("did you mean `--name {near}`?")),
        None => report.hint("write the command behind `--`, or add it to the config file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file;
    use mainstay_core::policy::Retry;
    use std::path::Path;

    fn config() -> Config {
        let text = r#"
[defaults]
grace_eof = "3s"
grace_term = "3s"
kill_confirm = "3s"
retry = "never"
lazy = true
watch = ["src"]

[server.mine]
command = "serve"
args = ["--fast"]
env = { A = "1" }
grace_eof = "4s"
grace_term = "4s"
retry = "annotated"
record = false
watch = []

[server.other]
"#;
        file::parse(Path::new("c.toml"), Path::new("/h"), text).unwrap()
    }

    fn options(line: &str) -> RunOptions {
        RunOptions::parse_words(line.split_whitespace()).unwrap()
    }

    #[test]
    fn option_before_server_before_defaults_before_built_in() {
        let settled = resolve(&options("--name mine --grace-eof 5s"), &config()).unwrap();
        let limits = &settled.limits;
        assert_eq!(limits.grace_eof_ms, 5_000);
        assert_eq!(limits.grace_term_ms, 4_000);
        assert_eq!(limits.kill_confirm_ms, 3_000);
        assert_eq!(limits.opening_ms, 55_000);
        assert_eq!(settled.argv, ["serve", "--fast"]);
        assert_eq!(settled.env["A"], "1");
    }

    #[test]
    fn choices_count_in_the_same_order() {
        let mine = resolve(&options("--name mine --advertise-list-changed"), &config()).unwrap();
        assert_eq!(
            mine.policy,
            Policy {
                retry: Retry::Annotated,
                lazy: true,
                advertise: true
            }
        );
        assert!(!mine.record);
        assert!(mine.watch.is_empty(), "the server's own list counts");
        let line = "--name mine --retry safe --watch a --watch b/c";
        let mine = resolve(&options(line), &config()).unwrap();
        assert_eq!(mine.policy.retry, Retry::Safe);
        assert_eq!(mine.watch, [PathBuf::from("a"), "b/c".into()]);
        let other = resolve(&options("-- other --lazy"), &config()).unwrap();
        assert_eq!(other.policy.retry, Retry::Never);
        assert_eq!(other.watch, [PathBuf::from("src")]);
        let built_in = resolve(&options("-- x"), &Config::default()).unwrap();
        assert_eq!(built_in.policy, Policy::default());
        assert!(built_in.record && built_in.watch.is_empty());
        assert!(built_in.frames.is_none() && !built_in.secrets);
        let line = "--name mine --record a.jsonl --record-secrets";
        let recorded = resolve(&options(line), &config()).unwrap();
        assert_eq!(recorded.frames, Some("a.jsonl".into()));
        assert!(recorded.secrets && !recorded.record, "these are two things");
        let bare = resolve(&options("--no-record -- x"), &Config::default()).unwrap();
        assert!(!bare.record);
    }

    #[test]
    fn a_command_behind_the_dashes_wins_and_names_the_server() {
        let settled = resolve(&options("--name mine -- other -x"), &config()).unwrap();
        assert_eq!(settled.argv, ["other", "-x"]);
        let settled = resolve(&options("-- npx -y @playwright/mcp@latest"), &config()).unwrap();
        assert_eq!(settled.name, "playwright-mcp");
    }

    #[test]
    fn without_any_command_the_way_out_is_told() {
        let report = resolve(&options("--name mien"), &config()).unwrap_err();
        assert_eq!(
            report.to_string(),
            "error: no server command given, and the config file has no [server.mien]\nhint: did you mean `--name mine`?"
        );
        let report = resolve(&options(""), &config()).unwrap_err();
        assert_eq!(report.exit(), Exit::Usage);
    }

    #[test]
    fn contrary_tiers_are_told() {
        let report = resolve(
            &options("--tier subreaper --require-tier scope -- x"),
            &config(),
        )
        .unwrap_err();
        assert_eq!(
            report.problem(),
            "tier `subreaper` is wished for, but at least `scope` is required"
        );
    }
}
