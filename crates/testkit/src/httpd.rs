//! A tiny streamable-HTTP MCP server on loopback, in the test's own process: it counts its sessions, remembers what it was
//! sent, and misbehaves on command.
//!
//! One thread per connection; a fault is for the next request of a method, or for all. It never expires a session by
//! itself: what is open at the end was left open by its client.

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
    /// The same, but only after [`Httpd::release`].
    LateStatus(u16, &'static str),
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
    /// These bytes, and the end of the connection; `$ID` is the id of the request. A whole answer should say `connection: close`,
    /// else the client may send its next request before it sees the end.
    Raw(String),
}

/// How it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// With JSON.
    #[default]
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

    /// Forgets every session and counts from one again, as a restarted server does whose names are numbers.
    pub fn restart(&self) {
        let mut state = self.shared.lock();
        state.open.clear();
        state.opened = 0;
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
