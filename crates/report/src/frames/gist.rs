//! What a message says, without its envelope: the tool and its arguments, the text of a result, the words of an error.
//!
//! A body may be cut. It is read as far as it goes.

use serde_json::{Map, Value};

/// What a message says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gist {
    /// What is asked for: a tool, a prompt, a resource.
    pub subject: String,
    /// Arguments, or the text of the answer.
    pub text: String,
    /// It reports an error.
    pub error: bool,
}

/// The gist of a request or a notification with this method.
pub fn of_request(method: &str, body: &str) -> Gist {
    let message = read(body);
    let params = message.as_ref().and_then(|message| message.get("params"));
    let Some(Value::Object(params)) = params else {
        return Gist::default();
    };
    let text_of = |key: &str| params.get(key).and_then(Value::as_str).unwrap_or_default();
    match method {
        "tools/call" | "prompts/get" => Gist {
            subject: text_of("name").into(),
            text: params
                .get("arguments")
                .and_then(Value::as_object)
                .map_or_else(String::new, pairs),
            error: false,
        },
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => Gist {
            subject: text_of("uri").into(),
            ..Gist::default()
        },
        "initialize" => Gist {
            text: introduced(params, "clientInfo"),
            ..Gist::default()
        },
        _ => Gist {
            text: pairs(params),
            ..Gist::default()
        },
    }
}

/// The gist of an answer to a request with this method.
pub fn of_answer(method: Option<&str>, body: &str) -> Gist {
    let Some(message) = read(body) else {
        return Gist {
            text: body.into(),
            ..Gist::default()
        };
    };
    if let Some(error) = message.get("error") {
        return Gist {
            text: error_text(error),
            error: true,
            ..Gist::default()
        };
    }
    let Some(result) = message.get("result") else {
        return Gist::default();
    };
    let Value::Object(fields) = result else {
        return Gist {
            text: result.to_string(),
            ..Gist::default()
        };
    };
    let failed = fields.get("isError") == Some(&Value::Bool(true));
    let text = content(fields)
        .or_else(|| listed(fields))
        .or_else(|| (method == Some("initialize")).then(|| introduced(fields, "serverInfo")))
        .unwrap_or_else(|| result.to_string());
    Gist {
        text: if failed {
            format!("error: {text}")
        } else {
            text
        },
        error: failed,
        ..Gist::default()
    }
}

fn error_text(error: &Value) -> String {
    let message = error.get("message").and_then(Value::as_str);
    let code = error.get("code").map(Value::to_string).unwrap_or_default();
    match message {
        Some(message) if code.is_empty() => format!("error: {message}"),
        Some(message) => format!("error {code}: {message}"),
        None => format!("error: {error}"),
    }
}

/// The text of the result of a tool; of other content its kind and size.
fn content(result: &Map<String, Value>) -> Option<String> {
    let parts = result.get("content")?.as_array()?;
    if parts.is_empty() {
        return result.get("structuredContent").map(Value::to_string);
    }
    let shown: Vec<String> = parts
        .iter()
        .map(|part| {
            let text_of = |key: &str| part.get(key).and_then(Value::as_str);
            match (text_of("text"), text_of("type")) {
                (Some(text), _) => text.to_owned(),
                (None, Some(kind)) => {
                    let bytes = text_of("data").map_or(0, |data| data.len() as u64 * 3 / 4);
                    let form = text_of("mimeType").or(text_of("uri")).unwrap_or(kind);
                    format!("[{kind} {form}, {}]", super::size(bytes))
                }
                (None, None) => part.to_string(),
            }
        })
        .collect();
    Some(shown.join(" "))
}

/// `3 tools: a, b, c`.
fn listed(result: &Map<String, Value>) -> Option<String> {
    let lists = ["tools", "prompts", "resources", "resourceTemplates"];
    let (what, items) = lists
        .iter()
        .find_map(|what| Some((*what, result.get(*what)?.as_array()?)))?;
    let names: Vec<&str> = items
        .iter()
        .filter_map(|item| item.get("name").and_then(Value::as_str))
        .collect();
    Some(match items.len() {
        0 => format!("0 {what}"),
        count => format!("{count} {what}: {}", names.join(", ")),
    })
}

/// `everything 1.2.0, protocol 2025-11-25`.
fn introduced(fields: &Map<String, Value>, info: &str) -> String {
    let text_of = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let info = fields.get(info);
    let name = text_of(info.and_then(|info| info.get("name")));
    let version = text_of(info.and_then(|info| info.get("version")));
    let name: Vec<String> = [name, version].into_iter().flatten().collect();
    let protocol = text_of(fields.get("protocolVersion"));
    let protocol = protocol.map(|version| format!("protocol {version}"));
    let parts = [
        Some(name.join(" ")).filter(|name| !name.is_empty()),
        protocol,
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `path="/srv" depth=2`. What is only for the protocol is left out.
fn pairs(fields: &Map<String, Value>) -> String {
    let shown = fields.iter().filter(|(key, _)| *key != "_meta");
    let shown: Vec<String> = shown.map(|(key, value)| format!("{key}={value}")).collect();
    shown.join(" ")
}

/// The message, as far as the body goes.
fn read(body: &str) -> Option<Value> {
    serde_json::from_str(body).ok().or_else(|| {
        let mended = mended(body);
        mended
            .iter()
            .find_map(|text| serde_json::from_str(text).ok())
    })
}

/// A cut message with what its end may have been.
fn mended(body: &str) -> [String; 5] {
    let mut open = Vec::new();
    let (mut within, mut escaped) = (false, false);
    for c in body.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if within => escaped = true,
            '"' => within = !within,
            '{' if !within => open.push('}'),
            '[' if !within => open.push(']'),
            '}' | ']' if !within => drop(open.pop()),
            _ => {}
        }
    }
    let ends: String = open.iter().rev().collect();
    // What an escape that is cut off would have been is not known.
    let whole = body.strip_suffix('\\').filter(|_| escaped).unwrap_or(body);
    let trimmed = body.trim_end().trim_end_matches(',');
    [
        // Within a text, within a name, and between two of them.
        format!("{whole}…\"{ends}"),
        format!("{whole}…\":null{ends}"),
        format!("{trimmed}{ends}"),
        format!("{trimmed}null{ends}"),
        format!("{trimmed}:null{ends}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, body: &str) -> (String, String) {
        let gist = of_request(method, body);
        (gist.subject, gist.text)
    }

    fn answered(method: &str, body: &str) -> (String, bool) {
        let gist = of_answer(Some(method), body);
        (gist.text, gist.error)
    }

    #[test]
    fn a_request_shows_its_tool_and_arguments() {
        let call = r#"{"id":1,"params":{"name":"add","arguments":{"a":1,"b":"x y"},"_meta":{"progressToken":3}}}"#;
        assert_eq!(
            asked("tools/call", call),
            ("add".into(), r#"a=1 b="x y""#.into())
        );
        let read = r#"{"params":{"uri":"file:///x"}}"#;
        assert_eq!(
            asked("resources/read", read),
            ("file:///x".into(), String::new())
        );
        let level = r#"{"params":{"level":"info","_meta":{}}}"#;
        assert_eq!(asked("logging/setLevel", level).1, r#"level="info""#);
        let open = r#"{"params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"claude","version":"2.1"}}}"#;
        assert_eq!(
            asked("initialize", open).1,
            "claude 2.1, protocol 2025-11-25"
        );
        assert_eq!(asked("ping", r#"{"id":1}"#).1, "");
    }

    #[test]
    fn an_answer_shows_its_text() {
        for (method, body, text, error) in [
            (
                "tools/call",
                r#"{"result":{"content":[{"type":"text","text":"12:30"}]}}"#,
                "12:30",
                false,
            ),
            (
                "tools/call",
                r#"{"result":{"content":[{"type":"image","mimeType":"image/png","data":"AAAA"}]}}"#,
                "[image image/png, 3 B]",
                false,
            ),
            (
                "tools/call",
                r#"{"result":{"content":[],"structuredContent":{"a":1}}}"#,
                r#"{"a":1}"#,
                false,
            ),
            (
                "tools/call",
                r#"{"result":{"isError":true,"content":[{"type":"text","text":"no such file"}]}}"#,
                "error: no such file",
                true,
            ),
            (
                "tools/list",
                r#"{"result":{"tools":[{"name":"a"},{"name":"b"}]}}"#,
                "2 tools: a, b",
                false,
            ),
            (
                "prompts/list",
                r#"{"result":{"prompts":[]}}"#,
                "0 prompts",
                false,
            ),
            (
                "initialize",
                r#"{"result":{"serverInfo":{"name":"s","version":"1"},"protocolVersion":"2025-11-25"}}"#,
                "s 1, protocol 2025-11-25",
                false,
            ),
            ("ping", r#"{"result":{}}"#, "{}", false),
            (
                "x",
                r#"{"error":{"code":-32601,"message":"Method not found"}}"#,
                "error -32601: Method not found",
                true,
            ),
            ("x", "no json", "no json", false),
        ] {
            assert_eq!(answered(method, body), (text.into(), error), "{body}");
        }
    }

    #[test]
    fn a_body_that_is_cut_is_read_as_far_as_it_goes() {
        let whole =
            r#"{"id":1,"result":{"content":[{"type":"text","text":"a long \"text\""}],"x":[1,2]}}"#;
        for end in 42..whole.len() {
            let gist = of_answer(Some("tools/call"), &whole[..end]);
            assert!(!gist.text.contains("result"), "{}: {gist:?}", &whole[..end]);
        }
        let (text, _) = answered("tools/call", &whole[..61]);
        assert_eq!(text, "a long \"…");
        let call = r#"{"params":{"name":"write","arguments":{"path":"/x","content":"aaaa"#;
        assert_eq!(
            asked("tools/call", call),
            ("write".into(), r#"content="aaaa…" path="/x""#.into())
        );
    }
}
