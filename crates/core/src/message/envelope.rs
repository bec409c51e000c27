//! A look into whole lines that we act on: the opening, a cancel, a tool call, a line whose id must change.
//!
//! The line is parsed by borrowing and never written anew: a rewrite replaces the span of one value and leaves every
//! other byte. Keys and texts may be written with escapes. Of repeated keys the first counts, as everywhere; what has
//! not the expected shape is `None` or [`Era::Legacy`], never a panic. Meant for lines up to
//! [`WHOLE_LINE_BYTES`](crate::limits::WHOLE_LINE_BYTES), but true for any.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The key in `params._meta` that makes a request a modern one.
pub const PROTOCOL_VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// Which of the two protocols is spoken on a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// `initialize`, a session, versions up to 2025-11-25.
    Legacy,
    /// Stateless, from 2026-07-28.
    Modern,
    /// Not settled by this request; the next one says.
    Open,
}

/// The era that a first request settles. `initialize` is legacy whatever version it names; `server/discover` is asked
/// by clients of both eras and settles nothing.
pub fn era(line: &[u8]) -> Era {
    let Some(message) = Members::of_line(line) else {
        return Era::Legacy;
    };
    match message.text("method").as_deref() {
        Some("server/discover") => return Era::Open,
        Some("initialize") => return Era::Legacy,
        Some(_) | None => {}
    }
    let meta = message
        .object("params")
        .and_then(|params| params.object("_meta"));
    match meta.and_then(|meta| meta.get(PROTOCOL_VERSION_KEY)) {
        Some(_) => Era::Modern,
        None => Era::Legacy,
    }
}

/// The line with another id. Only the bytes of the id's value change. `None` if there is no id, or more than one.
pub fn with_id(line: &[u8], new_id_token: &[u8]) -> Option<Vec<u8>> {
    let message = Members::of_line(line)?;
    let mut ids = message.0.iter().filter(|(key, _)| key == "id");
    let (_, old) = ids.next()?;
    if ids.next().is_some() {
        return None;
    }
    // The value borrows from the line, so the distance of the two is its place.
    let old = old.get().as_bytes();
    let start = (old.as_ptr() as usize).checked_sub(line.as_ptr() as usize)?;
    let (before, rest) = line.split_at_checked(start)?;
    let after = rest.get(old.len()..)?;
    Some([before, new_id_token, after].concat())
}

/// The id token of the request that a `notifications/cancelled` wants to be cancelled.
pub fn cancelled_id(line: &[u8]) -> Option<&[u8]> {
    let message = Members::of_line(line)?;
    if message.text("method")? != "notifications/cancelled" {
        return None;
    }
    let params = message.object("params")?;
    Some(params.get("requestId")?.get().as_bytes())
}

/// The tool that a `tools/call` names.
pub fn tool_name(line: &[u8]) -> Option<Cow<'_, str>> {
    let message = Members::of_line(line)?;
    if message.text("method")? != "tools/call" {
        return None;
    }
    message.object("params")?.text("name")
}

/// The members of one JSON object, in order, values unread.
pub(super) struct Members<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    pub(super) fn of_line(line: &'a [u8]) -> Option<Self> {
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        serde_json::from_slice(line).ok()
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a RawValue> {
        let (_, value) = self.0.iter().find(|(held, _)| held == key)?;
        Some(value)
    }

    pub(super) fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        let Text(text) = serde_json::from_str(self.get(key)?.get()).ok()?;
        Some(text)
    }

    pub(super) fn object(&self, key: &str) -> Option<Self> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(key), value)) = map.next_entry()? {
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(InOrder)
    }
}

/// A string that is borrowed where it can be (a bare `Cow` always copies).
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    #[test]
    fn the_first_request_settles_the_era() {
        let modern = format!(r#""params":{{"_meta":{{"{PROTOCOL_VERSION_KEY}":"2026-07-28"}}}}"#);
        for (line, expected) in [
            (r#"{"id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#.into(), Era::Legacy),
            (r#"{"id":0,"method":"initialize","params":{"protocolVersion":"2026-07-28"}}"#.into(), Era::Legacy),
            (format!(r#"{{"id":0,"method":"initialize",{modern}}}"#), Era::Legacy),
            (format!(r#"{{"id":0,"method":"tools/list",{modern}}}"#), Era::Modern),
            (format!("\u{feff}{{{modern},\"method\":\"tools\\/list\"}}\r\n"), Era::Modern),
            (format!(r#"{{"id":0,"method":"server/discover",{modern}}}"#), Era::Open),
            (format!(r#"{{"id":0,"method":"server\/discover",{modern}}}"#), Era::Open),
            (r#"{"id":0,"method":"server/discover"}"#.into(), Era::Open),
            (r#"{"id":0,"method":"ping"}"#.into(), Era::Legacy),
            (r#"{"id":0,"method":"tools/list","params":{"_meta":{"progressToken":1}}}"#.into(), Era::Legacy),
            (r#"{"id":0,"method":"tools/list","params":{"_meta":7}}"#.into(), Era::Legacy),
            (r#"{"id":0,"method":"tools/list","params":[]}"#.into(), Era::Legacy),
            (r#"{"id":0,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol\/protocolVersion":"x"}}}"#.into(), Era::Modern),
            (r#"{"id":0,"method":"tools/call","params":{"arguments":{"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}}}}"#.into(), Era::Legacy),
            (r#"{"id":0,"method":5}"#.into(), Era::Legacy),
            ("[]".into(), Era::Legacy),
            ("{".into(), Era::Legacy),
            (String::new(), Era::Legacy),
        ] {
            assert_eq!(era(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn another_id_leaves_every_other_byte() {
        for (line, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#,
                Some(r#"{"jsonrpc":"2.0","id":"ms:7","method":"m"}"#),
            ),
            (
                "\u{feff} { \"x\":{\"id\":1e2,\"b\":1.0}, \"id\" : \"old\\u0041\" , \"y\":1E5 }\r\n",
                Some(
                    "\u{feff} { \"x\":{\"id\":1e2,\"b\":1.0}, \"id\" : \"ms:7\" , \"y\":1E5 }\r\n",
                ),
            ),
            (r#"{"\u0069d":null}"#, Some(r#"{"\u0069d":"ms:7"}"#)),
            (r#"{"id":{"a":[]}}"#, Some(r#"{"id":"ms:7"}"#)),
            (r#"{"id":1,"id":2}"#, None),
            (r#"{"method":"m"}"#, None),
            (r#"{"id":1"#, None),
            (r#"[{"id":1}]"#, None),
        ] {
            let new = with_id(line.as_bytes(), b"\"ms:7\"");
            assert_eq!(
                new.as_deref(),
                expected.map(str::as_bytes),
                "{line} became {:?}",
                new.as_deref().map(String::from_utf8_lossy)
            );
        }
    }

    #[test]
    fn what_is_to_be_cancelled() {
        for (line, expected) in [
            (
                r#"{"method":"notifications/cancelled","params":{"requestId":"a\u0062","reason":"x"}}"#,
                Some(r#""a\u0062""#),
            ),
            (
                r#"{"params":{"requestId": 7 },"method":"notifications\/cancelled"}"#,
                Some("7"),
            ),
            (r#"{"method":"notifications/cancelled","params":{}}"#, None),
            (r#"{"method":"notifications/cancelled","params":[1]}"#, None),
            (r#"{"method":"notifications/cancelled"}"#, None),
            (r#"{"method":"other","params":{"requestId":1}}"#, None),
        ] {
            assert_eq!(
                cancelled_id(line.as_bytes()),
                expected.map(str::as_bytes),
                "{line}"
            );
        }
    }

    #[test]
    fn which_tool_is_called() {
        for (line, expected) in [
            (
                r#"{"method":"tools/call","params":{"name":"echo"}}"#,
                Some("echo"),
            ),
            (
                r#"{"method":"tools/call","params":{"name":"\u0065cho","name":"x"}}"#,
                Some("echo"),
            ),
            (r#"{"method":"tools/call","params":{"name":5}}"#, None),
            (r#"{"method":"prompts/get","params":{"name":"echo"}}"#, None),
        ] {
            assert_eq!(tool_name(line.as_bytes()).as_deref(), expected, "{line}");
        }
    }
}
