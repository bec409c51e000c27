//! A SHA-256 digest, computed by `ring`, which TLS has linked already.
//!
//! The name of a cache entry is a digest of credentials, among other things. Names appear in listings, backups and reports, so
//! the input must not be computable from them: FNV is ruled out, and so is `SipHash`, whose key would lie beside the name. The
//! digest must be the same in every build, which rules out the hashers of the standard library. The seal of an unclosed session
//! needs the same.

use ring::digest::{Context, SHA256};

/// A digest of all bytes that are added.
#[derive(Clone)]
pub struct Digest(Context);

impl Default for Digest {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Digest {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest, in halves.
    pub fn finish(self) -> (u128, u128) {
        let digest = self.0.finish();
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |number, &byte| number << 8 | u128::from(byte))
        };
        let (first, second) = digest.as_ref().split_at(16);
        (number(first), number(second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and seals on disk were made by earlier versions: the bytes and their order must stay.
    #[test]
    fn examples_of_fips_180_4() {
        for (text, expected) in [
            (
                "",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ] {
            let mut digest = Digest::default();
            let (start, rest) = text.as_bytes().split_at(text.len() / 2);
            digest.add(start);
            digest.add(rest);
            let (first, second) = digest.finish();
            assert_eq!(format!("{first:032x}{second:032x}"), expected, "{text}");
        }
    }
}
