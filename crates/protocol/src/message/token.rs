//! Ids as JSON tokens: when two of them are the same id.
//!
//! A peer that answers may write the id in its own way: `"a\/b"` for `"a/b"`, `"\u00fc"` for `"ü"`, `1` for `1.0`.
//! Two tokens are the same id if their plain forms are equal; a number and a string never are.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;
use core::ops::Deref;

use crate::limits::ID_BYTES;

/// An id token of its own, without the heap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token {
    len: u8,
    bytes: [u8; ID_BYTES],
}

impl Token {
    /// A copy of a token; none if it is longer than [`ID_BYTES`].
    pub fn new(token: &[u8]) -> Option<Self> {
        let mut bytes = [0; ID_BYTES];
        bytes.get_mut(..token.len())?.copy_from_slice(token);
        Some(Self {
            len: token.len() as u8,
            bytes,
        })
    }
}

impl Deref for Token {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self))
    }
}

/// Whether two tokens are the same id.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a == b || ((!is_plain(a) || !is_plain(b)) && plain(a) == plain(b))
}

/// A hash that is equal for equal ids. It withstands no attacker: who chooses bad ids harms only its own table.
#[inline]
pub(super) fn hash(token: &[u8]) -> u64 {
    let (hash, plain_already) = hash_bytes(token, odd_sign(token));
    if plain_already {
        return hash;
    }
    hash_of(&plain(token))
}

/// Whether the token is written in the one way that [`plain`] would choose.
fn is_plain(token: &[u8]) -> bool {
    // An id is short: a plain loop beats the call of a search.
    !token.contains(&odd_sign(token))
}

/// What such a token does not have in it: a string no escape, a number no fraction.
fn odd_sign(token: &[u8]) -> u8 {
    if token.first() == Some(&b'"') {
        b'\\'
    } else {
        b'.'
    }
}

/// The plain form of a token: a string with no more escapes than it needs, a number without a fraction of zeros.
pub(super) fn plain(token: &[u8]) -> Cow<'_, [u8]> {
    if is_plain(token) {
        return Cow::Borrowed(token);
    }
    if token.first() == Some(&b'"') {
        let text = serde_json::from_slice::<String>(token).ok();
        return match text.and_then(|text| serde_json::to_vec(&text).ok()) {
            Some(bytes) => Cow::Owned(bytes),
            None => Cow::Borrowed(token),
        };
    }
    let zeros = token.iter().rev().take_while(|&&b| b == b'0').count();
    let short = &token[..token.len() - zeros];
    match short.strip_suffix(b".") {
        Some(whole) => Cow::Borrowed(whole),
        None => Cow::Borrowed(token),
    }
}

/// A hash of any bytes, with the same warning.
pub(super) fn hash_of(bytes: &[u8]) -> u64 {
    hash_bytes(bytes, 0).0
}

/// The hash, and whether `sign` is nowhere in the bytes: eight at a time.
#[inline]
fn hash_bytes(bytes: &[u8], sign: u8) -> (u64, bool) {
    const K: u64 = 0x9E37_79B9_7F4A_7C15;
    let signs = u64::from(sign) * LOW;
    let mut found = 0;
    let mut hash = bytes.len() as u64;
    let mut rest = bytes;
    while let Some((word, more)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        found |= zero_bytes(word ^ signs);
        hash = fold(hash ^ word, K);
        rest = more;
    }
    let last = last_bytes(rest);
    found |= zero_bytes(last ^ signs);
    (fold(hash ^ last, K) ^ hash, found == 0)
}

/// Up to seven bytes as one word, in as few steps: the halves of four and more overlap. All bits are set above fewer,
/// so that nothing there is taken for a sign.
#[inline]
fn last_bytes(rest: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32;
    }
    let mut all = u64::MAX;
    for &byte in rest {
        all = all << 8 | u64::from(byte);
    }
    all
}

const LOW: u64 = 0x0101_0101_0101_0101;

/// Not zero exactly if one of the eight bytes is.
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(LOW) & !word & (LOW << 7)
}

/// Mixes two words well enough for an accident never to happen.
pub(super) fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a ^ 0x2545_F491_4F6C_DD1D) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_id_in_several_spellings_is_the_same() {
        for (a, b) in [
            ("1", "1"),
            ("1", "1.0"),
            ("1.000", "1.0"),
            ("-3.0", "-3"),
            (r#""a/b""#, r#""a\/b""#),
            (r#""ü""#, r#""\u00fc""#),
            (r#""\u0022""#, r#""\"""#),
        ] {
            assert!(same(a.as_bytes(), b.as_bytes()), "{a} {b}");
            assert_eq!(hash(a.as_bytes()), hash(b.as_bytes()), "{a} {b}");
        }
    }

    #[test]
    fn other_ids() {
        for (a, b) in [
            ("1", "\"1\""),
            ("1", "10"),
            ("1.5", "1"),
            ("1.50", "15"),
            ("\"1.0\"", "\"1\""),
            (r#""\ud800""#, r#""\ud801""#),
            (r#""a\""#, r#""a""#),
        ] {
            assert!(!same(a.as_bytes(), b.as_bytes()), "{a} {b} must differ");
        }
    }

    #[test]
    fn a_token_is_a_copy() {
        assert_eq!(Token::new(b"\"x\"").as_deref(), Some(&b"\"x\""[..]));
        assert_eq!(
            Token::new(&[b'1'; ID_BYTES]).as_deref(),
            Some(&[b'1'; ID_BYTES][..])
        );
        assert_eq!(Token::new(&[b'1'; ID_BYTES + 1]), None);
    }
}
