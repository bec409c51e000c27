//! A small MCP server with a family. What it is told to remember (log level, subscriptions) it holds in memory only, and
//! says on request.

use std::collections::BTreeSet;

use mainstay_core::clock::Moment;
use mainstay_core::limits::HELD_LINE_BYTES;
use mainstay_core::message::lines::{Line, Lines};
use mainstay_os::role;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Act, family, linger, roll};
use crate::demo::watch::{Trouble, Watch};
use crate::view::printer::Printer;

/// Serves until its input ends; a deaf one goes on.
pub fn play(act: Act, party: &str, end: Moment) -> Result<(), Trouble> {
    family::start_all(party)?;
    roll::present(party, act.word())?;
    let watch = Watch::blind();
    let stdin = role::standard(0);
    let mut printer = Printer::new();
    let mut lines = Lines::new(HELD_LINE_BYTES);
    let mut serving = Serving::of(party);
    loop {
        if watch.wait(&[stdin], end)? == [false] {
            return Ok(());
        }
        let mut buffer = [0u8; 4096];
        let len = rustix::io::read(stdin, &mut buffer).map_err(std::io::Error::from)?;
        if len == 0 {
            return if act == Act::DeafServer {
                linger(end)
            } else {
                Ok(())
            };
        }
        let mut piece = &buffer[..len];
        while let Some(line) = lines.next(&mut piece) {
            let Line::Whole(line) = line else {
                continue;
            };
            let message: Value = serde_json::from_slice(&line).unwrap_or_default();
            if let Some(answer) = serving.answer(&message)? {
                // A client that does not read any more is about to end our input, too.
                drop(printer.json_line(&answer));
            }
        }
    }
}

/// Waits for the first request, and cannot work.
pub fn give_up(end: Moment) -> Result<(), Trouble> {
    Watch::blind().wait(&[role::standard(0)], end)?;
    Err(Trouble::Failed("WEATHER_API_KEY is not set".into()))
}

/// What a server says on the roll when it has begun to think.
pub const THINKING: &str = "thinking";

/// What the server holds in memory, as its tool `recall` tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The process that holds it.
    pub pid: u32,
    /// The log level that was set.
    pub level: Option<String>,
    /// The resources that are subscribed to.
    pub subscriptions: BTreeSet<String>,
}

/// A server that was started.
struct Serving<'a> {
    party: &'a str,
    memory: Memory,
}

impl<'a> Serving<'a> {
    fn of(party: &'a str) -> Self {
        let memory = Memory {
            pid: std::process::id(),
            ..Memory::default()
        };
        Self { party, memory }
    }

    /// The answer to a message, if it gets one.
    fn answer(&mut self, message: &Value) -> Result<Option<Value>, Trouble> {
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let Some(id) = message.get("id") else {
            return Ok(None);
        };
        let result = match (text("/method"), text("/params/name")) {
            (Some("initialize"), _) => json!({
                "protocolVersion": text("/params/protocolVersion"),
                "capabilities": { "tools": {}, "logging": {}, "resources": { "subscribe": true } },
                "serverInfo": { "name": "mainstay-demo", "version": env!("CARGO_PKG_VERSION") },
            }),
            (Some("ping"), _) => json!({}),
            (Some("logging/setLevel"), _) => {
                self.memory.level = text("/params/level").map(Into::into);
                json!({})
            }
            (Some("resources/subscribe"), _) => {
                let uri = text("/params/uri").map(Into::into);
                self.memory.subscriptions.extend(uri);
                json!({})
            }
            (Some("tools/list"), _) => tools(),
            (Some("tools/call"), Some("recall")) => {
                let told = serde_json::to_string(&self.memory).unwrap_or_default();
                json!({ "content": [{ "type": "text", "text": told }] })
            }
            (Some("tools/call"), Some("whoami")) => {
                json!({ "content": [{ "type": "text", "text": self.memory.pid.to_string() }] })
            }
            (Some("tools/call"), Some("think")) => {
                roll::present(self.party, THINKING)?;
                return Ok(None);
            }
            _ => {
                let error = json!({ "code": -32601, "message": "unknown method or tool" });
                return Ok(Some(json!({ "jsonrpc": "2.0", "id": id, "error": error })));
            }
        };
        Ok(Some(
            json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        ))
    }
}

fn tools() -> Value {
    let tool = |name: &str, description: &str| {
        let schema = json!({ "type": "object" });
        json!({ "name": name, "description": description, "inputSchema": schema })
    };
    json!({ "tools": [
        tool("whoami", "This process"),
        tool("recall", "What it was told to remember"),
        tool("think", "Takes for ever"),
    ]})
}
