//! A minimal client of streamable HTTP. It accepts every form of an answer: JSON or events, with a length or in chunks.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The address of a server.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub address: SocketAddr,
    pub path: String,
}

#[derive(Clone, Debug)]
pub struct Session {
    name: String,
    version: String,
}

impl Session {
    /// The session as one word, for another process.
    pub fn told(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    /// Parses the word that `told` makes.
    pub fn heard(told: &str) -> Option<Self> {
        let (name, version) = told.split_once(' ')?;
        Some(Self {
            name: name.into(),
            version: version.into(),
        })
    }
}

/// One connection that is kept alive.
pub struct Connection {
    endpoint: Endpoint,
    reader: BufReader<TcpStream>,
    closes: bool,
}

pub struct Answer {
    pub status: u16,
    session: Option<String>,
    /// The message in its body.
    body: Vec<u8>,
}

impl Connection {
    pub fn to(endpoint: &Endpoint) -> io::Result<Self> {
        Ok(Self {
            endpoint: endpoint.clone(),
            reader: connect(endpoint.address)?,
            closes: false,
        })
    }

    /// Connects again.
    pub fn renew(&mut self) -> io::Result<()> {
        self.reader = connect(self.endpoint.address)?;
        self.closes = false;
        Ok(())
    }

    /// Asks for a session.
    pub fn greet(&mut self) -> io::Result<Session> {
        let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
        self.post(None, body)?;
        let answer = self.answer()?;
        let said: Value = serde_json::from_slice(answer.result()?)?;
        Ok(Session {
            name: answer
                .session
                .ok_or_else(|| io::Error::other("no session"))?,
            version: said["result"]["protocolVersion"]
                .as_str()
                .ok_or_else(|| io::Error::other("no protocol version"))?
                .into(),
        })
    }

    /// Opens a session: asks for it, and confirms it.
    pub fn open(&mut self) -> io::Result<Session> {
        let session = self.greet()?;
        self.post(
            Some(&session),
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        )?;
        let status = self.answer()?.status;
        if status != 202 {
            return Err(io::Error::other(format!("initialized: status {status}")));
        }
        Ok(session)
    }

    /// Ends a session.
    pub fn delete(&mut self, session: &Session) -> io::Result<()> {
        let head = self.head("DELETE", &headers(session));
        self.send(head.as_bytes())?;
        self.answer()?.good().map(drop)
    }

    /// Gets the page.
    pub fn page(&mut self) -> io::Result<String> {
        let head = self.head("GET", "");
        self.send(head.as_bytes())?;
        let answer = self.answer()?;
        Ok(String::from_utf8_lossy(answer.good()?).into_owned())
    }

    /// Sends a message.
    pub fn post(&mut self, session: Option<&Session>, body: &str) -> io::Result<()> {
        let more = session.map_or(String::new(), headers);
        let head = self.head(
            "POST",
            &format!(
                "content-type: application/json\r\naccept: application/json, text/event-stream\r\n{more}content-length: {}\r\n",
                body.len()
            ),
        );
        self.send((head + body).as_bytes())
    }

    /// Opens the GET stream. Does not wait for the head of the answer.
    pub fn listen(&mut self, session: &Session) -> io::Result<()> {
        let more = headers(session);
        let head = self.head("GET", &format!("accept: text/event-stream\r\n{more}"));
        self.send(head.as_bytes())
    }

    /// The next whole answer.
    pub fn answer(&mut self) -> io::Result<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.reader.read_line(&mut head)? == 0 {
                return Err(io::Error::other("the connection was closed"));
            }
        }
        let status = head.get(9..12).and_then(|digits| digits.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(head.clone()))?;
        let body = if field(&head, "transfer-encoding").is_some_and(|how| how == "chunked") {
            self.chunks()?
        } else {
            let length = field(&head, "content-length").and_then(|text| text.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            self.reader.read_exact(&mut body)?;
            body
        };
        let events =
            field(&head, "content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        self.closes = field(&head, "connection").is_some_and(|how| how == "close");
        Ok(Answer {
            status,
            session: field(&head, "mcp-session-id").map(String::from),
            body: if events { last_event(&body) } else { body },
        })
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut size = String::new();
            self.reader.read_line(&mut size)?;
            let digits = size.trim_end().split(';').next().unwrap_or("");
            let size = usize::from_str_radix(digits, 16).map_err(io::Error::other)?;
            let start = body.len();
            body.resize(start + size + 2, 0);
            self.reader.read_exact(&mut body[start..])?;
            body.truncate(start + size);
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn head(&self, verb: &str, headers: &str) -> String {
        let Endpoint { address, path } = &self.endpoint;
        format!("{verb} {path} HTTP/1.1\r\nhost: {address}\r\n{headers}\r\n")
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.closes {
            self.renew()?;
        }
        self.reader.get_mut().write_all(bytes)
    }
}

impl Answer {
    /// The message, if it is a result.
    pub fn result(&self) -> io::Result<&[u8]> {
        self.if_so(is_result(&self.body))
    }

    /// The body, if the status is a success.
    pub fn good(&self) -> io::Result<&[u8]> {
        self.if_so(true)
    }

    fn if_so(&self, so: bool) -> io::Result<&[u8]> {
        if self.status == 200 && so {
            return Ok(&self.body);
        }
        Err(io::Error::other(format!(
            "status {}: {}",
            self.status,
            String::from_utf8_lossy(&self.body)
        )))
    }
}

/// A call of this tool of 200 bytes (a few more for a longer name) that asks for an answer of the same size.
pub fn call(tool: &str, id: usize) -> String {
    let mut body = format!(
        r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"size":200,"pad":""#,
        1_000_000 + id
    );
    let pad = 200usize.saturating_sub(body.len() + 4);
    body.extend(std::iter::repeat_n('x', pad));
    body.push_str("\"}}}");
    body
}

/// Whether it is an answer with a result.
pub fn is_result(message: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Shape {
        #[serde(rename = "result")]
        _result: serde::de::IgnoredAny,
    }
    serde_json::from_slice::<Shape>(message).is_ok()
}

fn connect(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::with_capacity(64 * 1024, socket))
}

fn headers(session: &Session) -> String {
    let Session { name, version } = session;
    format!("mcp-session-id: {name}\r\nmcp-protocol-version: {version}\r\n")
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The data of the last event that has any.
fn last_event(body: &[u8]) -> Vec<u8> {
    let lines = body.split(|&byte| byte == b'\n');
    let said = lines.filter_map(|line| line.strip_prefix(b"data:"));
    said.map(<[u8]>::trim_ascii)
        .rfind(|data| !data.is_empty())
        .unwrap_or_default()
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_200_bytes() {
        for tool in ["fill", "s/fill"] {
            assert_eq!(call(tool, 7).len(), 200);
            assert!(serde_json::from_str::<Value>(&call(tool, 7)).is_ok());
        }
    }

    #[test]
    fn the_last_event_with_data_counts() {
        let body = b"id: 1\ndata:\n\nevent: message\r\ndata: {\"result\":{}}\r\n\r\n: ping\n\n";
        assert_eq!(last_event(body), br#"{"result":{}}"#);
        assert!(is_result(&last_event(body)));
        assert!(!is_result(br#"{"error":{}}"#));
    }

    #[test]
    fn names_of_headers_have_any_case() {
        assert_eq!(
            field(
                "HTTP/1.1 200 OK\r\nMcp-Session-Id:  a:b\r\n\r\n",
                "mcp-session-id"
            ),
            Some("a:b")
        );
    }
}
