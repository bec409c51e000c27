//! A tiny streamable-HTTP server that announces each session that is opened or closed. Its sessions never expire.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use mainstay_protocol::clock::Moment;
use serde_json::{Value, json};

use super::announcements;
use crate::waiter::{DemoError, Waiter};

/// Announces the port, which follows.
pub const LISTENS: &str = "port-";
/// Announces a new session; its number follows.
pub const OPENED: &str = "opened-";
/// Announces a session that a DELETE has closed; its number follows.
pub const CLOSED: &str = "closed-";

/// The longest body that is read.
const BODY_BYTES: usize = 1 << 20;
/// How long a client may take to send its request.
const REQUEST: Duration = Duration::from_secs(5);

/// Serves until the time is up.
pub fn run(group: &str, end: Moment) -> Result<(), DemoError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    announcements::announce(
        group,
        &format!("{LISTENS}{}", listener.local_addr()?.port()),
    )?;
    let waiter = Waiter::without_signals();
    let mut open = BTreeSet::new();
    let mut opened = 0;
    while waiter.wait(&[listener.as_fd()], end)? == [true] {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(REQUEST))?;
        // An incomplete request is ignored.
        if let Ok(request) = Request::read(&mut stream) {
            let (status, headers, body) = answer(&request, group, &mut open, &mut opened)?;
            reply(&mut stream, status, &headers, &body).ok();
        }
    }
    Ok(())
}

type Reply = (u16, String, String);

fn answer(
    request: &Request,
    group: &str,
    open: &mut BTreeSet<String>,
    opened: &mut u32,
) -> io::Result<Reply> {
    let nothing = |status| Ok((status, String::new(), String::new()));
    let message = &request.message;
    match request.verb.as_str() {
        "DELETE" => {
            if !open.remove(&request.session) {
                return nothing(404);
            }
            announcements::announce(group, &format!("{CLOSED}{}", request.session))?;
            nothing(200)
        }
        "POST" if message["method"] == "initialize" => {
            *opened += 1;
            let session = opened.to_string();
            open.insert(session.clone());
            announcements::announce(group, &format!("{OPENED}{session}"))?;
            let result = json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "web", "version": "1" },
            });
            let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
            let headers = format!("mcp-session-id: {session}\r\n");
            Ok((200, headers, body.to_string()))
        }
        "POST" if !open.contains(&request.session) => nothing(404),
        "POST" if message.get("id").is_some() => {
            let result = json!({ "content": [{ "type": "text", "text": "hello" }], "tools": [] });
            let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
            Ok((200, String::new(), body.to_string()))
        }
        "POST" => nothing(202),
        _ => nothing(405),
    }
}

fn reply(stream: &mut TcpStream, status: u16, headers: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// The parts of a request that matter here.
struct Request {
    verb: String,
    session: String,
    message: Value,
}

impl Request {
    fn read(stream: &mut TcpStream) -> io::Result<Self> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let header = |name: &str| {
            let line = head.lines().find(|line| line.starts_with(name));
            line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
                .unwrap_or_default()
        };
        let length = header("content-length:").parse().unwrap_or(0);
        let mut body = vec![0; BODY_BYTES.min(length)];
        stream.read_exact(&mut body)?;
        Ok(Self {
            verb: head.split(' ').next().unwrap_or("").to_uppercase(),
            session: header("mcp-session-id:"),
            message: serde_json::from_slice(&body).unwrap_or_default(),
        })
    }
}
