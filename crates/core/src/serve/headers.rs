//! Headers of the modern era against the body that they repeat.
//!
//! A header may stand between us and the server in a log or a router, so it must say what the body says. Values that
//! no header can hold come as `=?base64?…?=`; anything else is literal.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use serde_json::Value;

use super::posted::Posted;
use crate::http::headers::{METHOD, NAME, PARAM, VERSION, decode, text};
use crate::message::envelope::Members;

/// Looks a header up by its name in lower case.
pub type Lookup<'f, 'h> = &'f dyn Fn(&str) -> Option<&'h [u8]>;

/// The parameter that `Mcp-Name` repeats, if the method has one.
pub fn named_by(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// Compares version, method and name. The message says what differs.
pub fn standard(posted: &Posted<'_>, version: &str, header: Lookup<'_, '_>) -> Result<(), String> {
    match header(VERSION).and_then(text) {
        Some(told) if told == version => {}
        Some(_) => {
            return Err("the header MCP-Protocol-Version differs from the version in _meta".into());
        }
        None => return Err("the header MCP-Protocol-Version is missing".into()),
    }
    match header(METHOD).and_then(text) {
        Some(told) if told == posted.method => {}
        Some(_) => return Err("the header Mcp-Method differs from the method of the body".into()),
        None => return Err("the header Mcp-Method is missing".into()),
    }
    let Some(key) = named_by(&posted.method) else {
        return Ok(());
    };
    match (header(NAME), posted.param(key)) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(format!(
            "the header Mcp-Name is missing; it repeats params.{key}"
        )),
        (Some(told), Some(meant)) if decode(told).as_deref() == Some(&*meant) => Ok(()),
        (Some(_), _) => Err(format!("the header Mcp-Name differs from params.{key}")),
    }
}

/// Which arguments of which tools are repeated in headers: tool → argument → header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrors(BTreeMap<String, BTreeMap<String, String>>);

impl Mirrors {
    /// Learns from one page of a tool list, the result of `tools/list`. `None` if it is none.
    pub fn learn(&mut self, result: &[u8]) -> Option<()> {
        let result: Value = serde_json::from_slice(result).ok()?;
        for tool in result.get("tools")?.as_array()? {
            let Some(name) = tool.get("name").and_then(Value::as_str) else {
                continue;
            };
            let mirrored: BTreeMap<String, String> = tool
                .pointer("/inputSchema/properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .filter_map(|(argument, schema)| {
                    let header = schema.get("x-mcp-header")?.as_str()?;
                    Some((
                        argument.clone(),
                        format!("{PARAM}{}", header.to_ascii_lowercase()),
                    ))
                })
                .collect();
            self.0.insert(name.into(), mirrored);
        }
        Some(())
    }

    /// Compares the arguments of a call with its headers. The message says what differs.
    pub fn judge(
        &self,
        tool: &str,
        arguments: Option<&[u8]>,
        header: Lookup<'_, '_>,
    ) -> Result<(), String> {
        let Some(mirrored) = self.0.get(tool).filter(|mirrored| !mirrored.is_empty()) else {
            return Ok(());
        };
        let members = arguments.and_then(Members::of_line);
        for (argument, name) in mirrored {
            let value = members.as_ref().and_then(|members| members.get(argument));
            let value = value
                .map(serde_json::value::RawValue::get)
                .filter(|raw| *raw != "null");
            match (value, header(name)) {
                (None, None) => {}
                (None, Some(_)) => {
                    return Err(format!(
                        "there is a header {name} but no argument {argument}"
                    ));
                }
                (Some(_), None) => {
                    return Err(format!(
                        "the header {name} is missing; it repeats the argument {argument}"
                    ));
                }
                (Some(raw), Some(told)) => {
                    let told = decode(told)
                        .ok_or_else(|| format!("the header {name} is not valid Base64"))?;
                    if !says(raw, &told) {
                        return Err(format!(
                            "the header {name} differs from the argument {argument}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether a header's value is this argument.
fn says(raw: &str, told: &str) -> bool {
    match serde_json::from_str::<Value>(raw) {
        Ok(Value::String(text)) => text == told,
        Ok(Value::Number(number)) => {
            raw == told
                || matches!((number.as_f64(), told.parse::<f64>()), (Some(a), Ok(b)) if a.total_cmp(&b).is_eq())
        }
        Ok(Value::Bool(value)) => told == if value { "true" } else { "false" },
        Ok(Value::Null | Value::Array(_) | Value::Object(_)) | Err(_) => raw == told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str = "2026-07-28";

    fn judged(body: &str, headers: &'static [(&'static str, &'static str)]) -> Result<(), String> {
        let find = |name: &str| {
            let found = headers.iter().find(|(held, _)| *held == name);
            found.map(|(_, value)| value.as_bytes())
        };
        standard(&Posted::read(body.as_bytes()).unwrap(), VERSION, &find)
    }

    #[test]
    fn headers_say_what_the_body_says() {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wörld"}}"#;
        assert_eq!(
            judged(
                call,
                &[
                    ("mcp-protocol-version", VERSION),
                    ("mcp-method", " tools/call "),
                    ("mcp-name", "=?base64?d8O2cmxk?=")
                ]
            ),
            Ok(())
        );
        assert_eq!(
            judged(
                call,
                &[
                    ("mcp-protocol-version", VERSION),
                    ("mcp-method", "tools/call"),
                    ("mcp-name", "  wörld ")
                ]
            ),
            Ok(())
        );
        for (headers, problem) in [
            (
                &[("mcp-method", "tools/call")][..],
                "MCP-Protocol-Version is missing",
            ),
            (
                &[("mcp-protocol-version", "2025-11-25")],
                "MCP-Protocol-Version differs",
            ),
            (
                &[("mcp-protocol-version", VERSION)],
                "Mcp-Method is missing",
            ),
            (
                &[
                    ("mcp-protocol-version", VERSION),
                    ("mcp-method", "TOOLS/CALL"),
                ],
                "Mcp-Method differs",
            ),
            (
                &[
                    ("mcp-protocol-version", VERSION),
                    ("mcp-method", "tools/call"),
                ],
                "Mcp-Name is missing",
            ),
            (
                &[
                    ("mcp-protocol-version", VERSION),
                    ("mcp-method", "tools/call"),
                    ("mcp-name", "world"),
                ],
                "Mcp-Name differs",
            ),
            (
                &[
                    ("mcp-protocol-version", VERSION),
                    ("mcp-method", "tools/call"),
                    ("mcp-name", "=?base64?d8O2cmx?="),
                ],
                "Mcp-Name differs",
            ),
        ] {
            let told = judged(call, headers).unwrap_err();
            assert!(told.contains(problem), "{told}");
        }
    }

    #[test]
    fn mirrored_arguments_are_compared() {
        let mut mirrors = Mirrors::default();
        mirrors
            .learn(br#"{"tools":[{"name":"t","inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"x-mcp-header":"N"},"free":{}}}},{"name":"plain"}]}"#)
            .unwrap();
        assert!(mirrors.0.contains_key("plain") && !mirrors.0.contains_key("other"));
        let judge = |arguments: &str, headers: &'static [(&'static str, &'static str)]| {
            let find = |name: &str| {
                let found = headers.iter().find(|(held, _)| *held == name);
                found.map(|(_, value)| value.as_bytes())
            };
            mirrors.judge("t", Some(arguments.as_bytes()), &find)
        };
        assert_eq!(
            judge(
                r#"{"region":"eu","n":2.0,"free":1}"#,
                &[("mcp-param-region", "eu"), ("mcp-param-n", "2")]
            ),
            Ok(())
        );
        assert_eq!(
            judge(
                r#"{"region":"Hello"}"#,
                &[("mcp-param-region", "=?base64?SGVsbG8=?=")]
            ),
            Ok(())
        );
        assert_eq!(
            judge(
                r#"{"region":"=?base64?SGVsbG8="}"#,
                &[("mcp-param-region", "=?base64?SGVsbG8=")]
            ),
            Ok(())
        );
        assert_eq!(judge(r#"{"region":null}"#, &[]), Ok(()));
        for (arguments, headers) in [
            (r#"{"region":"eu"}"#, &[][..]),
            (r#"{"region":"eu"}"#, &[("mcp-param-region", "us")]),
            (
                r#"{"region":"Hello"}"#,
                &[("mcp-param-region", "=?base64?SGVsbG8?=")],
            ),
            (
                r#"{"region":"Hello"}"#,
                &[("mcp-param-region", "=?base64?SGVs!!!bG8=?=")],
            ),
            ("{}", &[("mcp-param-region", "eu")]),
        ] {
            assert!(
                judge(arguments, headers).is_err(),
                "{arguments} {headers:?}"
            );
        }
    }
}
