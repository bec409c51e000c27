//! As much of HTTP/1.1 as the server needs.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::Sent;

/// The longest body.
const BODY_BYTES: usize = 64 << 20;

/// The next request, if one comes.
pub(super) fn read(stream: &mut &TcpStream) -> io::Result<Option<Sent>> {
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

/// Writes a whole answer. The connection goes on.
pub(super) fn reply(
    mut stream: &TcpStream,
    status: u16,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<bool> {
    let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    Ok(true)
}

/// The head of a stream.
pub(super) fn begin_events(mut stream: &TcpStream, session: Option<&str>) -> io::Result<()> {
    let session = session.map_or_else(String::new, |id| format!("mcp-session-id: {id}\r\n"));
    stream.write_all(
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n{session}\r\n")
            .as_bytes(),
    )
}

/// Writes a chunk of a stream. An empty one ends it.
pub(super) fn chunk(mut stream: &TcpStream, piece: &str) -> io::Result<()> {
    stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes())
}
