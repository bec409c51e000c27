//! What a client posted: one message, read once, never written anew.
//!
//! A body that two readers would read differently is refused ([`Unread::Ambiguous`]): we check and relabel what we read,
//! and the server obeys what it reads. So no object has a key twice, at any depth, and each key that we read is written
//! in one way only.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use mainstay_protocol::limits::LONG_ID_BYTES;
use mainstay_protocol::message::envelope::{Members, PROTOCOL_VERSION_KEY, has_unclear_keys};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::headers::named_by;

/// The key in `_meta` that says what the client can do.
pub const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// The key in `_meta` that asks for log messages.
pub const LOG_LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";

/// Versions of the legacy era, newest first.
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// From this one on, a stream begins with an event that only has an id.
pub const PRIMED_FROM: &str = "2025-11-25";
/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// It has an id and is to be answered.
    Request(&'a [u8]),
    /// It has no id.
    Notification,
    /// It answers a request of the server.
    Answer(&'a [u8]),
}

/// Why a body is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is not JSON.
    NotJson,
    /// It is an array.
    Batch,
    /// It is JSON, and no message.
    NoMessage,
    /// Readers disagree about what it says.
    Ambiguous,
    /// Its id is longer than [`LONG_ID_BYTES`].
    LongId,
}

/// One message.
pub struct Posted<'a> {
    /// What it is.
    pub kind: Kind<'a>,
    /// Its method; empty for an answer.
    pub method: Cow<'a, str>,
    params: Option<Members<'a>>,
    meta: Option<Members<'a>>,
}

impl<'a> Posted<'a> {
    /// Reads a body.
    pub fn read(body: &'a [u8]) -> Result<Self, Unread> {
        let Some(message) = Members::of_line(body) else {
            let body = body.strip_prefix(MARK).unwrap_or(body);
            let value = serde_json::from_slice::<IgnoredAny>(body);
            return Err(match value {
                Err(_) => Unread::NotJson,
                Ok(_) if body.trim_ascii_start().starts_with(b"[") => Unread::Batch,
                Ok(_) => Unread::NoMessage,
            });
        };
        if has_unclear_keys(body) || !message.spell(&TOP_KEYS) {
            return Err(Unread::Ambiguous);
        }
        if message.text("jsonrpc").as_deref() != Some("2.0") {
            return Err(Unread::NoMessage);
        }
        let id = message.get("id").map(|id| id.get().as_bytes());
        let whole = |id: &'a [u8]| {
            let sort = matches!(id.first(), Some(b'"' | b'-' | b'0'..=b'9'));
            match sort {
                true if id.len() > LONG_ID_BYTES => Err(Unread::LongId),
                true => Ok(id),
                false => Err(Unread::NoMessage),
            }
        };
        let answers = message.get("result").is_some() || message.get("error").is_some();
        let (kind, method) = match (message.text("method"), id) {
            (Some(method), None) => (Kind::Notification, method),
            (Some(method), Some(id)) => (Kind::Request(whole(id)?), method),
            (None, Some(id)) if answers && message.get("method").is_none() => {
                (Kind::Answer(whole(id)?), Cow::Borrowed(""))
            }
            (None, Some(_) | None) => return Err(Unread::NoMessage),
        };
        let params = message.object("params");
        let meta = params.as_ref().and_then(|params| params.object("_meta"));
        let clear = |members: &Option<Members<'_>>, keys: &[&str]| {
            members.as_ref().is_none_or(|members| members.spell(keys))
        };
        let clear_params = clear(&params, &["_meta"]) && clear(&params, param_keys(&method));
        // A text with half a surrogate pair is one for some readers, and none for us.
        let name = named_by(&method).is_none_or(|key| is_text_or_none(params.as_ref(), key));
        let texts = name && is_text_or_none(meta.as_ref(), PROTOCOL_VERSION_KEY);
        if !(clear_params && clear(&meta, &META_KEYS) && texts) {
            return Err(Unread::Ambiguous);
        }
        Ok(Self {
            kind,
            method,
            params,
            meta,
        })
    }

    /// The version that a modern request names.
    pub fn version(&self) -> Option<Cow<'a, str>> {
        self.meta.as_ref()?.text(PROTOCOL_VERSION_KEY)
    }

    /// Whether the client says what it can do.
    pub fn tells_capabilities(&self) -> bool {
        let meta = self.meta.as_ref();
        meta.is_some_and(|meta| meta.object(CAPABILITIES_KEY).is_some())
    }

    /// Whether log messages are asked for.
    pub fn wants_log(&self) -> bool {
        let meta = self.meta.as_ref();
        meta.is_some_and(|meta| meta.get(LOG_LEVEL_KEY).is_some())
    }

    /// The progress token as written.
    pub fn progress_token(&self) -> Option<&'a [u8]> {
        let token = self.meta.as_ref()?.get("progressToken")?;
        Some(token.get().as_bytes())
    }

    /// A text among the parameters.
    pub fn param(&self, key: &str) -> Option<Cow<'a, str>> {
        self.params.as_ref()?.text(key)
    }

    /// The arguments of a call, raw.
    pub fn arguments(&self) -> Option<&'a [u8]> {
        Some(self.params.as_ref()?.get("arguments")?.get().as_bytes())
    }

    /// The version that an `initialize` asks for.
    pub fn asked_version(&self) -> Option<Cow<'a, str>> {
        self.param("protocolVersion")
    }
}

/// A byte order mark, which some writers put before a text.
const MARK: &[u8] = b"\xEF\xBB\xBF";
/// The keys of a message that we or its server read.
const TOP_KEYS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
/// The keys in `_meta` that we read.
const META_KEYS: [&str; 4] = [
    PROTOCOL_VERSION_KEY,
    CAPABILITIES_KEY,
    LOG_LEVEL_KEY,
    "progressToken",
];

/// Whether a member is not there, is no text, or is a text that every reader reads.
fn is_text_or_none(members: Option<&Members<'_>>, key: &str) -> bool {
    let Some(members) = members else { return true };
    let is_text = |value: &RawValue| value.get().starts_with('"');
    !members.get(key).is_some_and(is_text) || members.text(key).is_some()
}

/// The parameters of a method that we read, beside `_meta`.
fn param_keys(method: &str) -> &'static [&'static str] {
    match method {
        "tools/call" => &["name", "arguments"],
        "initialize" => &["protocolVersion"],
        "logging/setLevel" => &["level"],
        "resources/subscribe" | "resources/unsubscribe" => &["uri"],
        "notifications/cancelled" => &["requestId"],
        other => match named_by(other) {
            Some("name") => &["name"],
            Some("uri") => &["uri"],
            Some("taskId") => &["taskId"],
            Some(_) | None => &[],
        },
    }
}

/// The id of a message that could not be read for its length.
pub fn id_of(body: &[u8]) -> Option<&[u8]> {
    Some(Members::of_line(body)?.get("id")?.get().as_bytes())
}

/// A body as a line: what would end the line is white space between two tokens, and becomes a blank. In a text it is a
/// mistake, so such a body is checked first.
pub fn line(body: &[u8]) -> Result<Vec<u8>, Unread> {
    let body = trimmed(body.strip_prefix(MARK).unwrap_or(body));
    if body.starts_with(MARK) {
        // The server would not read it.
        return Err(Unread::NotJson);
    }
    let mut line = Vec::with_capacity(body.len() + 1);
    line.extend_from_slice(body);
    if memchr::memchr2(b'\n', b'\r', &line).is_some() {
        serde_json::from_slice::<IgnoredAny>(&line).map_err(|_| Unread::NotJson)?;
        for byte in &mut line {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
    line.push(b'\n');
    Ok(line)
}

/// Without what JSON calls white space: a form feed is none.
fn trimmed(body: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let end = body.iter().rposition(|byte| !blank(byte));
    let body = &body[..end.map_or(0, |last| last + 1)];
    let start = body.iter().position(|byte| !blank(byte));
    &body[start.unwrap_or(0)..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_body_is() {
        let kind = |body: &'static str| Posted::read(body.as_bytes()).map(|posted| posted.kind);
        assert_eq!(
            kind(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#),
            Ok(Kind::Request(b"7"))
        );
        assert_eq!(
            kind("{\"jsonrpc\":\"2.0\",\n\"method\":\"x\"}"),
            Ok(Kind::Notification)
        );
        assert_eq!(
            kind(r#"{"jsonrpc":"2.0","id":"a","result":{}}"#),
            Ok(Kind::Answer(br#""a""#))
        );
        for (body, why) in [
            ("{", Unread::NotJson),
            ("", Unread::NotJson),
            ("{\"a\":\"\n\"}", Unread::NotJson),
            ("[]", Unread::Batch),
            (" [{}]", Unread::Batch),
            ("1", Unread::NoMessage),
            ("{}", Unread::NoMessage),
            (r#"{"id":7,"method":"ping"}"#, Unread::NoMessage),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
                Unread::NoMessage,
            ),
            (
                r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
                Unread::NoMessage,
            ),
            (r#"{"jsonrpc":"2.0","id":1}"#, Unread::NoMessage),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, Unread::NoMessage),
        ] {
            assert_eq!(kind(body), Err(why), "{body}");
        }
    }

    #[test]
    fn what_two_readers_would_read_differently_is_refused() {
        let read = |body: &str| Posted::read(body.as_bytes()).map(drop);
        for body in [
            r#"{"jsonrpc":"2.0","id":"m","method":"tools/call","params":{},"id":"h3"}"#,
            r#"{"jsonrpc":"2.0","id":"m","method":"tools/call","params":{},"\u0069d":"h3"}"#,
            r#"{"jsonrpc":"2.0","id":"m","method":"tools/call","params":{},"ID":"h3"}"#,
            r#"{"jsonrpc":"2.0","id":"m","method":"tools/call","params":{},"id\u0000":"h3"}"#,
            r#"{"jsonrpc":"2.0","ID":"h3","method":"notifications/x"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","Params":{"name":"a"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"params":{"name":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"URI":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1,"progresstoken":2}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_Meta":{}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"a":[{"b":1,"b":2}]}}}"#,
            // Rust reads nothing of an object with such a key, JavaScript and Python read all of it.
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","\ud83d":1}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"\ud83d":1}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a\ud83d"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"\ud83d"}}}"#,
        ] {
            assert_eq!(read(body), Err(Unread::Ambiguous), "{body}");
        }
        for body in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"Name":1,"name":2,"NAME":3}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"own/method","params":{"Name":1,"name":2,"URI":3}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"text":"\ud83d","name":"\ud83d"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"text":"\ud83d"}}}"#,
        ] {
            assert_eq!(read(body), Ok(()), "{body}");
        }
    }

    #[test]
    fn a_line_end_in_a_text_is_no_white_space() {
        assert_eq!(line(b"{\"a\":\"\n\"}"), Err(Unread::NotJson));
        assert_eq!(line(b"\xEF\xBB\xBF{\r\n}\n"), Ok(b"{  }\n".to_vec()));
        assert_eq!(line(b"\xEF\xBB\xBF\xEF\xBB\xBF{}"), Err(Unread::NotJson));
        assert_eq!(line(b" 1\x0c"), Ok(b"1\x0c\n".to_vec()));
        assert_eq!(line(b" \n"), Ok(b"\n".to_vec()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let read = Posted::read(&body).map(|posted| posted.kind);
            if read.is_ok() {
                let line = line(&body).unwrap();
                prop_assert_eq!(memchr::memchr(b'\n', &line), Some(line.len() - 1));
            }
        }

        #[test]
        fn a_line_means_what_the_body_meant(text in "[a-z\\n\\r\"]{0,20}", number in any::<i64>()) {
            let body = serde_json::to_vec_pretty(&serde_json::json!({"jsonrpc": "2.0", "id": number, "method": text, "params": {"a": [1, {"b": text}]}})).unwrap();
            let line = line(&body).unwrap();
            prop_assert_eq!(memchr::memchr(b'\n', &line), Some(line.len() - 1));
            let value = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
            prop_assert_eq!(value(&line), value(&body));
            prop_assert!(Posted::read(&line).is_ok());
        }
    }
}
