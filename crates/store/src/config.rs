//! What the user wishes: the config file, the options, and the order in which they count.
//!
//! Option before `[server.NAME]` before `[defaults]` before what is built in. Anything that is not understood is an
//! error that names file and line; nothing is guessed. For one server, mistakes in the tables of others and in
//! `[defaults]` are warnings: a slip in one place must not stop every server of every client.

pub mod file;
pub mod quantity;
pub mod secret_file;
pub mod serving;
pub mod target;

use std::collections::BTreeMap;
use std::path::PathBuf;

use mainstay_protocol::limits::{Kept, Limits, TABLE};
use mainstay_protocol::policy::{Policy, Retry};
use mainstay_protocol::redact;
use mainstay_protocol::tier::Tier;
use mainstay_report::Report;

use crate::config::target::Target;
use crate::paths::Paths;

pub use serving::Serving;

/// What may be set in one place: in `[defaults]`, for one server, or by options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Limits by their name in the table; what is not there is not set.
    pub limits: BTreeMap<&'static str, u64>,
    /// The tier that is wished for.
    pub tier: Option<Tier>,
    /// The weakest tier that will do.
    pub require_tier: Option<Tier>,
    /// What is sent again to the next generation.
    pub retry: Option<Retry>,
    /// Whether the server is started only when it is needed.
    pub lazy: Option<bool>,
    /// Whether changed lists are announced even if the server did not say that it would.
    pub advertise: Option<bool>,
    /// Paths whose changes restart the server; an empty list turns off what is set elsewhere.
    pub watch: Option<Vec<PathBuf>>,
    /// Whether openings are remembered and used.
    pub cache: Option<bool>,
    /// The file that all frames are recorded in.
    pub frames: Option<PathBuf>,
    /// Whether secrets are recorded, too.
    pub secrets: Option<bool>,
    /// The command that is run when the server is given up; an empty list turns off what is set elsewhere.
    pub notify: Option<Vec<String>>,
}

impl Settings {
    /// These settings where they say something, the others where they do not.
    #[must_use]
    pub fn over(mut self, others: &Self) -> Self {
        for (name, value) in &others.limits {
            self.limits.entry(name).or_insert(*value);
        }
        self.tier = self.tier.or(others.tier);
        self.require_tier = self.require_tier.or(others.require_tier);
        self.retry = self.retry.or(others.retry);
        self.lazy = self.lazy.or(others.lazy);
        self.advertise = self.advertise.or(others.advertise);
        self.watch = self.watch.or_else(|| others.watch.clone());
        self.cache = self.cache.or(others.cache);
        self.frames = self.frames.or_else(|| others.frames.clone());
        self.secrets = self.secrets.or(others.secrets);
        self.notify = self.notify.or_else(|| others.notify.clone());
        self
    }

    /// The choices, with what is built in where nothing is set.
    pub fn policy(&self) -> Policy {
        let built_in = Policy::default();
        Policy {
            retry: self.retry.unwrap_or(built_in.retry),
            lazy: self.lazy.unwrap_or(built_in.lazy),
            advertise: self.advertise.unwrap_or(built_in.advertise),
        }
    }

    /// The limits, with what is built in where nothing is set.
    pub fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for limit in &TABLE {
            if let Some(value) = self.limits.get(limit.name) {
                *(limit.of)(&mut limits) = *value;
            }
        }
        limits
    }
}

/// What the file says about one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerConfig {
    /// Limits and tiers, `[defaults]` already below.
    pub settings: Settings,
    /// The server command, for `run --name NAME` without one.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables added to its environment.
    pub env: BTreeMap<String, String>,
    /// The directory it runs in.
    pub cwd: Option<PathBuf>,
    /// The URL of a streamable-HTTP server, instead of a command.
    pub url: Option<String>,
    /// Headers that are sent there.
    pub headers: BTreeMap<String, String>,
    /// The same, each with the name of a variable.
    pub header_env: BTreeMap<String, String>,
    /// Whether sessions of `serve` share one server.
    pub share: bool,
}

/// A mistake that does not stop a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Whether the server runs without a setting because of it.
    pub concerns: bool,
    /// What is wrong.
    pub mistake: Report,
}

/// The config file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// What holds for every server.
    pub defaults: Settings,
    /// What holds for one.
    pub servers: BTreeMap<String, ServerConfig>,
    /// What holds for the HTTP front.
    pub serve: Serving,
    /// How much is kept of the events.
    pub events: Kept,
    /// `reap` spares a server whose command contains one of these.
    pub protect: Vec<String>,
}

impl ServerConfig {
    /// Whether this table has a value that looks like a secret.
    pub fn has_secret(&self) -> bool {
        let url = self.url.as_deref().map(Target::parse);
        let url = url.is_some_and(|url| url.is_ok_and(|url| !url.secrets().is_empty()));
        let args = redact::words(&self.args) != self.args;
        let env = self.env.keys().any(|name| redact::speaks(name));
        let headers = self.headers.keys().any(|name| redact::speaks(name));
        url || args || env || headers
    }
}

impl Config {
    /// Reads the config file; one that is not there is an empty one.
    pub fn load(paths: &Paths) -> Result<Self, Report> {
        file::load(paths)
    }

    /// The same for one server: mistakes that do not stop it come beside it.
    pub fn load_for(paths: &Paths, name: &str) -> Result<(Self, Vec<Ignored>), Report> {
        file::load_for(paths, name)
    }

    /// What holds for a server: its own table over `[defaults]`.
    pub fn server(&self, name: &str) -> ServerConfig {
        let mut server = self.servers.get(name).cloned().unwrap_or_default();
        server.settings = server.settings.over(&self.defaults);
        server
    }
}
