//! An HTTP server's address, as a URL gives it.
//!
//! Invariant: what it shows to people (`shown`, `Display`) has neither the user's name and password, nor the query of the URL,
//! nor a part of its path that may be a token.

use std::error::Error;
use std::fmt;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use mainstay_protocol::redact;

/// Replaces a secret part when the URL is printed.
const MASK: &str = "…";

/// Why a text is not the URL of a server. It never contains the URL, which may have a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// The text is no URL at all.
    NotAUrl,
    /// There is nothing before the host.
    NoScheme,
    /// A scheme that is not HTTP.
    Scheme(String),
    /// There is no host.
    NoHost,
    /// A reference of the server leads to something that is no path.
    Path,
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAUrl => {
                f.write_str("it is not a URL; write it like `https://example.com/mcp`")
            }
            Self::NoScheme => f.write_str("it has no scheme; write http:// or https:// before it"),
            Self::Scheme(other) => {
                write!(f, "`{other}` is not spoken; write http:// or https://")
            }
            Self::NoHost => f.write_str("it names no host"),
            Self::Path => f.write_str("it leads to something that is no path"),
        }
    }
}

impl Error for UrlError {}

/// Where requests go.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    uri: Uri,
    tls: bool,
    host: String,
    port: u16,
    user: Option<String>,
}

impl Target {
    /// Reads a URL.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        // The fragment never leaves a client.
        let url = url.split('#').next().unwrap_or(url);
        let uri: Uri = url.parse().map_err(|_| UrlError::NotAUrl)?;
        Self::of(&uri)
    }

    fn of(uri: &Uri) -> Result<Self, UrlError> {
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => return Err(UrlError::Scheme(other.into())),
            None => return Err(UrlError::NoScheme),
        };
        let Some(authority) = uri.authority() else {
            return Err(UrlError::NoHost);
        };
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_ascii_lowercase();
        if host.is_empty() {
            return Err(UrlError::NoHost);
        }
        let user = authority
            .as_str()
            .rsplit_once('@')
            .map(|(user, _)| user.to_string());
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if tls => 443,
            None => 80,
        };
        Ok(Self {
            uri: uri.clone(),
            tls,
            host,
            port,
            user,
        })
    }

    /// Where a reference in an answer of this server (a `Location`, an `endpoint`) leads.
    pub fn join(&self, reference: &str) -> Result<Self, UrlError> {
        if let Some((scheme, _)) = reference.split_once("://")
            && !scheme.contains(['/', '?', '#'])
        {
            return Self::parse(reference).map(|it| it.known_to(self));
        }
        if let Some(rest) = reference.strip_prefix("//") {
            let url = format!("{}://{rest}", self.scheme());
            return Self::parse(&url).map(|it| it.known_to(self));
        }
        let reference = reference.split('#').next().unwrap_or(reference);
        let base = self.path();
        let base = base.split('?').next().unwrap_or(base);
        let path = if reference.starts_with('/') {
            plain_path(reference)
        } else if reference.starts_with('?') {
            format!("{base}{reference}")
        } else {
            let folder = base.rsplit_once('/').map_or("", |(folder, _)| folder);
            plain_path(&format!("{folder}/{reference}"))
        };
        let path: PathAndQuery = path.parse().map_err(|_| UrlError::Path)?;
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = Some(path);
        let uri = Uri::from_parts(parts).map_err(|_| UrlError::Path)?;
        Self::of(&uri)
    }

    /// An address that the server at this other one gave: at the same origin the user of that one counts here, too.
    fn known_to(mut self, other: &Self) -> Self {
        if self.user.is_none() && self.same_origin(other) {
            self.user.clone_from(&other.user);
        }
        self
    }

    /// Whether the other one is at the same scheme, host and port: only there our headers may go.
    pub fn same_origin(&self, other: &Self) -> bool {
        (self.tls, &self.host, self.port) == (other.tls, &other.host, other.port)
    }

    /// Whether TLS is spoken.
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// The host: a name in lower case, or an address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query, as they are sent.
    pub fn path(&self) -> &str {
        self.uri.path_and_query().map_or("/", PathAndQuery::as_str)
    }

    /// User and password in the URL, not decoded.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The value of the `Host` header.
    pub fn authority(&self) -> String {
        let authority = self.uri.authority().map_or("", Authority::as_str);
        match authority.rsplit_once('@') {
            Some((_, host)) => host.into(),
            None => authority.into(),
        }
    }

    /// The whole URL, secrets included.
    pub fn url(&self) -> String {
        self.uri.to_string()
    }

    /// The URL without user, password and query: a note of ours needs its path, and no other user can read that.
    pub fn plain(&self) -> String {
        let path = self.uri.path();
        format!("{}://{}{path}", self.scheme(), self.authority())
    }

    /// The URL for people: without user, password, query, and parts of the path that may be secrets.
    pub fn shown(&self) -> String {
        let path = redact::path(self.uri.path(), MASK);
        format!("{}://{}{path}", self.scheme(), self.authority())
    }

    /// Whether the URL has a part beside its path that may be a secret.
    pub fn has_secret(&self) -> bool {
        self.user.is_some() || self.uri.query().is_some()
    }

    /// Every part of the URL that may be a secret.
    pub fn secrets(&self) -> Vec<&str> {
        let beside = self.user().into_iter().chain(self.uri.query());
        beside
            .chain(redact::hidden_parts(self.uri.path()))
            .collect()
    }

    fn scheme(&self) -> &str {
        self.uri.scheme().map_or("http", Scheme::as_str)
    }
}

/// A URL of ours as it is shown to people.
pub fn shown(url: &str) -> String {
    Target::parse(url).map_or_else(|_| MASK.into(), |target| target.shown())
}

/// A path with its `.` and `..` resolved; the query stays as it is.
fn plain_path(path: &str) -> String {
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    };
    let mut folders: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        match part {
            "." | ".." => {
                if part == ".." {
                    folders.pop();
                }
                if parts.peek().is_none() {
                    folders.push("");
                }
            }
            part => folders.push(part),
        }
    }
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("/{}{query}", folders.join("/"))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())?;
        if self.uri.query().is_some() {
            write!(f, "?{MASK}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        for (url, tls, host, port, path, authority) in [
            ("http://a.example", false, "a.example", 80, "/", "a.example"),
            (
                "https://A.example:8443/x/mcp?k=v#f",
                true,
                "a.example",
                8443,
                "/x/mcp?k=v",
                "A.example:8443",
            ),
            ("https://u:p@h/mcp", true, "h", 443, "/mcp", "h"),
            ("http://[::1]:9/mcp", false, "::1", 9, "/mcp", "[::1]:9"),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(
                (target.tls(), target.host(), target.port()),
                (tls, host, port),
                "{url}"
            );
            assert_eq!(
                (target.path(), target.authority().as_str()),
                (path, authority),
                "{url}"
            );
        }
        assert_eq!(
            Target::parse("https://u:p@h/mcp").unwrap().user(),
            Some("u:p")
        );
    }

    #[test]
    fn secrets_of_a_url_are_not_shown() {
        let target = Target::parse("https://u:secret@h:1/mcp?token=secret").unwrap();
        assert_eq!(target.to_string(), "https://h:1/mcp?…");
        assert_eq!(format!("{target:?}"), "Target(https://h:1/mcp?…)");
        assert_eq!(target.secrets(), ["u:secret", "token=secret"]);
        let target = Target::parse("https://h/s/Zk3xT9qLmB7vR2pW/mcp?a").unwrap();
        assert_eq!(target.to_string(), "https://h/s/…/mcp?…");
        assert_eq!(target.shown(), "https://h/s/…/mcp");
        assert_eq!(target.plain(), "https://h/s/Zk3xT9qLmB7vR2pW/mcp");
        assert_eq!(target.secrets(), ["a", "Zk3xT9qLmB7vR2pW"]);
        assert_eq!(shown(&target.plain()), "https://h/s/…/mcp");
    }

    #[test]
    fn what_is_no_url_is_told() {
        for (url, why) in [
            ("", "not a URL"),
            ("localhost:80/mcp", "not"),
            ("/mcp", "no scheme"),
            ("ftp://h/", "`ftp` is not spoken"),
            ("http://", "not a URL"),
        ] {
            let told = Target::parse(url).unwrap_err().to_string();
            assert!(told.contains(why), "{url}: {told}");
        }
    }

    #[test]
    fn references_lead_where_a_browser_would_go() {
        let base = Target::parse("http://h:8/a/sse?x=1").unwrap();
        for (reference, url) in [
            ("/messages?s=1", "http://h:8/messages?s=1"),
            ("messages?s=1", "http://h:8/a/messages?s=1"),
            ("?s=2", "http://h:8/a/sse?s=2"),
            ("http://other/x", "http://other/x"),
            ("//other/x", "http://other/x"),
            ("/m?next=http://other/", "http://h:8/m?next=http://other/"),
            ("../m", "http://h:8/m"),
            ("./m/../n?a=..#f", "http://h:8/a/n?a=.."),
            ("/../..", "http://h:8/"),
            ("/a//b/", "http://h:8/a//b/"),
        ] {
            let joined = base.join(reference).unwrap();
            assert_eq!(joined.url(), url, "{reference}");
            assert_eq!(joined.same_origin(&base), !joined.host().contains("other"));
        }
        let base = Target::parse("http://u:p@h:8/sse").unwrap();
        for (reference, user) in [
            ("/m", Some("u:p")),
            ("http://h:8/m", Some("u:p")),
            ("//h:8/m", Some("u:p")),
            ("http://other/m", None),
            ("https://h:8/m", None),
        ] {
            assert_eq!(base.join(reference).unwrap().user(), user, "{reference}");
        }
    }
}
