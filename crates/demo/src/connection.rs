//! The client side of a server's pipes: sends JSON-RPC lines and counts the answers to each request.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout};

use mainstay_protocol::clock::Moment;
use mainstay_protocol::limits::HELD_LINE_BYTES;
use mainstay_protocol::message::lines::{Line, Lines};
use serde_json::{Value, json};

use super::role::server::Memory;
use super::waiter::{DemoError, Waiter};

/// The protocol version that the demo's client asks for.
const PROTOCOL: &str = "2025-06-18";

/// The pipes of one client.
#[derive(Debug)]
pub struct Connection {
    to: ChildStdin,
    from: ChildStdout,
    lines: Lines,
    next_id: u64,
    answers: BTreeMap<u64, Vec<Value>>,
}

impl Connection {
    /// Takes the pipes of a process that was just started.
    pub fn of(child: &mut Child) -> io::Result<Self> {
        let missing = || io::Error::other("it was started without pipes");
        Ok(Self {
            to: child.stdin.take().ok_or_else(missing)?,
            from: child.stdout.take().ok_or_else(missing)?,
            lines: Lines::new(HELD_LINE_BYTES),
            next_id: 1,
            answers: BTreeMap::new(),
        })
    }

    /// Performs the handshake and returns the answer to `initialize`.
    pub fn open(&mut self, waiter: &Waiter, limit: Moment) -> Result<Value, DemoError> {
        let params = json!({
            "protocolVersion": PROTOCOL,
            "capabilities": {},
            "clientInfo": { "name": "mainstay-demo", "version": env!("CARGO_PKG_VERSION") },
        });
        let id = self.request("initialize", &params)?;
        let answer = self.answer(waiter, id, limit)?;
        if answer.get("result").is_some() {
            self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        }
        Ok(answer)
    }

    /// Calls a tool and returns the id of the request.
    pub fn call(&mut self, tool: &str) -> io::Result<u64> {
        self.request("tools/call", &json!({ "name": tool, "arguments": {} }))
    }

    /// Sets the log level and subscribes to these resources, and waits for the answers.
    pub fn set_up(
        &mut self,
        waiter: &Waiter,
        level: &str,
        uris: &[&str],
        limit: Moment,
    ) -> Result<(), DemoError> {
        let mut ids = vec![self.request("logging/setLevel", &json!({ "level": level }))?];
        for uri in uris {
            ids.push(self.request("resources/subscribe", &json!({ "uri": uri }))?);
        }
        for id in ids {
            self.answer(waiter, id, limit)?;
        }
        Ok(())
    }

    /// Asks the server for its log level and subscriptions.
    pub fn recall(&mut self, waiter: &Waiter, limit: Moment) -> Result<Memory, DemoError> {
        let id = self.call("recall")?;
        let answer = self.answer(waiter, id, limit)?;
        serde_json::from_str(text(&answer)).map_err(|error| {
            DemoError::Failed(format!("the answer to `recall` cannot be read: {error}"))
        })
    }

    /// Waits until the server has closed the pipe. Returns false if the time is up before.
    pub fn closed(&mut self, waiter: &Waiter, limit: Moment) -> Result<bool, DemoError> {
        while waiter.wait(&[self.from.as_fd()], limit)? == [true] {
            if self.take()? == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for the answer to a request.
    pub fn answer(&mut self, waiter: &Waiter, id: u64, limit: Moment) -> Result<Value, DemoError> {
        loop {
            if let Some(answer) = self.answers.get(&id).and_then(|answers| answers.first()) {
                return Ok(answer.clone());
            }
            if waiter.wait(&[self.from.as_fd()], limit)? == [false] {
                return Err(DemoError::Failed(format!("request {id} was not answered")));
            }
            if self.take()? == 0 {
                return Err(DemoError::Failed(format!(
                    "the pipe was closed before request {id} was answered"
                )));
            }
        }
    }

    /// How many answers a request has had so far.
    pub fn answers(&self, id: u64) -> usize {
        self.answers.get(&id).map_or(0, Vec::len)
    }

    fn request(&mut self, method: &str, params: &Value) -> io::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        Ok(id)
    }

    fn send(&mut self, message: &Value) -> io::Result<()> {
        self.to.write_all(format!("{message}\n").as_bytes())
    }

    /// Reads once, sorts the complete lines, and returns the number of bytes.
    fn take(&mut self) -> io::Result<usize> {
        let mut buffer = [0u8; 4096];
        let len = self.from.read(&mut buffer)?;
        let mut piece = &buffer[..len];
        while let Some(line) = self.lines.next(&mut piece) {
            let Line::Whole(line) = line else {
                continue;
            };
            let message: Value = serde_json::from_slice(&line).unwrap_or_default();
            if let Some(id) = message.get("id").and_then(Value::as_u64) {
                self.answers.entry(id).or_default().push(message);
            }
        }
        Ok(len)
    }
}

/// The text of a tool result, as the model reads it.
pub fn text(answer: &Value) -> &str {
    answer
        .pointer("/result/content/0/text")
        .and_then(Value::as_str)
        .unwrap_or_default()
}
