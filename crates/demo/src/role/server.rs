//! A small MCP server with helper processes. It keeps log level and subscriptions in memory only, and reports them with the
//! tool `recall`.

use std::collections::BTreeSet;

use mainstay_os::role;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::limits::HELD_LINE_BYTES;
use mainstay_protocol::message::lines::{Line, Lines};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Role, announcements, helpers, linger};
use crate::waiter::{DemoError, Waiter};
use mainstay_report::printer::Printer;

/// Serves until EOF on stdin. A role that ignores EOF then waits for its time limit.
pub fn run(role: Role, group: &str, end: Moment) -> Result<(), DemoError> {
    if role != Role::LoneServer {
        helpers::start_all(group)?;
    }
    announcements::announce(group, role.word())?;
    let waiter = Waiter::without_signals();
    let stdin = role::standard(0);
    let mut printer = Printer::new();
    let mut lines = Lines::new(HELD_LINE_BYTES);
    let mut serving = Serving::of(group);
    loop {
        if waiter.wait(&[stdin], end)? == [false] {
            return Ok(());
        }
        let mut buffer = [0u8; 4096];
        let len = rustix::io::read(stdin, &mut buffer).map_err(std::io::Error::from)?;
        if len == 0 {
            return if matches!(role, Role::DeafServer | Role::LoneServer) {
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
                // If the client no longer reads, it will also close our stdin.
                drop(printer.json_line(&answer));
            }
        }
    }
}

/// Waits for the first request, then fails.
pub fn give_up(end: Moment) -> Result<(), DemoError> {
    Waiter::without_signals().wait(&[role::standard(0)], end)?;
    Err(DemoError::Failed("WEATHER_API_KEY is not set".into()))
}

/// Announces that the tool `think` was called.
pub const THINKING: &str = "thinking";

/// The state of a server process, as the tool `recall` returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The pid of the server process.
    pub pid: u32,
    /// The log level that the client has set.
    pub level: Option<String>,
    /// The URIs of the subscribed resources.
    pub subscriptions: BTreeSet<String>,
}

/// A running server.
struct Serving<'a> {
    group: &'a str,
    memory: Memory,
}

impl<'a> Serving<'a> {
    fn of(group: &'a str) -> Self {
        let memory = Memory {
            pid: std::process::id(),
            ..Memory::default()
        };
        Self { group, memory }
    }

    /// The answer to a message; none for a notification, and for the tool `think`, which never answers.
    fn answer(&mut self, message: &Value) -> Result<Option<Value>, DemoError> {
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
                let memory = serde_json::to_string(&self.memory).unwrap_or_default();
                json!({ "content": [{ "type": "text", "text": memory }] })
            }
            (Some("tools/call"), Some("whoami")) => {
                json!({ "content": [{ "type": "text", "text": self.memory.pid.to_string() }] })
            }
            (Some("tools/call"), Some("think")) => {
                announcements::announce(self.group, THINKING)?;
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
        tool("whoami", "The pid of this server"),
        tool("recall", "The log level and the subscriptions"),
        tool("think", "Never answers"),
    ]})
}
