//! Finds the secrets that a DELETE needs.
//!
//! A note only says where a secret came from. The process that closes the session looks there: in its own environment, in the
//! config file, among the headers that it was given itself. It sends what it finds only in two cases: the fingerprint shows
//! that these secrets opened the session, or they are known to be for that server (the same configuration, a config table
//! with its URL, or the user said so).

use std::collections::BTreeMap;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use mainstay_store::config::Config;
use mainstay_store::config::target::{Target, UrlError};
use serde::{Deserialize, Serialize};

use super::note::Note;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The command line.
    Flag,
    /// The environment variable of this name.
    Variable(String),
    /// The config file's table of the server of this name.
    Config(String),
    /// A client of `serve`, which sent it.
    Client,
}

impl Source {
    /// True if only the sender of the value has it: this process cannot look it up.
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

/// A header that the user configured, without its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamedHeader {
    /// In lower case.
    pub name: String,
    /// Where its value came from.
    pub from: Source,
}

/// The secrets that this process knows.
#[derive(Default)]
pub struct Keyring {
    /// The config file, whose tables may have the values.
    pub config: Config,
    /// Values that were given for `url`, by header name in lower case.
    pub given: BTreeMap<String, String>,
    /// The URL that the values were given for, with its secrets. None: for each session that had them from a flag.
    pub url: Option<Target>,
    /// The configuration that URL and values belong to. None: the user gave them for this command.
    pub of: Option<OwnConfiguration>,
}

/// Where URL and headers of one configuration came from.
pub struct OwnConfiguration {
    /// The source of the URL.
    pub url: Source,
    /// The headers, each with its source.
    pub headers: Vec<NamedHeader>,
}

/// What a DELETE is sent with.
#[derive(Debug)]
pub struct Credentials {
    /// The URL with its secrets.
    pub target: Target,
    /// The headers that the user configured.
    pub headers: HeaderMap,
    /// True if the session was opened with exactly these.
    pub proven: bool,
}

/// Why a DELETE cannot be sent from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialError {
    /// The URL in the note is not valid.
    Url(UrlError),
    /// The secret part of the URL is not known here.
    UrlSecret(Source),
    /// The value of a header is not known here.
    Value(NamedHeader),
    /// The variable is set here, but it may belong to another server.
    UnsureValue(NamedHeader),
    /// A header of the note cannot be sent.
    Header(HeaderError),
}

impl std::fmt::Display for CredentialError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(error) => error.fmt(f),
            Self::UrlSecret(from) => write!(
                f,
                "the URL has a secret part, which came from {from} and is not known here"
            ),
            Self::Value(NamedHeader { name, from }) => write!(
                f,
                "the value of the header `{name}` came from {from} and is not known here"
            ),
            Self::UnsureValue(NamedHeader { name, from }) => write!(
                f,
                "the value of the header `{name}` came from {from}, which is set here but may be for another server: `mainstay sessions close --url URL` says for which"
            ),
            Self::Header(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CredentialError {}

/// Why a header cannot be sent. It names the header and never has its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The name is not valid.
    Name(String),
    /// The value of the header with this name is not valid.
    Value(String),
}

impl std::fmt::Display for HeaderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => write!(f, "`{name}` cannot be the name of a header"),
            Self::Value(name) => write!(
                f,
                "the value of the header `{name}` cannot be sent: it has characters that are not allowed in a header"
            ),
        }
    }
}

impl std::error::Error for HeaderError {}

impl From<HeaderError> for CredentialError {
    fn from(error: HeaderError) -> Self {
        Self::Header(error)
    }
}

impl Keyring {
    /// The credentials for the session of a note.
    pub fn find(&self, note: &Note) -> Result<Credentials, CredentialError> {
        let trusted = self
            .target(&note.url, note.url_secret.as_ref())
            .and_then(|target| Ok((target, self.headers(&note.url, &note.headers)?)));
        let bare = note.headers.is_empty() && note.url_secret.is_none();
        let proven = |target: &Target, headers: &HeaderMap| match &note.fingerprint {
            Some(fingerprint) => fingerprint.matches(target, headers),
            None => bare,
        };
        if let Ok((target, headers)) = &trusted
            && proven(target, headers)
        {
            let (target, headers) = (target.clone(), headers.clone());
            return Ok(Credentials {
                target,
                headers,
                proven: true,
            });
        }
        // A value that only has the right name may be for another server. It is used only if the fingerprint matches.
        let named = note.headers.iter();
        let values = named.map(|one| Some((one.name.as_str(), self.anywhere(&note.url, one)?)));
        if let Some(headers) = values.collect::<Option<Vec<_>>>().and_then(map)
            && let Some(target) = self.addresses(note).find(|target| proven(target, &headers))
        {
            return Ok(Credentials {
                target,
                headers,
                proven: true,
            });
        }
        trusted.map(|(target, headers)| Credentials {
            target,
            headers,
            proven: false,
        })
    }

    /// The URL of a note, with its secrets.
    pub fn target(&self, url: &str, secret: Option<&Source>) -> Result<Target, CredentialError> {
        let plain = Target::parse(url).map_err(CredentialError::Url)?;
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
            .ok_or_else(|| CredentialError::UrlSecret(from.clone()))
    }

    /// The headers of a note, with their values.
    pub fn headers(&self, url: &str, named: &[NamedHeader]) -> Result<HeaderMap, CredentialError> {
        let mut headers = HeaderMap::new();
        for one in named {
            let value = self.value(url, one).ok_or_else(|| missing(one))?;
            insert(&mut headers, &one.name, &value)?;
        }
        Ok(headers)
    }

    /// A value that is known to be for this URL.
    fn value(&self, url: &str, named: &NamedHeader) -> Option<String> {
        let here = self.url.as_ref().is_some_and(|ours| ours.plain() == url);
        // The user gave the URL for this command.
        let said = here && self.of.is_none();
        let given = match &self.of {
            Some(own) => here && own.headers.contains(named),
            None => said || self.url.is_none() && named.from.is_given(),
        };
        let given = self.given.get(&named.name).filter(|_| given);
        given.cloned().or_else(|| match &named.from {
            // Each server has its own environment, so the same name here may be for another server.
            Source::Variable(variable) if said => std::env::var(variable).ok(),
            Source::Flag | Source::Client | Source::Variable(_) => None,
            Source::Config(server) => {
                let table = self.config.servers.get(server)?;
                // The table may name another server now than when the session was opened.
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

    /// A value that may be for another server.
    fn anywhere(&self, url: &str, named: &NamedHeader) -> Option<String> {
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

    /// All URLs, with their secrets, that the server of a note may have.
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

fn missing(named: &NamedHeader) -> CredentialError {
    match &named.from {
        Source::Variable(variable) if std::env::var_os(variable).is_some() => {
            CredentialError::UnsureValue(named.clone())
        }
        Source::Flag | Source::Variable(_) | Source::Config(_) | Source::Client => {
            CredentialError::Value(named.clone())
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

/// Adds a header and marks it as sensitive, so that it is never printed.
pub fn insert(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), HeaderError> {
    let key =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| HeaderError::Name(name.into()))?;
    let mut value = HeaderValue::from_bytes(value.trim().as_bytes())
        .map_err(|_| HeaderError::Value(name.into()))?;
    value.set_sensitive(true);
    headers.insert(key, value);
    Ok(())
}
