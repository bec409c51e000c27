//! A line that is written as most peers write it: known from its first bytes, in a few steps and without a copy.
//!
//! `{"jsonrpc":"2.0","id":7,"method":"tools/call",…` and `{"jsonrpc":"2.0","id":7,"result":{…`. Whatever differs is the
//! scanner's business.
//!
//! Invariant: what is known here is what the [`Scanner`](super::Scanner) finds.

use alloc::borrow::Cow;
use core::str;

use memchr::memchr;

use super::{Frame, Id, Kind};

/// How most lines start.
pub(super) const START: &[u8] = br#"{"jsonrpc":"2.0","#;
const ID: &[u8] = b"\"id\":";
const METHOD: &[u8] = b",\"method\":\"";
const RESULT: &[u8] = b",\"result\":";
/// The method of nearly all requests.
const CALL: &[u8] = b"tools/call\"";

/// The longest id and method that are looked at.
const DIGITS: usize = 19;
const METHOD_BYTES: usize = 40;

impl<'a> Frame<'a> {
    /// The line at the start of a piece, and how many bytes it has; none if it does not end there or is not written in
    /// one of the two ways above.
    #[expect(
        clippy::inline_always,
        reason = "it has two callers, and what it finds stays in registers"
    )]
    #[inline(always)]
    pub fn at_a_glance(piece: &'a [u8]) -> Option<(Self, usize)> {
        let rest = piece.strip_prefix(START)?.strip_prefix(ID)?;
        let (id, rest) = split_digits(rest)?;
        let (kind, method, rest) = if let Some(rest) = rest.strip_prefix(RESULT) {
            // Whatever the value is, its first byte decides that the line is an answer.
            let (b'{' | b'[' | b'"') = rest.first()? else {
                return None;
            };
            (Kind::Response, None, rest)
        } else {
            let (method, rest) = method(rest.strip_prefix(METHOD)?)?;
            (Kind::Request, Some(Cow::Borrowed(method)), rest)
        };
        let used = piece.len() - rest.len() + memchr(b'\n', rest)? + 1;
        debug_assert_eq!(
            piece.get(used - 1),
            Some(&b'\n'),
            "a line ends with its line end"
        );
        let frame = Self {
            kind,
            id: Id::Token(id),
            method,
            bytes: used as u64,
        };
        Some((frame, used))
    }
}

/// Of each byte of a word: `0`, what makes a high bit of all above nine, and that bit.
const ZEROS: u64 = u64::from_ne_bytes([b'0'; 8]);
const BEYOND_NINE: u64 = u64::from_ne_bytes([0x76; 8]);
const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);

/// Splits a short number off the front.
#[inline]
fn split_digits(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut digits = 0;
    // Eight at a time: each byte's high bit says that it is none.
    while let Some(word) = text.get(digits..).and_then(<[u8]>::first_chunk) {
        let word = u64::from_le_bytes(*word);
        let none = (word | (word ^ ZEROS).wrapping_add(BEYOND_NINE)) & HIGH;
        digits += none.trailing_zeros() as usize / 8;
        if none != 0 {
            return (digits > 0 && digits <= DIGITS).then(|| text.split_at(digits));
        }
    }
    None
}

/// Splits a short method off the front, up to its closing quote.
#[inline]
fn method(text: &[u8]) -> Option<(&str, &[u8])> {
    if let Some(rest) = text.strip_prefix(CALL) {
        return Some(("tools/call", rest));
    }
    let plain = |byte: &&u8| !matches!(byte, b'"' | b'\\' | b'\n');
    let len = text.iter().take(METHOD_BYTES).take_while(plain).count();
    let (method, rest) = text.split_at(len);
    Some((str::from_utf8(method).ok()?, rest.strip_prefix(b"\"")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_end_where_they_end() {
        for byte in (0..=u8::MAX).filter(|byte| !byte.is_ascii_digit()) {
            for len in 0..=20 {
                let mut text = b"09876543210987654321"[..len].to_vec();
                text.push(byte);
                text.extend([b'5'; 8]);
                let digits = split_digits(&text).map(|(digits, _)| digits.len());
                assert_eq!(digits, (1..=DIGITS).contains(&len).then_some(len), "{byte}");
            }
        }
        assert_eq!(split_digits(b"1234567"), None);
    }
}
