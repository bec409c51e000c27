//! What a bridge is to do, as `run` tells it: in one variable of its environment.
//!
//! Not by arguments, which every user of the machine can read. What is in a variable of the client's already stays there,
//! and is named only.

use std::collections::BTreeMap;
use std::ffi::OsString;

use hyper::header::HeaderMap;
use mainstay_http_core::headers::{self, HOP};
use mainstay_store::config::target::Target;
use serde::{Deserialize, Serialize};

use crate::unclosed::Source;
use crate::unclosed::credentials::{HeaderError, NamedHeader, insert};

/// The variable.
pub const VARIABLE: &str = "MAINSTAY_BRIDGE";

/// Headers that say how a message travels or what is in it: a user's value there could only be wrong.
const RESERVED: [&str; 10] = [
    "accept",
    "content-length",
    "content-type",
    "expect",
    "host",
    headers::LAST_EVENT,
    headers::METHOD,
    headers::NAME,
    headers::VERSION,
    headers::SESSION,
];

/// One header of the user's.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    name: String,
    from: Source,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
}

impl Header {
    /// A header with its value, unless that is in a variable.
    pub fn new(name: &str, from: Source, value: Option<&str>) -> Self {
        Self {
            name: name.to_ascii_lowercase(),
            from,
            value: value.map(Into::into),
        }
    }

    fn value(&self) -> Option<String> {
        match (&self.value, &self.from) {
            (Some(value), _) => Some(value.clone()),
            (None, Source::Variable(name)) => std::env::var(name).ok(),
            (None, Source::Flag | Source::Config(_) | Source::Client) => None,
        }
    }
}

/// What a bridge is to do.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The server's name.
    pub name: String,
    /// Its URL, secrets included.
    pub url: String,
    /// Where the URL came from.
    pub from: Source,
    headers: Vec<Header>,
    /// What may be sent again.
    pub retry: String,
    /// How long requests in flight may take after the client has gone.
    pub drain_ms: u64,
}

impl Spec {
    /// A bridge to this URL. Of two headers with one name, the later one counts.
    pub fn new(name: &str, url: &str, from: Source, headers: Vec<Header>) -> Self {
        let by_name: BTreeMap<String, Header> = headers
            .into_iter()
            .map(|header| (header.name.clone(), header))
            .collect();
        Self {
            name: name.into(),
            url: url.into(),
            from,
            headers: by_name.into_values().collect(),
            retry: String::new(),
            drain_ms: 0,
        }
    }

    /// The command that becomes the bridge: our own file, and the URL for people to see.
    pub fn argv(&self) -> Vec<OsString> {
        let itself = std::env::current_exe()
            .ok()
            .filter(|path| path.exists())
            .map_or_else(|| "/proc/self/exe".into(), OsString::from);
        let shown = Target::parse(&self.url).map_or_else(|_| String::new(), |url| url.to_string());
        vec![itself, "bridge".into(), shown.into()]
    }

    /// The value of the variable.
    pub fn to_variable(&self) -> String {
        // Plain texts and numbers always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What this process was told.
    pub fn from_env() -> Option<Self> {
        serde_json::from_str(&std::env::var(VARIABLE).ok()?).ok()
    }

    /// The headers that the user configured, with their values.
    pub fn headers(&self) -> Result<HeaderMap, HeaderError> {
        let mut headers = HeaderMap::new();
        for (name, value) in self.values() {
            insert(&mut headers, &name, &value)?;
        }
        Ok(headers)
    }

    /// The user's headers by name.
    pub fn values(&self) -> BTreeMap<String, String> {
        let headers = self.headers.iter();
        headers
            .filter_map(|header| Some((header.name.clone(), header.value()?)))
            .collect()
    }

    /// The first header that is not the user's to set, if there is one.
    pub fn reserved(&self) -> Option<&str> {
        let mut names = self.headers.iter().map(|header| header.name.as_str());
        names.find(|name| {
            RESERVED.contains(name) || HOP.contains(name) || name.starts_with(headers::PARAM)
        })
    }

    /// Where each came from.
    pub fn named(&self) -> Vec<NamedHeader> {
        let headers = self.headers.iter();
        headers
            .map(|header| NamedHeader {
                name: header.name.clone(),
                from: header.from.clone(),
            })
            .collect()
    }
}
