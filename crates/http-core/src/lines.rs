//! The few things that the bridge reads in messages beyond what [`mainstay_protocol::message`] reads for all.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::message::envelope::{Members, PROTOCOL_VERSION_KEY};
use mainstay_protocol::message::frame::{Id, Kind, Scanner};

/// A message, as far as it matters for its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it is.
    pub kind: Kind,
    /// Its id token, if it has one that is not `null`.
    pub id: Option<Vec<u8>>,
    /// Its method.
    pub method: String,
}

/// Looks at a whole line.
pub fn look(line: &[u8]) -> Seen {
    let mut scanner = Scanner::new();
    scanner.feed(line);
    let Some(frame) = scanner.finish().map(|frame| frame.completed(line)) else {
        return Seen {
            kind: Kind::Blank,
            id: None,
            method: String::new(),
        };
    };
    Seen {
        kind: frame.kind,
        id: match frame.id {
            Id::Token(token) => Some(token.to_vec()),
            Id::Absent | Id::Null | Id::TooLong => None,
        },
        method: frame.method.map(Cow::into_owned).unwrap_or_default(),
    }
}

/// A message as one line: newlines, which JSON allows between its tokens only, become spaces.
pub fn flat(message: &[u8]) -> Vec<u8> {
    let message = message.strip_prefix(b"\xef\xbb\xbf").unwrap_or(message);
    let mut line = message.trim_ascii().to_vec();
    for byte in &mut line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line
}

/// The protocol version that a modern message names in its `_meta`.
pub fn version_of(line: &[u8]) -> Option<String> {
    let meta = Members::of_line(line)?.object("params")?.object("_meta")?;
    meta.text(PROTOCOL_VERSION_KEY).map(Cow::into_owned)
}

/// The protocol version that a client offers in `initialize`.
pub fn offered(line: &[u8]) -> Option<String> {
    let params = Members::of_line(line)?.object("params")?;
    params.text("protocolVersion").map(Cow::into_owned)
}

/// The code of an error, and the error itself, raw; none if this is no JSON-RPC error.
pub fn error_of(body: &[u8]) -> Option<(i64, &[u8])> {
    let error = Members::of_line(body)?.get("error")?.get();
    let code = Members::of_line(error.as_bytes())?.get("code")?;
    Some((code.get().parse().ok()?, error.as_bytes()))
}

/// An error answer with this id, around a raw error.
pub fn error_line(id_token: &[u8], raw_error: &[u8]) -> Vec<u8> {
    [
        br#"{"jsonrpc":"2.0","id":"#,
        id_token,
        br#","error":"#,
        &flat(raw_error),
        b"}\n",
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_seen_as_they_are() {
        let seen = look(br#"{"id":"a","method":"tools/call"}"#);
        assert_eq!(
            (seen.kind, seen.id.as_deref(), seen.method.as_str()),
            (Kind::Request, Some(&b"\"a\""[..]), "tools/call")
        );
        assert_eq!(look(b" ").kind, Kind::Blank);
        assert_eq!(look(b"<html>").kind, Kind::Junk);
        let null = look(br#"{"id":null,"error":{"code":1}}"#);
        assert_eq!((null.kind, null.id), (Kind::Error, None));
    }

    #[test]
    fn a_message_becomes_one_line() {
        assert_eq!(flat(b"\xef\xbb\xbf{\r\n \"a\": 1\n}\n"), b"{   \"a\": 1 }");
    }

    #[test]
    fn versions_and_errors_are_found() {
        let modern = br#"{"id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol\/protocolVersion":"2026-07-28","a":{}}}}"#;
        assert_eq!(version_of(modern).as_deref(), Some("2026-07-28"));
        assert_eq!(
            version_of(br#"{"id":1,"method":"x","params":{"_meta":7}}"#),
            None
        );
        let initialize =
            br#"{"id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
        assert_eq!(offered(initialize).as_deref(), Some("2025-06-18"));
        let (code, raw) =
            error_of(br#"{"id":null,"error":{"code":-32000,"message":"no"}}"#).unwrap();
        assert_eq!(code, -32000);
        assert_eq!(
            error_line(b"7", raw),
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-32000,\"message\":\"no\"}}\n"
        );
        assert_eq!(error_of(b"<html>"), None);
    }
}
