//! A tiny streamable-HTTP MCP server on loopback, in the test's own process: it counts its sessions, remembers all requests, and
//! misbehaves on command.
//!
//! One thread per connection. A fault applies to the next request of a method, or to all. It never expires a session by itself: a
//! session that is open at the end was left open by its client.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::wait::until;

mod play;
mod wire;
use play::Shared;

/// How long a peer may be silent before its thread ends.
const SILENCE: Duration = Duration::from_mins(2);

/// What the server does instead of answering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Sends nothing until [`Httpd::release`].
    Hold,
    /// Closes the connection without an answer.
    Drop,
    /// Starts a stream, with an event id if asked for, and breaks off.
    Break {
        /// With an event id.
        with_id: bool,
    },
    /// Answers with a status and a text.
    Status(u16, &'static str),
    /// The same, but only after [`Httpd::release`].
    LateStatus(u16, &'static str),
    /// Answers with an HTML page.
    Html,
    /// Answers with a body of this many bytes.
    Huge(usize),
    /// Sends an event line that never ends.
    Endless,
    /// Sends the answer twice.
    Twice,
    /// Ends the stream without an answer.
    Silent,
    /// Sends these bytes and closes the connection. `$ID` is the id of the request. A whole answer should say `connection:
    /// close`, because otherwise the client may send its next request before it sees the end.
    Raw(String),
}

/// The form of its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// With JSON.
    #[default]
    Json,
    /// With an event stream.
    Events,
}

/// A request that it got.
#[derive(Clone, Debug)]
pub struct Sent {
    /// GET, POST or DELETE.
    pub verb: String,
    /// Its path.
    pub path: String,
    /// Its headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its message, if it has one.
    pub message: Value,
}

impl Sent {
    /// The JSON-RPC method.
    pub fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or("")
    }

    fn session(&self) -> Option<&String> {
        self.headers.get("mcp-session-id")
    }
}

/// The server.
pub struct Httpd {
    shared: Arc<Shared>,
    at: SocketAddr,
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
        let shared = Arc::new(Shared::default());
        shared.lock().listening = true;
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
                    // A peer that disconnects in the middle is part of the test.
                    shared.talk(&stream).ok();
                });
            }
        });
    }

    /// Its endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.at)
    }

    /// Answers in this form from now on.
    pub fn manner(&self, manner: Manner) {
        self.shared.lock().manner = manner;
    }

    /// Speaks only the 2024 transport from now on.
    pub fn old(&self) {
        self.shared.lock().old = true;
    }

    /// Offers the GET stream.
    pub fn streams(&self) {
        self.shared.lock().streams = true;
    }

    /// Refuses requests without this header.
    pub fn secret(&self, name: &str, value: &str) {
        self.shared.lock().secret = Some((name.to_ascii_lowercase(), value.into()));
    }

    /// Misbehaves at the next message of this method. `DELETE` and `GET` stand for themselves.
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

    /// Behaves normally from now on.
    pub fn mend(&self) {
        self.shared.lock().faults.clear();
        self.release();
    }

    /// Releases all held requests.
    pub fn release(&self) {
        self.shared.lock().released = true;
        self.shared.changed.notify_all();
    }

    /// Forgets every session, as a restarted server does.
    pub fn forget(&self) {
        self.shared.lock().open.clear();
    }

    /// Forgets every session and counts from one again, like a restarted server whose session ids are numbers.
    pub fn restart(&self) {
        let mut state = self.shared.lock();
        state.open.clear();
        state.opened = 0;
    }

    /// Sends a message on the GET stream.
    pub fn say(&self, message: Value) {
        self.shared.lock().news.push_back(message);
        self.shared.changed.notify_all();
    }

    /// The number of open sessions.
    pub fn open(&self) -> usize {
        self.shared.lock().open.len()
    }

    /// The number of sessions that were ever opened.
    pub fn opened(&self) -> u32 {
        self.shared.lock().opened
    }

    /// The sessions that were closed by a DELETE, in order.
    pub fn deleted(&self) -> Vec<String> {
        self.shared.lock().deleted.clone()
    }

    /// All requests, in order.
    pub fn sent(&self) -> Vec<Sent> {
        self.shared.lock().sent.clone()
    }

    /// The number of requests of this method.
    pub fn count(&self, method: &str) -> usize {
        let sent = self.sent();
        sent.iter().filter(|one| one.method() == method).count()
    }

    /// Waits until it has got this method this many times.
    pub fn heard(&self, method: &str, times: usize) {
        until(&format!("{method} is heard"), || {
            (self.count(method) >= times).then_some(())
        });
    }

    /// Waits until no session is open.
    pub fn empty(&self) {
        until("no session is open", || (self.open() == 0).then_some(()));
    }

    /// Stops accepting connections.
    pub fn stop(&self) {
        self.shared.lock().listening = false;
        // The listener checks it at the next connection.
        drop(TcpStream::connect(self.at));
        until("no listener is left", || {
            TcpStream::connect(self.at).is_err().then_some(())
        });
    }

    /// Accepts connections again, at the same address.
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
