//! A running `mainstay serve` and a client that does no more than it must.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use mainstay_testkit::wait::{HANG_STOP, idle};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::place::Place;
use crate::role;

/// How often the front is asked whether all have gone.
const LOOK: Duration = Duration::from_millis(20);

/// The front with the tiny server behind it.
pub struct Front {
    child: Child,
    address: SocketAddr,
}

/// What it says of itself.
pub struct State {
    /// Sessions that are open.
    pub sessions: u64,
    /// Links that have not ended.
    pub links: u64,
    /// Descriptors of its process.
    pub descriptors: u64,
    /// Memory of its process, in bytes.
    pub resident: u64,
}

impl Front {
    /// Starts it.
    pub fn start(place: &Place<'_>, options: &[&str]) -> io::Result<Self> {
        let mut argv = place.kept(options, place.ours([role::SERVE]));
        // `mainstay run …` with the front's verb, address and a form that can be read.
        let front = ["serve", "--listen", "127.0.0.1:0", "--json"].map(OsString::from);
        argv.splice(1..2, front);
        let mut child = place
            .command(&argv)?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        BufReader::new(stdout).read_line(&mut line)?;
        let told: Value = serde_json::from_str(&line)?;
        let address = told["listen"].as_str().unwrap_or("").parse();
        Ok(Self {
            child,
            address: address.map_err(io::Error::other)?,
        })
    }

    /// A connection.
    pub fn connect(&self) -> io::Result<Connection> {
        let socket = TcpStream::connect(self.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(HANG_STOP))?;
        Ok(Connection {
            reader: BufReader::with_capacity(64 * 1024, socket),
        })
    }

    /// What it says of itself now.
    pub fn state(&self) -> io::Result<State> {
        let mut connection = self.connect()?;
        connection
            .send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let (_, body) = connection.answer()?;
        let page = String::from_utf8_lossy(&body).into_owned();
        let number = |name: &str| {
            let line = page
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse().ok())
                .ok_or_else(|| io::Error::other(format!("no {name}")))
        };
        Ok(State {
            sessions: number("mainstay_sessions_open")?,
            links: number("mainstay_links")?,
            descriptors: number("mainstay_descriptors")?,
            resident: number("mainstay_resident_bytes")?,
        })
    }

    /// Waits until so many servers are there.
    pub fn settled(&self, place: &Place<'_>, links: u64) -> io::Result<()> {
        while self.state()?.links != links {
            place.step();
            idle(LOOK);
        }
        Ok(())
    }

    /// Tells it to stop, and waits for that.
    pub fn end(mut self) -> io::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("serve ended with {status}")))
    }
}

/// One connection that is kept alive.
pub struct Connection {
    reader: BufReader<TcpStream>,
}

const POST: &str = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n";

impl Connection {
    /// Opens a session; its name.
    pub fn open(&mut self) -> io::Result<String> {
        let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
        self.send(format!("{POST}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
        let (head, _) = self.answer()?;
        let name = head
            .lines()
            .find_map(|line| line.strip_prefix("mcp-session-id: "));
        name.map(String::from)
            .ok_or_else(|| io::Error::other(format!("no session: {head}")))
    }

    /// Ends a session.
    pub fn delete(&mut self, session: &str) -> io::Result<()> {
        let head =
            format!("DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {session}\r\n\r\n");
        self.send(head.as_bytes())?;
        self.answer().map(drop)
    }

    /// Sends a call of 200 bytes.
    pub fn send_call(&mut self, session: &str, id: usize) -> io::Result<()> {
        let mut body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"fill","arguments":{{"size":200,"pad":""#,
            1_000_000 + id
        );
        let pad = 200 - body.len() - 4;
        body.extend(std::iter::repeat_n('x', pad));
        body.push_str("\"}}}");
        let head = format!(
            "{POST}mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.send(head.as_bytes())
    }

    /// The next answer: head and body.
    pub fn answer(&mut self) -> io::Result<(String, Vec<u8>)> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.reader.read_line(&mut head)? == 0 {
                return Err(io::Error::other("the front closed the connection"));
            }
        }
        if !head.starts_with("HTTP/1.1 200") {
            return Err(io::Error::other(head));
        }
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        Ok((head, body))
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }
}
