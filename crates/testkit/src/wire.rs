//! Both ends of a link as a client holds them: lines out, lines in, JSON-RPC on top.
//!
//! It knows nothing of processes. Reading waits with `poll`, and a silent peer becomes a readable failure after the hang stop.

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use serde_json::{Value, json};

use crate::wait::{Deadline, HANG_STOP, children_executed, poll_for};

/// The protocol version that the scripted clients offer.
pub const PROTOCOL: &str = "2025-11-25";

/// A client's ends.
#[derive(Debug)]
pub struct Wire {
    to: Option<OwnedFd>,
    from: OwnedFd,
    unread: Vec<u8>,
    /// How much of `unread` was already searched for a newline.
    searched: usize,
    next_id: i64,
}

impl Wire {
    /// Takes the write end of the other side's stdin and the read end of its stdout.
    pub fn new(to: OwnedFd, from: OwnedFd) -> Self {
        Self {
            to: Some(to),
            from,
            unread: Vec::new(),
            searched: 0,
            next_id: 1,
        }
    }

    /// Writes bytes as they are.
    pub fn send_bytes(&self, mut bytes: &[u8]) -> io::Result<()> {
        let to = self.to.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        while !bytes.is_empty() {
            match rustix::io::write(to, bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes one message and its newline.
    pub fn send(&self, message: &Value) -> io::Result<()> {
        let mut line = message.to_string();
        line.push('\n');
        self.send_bytes(line.as_bytes())
    }

    /// The next line without its newline, or `None` at the end. A last line without newline counts.
    pub fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.line_within(HANG_STOP)
    }

    /// Like [`Self::line`], with another hang stop.
    pub fn line_within(&mut self, limit: Duration) -> io::Result<Option<Vec<u8>>> {
        let end = Deadline::after(limit);
        loop {
            if let Some(at) = self.unread[self.searched..]
                .iter()
                .position(|&b| b == b'\n')
            {
                let rest = self.unread.split_off(self.searched + at + 1);
                let mut line = std::mem::replace(&mut self.unread, rest);
                line.pop();
                self.searched = 0;
                return Ok(Some(line));
            }
            self.searched = self.unread.len();
            if !self.fill(end)? {
                self.searched = 0;
                let last = std::mem::take(&mut self.unread);
                return Ok((!last.is_empty()).then_some(last));
            }
        }
    }

    /// Everything up to the end.
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        let end = Deadline::after(HANG_STOP);
        while self.fill(end)? {}
        self.searched = 0;
        Ok(std::mem::take(&mut self.unread))
    }

    /// Whether something (a line, part of one, or the end) can be read now.
    pub fn readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.from, PollFlags::IN)];
        !self.unread.is_empty() || poll_for(&mut fds, crate::wait::span(Duration::ZERO)) > 0
    }

    /// Sends a request without waiting. Returns its id.
    pub fn ask(&mut self, method: &str, params: &Value) -> io::Result<i64> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    /// Reads until the answer with this id. Drops all other messages.
    pub fn answer(&mut self, id: i64) -> io::Result<Value> {
        self.answer_within(id, HANG_STOP)
    }

    /// Like [`Self::answer`], for a peer that may not answer: waits this long for each line.
    pub fn answer_within(&mut self, id: i64, limit: Duration) -> io::Result<Value> {
        loop {
            let line = self.line_within(limit)?;
            let line = line.ok_or(io::ErrorKind::UnexpectedEof)?;
            let Ok(message) = serde_json::from_slice::<Value>(&line) else {
                continue;
            };
            if message.get("id") == Some(&json!(id)) && message.get("method").is_none() {
                return Ok(message);
            }
        }
    }

    /// Sends a request and returns the whole answer.
    pub fn request(&mut self, method: &str, params: &Value) -> io::Result<Value> {
        let id = self.ask(method, params)?;
        self.answer(id)
    }

    /// Calls a tool of the unruly server. Returns its structured content, or the whole message if it failed.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> io::Result<Value> {
        let answer = self.request("tools/call", &json!({"name": tool, "arguments": arguments}))?;
        Ok(match answer.pointer("/result/structuredContent") {
            Some(content) => content.clone(),
            None => answer,
        })
    }

    /// The opening exchange of the legacy era. Returns the result.
    pub fn initialize(&mut self) -> io::Result<Value> {
        let answer = self.request(
            "initialize",
            &json!({
                "protocolVersion": PROTOCOL,
                "capabilities": {},
                "clientInfo": {"name": "testkit", "version": "1"},
            }),
        )?;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        answer
            .get("result")
            .cloned()
            .ok_or_else(|| io::Error::other(format!("initialize was refused: {answer}")))
    }

    /// Closes the write end. The peer sees EOF when this returns, on a pipe and on a socket.
    pub fn close_write(&mut self) {
        if self.to.take().is_some() {
            children_executed();
        }
    }

    /// Sends EOF on a socket and keeps it open, as node's `stdin.end()` does.
    pub fn half_close(&self) -> io::Result<()> {
        let to = self.to.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        UnixStream::from(to.try_clone()?).shutdown(Shutdown::Write)
    }

    /// The write end, while it is open.
    pub fn writer(&self) -> Option<&OwnedFd> {
        self.to.as_ref()
    }

    /// The read end.
    pub fn reader(&self) -> &OwnedFd {
        &self.from
    }

    fn fill(&mut self, end: Deadline) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.from, PollFlags::IN)];
        while poll_for(&mut fds, end.left()) == 0 {
            if end.passed() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let mut chunk = vec![0u8; 64 * 1024];
        loop {
            match rustix::io::read(&self.from, &mut chunk) {
                Ok(n) => {
                    self.unread.extend_from_slice(&chunk[..n]);
                    return Ok(n > 0);
                }
                Err(rustix::io::Errno::INTR) => {}
                // A peer that exits with unread data in its socket resets the connection, which is an end like any other.
                Err(rustix::io::Errno::CONNRESET) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The text of an answer that reports a failure: an error's message, or the text of a failed tool call.
pub fn trouble(answer: &Value) -> &str {
    let text = if let Some(error) = answer.get("error") {
        &error["message"]
    } else {
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        &answer["result"]["content"][0]["text"]
    };
    text.as_str()
        .unwrap_or_else(|| panic!("no words: {answer}"))
}
