//! A small server that accepts every form in which a bridge passes a message on: it parses JSON, and keys may stand anywhere.
//!
//! Here it speaks stdio. The small HTTP server for the bridges gives the same answers.

use std::io::{self, BufRead, BufReader, Read};

use rustix::stdio::stdin;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::responder::write_all;

/// The name of its only tool.
pub const TOOL: &str = "fill";
const LATEST: &str = "2025-11-25";

/// The parts of a message that matter here.
#[derive(Deserialize)]
pub struct Message<'l> {
    #[serde(borrow)]
    id: Option<&'l RawValue>,
    method: Option<&'l str>,
    #[serde(default)]
    params: Params<'l>,
}

#[derive(Default, Deserialize)]
struct Params<'l> {
    #[serde(rename = "protocolVersion")]
    version: Option<&'l str>,
    #[serde(default)]
    arguments: Arguments,
}

#[derive(Default, Deserialize)]
struct Arguments {
    #[serde(default)]
    size: usize,
}

impl<'l> Message<'l> {
    /// Parses a message.
    pub fn read(line: &'l [u8]) -> io::Result<Self> {
        Ok(serde_json::from_slice(line)?)
    }

    /// Whether it opens a session.
    pub fn opens(&self) -> bool {
        self.method == Some("initialize")
    }

    /// The answer, if it is a request.
    pub fn answer(&self) -> Option<String> {
        let id = self.id?.get();
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"#);
        let rest = match self.method? {
            "initialize" => {
                let version = self.params.version.unwrap_or(LATEST);
                format!(
                    r#""result":{{"protocolVersion":"{version}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"bench","version":"1"}}}}}}"#
                )
            }
            "tools/list" => format!(
                r#""result":{{"tools":[{{"name":"{TOOL}","inputSchema":{{"type":"object"}}}}]}}}}"#
            ),
            "tools/call" => return Some(filled(head, self.params.arguments.size)),
            "ping" => r#""result":{}}"#.into(),
            _ => r#""error":{"code":-32601,"message":"method not found"}}"#.into(),
        };
        Some(head + &rest)
    }
}

/// Answers until stdin ends.
pub fn serve() -> io::Result<()> {
    let mut input = BufReader::new(Stdin);
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        if let Some(mut answer) = Message::read(&line)?.answer() {
            answer.push('\n');
            write_all(answer.as_bytes())?;
        }
        line.clear();
    }
    Ok(())
}

/// A result of this size, newline included.
fn filled(mut text: String, size: usize) -> String {
    let tail = r#""}]}}"#;
    text.push_str(r#""result":{"content":[{"type":"text","text":""#);
    let pad = size.saturating_sub(text.len() + tail.len() + 1);
    text.extend(std::iter::repeat_n('x', pad));
    text.push_str(tail);
    text
}

struct Stdin;

impl Read for Stdin {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| {
            rustix::io::read(stdin(), &mut *room)
        })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(line: &str) -> Option<serde_json::Value> {
        let said = Message::read(line.as_bytes()).unwrap().answer()?;
        Some(serde_json::from_str(&said).unwrap())
    }

    #[test]
    fn keys_may_stand_anywhere() {
        let opened = answer(
            r#"{"method":"initialize","params":{"protocolVersion":"2025-06-18"},"jsonrpc":"2.0","id":"a"}"#,
        )
        .unwrap();
        assert_eq!(opened["result"]["protocolVersion"], "2025-06-18");
        assert_eq!(opened["id"], "a");
        let listed = answer(r#"{"id":3,"method":"tools/list"}"#).unwrap();
        assert_eq!(listed["result"]["tools"][0]["name"], TOOL);
        assert!(answer(r#"{"method":"notifications/initialized"}"#).is_none());
        let unknown = answer(r#"{"id":4,"method":"server/discover"}"#).unwrap();
        assert_eq!(unknown["error"]["code"], -32601);
    }

    #[test]
    fn a_call_is_answered_with_the_size_asked_for() {
        let line =
            br#"{"method":"tools/call","params":{"arguments":{"size":200}},"jsonrpc":"2.0","id":7}"#;
        let said = Message::read(line).unwrap().answer().unwrap();
        assert_eq!(said.len() + 1, 200);
    }
}
