//! The four top-level keys that matter.

use alloc::string::String;

use memchr::memchr;

use super::text::Bounded;

/// The longest key that matters, `result`, with each letter written as `\u0072`.
pub(super) const KEY_BYTES: usize = 36;
/// The shortest key that matters with an escape, `\u0069d`.
const KEY_ESCAPED: usize = 7;

/// Which key it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Id,
    Method,
    Result,
    Error,
    Other,
}

impl Field {
    /// The usual keys, with nothing between them and their colon: the same as walking over them. With the index of
    /// the colon.
    #[inline]
    pub(super) fn at_a_glance(rest: &[u8]) -> Option<(Self, usize)> {
        match rest.first_chunk::<8>()? {
            b"method\":" => Some((Self::Method, 7)),
            b"result\":" => Some((Self::Result, 7)),
            b"params\":" => Some((Self::Other, 7)),
            [b'i', b'd', b'"', b':', ..] => Some((Self::Id, 3)),
            b"jsonrpc\"" if rest.get(8) == Some(&b':') => Some((Self::Other, 8)),
            _ => None,
        }
    }

    /// A key as written, without its quotes.
    pub(super) fn of(raw: &[u8]) -> Self {
        match raw {
            b"id" => Self::Id,
            b"method" => Self::Method,
            b"result" => Self::Result,
            b"error" => Self::Error,
            _ if (KEY_ESCAPED..=KEY_BYTES).contains(&raw.len()) && memchr(b'\\', raw).is_some() => {
                Self::of_escaped(raw)
            }
            _ => Self::Other,
        }
    }

    #[cold]
    fn of_escaped(raw: &[u8]) -> Self {
        let mut token = Bounded::<{ KEY_BYTES + 2 }>::new();
        token.push(b"\"");
        token.push(raw);
        token.push(b"\"");
        let key = token
            .get()
            .and_then(|token| serde_json::from_slice::<String>(token).ok());
        match key.as_deref() {
            Some("id") => Self::Id,
            Some("method") => Self::Method,
            Some("result") => Self::Result,
            Some("error") => Self::Error,
            Some(_) | None => Self::Other,
        }
    }
}
