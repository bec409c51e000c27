//! A tiny streamable-HTTP MCP server on loopback, in the test's own process: it counts its sessions, remembers what it was
//! sent, and misbehaves on command.
//!
//! One thread per connection; a fault is for the next request of a method, or for all. It never expires a session by
//! itself: what is open at the end was left open by its client.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::wait::until;

/// The longest body.
const BODY_BYTES: usize = 64 << 20;
/// How long a peer may be silent before its thread ends.
const SILENCE: Duration = Duration::from_mins(2);

/// What a server does instead of answering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing comes back until [`Httpd::release`].
    Hold,
    /// The connection is closed without a word.
    Drop,
    /// A stream is begun, with an event id if asked for, and breaks off.
    Break {
        /// With an event id.
        with_id: bool,
    },
    /// A status, with a text.
    Status(u16, &'static str),
    /// A page for people.
    Html,
    /// A body of this many bytes.
    Huge(usize),
    /// An event line that never ends.
    Endless,
    /// The answer comes twice.
    Twice,
    /// The stream ends without an answer.
    Silent,
    /// These bytes, and the end of the connection; `$ID` is the id of the request.
    Raw(String),
}

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// With JSON.
    Json,
    /// With an event stream.
    Events,
}

/// A request that it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// GET, POST or DELETE.
    pub verb: String,
    /// Its path.
    pub path: String,
    /// Its headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its message, if it is one.
    pub message: Value,
}

impl Sent {
    /// The JSON-RPC method.
    pub fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or("")
    }
}

/// The server.
pub struct Httpd {
    shared: Arc<Shared>,
    at: SocketAddr,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one switch of the play"
)]
struct State {
    manner: Manner,
    listening: bool,
    /// Speaks only the old transport.
    old: bool,
    /// Has a stream for what it says unasked.
    streams: bool,
    faults: Vec<(String, Fault, bool)>,
    released: bool,
    open: BTreeSet<String>,
    opened: u32,
    deleted: Vec<String>,
    sent: Vec<Sent>,
    /// The answers that a resumed stream brings, by event id.
    kept: BTreeMap<String, Value>,
    events: u32,
    news: VecDeque<Value>,
    secret: Option<(String, String)>,
}

impl Default for Httpd {
    fn default() -> Self {
        Self::start()
    }
}

impl Httpd {
    /// Starts it on a free port.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let at = listener.local_addr().expect("its own address");
        let state = State {
            manner: Manner::Json,
            listening: true,
            old: false,
            streams: false,
            faults: Vec::new(),
            released: false,
            open: BTreeSet::new(),
            opened: 0,
            deleted: Vec::new(),
            sent: Vec::new(),
            kept: BTreeMap::new(),
            events: 0,
            news: VecDeque::new(),
            secret: None,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let server = Self { shared, at };
        server.serve(listener);
        server
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the server is a thread of the test, not of mainstay"
    )]
    fn serve(&self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if !shared.lock().listening {
                    return;
                }
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    stream.set_read_timeout(Some(SILENCE)).ok();
                    // A peer that goes away in the middle is a part of the play.
                    shared.talk(&stream).ok();
                });
            }
        });
    }

    /// Its endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.at)
    }

    /// Answers this way from now on.
    pub fn manner(&self, manner: Manner) {
        self.shared.lock().manner = manner;
    }

    /// Speaks only the old transport from now on.
    pub fn old(&self) {
        self.shared.lock().old = true;
    }

    /// Has a stream for what it says unasked.
    pub fn streams(&self) {
        self.shared.lock().streams = true;
    }

    /// Refuses whoever does not send this header.
    pub fn secret(&self, name: &str, value: &str) {
        self.shared.lock().secret = Some((name.to_ascii_lowercase(), value.into()));
    }

    /// Misbehaves at the next message of this method; `DELETE` and `GET` are meant by their names.
    pub fn next(&self, method: &str, fault: Fault) {
        self.shared
            .lock()
            .faults
            .push((method.into(), fault, false));
    }

    /// Misbehaves at every message of this method.
    pub fn always(&self, method: &str, fault: Fault) {
        self.shared.lock().faults.push((method.into(), fault, true));
    }

    /// Behaves from now on.
    pub fn mend(&self) {
        self.shared.lock().faults.clear();
        self.release();
    }

    /// Lets go of what is held.
    pub fn release(&self) {
        self.shared.lock().released = true;
        self.shared.changed.notify_all();
    }

    /// Forgets every session, as a restarted server does.
    pub fn forget(&self) {
        self.shared.lock().open.clear();
    }

    /// Says something unasked.
    pub fn say(&self, message: Value) {
        self.shared.lock().news.push_back(message);
        self.shared.changed.notify_all();
    }

    /// Sessions that are open.
    pub fn open(&self) -> usize {
        self.shared.lock().open.len()
    }

    /// Sessions that were ever opened.
    pub fn opened(&self) -> u32 {
        self.shared.lock().opened
    }

    /// Sessions that were closed by a DELETE, in order.
    pub fn deleted(&self) -> Vec<String> {
        self.shared.lock().deleted.clone()
    }

    /// What it was sent, in order.
    pub fn sent(&self) -> Vec<Sent> {
        self.shared.lock().sent.clone()
    }

    /// How often it was sent this method.
    pub fn count(&self, method: &str) -> usize {
        let sent = self.sent();
        sent.iter().filter(|one| one.method() == method).count()
    }

    /// Waits until it has been sent this method so often.
    pub fn heard(&self, method: &str, times: usize) {
        until(&format!("{method} is heard"), || {
            (self.count(method) >= times).then_some(())
        });
    }

    /// Waits until no session is open.
    pub fn empty(&self) {
        until("no session is open", || (self.open() == 0).then_some(()));
    }

    /// Takes no connection any more.
    pub fn stop(&self) {
        self.shared.lock().listening = false;
        // The listener looks at it with the next connection.
        drop(TcpStream::connect(self.at));
        until("nobody listens", || {
            TcpStream::connect(self.at).is_err().then_some(())
        });
    }

    /// Takes connections again, at the same place.
    pub fn resume(&self) {
        self.shared.lock().listening = true;
        let listener = until("the port is free", || TcpListener::bind(self.at).ok());
        self.serve(listener);
    }
}

impl Drop for Httpd {
    fn drop(&mut self) {
        self.shared.lock().listening = false;
        self.release();
        drop(TcpStream::connect(self.at));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One connection, request after request.
    fn talk(&self, mut stream: &TcpStream) -> io::Result<()> {
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

    /// Answers; whether the connection goes on.
    fn answer(&self, stream: &TcpStream, sent: &Sent, fault: Option<&Fault>) -> io::Result<bool> {
        match fault {
            None | Some(Fault::Twice) => {}
            Some(Fault::Drop) => return Ok(false),
            Some(Fault::Hold) => {
                let state = self.lock();
                let held = self.changed.wait_while(state, |state| !state.released);
                drop(held);
            }
            Some(Fault::Status(status, text)) => {
                reply(stream, *status, &[("content-type", "text/plain")], text)?;
                return Ok(true);
            }
            Some(Fault::Html) => {
                reply(
                    stream,
                    200,
                    &[("content-type", "text/html")],
                    "<html>hello</html>",
                )?;
                return Ok(true);
            }
            Some(Fault::Huge(bytes)) => {
                let body = format!(
                    r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#,
                    "x".repeat(*bytes)
                );
                reply(stream, 200, &[("content-type", "application/json")], &body)?;
                return Ok(true);
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
            reply(stream, status, &[], "no")?;
            return Ok(true);
        }
        match sent.verb.as_str() {
            "POST" => self.post(stream, sent, fault == Some(&Fault::Twice)),
            "GET" => self.get(stream, sent),
            "DELETE" => {
                let session = sent
                    .headers
                    .get("mcp-session-id")
                    .cloned()
                    .unwrap_or_default();
                let mut state = self.lock();
                let known = state.open.remove(&session);
                if known {
                    state.deleted.push(session);
                }
                drop(state);
                reply(stream, if known { 200 } else { 404 }, &[], "")?;
                Ok(true)
            }
            _ => {
                reply(stream, 405, &[], "")?;
                Ok(true)
            }
        }
    }

    fn post(&self, stream: &TcpStream, sent: &Sent, twice: bool) -> io::Result<bool> {
        let message = &sent.message;
        let is_request = message.get("id").is_some() && message.get("method").is_some();
        let modern = sent.headers.contains_key("mcp-method");
        let mut state = self.lock();
        if state.old && sent.path == "/mcp" {
            drop(state);
            reply(stream, 405, &[], "")?;
            return Ok(true);
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
            let session = sent.headers.get("mcp-session-id");
            if !session.is_some_and(|session| state.open.contains(session)) {
                drop(state);
                reply(
                    stream,
                    404,
                    &[("content-type", "text/plain")],
                    "no such session",
                )?;
                return Ok(true);
            }
        }
        let (manner, old) = (state.manner, state.old);
        drop(state);
        if !is_request {
            reply(stream, 202, &[], "")?;
            return Ok(true);
        }
        let answer = result(sent).to_string();
        if old {
            let answer = serde_json::from_str(&answer).unwrap_or(Value::Null);
            self.lock().news.push_back(answer);
            self.changed.notify_all();
            reply(stream, 202, &[], "")?;
            return Ok(true);
        }
        let times = if twice { 2 } else { 1 };
        if manner == Manner::Json && !twice {
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(opened.as_deref().map(|session| ("mcp-session-id", session)));
            reply(stream, 200, &headers, &answer)?;
            return Ok(true);
        }
        begin_events(stream, opened.as_deref())?;
        for _ in 0..times {
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
            reply(stream, 405, &[], "")?;
            return Ok(true);
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

fn read(stream: &mut &TcpStream) -> io::Result<Option<Sent>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 {
            return Ok(None);
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or("").split(' ');
    let (verb, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_string()))
        .collect();
    let length = headers
        .get("content-length")
        .and_then(|text| text.parse().ok());
    let mut body = vec![0; length.unwrap_or(0).min(BODY_BYTES)];
    stream.read_exact(&mut body)?;
    Ok(Some(Sent {
        verb: verb.into(),
        path: path.into(),
        headers,
        message: serde_json::from_slice(&body).unwrap_or(Value::Null),
    }))
}

fn reply(
    mut stream: &TcpStream,
    status: u16,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes())
}

fn begin_events(mut stream: &TcpStream, session: Option<&str>) -> io::Result<()> {
    let session = session.map_or_else(String::new, |id| format!("mcp-session-id: {id}\r\n"));
    stream.write_all(
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n{session}\r\n")
            .as_bytes(),
    )
}

/// A piece of a stream; an empty one ends it.
fn chunk(mut stream: &TcpStream, piece: &str) -> io::Result<()> {
    stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes())
}
