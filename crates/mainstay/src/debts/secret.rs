//! Where a secret came from, and where it can be had again.
//!
//! A note says only the former. Whoever pays looks there: in its own environment, in the config file, among the headers
//! that it was given itself. What it finds there is sent if it is the very thing that opened the session, or if it is
//! known to be for that server: by the same configuration, by the table's URL, by the user's word.

use std::collections::BTreeMap;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::note::Note;
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
    /// The configuration that URL and values are of; none: the user gave them just now, and knows what they are for.
    pub of: Option<Own>,
}

/// Where URL and values of one configuration came from.
pub struct Own {
    /// The URL.
    pub url: Source,
    /// The headers.
    pub headers: Vec<Named>,
}

/// What a debt can be paid with.
pub struct Opened {
    /// The full address.
    pub target: Target,
    /// The user's headers.
    pub headers: HeaderMap,
    /// Whether the session was opened with just that.
    pub proven: bool,
}

impl Keyring {
    /// What a debt can be paid with; or what is missing.
    pub fn find(&self, note: &Note) -> Result<Opened, String> {
        let trusted = self
            .target(&note.url, note.url_secret.as_ref())
            .and_then(|target| Ok((target, self.headers(&note.url, &note.headers)?)));
        let bare = note.headers.is_empty() && note.url_secret.is_none();
        let proven = |target: &Target, headers: &HeaderMap| match &note.seal {
            Some(seal) => seal.is_of(target, headers),
            None => bare,
        };
        if let Ok((target, headers)) = &trusted
            && proven(target, headers)
        {
            let (target, headers) = (target.clone(), headers.clone());
            return Ok(Opened {
                target,
                headers,
                proven: true,
            });
        }
        // What has the right name only may be another server's, unless it is the very same.
        let named = note.headers.iter();
        let values = named.map(|one| Some((one.name.as_str(), self.anywhere(&note.url, one)?)));
        if let Some(headers) = values.collect::<Option<Vec<_>>>().and_then(map)
            && let Some(target) = self.addresses(note).find(|target| proven(target, &headers))
        {
            return Ok(Opened {
                target,
                headers,
                proven: true,
            });
        }
        trusted.map(|(target, headers)| Opened {
            target,
            headers,
            proven: false,
        })
    }

    /// The full address of a debt's server; or what is missing.
    pub fn target(&self, url: &str, secret: Option<&Source>) -> Result<Target, String> {
        let plain = Target::parse(url)?;
        let Some(from) = secret else {
            return Ok(plain);
        };
        let ours = self.of.as_ref().is_none_or(|own| own.url == *from);
        let table = match from {
            Source::Config(server) => self.config.servers.get(server),
            Source::Flag | Source::Variable(_) | Source::Client => None,
        };
        let known = table.and_then(|server| Target::parse(server.url.as_deref()?).ok());
        let given = self.url.clone().filter(|_| ours);
        given
            .into_iter()
            .chain(known)
            .find(|target| target.has_secret() && target.plain() == plain.url())
            .ok_or_else(|| {
                format!(
                    "the URL has a secret part, which came from {from} and is not to be had now"
                )
            })
    }

    /// The headers of a debt, with their values; or what is missing.
    pub fn headers(&self, url: &str, named: &[Named]) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for one in named {
            let value = self.value(url, one).ok_or_else(|| missing(one))?;
            insert(&mut headers, &one.name, &value)?;
        }
        Ok(headers)
    }

    /// A value that is known to be for this URL.
    fn value(&self, url: &str, named: &Named) -> Option<String> {
        let here = self.url.as_ref().is_some_and(|ours| ours.plain() == url);
        // The user has said whom it is for.
        let said = here && self.of.is_none();
        let given = match &self.of {
            Some(own) => here && own.headers.contains(named),
            None => said || self.url.is_none() && named.from.is_given(),
        };
        let given = self.given.get(&named.name).filter(|_| given);
        given.cloned().or_else(|| match &named.from {
            // Its name says nothing: each server has an environment of its own.
            Source::Variable(variable) if said => std::env::var(variable).ok(),
            Source::Flag | Source::Client | Source::Variable(_) => None,
            Source::Config(server) => {
                let table = self.config.servers.get(server)?;
                // What a table holds is for the server that it names now, which may be another one than then.
                let for_it = match &table.url {
                    Some(now) => Target::parse(now)
                        .ok()?
                        .same_origin(&Target::parse(url).ok()?),
                    None => said,
                };
                self.in_table(server, &named.name).filter(|_| for_it)
            }
        })
    }

    /// A value that may be another server's.
    fn anywhere(&self, url: &str, named: &Named) -> Option<String> {
        let found = match &named.from {
            Source::Flag | Source::Client => None,
            Source::Variable(variable) => std::env::var(variable).ok(),
            Source::Config(server) => self.in_table(server, &named.name),
        };
        let given = self.url.as_ref().is_none_or(|ours| ours.plain() == url);
        found.or_else(|| self.given.get(&named.name).filter(|_| given).cloned())
    }

    fn in_table(&self, server: &str, name: &str) -> Option<String> {
        let mut headers = self.config.servers.get(server)?.headers.iter();
        let found = headers.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.clone())
    }

    /// Every address that a debt's server may have, with its secrets.
    fn addresses(&self, note: &Note) -> impl Iterator<Item = Target> {
        let plain = Target::parse(&note.url).ok();
        let secret = note.url_secret.is_some();
        let tables = self.config.servers.values();
        let known = tables.filter_map(|server| Target::parse(server.url.as_deref()?).ok());
        let known = self.url.iter().cloned().chain(known);
        let known = known.filter(move |target| secret && target.plain() == note.url);
        plain.into_iter().filter(move |_| !secret).chain(known)
    }
}

fn missing(named: &Named) -> String {
    let Named { name, from } = named;
    match from {
        Source::Variable(variable) if std::env::var_os(variable).is_some() => format!(
            "the value of the header `{name}` came from {from}, and what that holds here may be another server's: `mainstay debts pay --url URL` says whose it is"
        ),
        Source::Flag | Source::Variable(_) | Source::Config(_) | Source::Client => {
            format!("the value of the header `{name}` came from {from} and is not to be had now")
        }
    }
}

fn map(values: Vec<(&str, String)>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in values {
        insert(&mut headers, name, &value).ok()?;
    }
    Some(headers)
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
