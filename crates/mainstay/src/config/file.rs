//! Reading the config file, with the place of each mistake.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use mainstay_core::limits::{EVENTS, Kept, Limit, TABLE};
use mainstay_core::policy::UnknownRetry;
use mainstay_core::serve::limits as serve;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Config, ServerConfig, Serving, Settings, serving};
use crate::exit::Exit;
use crate::paths::Paths;
use crate::report::{Report, plain};
use crate::state;

mod mistake;
mod value;
pub use mistake::nearest;

/// The largest config file.
const FILE_BYTES: u64 = 1024 * 1024;
/// What may stand at the top.
const TOP: [&str; 4] = ["defaults", "server", "serve", "events"];
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
pub const SERVE: [&str; 5] = [
    "listen",
    "token_file",
    "allow_host",
    "allow_origin",
    "allow_user",
];

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

pub(super) fn load_for(paths: &Paths, name: &str) -> Result<(Config, Vec<Report>), Report> {
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
    let text = String::from_utf8(bytes).map_err(|_| trouble("it is not UTF-8".into()))?;
    Ok(Some((path, home, text)))
}

/// Whether there is no config file, or none that this user could have: a home of root's that we may not look into has none for us.
fn is_none(error: &io::Error, path: &Path) -> bool {
    let kind = error.kind();
    let hidden = kind == io::ErrorKind::PermissionDenied && path.symlink_metadata().is_err();
    hidden || matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Reads a config file's text.
pub(super) fn parse(path: &Path, home: &Path, text: &str) -> Result<Config, Report> {
    read(path, home, text, |(_, mistake)| Err(mistake))
}

/// The same for one server: the tables of others, and those of the HTTP front and of the events, may have mistakes.
pub(super) fn parse_for(
    name: &str,
    path: &Path,
    home: &Path,
    text: &str,
) -> Result<(Config, Vec<Report>), Report> {
    let mut elsewhere = Vec::new();
    let config = read(path, home, text, |(table, mistake)| {
        if table == Some(name) {
            return Err(mistake);
        }
        elsewhere.push(mistake);
        Ok(())
    })?;
    Ok((config, elsewhere))
}

/// The server whose table has a mistake, or none for that of the front or of the events; and the mistake.
type Misread<'n> = (Option<&'n str>, Report);

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
                    let table = reader.table(value, &label);
                    match table.and_then(|table| reader.server(table, &label)) {
                        Ok(read) => drop(config.servers.insert(server, read)),
                        Err(mistake) => forgive((Some(&server), mistake))?,
                    }
                }
            }
            "serve" => {
                let table = reader.table(value, "serve");
                match table.and_then(|table| reader.serve(table)) {
                    Ok(read) => config.serve = read,
                    Err(mistake) => forgive((None, mistake))?,
                }
            }
            "events" => {
                let table = reader.table(value, "events");
                match table.and_then(|table| reader.events(table)) {
                    Ok(read) => config.events = read,
                    Err(mistake) => forgive((None, mistake))?,
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
    fn defaults(&self, table: &Table<'_>) -> Result<Settings, Report> {
        let mut settings = Settings::default();
        for (name, value) in table {
            if !self.setting(&mut settings, name.get_ref(), value)? {
                let place = "in [defaults]";
                return Err(self.unknown(&name.span(), name.get_ref(), place, &of_all()));
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
}

/// Where a key stands.
fn place(table: &Table<'_>, key: &str) -> Range<usize> {
    let mut keys = table.keys();
    keys.find(|name| name.get_ref() == key)
        .map_or(0..0, Spanned::span)
}

/// The keys that may stand in `[defaults]`.
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
