//! A small HTTP server in this process with the same answers as `role/plain.rs`. It counts its sessions and expires none of them.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::http::Endpoint;
use crate::role::plain::Message;

/// The longest head and body.
const LONGEST: u64 = 1 << 20;

pub struct Web {
    address: SocketAddr,
    shared: Arc<Mutex<Sessions>>,
}

#[derive(Default)]
struct Sessions {
    open: BTreeSet<String>,
    opened: usize,
    over: bool,
}

impl Web {
    /// Starts it on a free port of loopback.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is none of the processes that must have one thread only"
    )]
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::<Mutex<Sessions>>::default();
        let sessions = Arc::clone(&shared);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if lock(&sessions).over {
                    return;
                }
                let sessions = Arc::clone(&sessions);
                // A client that disconnects in the middle is a normal case here.
                thread::spawn(move || talk(&socket, &sessions).ok());
            }
        });
        Ok(Self { address, shared })
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            address: self.address,
            path: "/mcp".into(),
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// How many sessions were opened, and how many of them are still open.
    pub fn sessions(&self) -> (usize, usize) {
        let sessions = lock(&self.shared);
        (sessions.opened, sessions.open.len())
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        lock(&self.shared).over = true;
        // The listener checks it at the next connection.
        drop(TcpStream::connect(self.address));
    }
}

/// One connection, request after request.
fn talk(mut socket: &TcpStream, sessions: &Mutex<Sessions>) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(64 * 1024, socket);
    while let Some(request) = Request::read(&mut reader)? {
        let reply = request.reply(sessions)?;
        socket.write_all(reply.as_bytes())?;
    }
    Ok(())
}

struct Request {
    verb: String,
    session: Option<String>,
    body: Vec<u8>,
}

impl Request {
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.take(LONGEST).read_line(&mut head)? == 0 {
                return Ok(None);
            }
        }
        let field = |name: &str| {
            head.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name)
                    .then(|| value.trim().to_owned())
            })
        };
        let length = field("content-length").and_then(|text| text.parse().ok());
        let mut body = Vec::new();
        reader
            .take(length.unwrap_or(0).min(LONGEST))
            .read_to_end(&mut body)?;
        Ok(Some(Self {
            verb: head.split(' ').next().unwrap_or("").into(),
            session: field("mcp-session-id"),
            body,
        }))
    }

    fn reply(&self, sessions: &Mutex<Sessions>) -> io::Result<String> {
        let mut sessions = lock(sessions);
        let known = |sessions: &Sessions| {
            let name = self.session.as_ref();
            name.is_some_and(|name| sessions.open.contains(name))
        };
        Ok(match self.verb.as_str() {
            "POST" => {
                let message = Message::read(&self.body)?;
                let mut headers = String::new();
                if message.opens() {
                    sessions.opened += 1;
                    let name = format!("session-{}", sessions.opened);
                    headers = format!("mcp-session-id: {name}\r\n");
                    sessions.open.insert(name);
                } else if !known(&sessions) {
                    return Ok(said("404 Not Found", "", ""));
                }
                match message.answer() {
                    Some(answer) => {
                        headers.push_str("content-type: application/json\r\n");
                        said("200 OK", &headers, &answer)
                    }
                    None => said("202 Accepted", "", ""),
                }
            }
            "DELETE" if known(&sessions) => {
                sessions
                    .open
                    .remove(self.session.as_deref().unwrap_or_default());
                said("200 OK", "", "")
            }
            "DELETE" => said("404 Not Found", "", ""),
            _ => said("405 Method Not Allowed", "", ""),
        })
    }
}

fn said(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn lock(sessions: &Mutex<Sessions>) -> MutexGuard<'_, Sessions> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Connection, call};

    #[test]
    fn sessions_are_counted() {
        let web = Web::start().unwrap();
        let mut connection = Connection::to(&web.endpoint()).unwrap();
        let session = connection.open().unwrap();
        connection.post(Some(&session), &call("fill", 1)).unwrap();
        connection.answer().unwrap().result().unwrap();
        assert_eq!(web.sessions(), (1, 1));
        connection.post(None, &call("fill", 1)).unwrap();
        assert_eq!(connection.answer().unwrap().status, 404);
    }
}
