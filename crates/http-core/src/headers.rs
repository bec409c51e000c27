//! The headers of MCP over HTTP: their names, and what stands in them.
//!
//! In the modern era a client repeats parts of the body as headers, so that a router need not read JSON: the method, the
//! name of what it is about, and those arguments of a tool that its schema marks with `x-mcp-header`. A tool whose
//! marks break the rules must not be offered to a model, because no client could call it.

use alloc::borrow::{Cow, ToOwned};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::Value;
use serde_json::value::RawValue;

use super::base64;

/// The session that a message belongs to.
pub const SESSION: &str = "mcp-session-id";
/// The version of the protocol.
pub const VERSION: &str = "mcp-protocol-version";
/// The method, in the modern era.
pub const METHOD: &str = "mcp-method";
/// What it is about, in the modern era.
pub const NAME: &str = "mcp-name";
/// The last event that was seen, to resume after it.
pub const LAST_EVENT: &str = "last-event-id";
/// The prefix of mirrored arguments.
pub const PARAM: &str = "mcp-param-";
/// Headers that belong to one connection, or to the proxy at its other end, and not to the message: they are never passed on.
pub const HOP: [&str; 11] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];
/// How a property is marked.
const MARK: &str = "x-mcp-header";
/// The largest integer that every reader of JSON knows exactly.
const SAFE_INTEGER: i64 = (1 << 53) - 1;
/// The deepest schema that is followed.
const DEPTH_MOST: usize = 64;

/// Bytes that the ways to the marks of one tool may take.
const WAYS_BYTES: usize = 64 * 1024;

/// Where the arguments of one tool are mirrored: header names and the way to the argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirrors {
    found: Vec<(String, Vec<String>)>,
    bytes: usize,
    /// The marks keep the rules.
    sound: bool,
}

/// What is known of the tools' marks.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    tools: BTreeMap<String, Mirrors>,
    /// A page of the tool list has come.
    known: bool,
}

impl Mirrors {
    /// The marks of a tool's schema. The side that offers the tool checks that they are valid; the side that is called compares
    /// what they say in any case.
    pub(crate) fn of(schema: &Value) -> Self {
        let mut mirrors = Self {
            found: Vec::new(),
            bytes: 0,
            sound: true,
        };
        mirrors.walk(schema, true, &mut Vec::new(), &mut BTreeSet::new(), 0);
        mirrors
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Each header, in lower case and without its prefix, with the way to its argument.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &[String])> {
        let each = self.found.iter();
        each.map(|(header, path)| (header.as_str(), path.as_slice()))
    }

    /// `reachable`: the way here went through `properties` only.
    fn walk(
        &mut self,
        schema: &Value,
        reachable: bool,
        path: &mut Vec<String>,
        names: &mut BTreeSet<String>,
        depth: usize,
    ) {
        if depth > DEPTH_MOST {
            self.sound = false;
            return;
        }
        let members = match schema {
            Value::Object(members) => members,
            Value::Array(list) => {
                for one in list {
                    self.walk(one, false, path, names, depth + 1);
                }
                return;
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
        };
        if let Some(mark) = members.get(MARK) {
            let primitive = matches!(
                members.get("type").and_then(Value::as_str),
                Some("string" | "integer" | "boolean")
            );
            let name = mark.as_str().filter(|name| is_token(name));
            let name = name.filter(|_| reachable && !path.is_empty());
            let fresh = name.is_some_and(|name| names.insert(name.to_ascii_lowercase()));
            // Each mark has a copy of the way to it, of which a peer chooses the length.
            let way = path.iter().map(|name| name.len() + size_of::<String>());
            self.bytes += way.sum::<usize>();
            self.sound &= primitive && fresh && self.bytes <= WAYS_BYTES;
            let name = name.filter(|_| self.bytes <= WAYS_BYTES);
            self.found
                .extend(name.map(|name| (name.to_ascii_lowercase(), path.clone())));
        }
        for (key, value) in members {
            if key == "properties" {
                let Value::Object(properties) = value else {
                    continue;
                };
                for (name, property) in properties {
                    path.push(name.clone());
                    self.walk(property, reachable, path, names, depth + 1);
                    path.pop();
                }
            } else if !matches!(key.as_str(), "default" | "const" | "enum" | "examples") {
                self.walk(value, false, path, names, depth + 1);
            }
        }
    }
}

impl Marks {
    /// A page of the tool list has come: learns it, and gives the line without the tools that must not be offered, with
    /// their names, if there are any.
    pub fn learn(&mut self, line: &[u8]) -> Option<(Vec<u8>, Vec<String>)> {
        let page: Page<'_> = serde_json::from_slice(line).ok()?;
        self.known = true;
        let mut cut = Vec::new();
        let mut refused = Vec::new();
        for (at, raw) in page.result.tools.iter().enumerate() {
            let Ok(tool) = serde_json::from_str::<Tool>(raw.get()) else {
                continue;
            };
            let mirrors = Mirrors::of(&tool.schema);
            if !mirrors.sound {
                self.tools.remove(&tool.name);
                refused.push(tool.name);
                cut.push(at);
            } else if mirrors.is_empty() {
                self.tools.remove(&tool.name);
            } else {
                self.tools.insert(tool.name, mirrors);
            }
        }
        if cut.is_empty() {
            return None;
        }
        let (first, last) = (page.result.tools.first()?, page.result.tools.last()?);
        let begin = offset(line, first.get());
        let end = offset(line, last.get()) + last.get().len();
        let kept: Vec<&str> = page
            .result
            .tools
            .iter()
            .enumerate()
            .filter(|(at, _)| !cut.contains(at))
            .map(|(_, raw)| raw.get())
            .collect();
        let mut shown = line[..begin].to_vec();
        shown.extend_from_slice(kept.join(",").as_bytes());
        shown.extend_from_slice(&line[end..]);
        Some((shown, refused))
    }

    /// Whether a page of the tool list has come.
    pub fn are_known(&self) -> bool {
        self.known
    }

    /// The headers of a modern message.
    pub fn of(&self, method: &str, line: &[u8]) -> Vec<(String, String)> {
        let mut headers: Vec<(String, String)> = Vec::new();
        headers.push((METHOD.into(), encode(method)));
        let Ok(message) = serde_json::from_slice::<Message<'_>>(line) else {
            return headers;
        };
        let params = message.params.unwrap_or_default();
        let name = match method {
            "tools/call" | "prompts/get" => params.name.as_deref(),
            // The last two are no methods of this era; a server that checks headers first shall say just that.
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                params.uri.as_deref()
            }
            "tasks/get" | "tasks/update" | "tasks/cancel" => params.task.as_deref(),
            _ => None,
        };
        headers.extend(name.map(|name| (NAME.to_owned(), encode(name))));
        if method == "tools/call"
            && let Some(mirrors) = params.name.as_deref().and_then(|name| self.tools.get(name))
            && let Some(arguments) = params.arguments
            && let Ok(arguments) = serde_json::from_str::<Value>(arguments.get())
        {
            for (header, path) in mirrors.iter() {
                let value = path
                    .iter()
                    .try_fold(&arguments, |value, key| value.get(key));
                let text = value.and_then(plain);
                headers.extend(text.map(|text| (format!("{PARAM}{header}"), encode(&text))));
            }
        }
        headers
    }
}

fn offset(line: &[u8], part: &str) -> usize {
    part.as_ptr() as usize - line.as_ptr() as usize
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => match number.as_i64() {
            Some(whole) if whole.abs() <= SAFE_INTEGER => Some(whole.to_string()),
            Some(_) | None => None,
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A value as it may stand in a header.
pub fn encode(value: &str) -> String {
    let safe = value
        .bytes()
        .all(|byte| byte == b'\t' || (0x20..0x7f).contains(&byte));
    let wrapped = value.starts_with("=?base64?") && value.ends_with("?=");
    if safe && value.trim_matches([' ', '\t']) == value && !wrapped {
        return value.into();
    }
    format!("=?base64?{}?=", base64::encode(value.as_bytes()))
}

/// The value of a header, with Base64 undone; none if it claims to be Base64 and is not.
pub fn decode(value: &[u8]) -> Option<Cow<'_, str>> {
    let value = text(value)?;
    let wrapped = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match wrapped {
        None => Some(Cow::Borrowed(value)),
        Some(inner) => {
            let bytes = base64::decode(inner.as_bytes())?;
            Some(Cow::Owned(String::from_utf8(bytes).ok()?))
        }
    }
}

/// The value of a header as text, without the white space around it.
pub fn text(value: &[u8]) -> Option<&str> {
    core::str::from_utf8(value.trim_ascii()).ok()
}

/// Whether this may be the name of a header.
pub fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[derive(serde::Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    result: Tools<'a>,
}

#[derive(serde::Deserialize)]
struct Tools<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
}

#[derive(serde::Deserialize)]
struct Tool {
    name: String,
    #[serde(rename = "inputSchema", default)]
    schema: Value,
}

#[derive(serde::Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    params: Option<Params<'a>>,
}

#[derive(serde::Deserialize, Default)]
struct Params<'a> {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    uri: Option<String>,
    #[serde(rename = "taskId", default)]
    task: Option<String>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    //! guards: Mirrored headers stay within their limits.

    use super::*;

    fn page(tools: &str) -> Vec<u8> {
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{tools}],"ttlMs":0}}}}"#)
            .into_bytes()
    }

    fn tool(name: &str, schema: &str) -> String {
        format!(r#"{{"name":"{name}","inputSchema":{{"type":"object",{schema}}}}}"#)
    }

    #[test]
    fn arguments_are_mirrored_as_the_schema_says() {
        let mut marks = Marks::default();
        let schema = r#""properties":{"region":{"type":"string","x-mcp-header":"Region"},"o":{"type":"object","properties":{"limit":{"type":"integer","x-mcp-header":"Limit"}}},"ok":{"type":"boolean","x-mcp-header":"Ok"},"q":{"type":"string"}}"#;
        assert_eq!(marks.learn(&page(&tool("sql", schema))), None);
        let call = r#"{"id":2,"method":"tools/call","params":{"name":"sql","arguments":{"region":"käse","o":{"limit":42},"ok":true,"q":"x"}}}"#;
        let headers = marks.of("tools/call", call.as_bytes());
        let mut told: Vec<(&str, &str)> = headers
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        told.sort_unstable();
        let expected = [
            ("mcp-method", "tools/call"),
            ("mcp-name", "sql"),
            ("mcp-param-limit", "42"),
            ("mcp-param-ok", "true"),
            ("mcp-param-region", "=?base64?a8Okc2U=?="),
        ];
        assert_eq!(told, expected);
        let absent = br#"{"id":2,"method":"tools/call","params":{"name":"sql","arguments":{"region":null}}}"#;
        assert_eq!(marks.of("tools/call", absent).len(), 2);
    }

    #[test]
    fn a_tool_that_cannot_be_called_is_not_shown() {
        let good = tool(
            "good",
            r#""properties":{"a":{"type":"string","x-mcp-header":"A"}}"#,
        );
        for (what, bad) in [
            (
                "twice",
                r#""properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}"#,
            ),
            (
                "space",
                r#""properties":{"a":{"type":"string","x-mcp-header":"A B"}}"#,
            ),
            (
                "empty",
                r#""properties":{"a":{"type":"string","x-mcp-header":""}}"#,
            ),
            (
                "no text",
                r#""properties":{"a":{"type":"string","x-mcp-header":7}}"#,
            ),
            (
                "number",
                r#""properties":{"a":{"type":"number","x-mcp-header":"A"}}"#,
            ),
            (
                "object",
                r#""properties":{"a":{"type":"object","x-mcp-header":"A"}}"#,
            ),
            (
                "in a list",
                r#""properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}"#,
            ),
            (
                "in a choice",
                r#""properties":{"a":{"anyOf":[{"type":"string","x-mcp-header":"A"}]}}"#,
            ),
            ("at the root", r#""x-mcp-header":"A""#),
        ] {
            let bad = tool("bad", bad);
            for (list, left) in [
                (format!("{good},{bad}"), good.clone()),
                (format!("{bad} , {good}"), good.clone()),
                (bad.clone(), String::new()),
            ] {
                let (shown, refused) = Marks::default().learn(&page(&list)).expect(what);
                assert_eq!(
                    String::from_utf8(shown),
                    String::from_utf8(page(&left)),
                    "{what}"
                );
                assert_eq!(refused, ["bad"]);
            }
        }
    }

    #[test]
    fn what_a_message_is_about() {
        let marks = Marks::default();
        for (method, params, name) in [
            ("prompts/get", r#"{"name":"p"}"#, Some("p")),
            (
                "resources/read",
                r#"{"uri":"file:///a b"}"#,
                Some("file:///a b"),
            ),
            ("resources/subscribe", r#"{"uri":"u"}"#, Some("u")),
            ("tasks/get", r#"{"taskId":"t"}"#, Some("t")),
            ("tools/list", r#"{"name":"x"}"#, None),
            ("tools/call", "7", None),
        ] {
            let line = format!(r#"{{"id":1,"method":"{method}","params":{params}}}"#);
            let headers = marks.of(method, line.as_bytes());
            let told = headers
                .iter()
                .find(|(key, _)| key == NAME)
                .map(|(_, value)| value.as_str());
            assert_eq!(told, name, "{method}");
        }
    }

    #[test]
    fn values_that_cannot_stand_in_a_header_are_wrapped() {
        for (value, encoded) in [
            ("", ""),
            ("a b\tc", "a b\tc"),
            (" a", "=?base64?IGE=?="),
            ("a\nb", "=?base64?YQpi?="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
            ("=?base64?x", "=?base64?x"),
        ] {
            assert_eq!(encode(value), encoded);
        }
    }

    #[test]
    fn ways_to_marks_stay_in_bounds() {
        let marked = |way: &str, marks: usize| {
            let marks: Vec<String> = (0..marks)
                .map(|at| format!(r#""{at}":{{"type":"string","x-mcp-header":"h{at}"}}"#))
                .collect();
            let marks = marks.join(",");
            tool(
                "t",
                &format!(r#""properties":{{"{way}":{{"properties":{{{marks}}}}}}}"#),
            )
        };
        let mut marks = Marks::default();
        assert_eq!(marks.learn(&page(&marked("way", 100))), None);
        assert_eq!(marks.tools["t"].found.len(), 100);
        // The way to each of a thousand would be copied a thousand times.
        let (_, refused) = marks
            .learn(&page(&marked(&"x".repeat(1_000), 1_000)))
            .unwrap();
        assert_eq!(refused, ["t"]);
        assert!(marks.tools.is_empty());
    }
}
