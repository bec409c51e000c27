//! How the server answers a request: correctly, or with a fault.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::wire::{begin_events, chunk, read, reply};
use super::{Fault, Manner, Sent};

/// The state that all connections share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one switch of the play"
)]
#[derive(Default)]
pub(super) struct State {
    pub(super) manner: Manner,
    pub(super) listening: bool,
    /// Speaks only the 2024 transport.
    pub(super) old: bool,
    /// Offers the GET stream.
    pub(super) streams: bool,
    pub(super) faults: Vec<(String, Fault, bool)>,
    pub(super) released: bool,
    pub(super) open: BTreeSet<String>,
    pub(super) opened: u32,
    pub(super) deleted: Vec<String>,
    pub(super) sent: Vec<Sent>,
    /// The answers of a resumed stream, by event id.
    pub(super) kept: BTreeMap<String, Value>,
    pub(super) events: u32,
    pub(super) news: VecDeque<Value>,
    pub(super) secret: Option<(String, String)>,
}

impl Shared {
    fn wait_for_release(&self) {
        let state = self.lock();
        let held = self.changed.wait_while(state, |state| !state.released);
        drop(held);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One connection, request after request.
    pub(super) fn talk(&self, mut stream: &TcpStream) -> io::Result<()> {
        while let Some(sent) = read(&mut stream)? {
            let fault = {
                let mut state = self.lock();
                state.sent.push(sent.clone());
                state.fault(&sent)
            };
            if !self.answer(stream, &sent, fault.as_ref())? {
                break;
            }
        }
        Ok(())
    }

    /// Answers. Returns whether the connection goes on.
    fn answer(&self, stream: &TcpStream, sent: &Sent, fault: Option<&Fault>) -> io::Result<bool> {
        match fault {
            None | Some(Fault::Twice) => {}
            Some(Fault::Drop) => return Ok(false),
            Some(Fault::Hold) => self.wait_for_release(),
            Some(Fault::LateStatus(status, text)) => {
                self.wait_for_release();
                return reply(stream, *status, &[("content-type", "text/plain")], text);
            }
            Some(Fault::Status(status, text)) => {
                return reply(stream, *status, &[("content-type", "text/plain")], text);
            }
            Some(Fault::Html) => {
                return reply(
                    stream,
                    200,
                    &[("content-type", "text/html")],
                    "<html>hello</html>",
                );
            }
            Some(Fault::Huge(bytes)) => {
                let body = format!(
                    r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#,
                    "x".repeat(*bytes)
                );
                return reply(stream, 200, &[("content-type", "application/json")], &body);
            }
            Some(Fault::Endless) => {
                begin_events(stream, None)?;
                chunk(stream, "data: ")?;
                loop {
                    chunk(stream, &"x".repeat(1 << 16))?;
                }
            }
            Some(Fault::Raw(bytes)) => {
                let raw = bytes.replace("$ID", &sent.message["id"].to_string());
                let mut to = stream;
                to.write_all(raw.as_bytes())?;
                return Ok(false);
            }
            Some(Fault::Silent) => {
                begin_events(stream, None)?;
                chunk(stream, "")?;
                return Ok(true);
            }
            Some(Fault::Break { with_id }) => {
                begin_events(stream, None)?;
                if *with_id {
                    let answer = result(sent);
                    let mut state = self.lock();
                    state.events += 1;
                    let id = format!("e{}", state.events);
                    state.kept.insert(id.clone(), answer);
                    drop(state);
                    chunk(stream, &format!("id: {id}\nretry: 20\ndata:\n\n"))?;
                }
                return Ok(false);
            }
        }
        if let Some(status) = self.lock().forbids(sent) {
            return reply(stream, status, &[], "no");
        }
        match sent.verb.as_str() {
            "POST" => self.post(stream, sent, fault == Some(&Fault::Twice)),
            "GET" => self.get(stream, sent),
            "DELETE" => {
                let session = sent.session().cloned().unwrap_or_default();
                let mut state = self.lock();
                let known = state.open.remove(&session);
                if known {
                    state.deleted.push(session);
                }
                drop(state);
                reply(stream, if known { 200 } else { 404 }, &[], "")
            }
            _ => reply(stream, 405, &[], ""),
        }
    }

    fn post(&self, stream: &TcpStream, sent: &Sent, twice: bool) -> io::Result<bool> {
        let message = &sent.message;
        let is_request = message.get("id").is_some() && message.get("method").is_some();
        let modern = sent.headers.contains_key("mcp-method");
        let mut state = self.lock();
        if state.old && sent.path == "/mcp" {
            drop(state);
            return reply(stream, 405, &[], "");
        }
        let mut opened = None;
        if sent.method() == "initialize" {
            if !state.old {
                state.opened += 1;
                let session = format!("session-{}", state.opened);
                state.open.insert(session.clone());
                opened = Some(session);
            }
        } else if !modern && !state.old {
            let session = sent.session();
            if !session.is_some_and(|session| state.open.contains(session)) {
                drop(state);
                return reply(
                    stream,
                    404,
                    &[("content-type", "text/plain")],
                    "no such session",
                );
            }
        }
        let (manner, old) = (state.manner, state.old);
        drop(state);
        if !is_request {
            return reply(stream, 202, &[], "");
        }
        let answer = result(sent);
        if old {
            self.lock().news.push_back(answer);
            self.changed.notify_all();
            return reply(stream, 202, &[], "");
        }
        if manner == Manner::Json && !twice {
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(opened.as_deref().map(|session| ("mcp-session-id", session)));
            return reply(stream, 200, &headers, &answer.to_string());
        }
        begin_events(stream, opened.as_deref())?;
        for _ in 0..if twice { 2 } else { 1 } {
            chunk(stream, &format!("event: message\ndata: {answer}\n\n"))?;
        }
        chunk(stream, "")?;
        Ok(true)
    }

    fn get(&self, stream: &TcpStream, sent: &Sent) -> io::Result<bool> {
        let last = sent.headers.get("last-event-id");
        let kept = last.and_then(|last| self.lock().kept.remove(last));
        if let Some(answer) = kept {
            begin_events(stream, None)?;
            chunk(
                stream,
                &format!("id: {}x\ndata: {answer}\n\n", last.map_or("", |last| last)),
            )?;
            chunk(stream, "")?;
            return Ok(true);
        }
        let state = self.lock();
        let (old, streams) = (state.old, state.streams);
        drop(state);
        if !old && !streams {
            return reply(stream, 405, &[], "");
        }
        begin_events(stream, None)?;
        if old {
            chunk(stream, "event: endpoint\ndata: /messages?s=1\n\n")?;
        }
        loop {
            let state = self.lock();
            let waited = self
                .changed
                .wait_while(state, |state| state.news.is_empty() && state.listening);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            let news = state.news.pop_front();
            drop(state);
            match news {
                Some(news) => chunk(stream, &format!("data: {news}\n\n"))?,
                None => return Ok(false),
            }
        }
    }
}

impl State {
    fn fault(&mut self, sent: &Sent) -> Option<Fault> {
        let at = self
            .faults
            .iter()
            .position(|(method, _, _)| method == sent.method() || *method == sent.verb)?;
        let (_, fault, always) = self.faults[at].clone();
        if !always {
            self.faults.remove(at);
        }
        Some(fault)
    }

    fn forbids(&self, sent: &Sent) -> Option<u16> {
        let (name, value) = self.secret.as_ref()?;
        (sent.headers.get(name) != Some(value)).then_some(401)
    }
}

/// A good answer.
fn result(sent: &Sent) -> Value {
    let id = sent.message["id"].clone();
    let params = &sent.message["params"];
    let result = match sent.method() {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": true}, "logging": {}, "resources": {"subscribe": true}},
            "serverInfo": {"name": "httpd", "version": "1"},
        }),
        "server/discover" => json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
        }),
        "tools/list" => json!({"tools": [
            {"name": "echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
            {"name": "write", "inputSchema": {"type": "object"}},
        ]}),
        "tools/call" => {
            json!({"content": [], "structuredContent": params["arguments"]})
        }
        "ping" | "logging/setLevel" | "resources/subscribe" => json!({}),
        _ => {
            return json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}});
        }
    };
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}
