//! Where a secret came from, and where it can be had again.
//!
//! A note says only the former. Whoever pays looks there: in its own environment, in the config file, among the headers
//! that it was given itself.

use std::collections::BTreeMap;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::http::target::Target;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// It was on the command line.
    Flag,
    /// The environment variable of this name.
    Variable(String),
    /// The config file's table of the server of this name.
    Config(String),
    /// A client of `serve` sent it.
    Client,
}

impl Source {
    /// Whether a value from there is nowhere to be had but from whoever gave it.
    pub fn is_given(&self) -> bool {
        match self {
            Self::Flag | Self::Client => true,
            Self::Variable(_) | Self::Config(_) => false,
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag => f.write_str("a flag of `run`"),
            Self::Variable(name) => write!(f, "the variable {name}"),
            Self::Config(server) => write!(f, "[server.{server}] of the config file"),
            Self::Client => f.write_str("a client of `serve`"),
        }
    }
}

/// A header of the user's, without its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Named {
    /// Its name, in lower case.
    pub name: String,
    /// Where its value came from.
    pub from: Source,
}

/// What is to be had here and now.
#[derive(Default)]
pub struct Keyring {
    /// The config file.
    pub config: Config,
    /// Values that were given for this URL, by header name in lower case.
    pub given: BTreeMap<String, String>,
    /// The URL that they were given for, with its secrets; none: for every debt that had them from a flag.
    pub url: Option<Target>,
}

impl Keyring {
    /// The full address of a debt's server; or what is missing.
    pub fn target(&self, url: &str, secret: Option<&Source>) -> Result<Target, String> {
        let plain = Target::parse(url)?;
        let Some(from) = secret else {
            return Ok(plain);
        };
        let known = self
            .config
            .servers
            .values()
            .filter_map(|server| Target::parse(server.url.as_deref()?).ok());
        self.url
            .iter()
            .cloned()
            .chain(known)
            .find(|target| target.plain() == plain.url())
            .ok_or_else(|| {
                format!(
                    "the URL has a secret part, which came from {from} and is not to be had now"
                )
            })
    }

    /// The headers of a debt, with their values; or what is missing.
    pub fn headers(&self, url: &str, named: &[Named]) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for Named { name, from } in named {
            let ours = match &self.url {
                Some(target) => target.plain() == url,
                None => from.is_given(),
            };
            let given = self.given.get(name).filter(|_| ours).cloned();
            let value = given.or_else(|| match from {
                Source::Flag | Source::Client => None,
                Source::Variable(variable) => std::env::var(variable).ok(),
                Source::Config(server) => {
                    let server = self.config.servers.get(server)?;
                    // What a table holds is for the server that it names now, which may be another one than then.
                    if let Some(now) = &server.url {
                        let (now, then) = (Target::parse(now).ok()?, Target::parse(url).ok()?);
                        if !now.same_origin(&then) {
                            return None;
                        }
                    }
                    let mut headers = server.headers.iter();
                    let found = headers.find(|(key, _)| key.eq_ignore_ascii_case(name));
                    found.map(|(_, value)| value.clone())
                }
            });
            let value = value.ok_or_else(|| {
                format!(
                    "the value of the header `{name}` came from {from} and is not to be had now"
                )
            })?;
            insert(&mut headers, name, &value)?;
        }
        Ok(headers)
    }
}

/// Adds a header that nobody may print.
pub fn insert(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), String> {
    let key = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("`{name}` cannot be the name of a header"))?;
    let mut value = HeaderValue::from_bytes(value.trim().as_bytes())
        .map_err(|_| format!("the value of the header `{name}` cannot be sent: it has characters that no header may have"))?;
    value.set_sensitive(true);
    headers.insert(key, value);
    Ok(())
}
