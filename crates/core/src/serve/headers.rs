//! Headers of the modern era against the body that they repeat.
//!
//! A header may stand between us and the server in a log or a router, so it must say what the body says, and say it
//! once: of two, the router may have read the other one. Values that no header can hold come as `=?base64?…?=`;
//! anything else is literal. Which arguments are repeated is read by the same code as in the bridge, which sends them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::Value;
use serde_json::value::RawValue;

use super::posted::Posted;
use crate::http::headers::{self, METHOD, NAME, PARAM, VERSION, decode, text};
use crate::message::envelope::Members;

/// Looks a header up by its name in lower case: every value that it has.
pub type Lookup<'f, 'h> = &'f dyn Fn(&str) -> Vec<&'h [u8]>;

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
    match once(header, VERSION, "MCP-Protocol-Version")?.and_then(text) {
        Some(told) if told == version => {}
        Some(_) => {
            return Err("the header MCP-Protocol-Version differs from the version in _meta".into());
        }
        None => return Err("the header MCP-Protocol-Version is missing".into()),
    }
    match once(header, METHOD, "Mcp-Method")?.and_then(text) {
        Some(told) if told == posted.method => {}
        Some(_) => return Err("the header Mcp-Method differs from the method of the body".into()),
        None => return Err("the header Mcp-Method is missing".into()),
    }
    let Some(key) = named_by(&posted.method) else {
        return Ok(());
    };
    match (once(header, NAME, "Mcp-Name")?, posted.param(key)) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(format!(
            "the header Mcp-Name is missing; it repeats params.{key}"
        )),
        (Some(told), Some(meant)) if decode(told).as_deref() == Some(&*meant) => Ok(()),
        (Some(_), _) => Err(format!("the header Mcp-Name differs from params.{key}")),
    }
}

/// Which arguments of which tools are repeated in headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrors(BTreeMap<String, headers::Mirrors>);

impl Mirrors {
    /// Learns from one page of a tool list, the result of `tools/list`. `None` if it is none.
    pub fn learn(&mut self, result: &[u8]) -> Option<()> {
        let result: Value = serde_json::from_slice(result).ok()?;
        for tool in result.get("tools")?.as_array()? {
            let Some(name) = tool.get("name").and_then(Value::as_str) else {
                continue;
            };
            let schema = tool.get("inputSchema").unwrap_or(&Value::Null);
            let mirrored = headers::Mirrors::of(schema);
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
        for (name, path) in mirrored.iter() {
            let (name, argument) = (format!("{PARAM}{name}"), path.join("."));
            let value = match arguments {
                Some(arguments) => at(arguments, path).map_err(|Ambiguous| {
                    format!("the argument {argument} is written in two ways")
                })?,
                None => None,
            };
            let value = value.map(RawValue::get).filter(|raw| *raw != "null");
            match (value, once(header, &name, &name)?) {
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

/// The one value of a header, if it is there; an error if there are several. `shown` is how people write its name.
fn once<'h>(header: Lookup<'_, 'h>, name: &str, shown: &str) -> Result<Option<&'h [u8]>, String> {
    match header(name)[..] {
        [] => Ok(None),
        [value] => Ok(Some(value)),
        _ => Err(format!("the header {shown} is there more than once")),
    }
}

/// A key on the way is there in a second spelling, which another reader may take for it.
struct Ambiguous;

/// What is at the end of a way through objects.
fn at<'a>(arguments: &'a [u8], path: &[String]) -> Result<Option<&'a RawValue>, Ambiguous> {
    let Some((last, way)) = path.split_last() else {
        return Ok(None);
    };
    let mut here = Members::of_line(arguments);
    for key in way {
        let Some(members) = here else {
            return Ok(None);
        };
        here = clear(members, key)?.object(key);
    }
    match here {
        Some(members) => Ok(clear(members, last)?.get(last)),
        None => Ok(None),
    }
}

fn clear<'a>(members: Members<'a>, key: &str) -> Result<Members<'a>, Ambiguous> {
    if members.spell(&[key]) {
        Ok(members)
    } else {
        Err(Ambiguous)
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

    fn values(headers: &'static [(&'static str, &'static str)], name: &str) -> Vec<&'static [u8]> {
        let of_name = headers.iter().filter(|(held, _)| *held == name);
        of_name.map(|(_, value)| value.as_bytes()).collect()
    }

    fn judged(body: &str, headers: &'static [(&'static str, &'static str)]) -> Result<(), String> {
        let find = |name: &str| values(headers, name);
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
            (
                &[
                    ("mcp-protocol-version", VERSION),
                    ("mcp-protocol-version", VERSION),
                ],
                "MCP-Protocol-Version is there more than once",
            ),
            (
                &[
                    ("mcp-protocol-version", VERSION),
                    ("mcp-method", "tools/call"),
                    ("mcp-method", "tools/list"),
                ],
                "Mcp-Method is there more than once",
            ),
            (
                &[
                    ("mcp-protocol-version", VERSION),
                    ("mcp-method", "tools/call"),
                    ("mcp-name", "wörld"),
                    ("mcp-name", "other"),
                ],
                "Mcp-Name is there more than once",
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
            .learn(br#"{"tools":[{"name":"t","inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"x-mcp-header":"N"},"free":{},"o":{"type":"object","properties":{"p":{"type":"object","properties":{"zone":{"type":"string","x-mcp-header":"Zone"}}}}}}}},{"name":"plain"}]}"#)
            .unwrap();
        assert!(mirrors.0.contains_key("plain") && !mirrors.0.contains_key("other"));
        let judge = |arguments: &str, headers: &'static [(&'static str, &'static str)]| {
            let find = |name: &str| values(headers, name);
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
        assert_eq!(
            judge(r#"{"o":{"p":{"zone":"a"}}}"#, &[("mcp-param-zone", "a")]),
            Ok(())
        );
        for without in [
            r#"{"o":{"p":{"zone":null}}}"#,
            r#"{"o":{"p":7}}"#,
            r#"{"o":[],"zone":"a"}"#,
        ] {
            assert_eq!(judge(without, &[]), Ok(()), "{without}");
        }
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
            (
                r#"{"region":"eu"}"#,
                &[("mcp-param-region", "eu"), ("mcp-param-region", "us")],
            ),
            (r#"{"o":{"p":{"zone":"a"}}}"#, &[]),
            (r#"{"o":{"p":{"zone":"a"}}}"#, &[("mcp-param-zone", "b")]),
            (r#"{"o":{"p":{}},"zone":"a"}"#, &[("mcp-param-zone", "a")]),
        ] {
            assert!(
                judge(arguments, headers).is_err(),
                "{arguments} {headers:?}"
            );
        }
    }
}
