//! A look into whole lines that we act on: the opening, a cancel, a tool call, a line whose id must change.
//!
//! The line is parsed by borrowing and never written anew: a rewrite replaces the span of one value and leaves every
//! other byte. Keys and texts may be written with escapes. A repeated key counts as one that is not there, because its
//! readers disagree about which one counts; what has not the expected shape is `None` or [`Era::Legacy`], never a panic. Meant for lines up to
//! [`WHOLE_LINE_BYTES`](crate::limits::WHOLE_LINE_BYTES), but true for any.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::unique::alike;
pub use super::unique::has_unclear_keys;

/// The key in `params._meta` that makes a request a modern one.
pub const PROTOCOL_VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// The key in `_meta` that names the subscription a message belongs to.
pub const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// Capabilities of a server that we look at.
pub const CAPABILITIES_MAX: usize = 1_024;
/// The longest name of one.
const CAPABILITY_BYTES: usize = 128;

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
    splice(line, message.get("id")?.get().as_bytes(), new_id_token)
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

/// The method of a request or notification.
pub fn method(line: &[u8]) -> Option<Cow<'_, str>> {
    Members::of_line(line)?.text("method")
}

/// The progress token that a request carries.
pub fn progress_token(line: &[u8]) -> Option<&[u8]> {
    let meta = Members::of_line(line)?.object("params")?.object("_meta")?;
    Some(meta.get("progressToken")?.get().as_bytes())
}

/// The token and the value of a progress notification.
pub fn progress(line: &[u8]) -> Option<(&[u8], f64)> {
    let params = Members::of_line(line)?.object("params")?;
    let value = serde_json::from_str(params.get("progress")?.get()).ok()?;
    Some((params.get("progressToken")?.get().as_bytes(), value))
}

/// The resource that a request is about.
pub fn uri(line: &[u8]) -> Option<Cow<'_, str>> {
    Members::of_line(line)?.object("params")?.text("uri")
}

/// A request as we repeat it on a client's behalf: without the progress token, because no client waits for that
/// progress.
pub fn without_progress(line: &[u8]) -> Vec<u8> {
    let spliced = || {
        progress_token(line)?;
        let params = Members::of_line(line)?.object("params")?;
        splice(line, params.get("_meta")?.get().as_bytes(), &meta(line)?)
    };
    spliced().unwrap_or_else(|| line.to_vec())
}

/// The `_meta` of a request, raw, for requests of ours: without the progress token, which belongs to that one request.
pub fn meta(line: &[u8]) -> Option<Vec<u8>> {
    let params = Members::of_line(line)?.object("params")?;
    let mut meta = b"{".to_vec();
    for (key, value) in params.object("_meta")?.0 {
        if key == "progressToken" {
            continue;
        }
        if meta.len() > 1 {
            meta.push(b',');
        }
        meta.extend(serde_json::to_vec(&key).ok()?);
        meta.push(b':');
        meta.extend_from_slice(value.get().as_bytes());
    }
    meta.push(b'}');
    Some(meta)
}

/// Whether the parameters of a request have one of these members.
pub fn has_param(line: &[u8], keys: &[&str]) -> bool {
    let params = Members::of_line(line).and_then(|message| message.object("params"));
    params.is_some_and(|params| keys.iter().any(|key| params.get(key).is_some()))
}

/// The subscription that a notification or a result belongs to.
pub fn subscription(line: &[u8]) -> Option<&[u8]> {
    let message = Members::of_line(line)?;
    let meta = message.object("params")?.object("_meta")?;
    Some(meta.get(SUBSCRIPTION_KEY)?.get().as_bytes())
}

/// A notification that belongs to another subscription.
pub fn with_subscription(line: &[u8], new_id_token: &[u8]) -> Option<Vec<u8>> {
    splice(line, subscription(line)?, new_id_token)
}

/// The subscription that a result ends.
pub fn ended_subscription(line: &[u8]) -> Option<&[u8]> {
    let result = Members::of_line(line)?.object("result")?;
    Some(
        result
            .object("_meta")?
            .get(SUBSCRIPTION_KEY)?
            .get()
            .as_bytes(),
    )
}

/// A result that ends another subscription.
pub fn with_ended_subscription(line: &[u8], new_id_token: &[u8]) -> Option<Vec<u8>> {
    splice(line, ended_subscription(line)?, new_id_token)
}

/// The filter that an acknowledgement grants, raw.
pub fn granted(line: &[u8]) -> Option<&[u8]> {
    let params = Members::of_line(line)?.object("params")?;
    Some(params.get("notifications")?.get().as_bytes())
}

/// Whether two raw values mean the same: order of members and white space do not matter.
pub fn same_value(a: &[u8], b: &[u8]) -> bool {
    let value = |bytes| serde_json::from_slice::<serde_json::Value>(bytes);
    a == b || matches!((value(a), value(b)), (Ok(a), Ok(b)) if a == b)
}

/// The same line with another `params.requestId`.
pub fn with_request_id(line: &[u8], new_id_token: &[u8]) -> Option<Vec<u8>> {
    splice(line, cancelled_id(line)?, new_id_token)
}

/// Whether a raw object has this member, and it is true.
pub fn is_true(object: &[u8], key: &str) -> bool {
    Members::of_line(object)
        .and_then(|members| members.get(key))
        .is_some_and(|value| value.get() == "true")
}

/// A request of ours without parameters but this `_meta`, as a line.
pub fn question(method: &str, id_token: &[u8], meta: Option<&[u8]>) -> Vec<u8> {
    let mut line = [br#"{"jsonrpc":"2.0","id":"#, id_token, br#","method":""#].concat();
    line.extend_from_slice(method.as_bytes());
    line.push(b'"');
    if let Some(meta) = meta {
        line.extend_from_slice(br#","params":{"_meta":"#);
        line.extend_from_slice(meta);
        line.push(b'}');
    }
    line.extend_from_slice(b"}\n");
    line
}

/// A request of ours that takes a subscription back, as a line.
pub fn unsubscribe(id_token: &[u8], uri: &[u8]) -> Vec<u8> {
    let uri = String::from_utf8_lossy(uri);
    let uri = serde_json::to_vec(&uri).unwrap_or_default();
    [
        br#"{"jsonrpc":"2.0","id":"#,
        id_token,
        br#","method":"resources/unsubscribe","params":{"uri":"#,
        &uri,
        b"}}\n",
    ]
    .concat()
}

/// Whether two `initialize` requests ask for the same session: version and capabilities; the client's name does not
/// matter.
pub fn same_opening(a: &[u8], b: &[u8]) -> bool {
    let terms = |line| {
        let params = Members::of_line(line)?.object("params")?;
        let raw = |key| params.get(key).map_or("null", RawValue::get);
        Some((raw("protocolVersion"), raw("capabilities")))
    };
    match (terms(a), terms(b)) {
        (Some((version, can)), Some((other_version, other_can))) => {
            same_value(version.as_bytes(), other_version.as_bytes())
                && same_value(can.as_bytes(), other_can.as_bytes())
        }
        (None, _) | (_, None) => false,
    }
}

/// A request with another progress token.
pub fn with_progress_token(line: &[u8], new_token: &[u8]) -> Option<Vec<u8>> {
    splice(line, progress_token(line)?, new_token)
}

/// A progress notification with another token.
pub fn with_progress(line: &[u8], new_token: &[u8]) -> Option<Vec<u8>> {
    let params = Members::of_line(line)?.object("params")?;
    splice(
        line,
        params.get("progressToken")?.get().as_bytes(),
        new_token,
    )
}

/// The token of a progress notification.
pub fn reported_token(line: &[u8]) -> Option<&[u8]> {
    let params = Members::of_line(line)?.object("params")?;
    Some(params.get("progressToken")?.get().as_bytes())
}

/// How an opening was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The version that was agreed on.
    pub version: String,
    /// What the server can do: `tools`, `tools.listChanged` … At most [`CAPABILITIES_MAX`], and none with a long name.
    pub capabilities: Vec<String>,
}

/// Reads the answer to `initialize`.
pub fn greeting(line: &[u8]) -> Option<Greeting> {
    let result = Members::of_line(line)?.object("result")?;
    let mut capabilities = Vec::new();
    let short = |name: &str| name.len() <= CAPABILITY_BYTES;
    for (name, value) in result
        .object("capabilities")
        .map_or(Vec::new(), |all| all.0)
    {
        // A long name would be written once more for each of its members.
        if !short(&name) {
            continue;
        }
        let inner = serde_json::from_str(value.get()).map_or(Vec::new(), |Members(inner)| inner);
        for (key, value) in inner {
            if value.get() == "true" && short(&key) && capabilities.len() < CAPABILITIES_MAX {
                capabilities.push(alloc::format!("{name}.{key}"));
            }
        }
        if capabilities.len() < CAPABILITIES_MAX {
            capabilities.push(name.into_owned());
        }
    }
    capabilities.sort();
    Some(Greeting {
        version: result.text("protocolVersion")?.into_owned(),
        capabilities,
    })
}

/// The answer to `initialize` as a server that announces changed lists would give it; none if it does already.
pub fn advertised(line: &[u8]) -> Option<Vec<u8>> {
    let mut told: Option<Vec<u8>> = None;
    for name in ["tools", "prompts", "resources"] {
        let line = told.as_deref().unwrap_or(line);
        let capabilities = Members::of_line(line)?
            .object("result")?
            .object("capabilities")?;
        let Some(one) = capabilities.get(name).map(|value| value.get().as_bytes()) else {
            continue;
        };
        let Some(members) = Members::of_line(one) else {
            continue;
        };
        let new = match members.get("listChanged") {
            Some(value) if value.get() == "true" => continue,
            Some(value) => splice(line, value.get().as_bytes(), b"true"),
            None if members.0.is_empty() => splice(line, one, br#"{"listChanged":true}"#),
            None => splice(line, &one[..1], br#"{"listChanged":true,"#),
        };
        told = new.or(told);
    }
    told
}

/// Puts a new value in the place of one that borrows from the line.
fn splice(line: &[u8], old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let start = (old.as_ptr() as usize).checked_sub(line.as_ptr() as usize)?;
    let (before, rest) = line.split_at_checked(start)?;
    Some([before, new, rest.get(old.len()..)?].concat())
}

/// The members of one JSON object, in order, values unread.
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The members of the object on this line; none if it is no object.
    pub fn of_line(line: &'a [u8]) -> Option<Self> {
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        serde_json::from_slice(line).ok()
    }

    /// The value of a key that is there once.
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        let mut all = self.0.iter().filter(|(held, _)| held == key);
        match (all.next(), all.next()) {
            (Some((_, value)), None) => Some(value),
            (None, _) | (Some(_), Some(_)) => None,
        }
    }

    /// Whether each of these keys, where it is there, is written so that no reader takes another member for it. Repeated
    /// keys are [`has_unclear_keys`]'s business.
    pub fn spell(&self, keys: &[&str]) -> bool {
        let clear = |held: &str| keys.iter().all(|key| held == *key || !alike(held, key));
        self.0.iter().all(|(held, _)| clear(held))
    }

    /// The member of this name, if it is a text.
    pub fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        let Text(text) = serde_json::from_str(self.get(key)?.get()).ok()?;
        Some(text)
    }

    /// The member of this name, if it is an object.
    pub fn object(&self, key: &str) -> Option<Self> {
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
    fn the_cancelled_request_is_found() {
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
                r#"{"method":"tools/call","params":{"name":"\u0065cho"}}"#,
                Some("echo"),
            ),
            (
                r#"{"method":"tools/call","params":{"name":"\u0065cho","name":"x"}}"#,
                None,
            ),
            (r#"{"method":"tools/call","params":{"name":5}}"#, None),
            (r#"{"method":"prompts/get","params":{"name":"echo"}}"#, None),
        ] {
            assert_eq!(tool_name(line.as_bytes()).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn the_small_readings() {
        let call = br#"{"id":1,"method":"m","params":{"uri":"a:\u002f","task":{},"_meta":{"progressToken":"t"}}}"#;
        assert_eq!(progress_token(call), Some(&b"\"t\""[..]));
        assert_eq!(uri(call).as_deref(), Some("a:/"));
        assert_eq!(meta(call).as_deref(), Some(&b"{}"[..]));
        assert_eq!(progress_token(&without_progress(call)), None);
        assert_eq!(without_progress(b"{}"), b"{}");
        assert!(has_param(call, &["x", "task"]) && !has_param(call, &["x"]));
        let note =
            br#"{"method":"notifications/progress","params":{"progressToken":7,"progress":0.5}}"#;
        assert_eq!(progress(note), Some((&b"7"[..], 0.5)));
        let ack = br#"{"method":"n","params":{"notifications":{"a":true},"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}"#;
        assert_eq!(subscription(ack), Some(&b"\"l\""[..]));
        assert_eq!(granted(ack), Some(&br#"{"a":true}"#[..]));
        assert!(same_value(br#"{"a":1,"b":2}"#, br#"{ "b":2, "a":1 }"#));
        assert!(!same_value(b"{", b"}") && !same_value(b"1", b"2"));
        let cancel =
            br#"{"method":"notifications/cancelled","params":{"requestId":0,"reason":"r"}}"#;
        assert_eq!(
            with_request_id(cancel, b"\"ms:2:0\"").unwrap(),
            br#"{"method":"notifications/cancelled","params":{"requestId":"ms:2:0","reason":"r"}}"#
        );
    }

    #[test]
    fn changed_lists_are_announced_in_the_servers_name() {
        let line = |capabilities: &str| {
            format!(
                r#"{{"id":0,"result":{{"capabilities":{{{capabilities}}},"protocolVersion":"1"}}}}"#
            )
        };
        for (says, told) in [
            (
                r#""tools":{},"logging":{}"#,
                Some(r#""tools":{"listChanged":true},"logging":{}"#),
            ),
            (
                r#""prompts":{ "listChanged" : false },"resources":{"subscribe":true}"#,
                Some(
                    r#""prompts":{ "listChanged" : true },"resources":{"listChanged":true,"subscribe":true}"#,
                ),
            ),
            (r#""tools":{"listChanged":true}"#, None),
            (r#""tools":7"#, None),
            ("", None),
        ] {
            let new = advertised(line(says).as_bytes());
            assert_eq!(new, told.map(|told| line(told).into_bytes()), "{says}");
        }
        assert_eq!(advertised(br#"{"id":0,"error":{}}"#), None);
    }

    #[test]
    fn a_greeting_is_read() {
        let line = br#"{"id":0,"result":{"capabilities":{"tools":{"listChanged":true},"logging":{}},"protocolVersion":"2025-06-18"}}"#;
        let read = greeting(line).unwrap();
        assert_eq!(read.version, "2025-06-18");
        assert_eq!(read.capabilities, ["logging", "tools", "tools.listChanged"]);
        assert_eq!(greeting(br#"{"id":0,"result":{}}"#), None);
    }

    #[test]
    fn a_greeting_stays_in_bounds_whatever_the_server_says_of_itself() {
        let many: Vec<String> = (0..2_000).map(|at| format!(r#""{at}":true"#)).collect();
        let (many, long) = (many.join(","), "x".repeat(10_000));
        let line = format!(
            r#"{{"id":0,"result":{{"capabilities":{{"tools":{{"{long}":true}},"{long}":{{{many}}},"a":{{{many}}},"b":{{{many}}}}},"protocolVersion":"1"}}}}"#
        );
        let read = greeting(line.as_bytes()).unwrap();
        assert_eq!(read.capabilities.len(), CAPABILITIES_MAX);
        let bytes: usize = read.capabilities.iter().map(String::len).sum();
        assert!(bytes < line.len(), "{bytes}");
        assert!(read.capabilities.contains(&"tools".into()));
    }
}
