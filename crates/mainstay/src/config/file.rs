//! Reading the config file, with the place of each mistake.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use mainstay_core::http::headers::is_token;
use mainstay_core::limits::{Limit, TABLE};
use mainstay_core::policy::UnknownRetry;
use mainstay_core::serve::limits as serve;
use mainstay_core::tier::Tier;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Config, ServerConfig, Serving, Settings, quantity, serving};
use crate::exit::Exit;
use crate::http::target::Target;
use crate::paths::Paths;
use crate::report::{Report, plain};

/// The largest config file.
const FILE_BYTES: u64 = 1024 * 1024;
/// What may stand at the top.
const TOP: [&str; 3] = ["defaults", "server", "serve"];
/// Keys beside the limits that may stand in `[defaults]`.
pub const COMMON: [&str; 9] = [
    "tier",
    "require_tier",
    "retry",
    "lazy",
    "advertise_list_changed",
    "watch",
    "record",
    "record_file",
    "record_secrets",
];
/// Keys that only a server has.
pub const SERVER: [&str; 8] = [
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "header_env",
    "share",
];

/// Keys of `[serve]` beside its limits.
pub const SERVE: [&str; 4] = ["listen", "token_file", "allow_host", "allow_origin"];

/// The config key of a limit.
pub fn key<L>(limit: &Limit<L>) -> String {
    limit.name.replace('-', "_")
}

pub(super) fn load(paths: &Paths) -> Result<Config, Report> {
    let path = paths.config_file();
    let trouble = |cause: String| {
        Report::new(
            Exit::Failed,
            format!("cannot read the config file {}", path.display()),
        )
        .because(cause)
    };
    match fs::metadata(&path) {
        Ok(meta) if meta.len() > FILE_BYTES => {
            return Err(trouble(format!("it is larger than {FILE_BYTES} bytes")));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(error) => return Err(trouble(plain(&error))),
    }
    let text = fs::read_to_string(&path).map_err(|error| trouble(plain(&error)))?;
    parse(&path, paths.home(), &text)
}

/// Reads a config file's text.
pub(super) fn parse(path: &Path, home: &Path, text: &str) -> Result<Config, Report> {
    let reader = Reader { path, home, text };
    let top = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        let message = error.message().replace('\n', ", ");
        reader
            .mistake(&at, format!("not valid TOML: {message}"))
            .hint("correct that line, or remove the file: nothing needs it")
    })?;
    let mut config = Config::default();
    for (name, value) in top.get_ref() {
        match name.get_ref().as_ref() {
            "defaults" => config.defaults = reader.defaults(reader.table(value, "defaults")?)?,
            "server" => {
                for (server, value) in reader.table(value, "server")? {
                    let server = server.get_ref().to_string();
                    let label = format!("server.{server}");
                    let read = reader.server(reader.table(value, &label)?, &label)?;
                    config.servers.insert(server, read);
                }
            }
            "serve" => config.serve = reader.serve(reader.table(value, "serve")?)?,
            other => return Err(reader.homeless(&name.span(), other)),
        }
    }
    Ok(config)
}

struct Reader<'t> {
    path: &'t Path,
    home: &'t Path,
    text: &'t str,
}

type Table<'t> = DeTable<'t>;
type Value<'t> = Spanned<DeValue<'t>>;

impl Reader<'_> {
    fn defaults(&self, table: &Table<'_>) -> Result<Settings, Report> {
        let mut settings = Settings::default();
        for (name, value) in table {
            if !self.setting(&mut settings, name.get_ref(), value)? {
                let known = known(&COMMON);
                return Err(self.unknown(&name.span(), name.get_ref(), "in [defaults]", &known));
            }
        }
        Ok(settings)
    }

    fn server(&self, table: &Table<'_>, label: &str) -> Result<ServerConfig, Report> {
        let mut server = ServerConfig::default();
        for (name, value) in table {
            if self.setting(&mut server.settings, name.get_ref(), value)? {
                continue;
            }
            match name.get_ref().as_ref() {
                "command" => server.command = Some(self.string(value, "command")?),
                "args" => server.args = self.strings(value, "args")?,
                "env" => server.env = self.variables(value)?,
                "cwd" => server.cwd = Some(self.absolute(value, "cwd")?),
                "url" => server.url = Some(self.url(value)?),
                "headers" => server.headers = self.headers(value, "headers")?,
                "header_env" => server.header_env = self.headers(value, "header_env")?,
                "share" => server.share = self.boolean(value, "share")?,
                other => {
                    let mut known = known(&COMMON);
                    known.extend(SERVER.map(String::from));
                    let place = format!("in [{label}]");
                    return Err(self.unknown(&name.span(), other, &place, &known));
                }
            }
        }
        if server.command.is_none() && !server.args.is_empty() {
            let at = table
                .iter()
                .find(|(name, _)| name.get_ref() == "args")
                .map_or(0..0, |(name, _)| name.span());
            return Err(self
                .mistake(&at, format!("[{label}] has `args` but no `command`"))
                .hint("add `command = \"…\"`, or leave `args` out"));
        }
        if server.command.is_some() && server.url.is_some() {
            let at = table
                .iter()
                .find(|(name, _)| name.get_ref() == "url")
                .map_or(0..0, |(name, _)| name.span());
            return Err(self
                .mistake(&at, format!("[{label}] has both `command` and `url`"))
                .hint(
                    "a server is either started or reached by its URL: leave one of the two out",
                ));
        }
        Ok(server)
    }

    fn serve(&self, table: &Table<'_>) -> Result<Serving, Report> {
        let mut serving = Serving::default();
        for (name, value) in table {
            let key_name = name.get_ref().as_ref();
            match key_name {
                "listen" => {
                    let text = self.string(value, "listen")?;
                    let address = serving::address(&text).map_err(|problem| {
                        self.mistake(&value.span(), format!("`listen`: {problem}"))
                    })?;
                    serving.listen = Some(address);
                }
                "token_file" => {
                    let text = self.string(value, "token_file")?;
                    serving.token_file = Some(self.at_home(&text));
                }
                "allow_host" => serving.hosts = self.strings(value, "allow_host")?,
                "allow_origin" => serving.origins = self.strings(value, "allow_origin")?,
                other => {
                    let Some(limit) = serve::TABLE.iter().find(|limit| key(limit) == other) else {
                        let mut known: Vec<String> = serve::TABLE.iter().map(key).collect();
                        known.extend(SERVE.map(String::from));
                        return Err(self.unknown(&name.span(), other, "in [serve]", &known));
                    };
                    let number = self.quantity(limit, value, other)?;
                    serving.limits.insert(limit.name, number);
                }
            }
        }
        Ok(serving)
    }

    fn quantity<L>(&self, limit: &Limit<L>, value: &Value<'_>, name: &str) -> Result<u64, Report> {
        let text = match (value.get_ref().as_str(), value.get_ref().as_integer()) {
            (Some(text), _) => text,
            (None, Some(number)) if number.radix() == 10 => number.as_str(),
            (None, _) => return Err(self.wrong_type(value, name, "a text or a number")),
        };
        quantity::parse(limit, text)
            .map_err(|problem| self.mistake(&value.span(), format!("`{name}`: {problem}")))
    }

    /// Takes a key that `[defaults]` and servers have in common; false if it is none of those.
    fn setting(
        &self,
        settings: &mut Settings,
        name: &str,
        value: &Value<'_>,
    ) -> Result<bool, Report> {
        match name {
            "tier" => settings.tier = Some(self.tier(value, name)?),
            "require_tier" => settings.require_tier = Some(self.tier(value, name)?),
            "retry" => {
                let word = self.string(value, name)?;
                settings.retry = Some(word.parse().map_err(|problem: UnknownRetry| {
                    self.mistake(&value.span(), format!("`{name}`: `{word}` is {problem}"))
                })?);
            }
            "lazy" => settings.lazy = Some(self.boolean(value, name)?),
            "advertise_list_changed" => settings.advertise = Some(self.boolean(value, name)?),
            "record" => settings.record = Some(self.boolean(value, name)?),
            "record_file" => settings.frames = Some(self.absolute(value, name)?),
            "record_secrets" => settings.secrets = Some(self.boolean(value, name)?),
            "watch" => settings.watch = Some(self.watched(value)?),
            _ => {
                let Some(limit) = TABLE.iter().find(|limit| key(limit) == name) else {
                    return Ok(false);
                };
                let number = self.quantity(limit, value, name)?;
                settings.limits.insert(limit.name, number);
            }
        }
        Ok(true)
    }

    fn tier(&self, value: &Value<'_>, name: &str) -> Result<Tier, Report> {
        self.string(value, name)?
            .parse()
            .map_err(|problem| self.mistake(&value.span(), format!("`{name}`: {problem}")))
    }

    fn boolean(&self, value: &Value<'_>, name: &str) -> Result<bool, Report> {
        let read = value.get_ref().as_bool();
        read.ok_or_else(|| self.wrong_type(value, name, "`true` or `false`"))
    }

    /// Paths that may be relative: to the directory of the server, which is not known here.
    fn watched(&self, value: &Value<'_>) -> Result<Vec<PathBuf>, Report> {
        let texts = self.strings(value, "watch")?;
        if texts.iter().any(String::is_empty) {
            return Err(self.mistake(&value.span(), "`watch` has an empty path"));
        }
        Ok(texts.iter().map(|text| self.at_home(text)).collect())
    }

    /// A path, with `~` for the home directory.
    fn at_home(&self, text: &str) -> PathBuf {
        match text.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None if text == "~" => self.home.into(),
            None => PathBuf::from(text),
        }
    }

    fn absolute(&self, value: &Value<'_>, name: &str) -> Result<PathBuf, Report> {
        let text = self.string(value, name)?;
        let path = self.at_home(&text);
        if path.is_absolute() {
            return Ok(path);
        }
        Err(self
            .mistake(
                &value.span(),
                format!("`{name}` is not an absolute path: `{text}`"),
            )
            .hint("begin it with `/` or `~/`"))
    }

    fn variables(&self, value: &Value<'_>) -> Result<BTreeMap<String, String>, Report> {
        let mut variables = BTreeMap::new();
        for (name, value) in self.table(value, "env")? {
            let variable = name.get_ref();
            if variable.is_empty() || variable.contains(['=', '\0']) {
                return Err(self.mistake(
                    &name.span(),
                    format!("`{variable}` cannot be the name of a variable"),
                ));
            }
            variables.insert(variable.to_string(), self.string(value, variable)?);
        }
        Ok(variables)
    }

    fn url(&self, value: &Value<'_>) -> Result<String, Report> {
        let url = self.string(value, "url")?;
        match Target::parse(&url) {
            Ok(_) => Ok(url),
            Err(why) => Err(self.mistake(&value.span(), format!("`url` cannot be used: {why}"))),
        }
    }

    /// Headers by name; no message of ours repeats a value.
    fn headers(&self, value: &Value<'_>, key: &str) -> Result<BTreeMap<String, String>, Report> {
        let mut headers = BTreeMap::new();
        for (name, value) in self.table(value, key)? {
            let header = name.get_ref();
            if !is_token(header) {
                return Err(self.mistake(
                    &name.span(),
                    format!("`{header}` cannot be the name of a header"),
                ));
            }
            headers.insert(header.to_string(), self.string(value, header)?);
        }
        Ok(headers)
    }

    fn strings(&self, value: &Value<'_>, name: &str) -> Result<Vec<String>, Report> {
        let Some(list) = value.get_ref().as_array() else {
            return Err(self.wrong_type(value, name, "a list of texts"));
        };
        list.iter().map(|value| self.string(value, name)).collect()
    }

    fn string(&self, value: &Value<'_>, name: &str) -> Result<String, Report> {
        match value.get_ref().as_str() {
            Some(text) if text.contains('\0') => Err(self.mistake(
                &value.span(),
                format!("`{name}` has a zero byte, which no process can be given"),
            )),
            Some(text) => Ok(text.into()),
            None => Err(self.wrong_type(value, name, "a text")),
        }
    }

    fn table<'v, 't>(&self, value: &'v Value<'t>, name: &str) -> Result<&'v Table<'t>, Report> {
        value
            .get_ref()
            .as_table()
            .ok_or_else(|| self.wrong_type(value, name, "a table"))
    }

    fn wrong_type(&self, value: &Value<'_>, name: &str, wanted: &str) -> Report {
        let found = article(value.get_ref().type_str());
        self.mistake(&value.span(), format!("`{name}` is {found}, not {wanted}"))
    }

    fn unknown<S: AsRef<str>>(
        &self,
        at: &Range<usize>,
        name: &str,
        place: &str,
        known: &[S],
    ) -> Report {
        let report = self.mistake(at, format!("unknown key `{name}` {place}"));
        match nearest(name, known) {
            Some(near) => report.hint(format!("did you mean `{near}`?")),
            None => report.hint(format!(
                "known keys here: {}",
                known
                    .iter()
                    .map(AsRef::as_ref)
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
        }
    }

    /// A key at the top that is neither of the two tables.
    fn homeless(&self, at: &Range<usize>, name: &str) -> Report {
        let mut settings = known(&COMMON);
        settings.extend(SERVER.map(String::from));
        let report = self.unknown(at, name, "at the top", &TOP);
        match nearest(name, &settings) {
            Some(near) if nearest(name, &TOP).is_none() => report.hint(format!(
                "write `{near}` below a line `[server.NAME]`{}",
                if SERVER.contains(&near) {
                    ""
                } else {
                    ", or `[defaults]` for all servers"
                }
            )),
            Some(_) | None => report,
        }
    }

    fn mistake(&self, at: &Range<usize>, problem: impl std::fmt::Display) -> Report {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        Report::new(
            Exit::Failed,
            format!("{}:{line}: {problem}", self.path.display()),
        )
    }
}

/// The keys of all limits, and some more.
fn known(more: &[&str]) -> Vec<String> {
    TABLE
        .iter()
        .map(key)
        .chain(more.iter().map(|&word| word.into()))
        .collect()
}

/// The known word that was probably meant.
pub fn nearest<'k, S: AsRef<str>>(word: &str, known: &'k [S]) -> Option<&'k str> {
    known
        .iter()
        .map(|candidate| {
            let candidate = candidate.as_ref();
            (strsim::jaro_winkler(word, candidate), candidate)
        })
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

fn article(word: &str) -> String {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) {
        format!("an {word}")
    } else {
        format!("a {word}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_core::policy::Retry;

    fn read(text: &str) -> Result<Config, Report> {
        parse(Path::new("c.toml"), Path::new("/home/ann"), text)
    }

    #[test]
    fn everything_that_may_stand_there() {
        let config = read(
            r#"
[defaults]
grace_eof = "3s"
grace_term = 0
stderr_tail_lines = 10
stderr_tail_bytes = "4KiB"
tier = "subreaper"
retry = "annotated"
memory_max = "512MiB"
hibernate = "10m"

[server.play]
grace_eof = "500ms"
require_tier = "cgroup"
command = "npx"
args = ["-y", "@playwright/mcp"]
env = { A = "1" }
cwd = "~/work"
lazy = true
advertise_list_changed = false
watch = ["src", "~/lib", "/opt/x"]
record = false
record_file = "~/frames.jsonl"
record_secrets = true
record_bytes = "1MiB"

[server."dotted.name"]
"#,
        )
        .unwrap();
        let play = config.server("play");
        let limits = play.settings.limits();
        assert_eq!((limits.grace_eof_ms, limits.grace_term_ms), (500, 0));
        assert_eq!(limits.stderr_tail_bytes, 4096);
        assert_eq!(limits.opening_ms, 55_000);
        assert_eq!(play.settings.tier, Some(Tier::Subreaper));
        assert_eq!(play.settings.require_tier, Some(Tier::Cgroup));
        assert_eq!(play.settings.frames, Some("/home/ann/frames.jsonl".into()));
        assert_eq!(play.settings.secrets, Some(true));
        assert_eq!(limits.record_bytes, 1 << 20);
        assert_eq!(play.command.as_deref(), Some("npx"));
        assert_eq!(play.args, ["-y", "@playwright/mcp"]);
        assert_eq!(play.env["A"], "1");
        assert_eq!(play.cwd, Some("/home/ann/work".into()));
        assert_eq!(limits.memory_max_bytes, 512 << 20);
        assert_eq!(limits.hibernate_ms, 600_000);
        assert_eq!(play.settings.retry, Some(Retry::Annotated));
        assert_eq!(play.settings.lazy, Some(true));
        assert_eq!(play.settings.advertise, Some(false));
        assert_eq!(play.settings.record, Some(false));
        let watch = ["src", "/home/ann/lib", "/opt/x"].map(PathBuf::from);
        assert_eq!(play.settings.watch, Some(watch.into()));
        let other = config.server("somebody");
        assert_eq!(other.settings.limits().grace_eof_ms, 3_000);
        assert_eq!(other.command, None);
        assert!(config.servers.contains_key("dotted.name"));
    }

    #[test]
    fn each_mistake_names_its_place_and_what_was_meant() {
        for (text, problem, hint) in [
            (
                "[defaults]\ngrce_eof = \"2s\"",
                "c.toml:2: unknown key `grce_eof` in [defaults]",
                Some("did you mean `grace_eof`?"),
            ),
            (
                "[server.x]\n\ncomand = \"y\"",
                "c.toml:3: unknown key `comand` in [server.x]",
                Some("did you mean `command`?"),
            ),
            (
                "[servers.x]",
                "c.toml:1: unknown key `servers` at the top",
                Some("did you mean `server`?"),
            ),
            (
                "grace-eof = \"3s\"",
                "c.toml:1: unknown key `grace-eof` at the top",
                Some(
                    "write `grace_eof` below a line `[server.NAME]`, or `[defaults]` for all servers",
                ),
            ),
            (
                "command = \"y\"",
                "c.toml:1: unknown key `command` at the top",
                Some("write `command` below a line `[server.NAME]`"),
            ),
            (
                "[defaults]\ncommand = \"y\"",
                "c.toml:2: unknown key `command` in [defaults]",
                None,
            ),
            (
                "[defaults]\ngrace_eof = 2",
                "c.toml:2: `grace_eof`: `2` is not a time (write it like `1500ms`, `2s`, `5m` or `1h`)",
                None,
            ),
            (
                "[defaults]\nstderr_tail_bytes = \"8KB\"",
                "c.toml:2: `stderr_tail_bytes`: `8KB` is not a size (write it like `8192`, `8KiB`, `16MiB` or `1GiB`)",
                None,
            ),
            (
                "[defaults]\nkill_confirm = \"1ms\"",
                "c.toml:2: `kill_confirm`: `1ms` is out of range (10ms to 1m)",
                None,
            ),
            (
                "[defaults]\ngrace_eof = true",
                "c.toml:2: `grace_eof` is a boolean, not a text or a number",
                None,
            ),
            (
                "[defaults]\ntier = \"jail\"",
                "c.toml:2: `tier`: unknown tier `jail` (one of subreaper, cgroup, scope, pidns)",
                None,
            ),
            (
                "[defaults]\nretry = \"always\"",
                "c.toml:2: `retry`: `always` is not a way to retry: say never, safe or annotated",
                None,
            ),
            (
                "[defaults]\nlazy = \"yes\"",
                "c.toml:2: `lazy` is a string, not `true` or `false`",
                None,
            ),
            (
                "[server.x]\nrecord_file = \"x\"",
                "c.toml:2: `record_file` is not an absolute path: `x`",
                Some("begin it with `/` or `~/`"),
            ),
            (
                "[server.x]\nwatch = \"src\"",
                "c.toml:2: `watch` is a string, not a list of texts",
                None,
            ),
            (
                "[server.x]\nargs = [\"a\"]",
                "c.toml:2: [server.x] has `args` but no `command`",
                Some("add `command = \"…\"`, or leave `args` out"),
            ),
            (
                "[server.x]\ncommand = \"c\"\nargs = [1]",
                "c.toml:3: `args` is an integer, not a text",
                None,
            ),
            (
                "[server.x]\ncwd = \"work\"",
                "c.toml:2: `cwd` is not an absolute path: `work`",
                Some("begin it with `/` or `~/`"),
            ),
            (
                "[server.x]\nenv = { \"A=B\" = \"1\" }",
                "c.toml:2: `A=B` cannot be the name of a variable",
                None,
            ),
            (
                "defaults = 1",
                "c.toml:1: `defaults` is an integer, not a table",
                None,
            ),
        ] {
            let report = read(text).unwrap_err();
            assert_eq!(report.problem(), problem);
            if hint.is_some() {
                assert_eq!(report.advice(), hint, "{text}");
            }
            assert_eq!(report.exit(), Exit::Failed);
        }
    }

    #[test]
    fn broken_toml_names_its_line() {
        let report = read("[defaults]\ngrace_eof = \n").unwrap_err();
        assert!(
            report.problem().starts_with("c.toml:2: not valid TOML: "),
            "{report}"
        );
        let twice = read("[defaults]\n[defaults]\n").unwrap_err();
        assert!(
            twice.problem().starts_with("c.toml:2: not valid TOML: "),
            "{twice}"
        );
    }
}
