//! Recognises the credentials that a session was opened with.
//!
//! Credentials that opened a session were sent to its server before, so they may be sent there again. And only if the
//! DELETE has them does "no such session" mean that the session is gone. Credentials that merely come from a variable of the
//! same name prove neither.
//!
//! Invariant: a fingerprint only tells whether a guess of the whole URL with all headers is right. Each has its own salt, so
//! two of one configuration differ.

use hyper::header::HeaderMap;
use mainstay_store::cache::digest::Digest;
use mainstay_store::config::target::Target;
use serde::{Deserialize, Serialize};

/// A salted digest of a URL and the user's headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    salt: String,
    digest: String,
}

impl Fingerprint {
    /// None if neither the URL nor the headers have a secret, or if the kernel gives no random salt.
    pub fn of(target: &Target, headers: &HeaderMap) -> Option<Self> {
        if headers.is_empty() && !target.has_secret() {
            return None;
        }
        let mut bytes = [0u8; 16];
        let flags = rustix::rand::GetRandomFlags::empty();
        let filled = rustix::rand::getrandom(&mut bytes, flags).ok()?;
        (filled == bytes.len()).then(|| {
            let salt = format!("{:032x}", u128::from_ne_bytes(bytes));
            let digest = digest(&salt, target, headers);
            Self { salt, digest }
        })
    }

    /// True if it was made from this URL and these headers.
    pub fn matches(&self, target: &Target, headers: &HeaderMap) -> bool {
        self.digest == digest(&self.salt, target, headers)
    }
}

fn digest(salt: &str, target: &Target, headers: &HeaderMap) -> String {
    let mut all: Vec<(&[u8], &[u8])> = headers
        .iter()
        .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
        .collect();
    all.sort_unstable();
    let mut sha = Digest::default();
    // The length of each field precedes it, so that two different configurations never give the same bytes.
    let mut field = |bytes: &[u8]| {
        sha.add(&(bytes.len() as u64).to_le_bytes());
        sha.add(bytes);
    };
    // Part of the file format: notes of older versions were made with this word.
    field(b"mainstay debt 1");
    field(salt.as_bytes());
    field(target.url().as_bytes());
    for (name, value) in all {
        field(name);
        field(value);
    }
    let (first, second) = sha.finish();
    format!("{first:032x}{second:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unclosed::credentials::insert;

    fn headers(all: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            insert(&mut headers, name, value).unwrap();
        }
        headers
    }

    #[test]
    fn only_the_same_url_and_header_values_match() {
        let target = |url: &str| Target::parse(url).unwrap();
        let url = target("http://h/mcp?key=a");
        let sent = headers(&[("x-a", "1"), ("x-b", "2")]);
        let fingerprint = Fingerprint::of(&url, &sent).unwrap();
        assert!(fingerprint.matches(&url, &headers(&[("x-b", " 2 "), ("x-a", "1")])));
        for (url, other) in [
            ("http://h/mcp?key=b", &sent),
            ("http://h/mcp", &sent),
            ("http://other/mcp?key=a", &sent),
            ("http://u:p@h/mcp?key=a", &sent),
            ("http://h/mcp?key=a", &headers(&[("x-a", "1")])),
            (
                "http://h/mcp?key=a",
                &headers(&[("x-a", "2"), ("x-b", "1")]),
            ),
            ("http://h/mcp?key=a", &headers(&[("x-a", "1x-b2")])),
        ] {
            assert!(!fingerprint.matches(&target(url), other), "{url} {other:?}");
        }
        assert_ne!(
            Fingerprint::of(&url, &sent),
            Some(fingerprint),
            "each has its own salt"
        );
        assert_eq!(
            Fingerprint::of(&target("http://h/mcp"), &HeaderMap::new()),
            None
        );
    }
}
