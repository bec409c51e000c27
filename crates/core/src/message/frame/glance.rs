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
        let frame = Self {
            kind,
            id: Id::Token(id),
            method,
            bytes: used as u64,
        };
        Some((frame, used))
    }
}

/// Splits a short number off the front.
#[inline]
fn split_digits(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut digits = 0;
    while text.get(digits).is_some_and(u8::is_ascii_digit) {
        digits += 1;
    }
    (digits > 0 && digits <= DIGITS).then(|| text.split_at(digits))
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
