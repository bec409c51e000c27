//! A small MCP server with a family.

use mainstay_core::clock::Moment;
use mainstay_os::role;
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
    let mut read = Vec::new();
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
        read.extend_from_slice(&buffer[..len]);
        while let Some(newline) = read.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = read.drain(..=newline).collect();
            let message: Value = serde_json::from_slice(&line).unwrap_or_default();
            if let Some(answer) = answer(&message, party)? {
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

/// The answer to a message, if it gets one.
fn answer(message: &Value, party: &str) -> Result<Option<Value>, Trouble> {
    let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
    let Some(id) = message.get("id") else {
        return Ok(None);
    };
    let result = match (text("/method"), text("/params/name")) {
        (Some("initialize"), _) => json!({
            "protocolVersion": text("/params/protocolVersion"),
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "mainstay-demo", "version": env!("CARGO_PKG_VERSION") },
        }),
        (Some("ping"), _) => json!({}),
        (Some("tools/list"), _) => json!({ "tools": [
            { "name": "whoami", "description": "This process", "inputSchema": { "type": "object" } },
            { "name": "think", "description": "Takes for ever", "inputSchema": { "type": "object" } },
        ]}),
        (Some("tools/call"), Some("whoami")) => {
            json!({ "content": [{ "type": "text", "text": std::process::id().to_string() }] })
        }
        (Some("tools/call"), Some("think")) => {
            roll::present(party, THINKING)?;
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

/// What a server says on the roll when it has begun to think.
pub const THINKING: &str = "thinking";
