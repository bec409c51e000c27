//! Combines the options, the config file and the defaults of one `run`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use mainstay_http::bridge::spec::{self, Header, Spec};
use mainstay_http::unclosed::Source;
use mainstay_protocol::lease::{LEASE_VARIABLE, name_trouble};
use mainstay_protocol::limits::Limits;
use mainstay_protocol::policy::Policy;
use mainstay_protocol::tier::Tier;
use mainstay_report::{Exit, Report};
use mainstay_store::config::file::nearest;
use mainstay_store::config::{Config, ServerConfig};

use super::run_options::RunOptions;
use mainstay_keeper::default_name;

/// All settings of one `run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedRun {
    pub name: String,
    /// The server command; never empty.
    pub argv: Vec<OsString>,
    /// Variables added to the server's environment.
    pub env: BTreeMap<String, String>,
    /// The directory that the server runs in; none means the current one.
    pub cwd: Option<PathBuf>,
    pub limits: Limits,
    pub tier: Option<Tier>,
    /// The weakest tier that is accepted.
    pub require_tier: Option<Tier>,
    pub policy: Policy,
    /// Paths whose changes restart the server; relative ones are relative to its directory.
    pub watch: Vec<PathBuf>,
    /// Whether handshakes and lists are remembered and used.
    pub cache: bool,
    /// Whether `mainstay learn` is the client.
    pub learns: bool,
    pub lease: Option<String>,
    /// The file of `--record`; a relative path is relative to the current directory.
    pub frames: Option<PathBuf>,
    /// Whether secrets are recorded too.
    pub secrets: bool,
    /// The command that tells the user that the server was given up; empty if there is none.
    pub notify: Vec<String>,
    /// How long the server is kept for a client that may reconnect; none if neither option nor config sets it.
    pub linger: Option<u64>,
}

/// Options count before the config file, and the config file before the defaults.
pub fn resolve(options: &RunOptions, config: &Config) -> Result<ResolvedRun, Report> {
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
            format!("tier `{wish}` is weaker than the required tier `{floor}`"),
        )
        .hint("leave one of the two out, or use the stronger tier for both"));
    }
    let lease = lease(options)?;
    let mut env = server.env;
    if let Some(mut bridge) = bridge {
        bridge.retry = settings.policy().retry.word().into();
        bridge.drain_ms = settings.limits().grace_eof_ms / 2;
        env.insert(spec::VARIABLE.into(), bridge.to_variable());
    }
    Ok(ResolvedRun {
        name,
        argv,
        env,
        cwd: server.cwd,
        limits: settings.limits(),
        tier: settings.tier,
        require_tier: settings.require_tier,
        policy: settings.policy(),
        linger: settings.limits.get("linger").copied(),
        cache: settings.cache.unwrap_or(true),
        learns: options.learn,
        frames: settings.frames,
        secrets: settings.secrets.unwrap_or(false),
        watch: settings.watch.unwrap_or_default(),
        notify: settings.notify.unwrap_or_default(),
        lease,
    })
}

/// The server's name: given, or made from the command or URL. The config file is not needed for it.
pub fn name_of(options: &RunOptions) -> Result<String, Report> {
    match (&options.name, &options.url) {
        (Some(name), _) => Ok(name.clone()),
        (None, Some(url)) => Ok(default_name::of_url(url)),
        (None, None) if options.command.is_empty() => Err(Report::new(
            Exit::Usage,
            "no server command given",
        )
        .hint(
            "write it after `--`: `mainstay run -- npx -y @playwright/mcp`, or use `--name` with a server of the config file",
        )),
        (None, None) => Ok(default_name::of(&options.command)),
    }
}

/// The lease: from the option, or from the variable that a host has set in the environment.
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
            format!("the variable {LEASE_VARIABLE} is not the name of a lease: {problem}"),
        )),
    }
}

/// The bridge to an HTTP server, if a URL is given.
fn bridge_of(
    options: &RunOptions,
    server: &ServerConfig,
    name: &str,
) -> Result<Option<Spec>, Report> {
    let (url, from) = match (&options.url, &server.url) {
        (Some(_), _) if !options.command.is_empty() => {
            return Err(
                Report::new(Exit::Usage, "--url and a server command are both given").hint(
                    "a server is either started or reached by its URL: leave one of the two out",
                ),
            );
        }
        (Some(url), _) => (url, Source::Flag),
        (None, Some(url)) if options.command.is_empty() => (url, Source::Config(name.into())),
        (None, _) if options.header.is_empty() && options.header_env.is_empty() => return Ok(None),
        (None, _) => {
            return Err(
                Report::new(Exit::Usage, "--header and --header-env need a --url").hint(
                    "headers are only sent to an HTTP server; give --url URL, or leave the headers out",
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
            format!("the header `{ours}` cannot be set, because mainstay sets it itself"),
        )
        .hint("leave it out"));
    }
    Ok(Some(spec))
}

fn variable_header(name: &str, variable: &str) -> Result<Header, Report> {
    if std::env::var(variable).is_err() {
        return Err(Report::new(
            Exit::Usage,
            format!("the variable {variable}, from which the header `{name}` is taken, is not set"),
        )
        .hint("set it in the client's configuration of this server, because most clients pass on only a few variables"));
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
        None => report.hint("write the command after `--`, or add it to the config file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_protocol::policy::Retry;
    use mainstay_store::config::file;
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
cache = false
watch = []

[server.other]
"#;
        file::parse(Path::new("c.toml"), Path::new("/h"), text).unwrap()
    }

    fn options(line: &str) -> RunOptions {
        RunOptions::parse_words(line.split_whitespace()).unwrap()
    }

    #[test]
    fn limits_come_from_option_then_server_table_then_defaults_then_built_in() {
        let resolved = resolve(&options("--name mine --grace-eof 5s"), &config()).unwrap();
        let limits = &resolved.limits;
        assert_eq!(limits.grace_eof_ms, 5_000);
        assert_eq!(limits.grace_term_ms, 4_000);
        assert_eq!(limits.kill_confirm_ms, 3_000);
        assert_eq!(limits.opening_ms, 55_000);
        assert_eq!(resolved.argv, ["serve", "--fast"]);
        assert_eq!(resolved.env["A"], "1");
    }

    #[test]
    fn other_settings_have_the_same_order_of_precedence() {
        let mine = resolve(&options("--name mine --advertise-list-changed"), &config()).unwrap();
        assert_eq!(
            mine.policy,
            Policy {
                retry: Retry::Annotated,
                lazy: true,
                advertise: true
            }
        );
        assert!(!mine.cache);
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
        assert!(built_in.cache && built_in.watch.is_empty());
        assert!(built_in.frames.is_none() && !built_in.secrets);
        let line = "--name mine --record a.jsonl --record-secrets";
        let recorded = resolve(&options(line), &config()).unwrap();
        assert_eq!(recorded.frames, Some("a.jsonl".into()));
        assert!(recorded.secrets && !recorded.cache, "these are two things");
        let bare = resolve(&options("--no-cache -- x"), &Config::default()).unwrap();
        assert!(!bare.cache);
    }

    #[test]
    fn a_command_after_the_dashes_wins_and_names_the_server() {
        let resolved = resolve(&options("--name mine -- other -x"), &config()).unwrap();
        assert_eq!(resolved.argv, ["other", "-x"]);
        let resolved = resolve(&options("-- npx -y @playwright/mcp@latest"), &config()).unwrap();
        assert_eq!(resolved.name, "playwright-mcp");
    }

    #[test]
    fn a_missing_command_is_an_error_with_a_hint() {
        let report = resolve(&options("--name mien"), &config()).unwrap_err();
        assert_eq!(
            report.to_string(),
            "error: no server command given, and the config file has no [server.mien]\nhint: did you mean `--name mine`?"
        );
        let report = resolve(&options(""), &config()).unwrap_err();
        assert_eq!(report.exit(), Exit::Usage);
    }

    #[test]
    fn a_url_and_a_command_exclude_each_other() {
        let report = resolve(&options("--url http://h/ -- cat"), &config()).unwrap_err();
        assert_eq!(
            report.to_string(),
            "error: --url and a server command are both given\n\
             hint: a server is either started or reached by its URL: leave one of the two out"
        );
    }

    #[test]
    fn a_tier_weaker_than_the_required_one_is_an_error() {
        let report = resolve(
            &options("--tier subreaper --require-tier scope -- x"),
            &config(),
        )
        .unwrap_err();
        assert_eq!(
            report.problem(),
            "tier `subreaper` is weaker than the required tier `scope`"
        );
    }
}
