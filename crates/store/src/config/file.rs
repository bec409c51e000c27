//! Reading the config file, with the place of each mistake.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use mainstay_http_core::serve::limits as serve;
use mainstay_protocol::limits::{EVENTS, Kept, Limit, TABLE};
use mainstay_protocol::policy::{Retry, UnknownRetry};
use mainstay_report::{Exit, Report, plain};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Config, Ignored, ServerConfig, Serving, Settings, serving};
use crate::paths::Paths;
use crate::state;

mod mistake;
mod value;
pub use mistake::nearest;

/// The largest config file.
const FILE_BYTES: u64 = 1024 * 1024;
/// The keys at the top level.
const TOP: [&str; 5] = ["defaults", "server", "serve", "events", "reap"];
/// Keys of `[defaults]` that are not limits.
pub const COMMON: [&str; 10] = [
    "tier",
    "require_tier",
    "retry",
    "lazy",
    "advertise_list_changed",
    "watch",
    "cache",
    "record_file",
    "record_secrets",
    "notify",
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
pub const SERVE: [&str; 5] = [
    "listen",
    "token_file",
    "allow_host",
    "allow_origin",
    "allow_user",
];

/// Keys of `[reap]`.
pub const REAP: [&str; 1] = ["protect"];

/// The config key of a limit.
pub fn key<L>(limit: &Limit<L>) -> String {
    limit.name.replace('-', "_")
}

pub(super) fn load(paths: &Paths) -> Result<Config, Report> {
    match text(paths)? {
        Some((path, home, text)) => parse(&path, home, &text),
        None => Ok(Config::default()),
    }
}

pub(super) fn load_for(paths: &Paths, name: &str) -> Result<(Config, Vec<Ignored>), Report> {
    match text(paths)? {
        Some((path, home, text)) => parse_for(name, &path, home, &text),
        None => Ok((Config::default(), Vec::new())),
    }
}

/// The config file, the home that it is in, and what it says.
fn text(paths: &Paths) -> Result<Option<(PathBuf, &Path, String)>, Report> {
    let (Some(path), Some(home)) = (paths.config_file(), paths.home()) else {
        return Ok(None);
    };
    let trouble = |cause: String| {
        Report::new(
            Exit::Failed,
            format!("cannot read the config file {}", path.display()),
        )
        .because(cause)
    };
    let bytes = match state::read_named(&path, FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if is_none(&error, &path) => return Ok(None),
        Err(error) => return Err(trouble(plain(&error))),
    };
    let text = String::from_utf8(bytes).map_err(|_| {
        trouble("it is not UTF-8".into()).hint("save it as UTF-8 text, which TOML must be")
    })?;
    Ok(Some((path, home, text)))
}

/// Whether there is no config file, or none that this user could have: a home of root's that we may not look into has none for us.
fn is_none(error: &io::Error, path: &Path) -> bool {
    let kind = error.kind();
    let hidden = kind == io::ErrorKind::PermissionDenied && path.symlink_metadata().is_err();
    hidden || matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Reads a config file's text.
pub fn parse(path: &Path, home: &Path, text: &str) -> Result<Config, Report> {
    read(path, home, text, |(_, mistake)| Err(mistake))
}

/// The same for one server: `[defaults]`, the tables of others, and those of the HTTP front and of the events, may have
/// mistakes. A default that is not understood is left out, because the server would run without it, too.
pub(super) fn parse_for(
    name: &str,
    path: &Path,
    home: &Path,
    text: &str,
) -> Result<(Config, Vec<Ignored>), Report> {
    let mut ignored = Vec::new();
    let config = read(path, home, text, |(table, mistake)| {
        if table == Place::Server(name) {
            return Err(mistake);
        }
        ignored.push(Ignored {
            concerns: table == Place::Defaults,
            mistake,
        });
        Ok(())
    })?;
    Ok((config, ignored))
}

/// The table that has a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place<'n> {
    Defaults,
    Server(&'n str),
    /// That of the HTTP front, of the events or of `reap`.
    Other,
}

type Misread<'n> = (Place<'n>, Report);

fn read(
    path: &Path,
    home: &Path,
    text: &str,
    mut forgive: impl FnMut(Misread<'_>) -> Result<(), Report>,
) -> Result<Config, Report> {
    let reader = Reader { path, home, text };
    let top = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        let message = error.message().replace('\n', ", ");
        reader
            .mistake(&at, format!("not valid TOML: {message}"))
            .hint(mistake::syntax_hint(text, &message))
    })?;
    let mut config = Config::default();
    for (name, value) in top.get_ref() {
        match name.get_ref().as_ref() {
            "defaults" => {
                let table = reader.table(value, "defaults")?;
                config.defaults = reader.defaults(table, &mut forgive)?;
            }
            "server" => {
                for (server, value) in reader.table(value, "server")? {
                    let server = server.get_ref().to_string();
                    let label = format!("server.{server}");
                    let table = reader.table(value, &label);
                    match table.and_then(|table| reader.server(table, &label)) {
                        Ok(read) => drop(config.servers.insert(server, read)),
                        Err(mistake) => forgive((Place::Server(&server), mistake))?,
                    }
                }
            }
            "serve" => {
                let table = reader.table(value, "serve");
                match table.and_then(|table| reader.serve(table)) {
                    Ok(read) => config.serve = read,
                    Err(mistake) => forgive((Place::Other, mistake))?,
                }
            }
            "events" => {
                let table = reader.table(value, "events");
                match table.and_then(|table| reader.events(table)) {
                    Ok(read) => config.events = read,
                    Err(mistake) => forgive((Place::Other, mistake))?,
                }
            }
            "reap" => {
                let table = reader.table(value, "reap");
                match table.and_then(|table| reader.reap(table)) {
                    Ok(protect) => config.protect = protect,
                    Err(mistake) => forgive((Place::Other, mistake))?,
                }
            }
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
    fn defaults(
        &self,
        table: &Table<'_>,
        forgive: &mut impl FnMut(Misread<'_>) -> Result<(), Report>,
    ) -> Result<Settings, Report> {
        let mut settings = Settings::default();
        for (name, value) in table {
            let mistake = match self.setting(&mut settings, name.get_ref(), value) {
                Ok(true) => continue,
                Ok(false) => {
                    let place = "in [defaults]";
                    self.unknown(&name.span(), name.get_ref(), place, &of_all())
                }
                // Without it a server would be contained less strongly than the user demands.
                Err(mistake) if name.get_ref() == "require_tier" => return Err(mistake),
                Err(mistake) => mistake,
            };
            forgive((Place::Defaults, mistake))?;
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
                    let place = format!("in [{label}]");
                    return Err(self.unknown(&name.span(), other, &place, &of_servers()));
                }
            }
        }
        if server.command.is_none() && !server.args.is_empty() {
            return Err(self
                .mistake(
                    &place(table, "args"),
                    format!("[{label}] has `args` but no `command`"),
                )
                .hint("add `command = \"…\"`, or leave `args` out"));
        }
        if server.command.is_some() && server.url.is_some() {
            return Err(self
                .mistake(
                    &place(table, "url"),
                    format!("[{label}] has both `command` and `url`"),
                )
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
                            .hint(mistake::leave_out(key_name, &serving::LISTEN.to_string()))
                    })?;
                    serving.listen = Some(address);
                }
                "token_file" => {
                    let text = self.string(value, "token_file")?;
                    serving.token_file = Some(self.at_home(&text));
                }
                "allow_host" => serving.hosts = self.strings(value, "allow_host")?,
                "allow_origin" => serving.origins = self.strings(value, "allow_origin")?,
                "allow_user" => serving.users = self.users(value)?,
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

    fn events(&self, table: &Table<'_>) -> Result<Kept, Report> {
        let mut kept = Kept::default();
        for (name, value) in table {
            let key_name = name.get_ref().as_ref();
            let Some(limit) = EVENTS.iter().find(|limit| key(limit) == key_name) else {
                let known: Vec<String> = EVENTS.iter().map(key).collect();
                return Err(self.unknown(&name.span(), key_name, "in [events]", &known));
            };
            *(limit.of)(&mut kept) = self.quantity(limit, value, key_name)?;
        }
        Ok(kept)
    }

    /// The words that `reap` spares.
    fn reap(&self, table: &Table<'_>) -> Result<Vec<String>, Report> {
        let mut protect = Vec::new();
        for (name, value) in table {
            let key_name = name.get_ref().as_ref();
            if !REAP.contains(&key_name) {
                return Err(self.unknown(&name.span(), key_name, "in [reap]", &REAP));
            }
            protect = self.strings(value, key_name)?;
            if protect.iter().any(String::is_empty) {
                let problem = "`protect` has an empty word, which every command contains";
                let report = self.mistake(&value.span(), problem);
                return Err(report.hint("remove the empty word"));
            }
        }
        Ok(protect)
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
                        .hint(mistake::leave_out(name, Retry::default().word()))
                })?);
            }
            "lazy" => settings.lazy = Some(self.boolean(value, name)?),
            "advertise_list_changed" => settings.advertise = Some(self.boolean(value, name)?),
            // `record` is the name of earlier versions.
            "cache" | "record" => settings.cache = Some(self.boolean(value, name)?),
            "record_file" => settings.frames = Some(self.absolute(value, name)?),
            "record_secrets" => settings.secrets = Some(self.boolean(value, name)?),
            "notify" => settings.notify = Some(self.strings(value, name)?),
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
}

/// Where a key stands.
fn place(table: &Table<'_>, key: &str) -> Range<usize> {
    let mut keys = table.keys();
    keys.find(|name| name.get_ref() == key)
        .map_or(0..0, Spanned::span)
}

/// The keys of `[defaults]`.
fn of_all() -> Vec<String> {
    let limits = TABLE.iter().map(key);
    limits.chain(COMMON.map(String::from)).collect()
}

/// The keys that a server may have.
fn of_servers() -> Vec<String> {
    let mut keys = of_all();
    keys.extend(SERVER.map(String::from));
    keys
}

#[cfg(test)]
mod tests;
