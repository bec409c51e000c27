//! A seal: by which one who has the credentials that a session was opened with knows that they are these.
//!
//! What opened a session was sent to its server before, so that it may be sent there again; and only to whoever asks with
//! it does "no such session" mean that it is gone. Neither holds for what merely has the same name.
//!
//! Invariant: a seal tells nothing but whether a guess of the whole is right, and two of one configuration are not alike.

use hyper::header::HeaderMap;
use serde::{Deserialize, Serialize};

use crate::http::target::Target;
use crate::recollection::sha256::Sha256;

/// A salted digest of a URL and the user's headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    salt: String,
    digest: String,
}

impl Seal {
    /// The seal of this address and these headers; none where nothing of it is a secret, or where there is no salt.
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

    /// Whether it is of these.
    pub fn is_of(&self, target: &Target, headers: &HeaderMap) -> bool {
        self.digest == digest(&self.salt, target, headers)
    }
}

fn digest(salt: &str, target: &Target, headers: &HeaderMap) -> String {
    let mut all: Vec<(&[u8], &[u8])> = headers
        .iter()
        .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
        .collect();
    all.sort_unstable();
    let mut sha = Sha256::new();
    // Each field with its length before it, so that no two configurations are written alike.
    let mut field = |bytes: &[u8]| {
        sha.add(&(bytes.len() as u64).to_le_bytes());
        sha.add(bytes);
    };
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
    use crate::debts::secret::insert;

    fn headers(all: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            insert(&mut headers, name, value).unwrap();
        }
        headers
    }

    #[test]
    fn only_the_same_address_and_values_are_what_it_is_of() {
        let target = |url: &str| Target::parse(url).unwrap();
        let url = target("http://h/mcp?key=a");
        let sent = headers(&[("x-a", "1"), ("x-b", "2")]);
        let seal = Seal::of(&url, &sent).unwrap();
        assert!(seal.is_of(&url, &headers(&[("x-b", " 2 "), ("x-a", "1")])));
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
            assert!(!seal.is_of(&target(url), other), "{url} {other:?}");
        }
        assert_ne!(Seal::of(&url, &sent), Some(seal), "each has its own salt");
        assert_eq!(Seal::of(&target("http://h/mcp"), &HeaderMap::new()), None);
    }
}
