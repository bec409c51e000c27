//! The two clients: one over HTTP, one over stdio. Each checks that every answer is a result.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::http::{Connection, Endpoint, Session, call, is_result};

/// The number of requests in flight when the rate is measured.
pub const AT_ONCE: usize = 16;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client that makes calls.
pub trait Client {
    /// Gets ready for the next block of calls.
    fn refresh(&mut self) -> io::Result<()>;

    /// One call and its answer.
    fn ask(&mut self, id: usize) -> io::Result<()>;

    /// This many calls, with [`AT_ONCE`] of them unanswered at a time.
    fn ask_many(&mut self, count: usize) -> io::Result<()>;
}

/// Over HTTP: one session, and as many connections as there are calls at once.
pub struct OverHttp {
    connections: Vec<Connection>,
    session: Session,
    tool: &'static str,
}

impl OverHttp {
    /// Opens a session.
    pub fn open(endpoint: &Endpoint, tool: &'static str) -> io::Result<Self> {
        let mut connections = vec![Connection::to(endpoint)?];
        let session = connections[0].open()?;
        for _ in 1..AT_ONCE {
            connections.push(Connection::to(endpoint)?);
        }
        Ok(Self {
            connections,
            session,
            tool,
        })
    }

    fn send(&mut self, id: usize) -> io::Result<()> {
        let connection = &mut self.connections[id % AT_ONCE];
        connection.post(Some(&self.session), &call(self.tool, id))
    }
}

impl Client for OverHttp {
    /// Servers close connections that were idle while other bridges had their turn. The first call on a new connection must not
    /// be measured.
    fn refresh(&mut self) -> io::Result<()> {
        for connection in &mut self.connections {
            connection.renew()?;
        }
        self.ask_many(AT_ONCE)
    }

    fn ask(&mut self, id: usize) -> io::Result<()> {
        let id = id * AT_ONCE; // always the same connection
        self.send(id)?;
        self.connections[0].answer()?.result().map(drop)
    }

    fn ask_many(&mut self, count: usize) -> io::Result<()> {
        for id in 0..AT_ONCE {
            self.send(id)?;
        }
        for id in AT_ONCE..count + AT_ONCE {
            self.connections[id % AT_ONCE].answer()?.result()?;
            if id < count {
                self.send(id)?;
            }
        }
        Ok(())
    }
}

/// Over stdio, which is a pair of sockets, as Node makes it.
pub struct OverStdio {
    to: UnixStream,
    from: BufReader<UnixStream>,
    line: String,
}

impl OverStdio {
    pub fn new(to: UnixStream, from: UnixStream) -> io::Result<Self> {
        from.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            to,
            from: BufReader::with_capacity(64 * 1024, from),
            line: String::new(),
        })
    }

    /// The opening exchange.
    pub fn open(&mut self) -> io::Result<()> {
        self.send(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#)?;
        self.hear()?;
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
    }

    fn send(&mut self, message: &str) -> io::Result<()> {
        self.to.write_all(format!("{message}\n").as_bytes())
    }

    /// Reads the next answer. A message without id is no answer.
    fn hear(&mut self) -> io::Result<()> {
        loop {
            self.line.clear();
            if self.from.read_line(&mut self.line)? == 0 {
                return Err(io::Error::other("it ended instead of answering"));
            }
            if is_result(self.line.as_bytes()) {
                return Ok(());
            }
            if self.line.contains(r#""id":"#) {
                return Err(io::Error::other(self.line.trim_end().to_owned()));
            }
        }
    }
}

impl Client for OverStdio {
    fn refresh(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn ask(&mut self, id: usize) -> io::Result<()> {
        self.send(&call("fill", id))?;
        self.hear()
    }

    fn ask_many(&mut self, count: usize) -> io::Result<()> {
        for id in 0..AT_ONCE {
            self.send(&call("fill", id))?;
        }
        for id in AT_ONCE..count + AT_ONCE {
            self.hear()?;
            if id < count {
                self.send(&call("fill", id))?;
            }
        }
        Ok(())
    }
}
