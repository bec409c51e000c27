//! Headers of the modern era against the body that they repeat.
//!
//! A header may stand between us and the server in a log or a router, so it must say what the body says, and say it
//! once: of two, the router may have read the other one. Values that no header can hold come as `=?base64?…?=`;
//! anything else is literal. Which arguments are repeated is read by the same code as in the bridge, which sends them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use mainstay_protocol::message::envelope::Members;
use serde_json::Value;
use serde_json::value::RawValue;

use super::posted::Posted;
use crate::headers::{self, METHOD, NAME, PARAM, VERSION, decode, text};

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

/// How the headers of a request do not say what its body says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// A header that every request has is not there.
    Missing(&'static str),
    /// A header is not there that repeats a part of the body.
    Unrepeated {
        /// The header.
        header: String,
        /// What it repeats.
        part: String,
    },
    /// A header says something else than the body.
    Differs {
        /// The header.
        header: String,
        /// What it repeats.
        part: String,
    },
    /// A header has two values.
    Twice(String),
    /// A header repeats an argument that the call does not have.
    NoArgument {
        /// The header.
        header: String,
        /// The argument.
        argument: String,
    },
    /// The name of an argument is there in two spellings.
    TwoSpellings(String),
    /// A header says that it is Base64, and is not.
    NotBase64(String),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(header) => write!(f, "the header {header} is missing"),
            Self::Unrepeated { header, part } => {
                write!(f, "the header {header} is missing; it repeats {part}")
            }
            Self::Differs { header, part } => write!(f, "the header {header} differs from {part}"),
            Self::Twice(header) => write!(f, "the header {header} is there more than once"),
            Self::NoArgument { header, argument } => {
                write!(f, "there is a header {header} but no argument {argument}")
            }
            Self::TwoSpellings(argument) => {
                write!(f, "the argument {argument} is written in two ways")
            }
            Self::NotBase64(header) => write!(f, "the header {header} is not valid Base64"),
        }
    }
}

impl core::error::Error for Mismatch {}

/// Compares version, method and name.
pub fn standard(
    posted: &Posted<'_>,
    version: &str,
    header: Lookup<'_, '_>,
) -> Result<(), Mismatch> {
    let differs = |header: &str, part: &str| Mismatch::Differs {
        header: header.into(),
        part: part.into(),
    };
    match once(header, VERSION, "MCP-Protocol-Version")?.and_then(text) {
        Some(told) if told == version => {}
        Some(_) => {
            return Err(differs("MCP-Protocol-Version", "the version in _meta"));
        }
        None => return Err(Mismatch::Missing("MCP-Protocol-Version")),
    }
    match once(header, METHOD, "Mcp-Method")?.and_then(text) {
        Some(told) if told == posted.method => {}
        Some(_) => return Err(differs("Mcp-Method", "the method of the body")),
        None => return Err(Mismatch::Missing("Mcp-Method")),
    }
    let Some(key) = named_by(&posted.method) else {
        return Ok(());
    };
    match (once(header, NAME, "Mcp-Name")?, posted.param(key)) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(Mismatch::Unrepeated {
            header: "Mcp-Name".into(),
            part: format!("params.{key}"),
        }),
        (Some(told), Some(meant)) if decode(told).as_deref() == Some(&*meant) => Ok(()),
        (Some(_), _) => Err(differs("Mcp-Name", &format!("params.{key}"))),
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

    /// Compares the arguments of a call with its headers.
    pub fn judge(
        &self,
        tool: &str,
        arguments: Option<&[u8]>,
        header: Lookup<'_, '_>,
    ) -> Result<(), Mismatch> {
        let Some(mirrored) = self.0.get(tool).filter(|mirrored| !mirrored.is_empty()) else {
            return Ok(());
        };
        for (name, path) in mirrored.iter() {
            let (name, argument) = (format!("{PARAM}{name}"), path.join("."));
            let value = match arguments {
                Some(arguments) => at(arguments, path)
                    .map_err(|Ambiguous| Mismatch::TwoSpellings(argument.clone()))?,
                None => None,
            };
            let value = value.map(RawValue::get).filter(|raw| *raw != "null");
            match (value, once(header, &name, &name)?) {
                (None, None) => {}
                (None, Some(_)) => {
                    return Err(Mismatch::NoArgument {
                        header: name,
                        argument,
                    });
                }
                (Some(_), None) => {
                    return Err(Mismatch::Unrepeated {
                        header: name,
                        part: format!("the argument {argument}"),
                    });
                }
                (Some(raw), Some(told)) => {
                    let Some(told) = decode(told) else {
                        return Err(Mismatch::NotBase64(name));
                    };
                    if !says(raw, &told) {
                        return Err(Mismatch::Differs {
                            header: name,
                            part: format!("the argument {argument}"),
                        });
                    }
                }
            }
        }
        Ok(())
    }
}

/// The one value of a header, if it is there; an error if there are several. `shown` is how people write its name.
fn once<'h>(header: Lookup<'_, 'h>, name: &str, shown: &str) -> Result<Option<&'h [u8]>, Mismatch> {
    match header(name)[..] {
        [] => Ok(None),
        [value] => Ok(Some(value)),
        _ => Err(Mismatch::Twice(shown.into())),
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
    use alloc::string::ToString;

    use super::*;

    const VERSION: &str = "2026-07-28";

    fn values(headers: &'static [(&'static str, &'static str)], name: &str) -> Vec<&'static [u8]> {
        let of_name = headers.iter().filter(|(held, _)| *held == name);
        of_name.map(|(_, value)| value.as_bytes()).collect()
    }

    fn judged(
        body: &str,
        headers: &'static [(&'static str, &'static str)],
    ) -> Result<(), Mismatch> {
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
            let told = judged(call, headers).unwrap_err().to_string();
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
