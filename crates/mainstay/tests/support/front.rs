//! Shared by the tests of `serve`: a front with unruly servers behind it, and a small HTTP client that sees every byte.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use mainstay_testkit::built::under_test;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::{HANG_STOP, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The protocol version of the modern era.
pub const MODERN: &str = "2026-07-28";

/// The command under test.
pub fn mainstay() -> std::path::PathBuf {
    under_test(env!("CARGO_BIN_EXE_mainstay"))
}

/// A running `mainstay serve`. It ends first, then the stage counts the processes that are left.
pub struct Front {
    child: Child,
    /// The address on which it listens.
    pub address: SocketAddr,
    /// The URL paths of its servers.
    pub paths: Vec<String>,
    pub stage: Stage,
}

impl Front {
    /// Starts a front for an unruly server with these options.
    pub fn start(options: &[&str], habits: &[&str]) -> Self {
        let stage = Stage::new();
        let mut words: Vec<OsString> = vec!["--name".into(), "unruly".into()];
        words.extend(options.iter().map(OsString::from));
        words.push("--".into());
        words.extend(stage.unruly(habits));
        Self::on(stage, &words)
    }

    /// Starts a front on an existing stage, with these words after `serve --listen … --json`.
    pub fn on(stage: Stage, words: &[OsString]) -> Self {
        Self::at("127.0.0.1:0", stage, words)
    }

    /// Starts a front that listens on this address.
    pub fn at(listen: &str, stage: Stage, words: &[OsString]) -> Self {
        let mut command = stage.command(mainstay());
        command
            .args(["serve", "--listen", listen, "--json"])
            .args(words);
        Self::by(stage, command)
    }

    /// Starts a front by this command, which prints its address as JSON.
    pub fn by(stage: Stage, mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(stage.path("stderr.log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let told: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("{}", stage.story()));
        let address = told["listen"].as_str().unwrap().parse().unwrap();
        let each = told["endpoints"].as_array().unwrap().iter();
        let base = format!("http://{address}");
        let paths = each.map(|one| {
            one["url"]
                .as_str()
                .unwrap()
                .strip_prefix(&base)
                .unwrap()
                .to_owned()
        });
        Self {
            address,
            paths: paths.collect(),
            child,
            stage,
        }
    }

    /// Starts another front on the stage of one that has ended.
    pub fn again(mut self, words: &[OsString]) -> Self {
        let stage = std::mem::replace(&mut self.stage, Stage::new());
        Self::on(stage, words)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Makes it read a config file with these limits. A test sets a short limit only when it is ready for it, so that a slow
    /// machine does not exceed it by accident. Limits that were given as options stay as they are.
    pub fn limit(&self, limits: &str) {
        let directory = self.stage.path(".config/mainstay");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(
            directory.join("config.toml"),
            format!("[serve]\n{limits}\n"),
        )
        .unwrap();
        let read = || self.stderr().matches("the config file was read").count();
        let before = read();
        self.signal(Signal::HUP);
        until("it has read its config file", || {
            (read() > before).then_some(())
        });
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Ends it with SIGTERM and asserts that no process is left.
    pub fn finish(self) {
        self.signal(Signal::TERM);
        self.finish_stopped();
    }

    /// Waits for the end of a front that was told to end, and asserts that no process is left.
    pub fn finish_stopped(mut self) {
        let status = self.wait();
        assert!(status.success(), "{status}");
        self.stage.census.assert_empty();
    }

    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.stage.path("stderr.log")).unwrap()
    }

    /// A new connection.
    pub fn connect(&self) -> Connection {
        self.speak(TcpStream::connect(self.address).unwrap())
    }

    /// A new connection to a front of which only the address is known.
    pub fn connection_to(address: SocketAddr, path: &str) -> Connection {
        Connection::over(TcpStream::connect(address).unwrap(), address, path)
    }

    /// Wraps an existing connection.
    pub fn speak(&self, socket: TcpStream) -> Connection {
        Connection::over(socket, self.address, &self.paths[0])
    }

    /// Gets a page.
    pub fn page(&self, path: &str) -> Answer {
        let mut connection = self.connect();
        connection.path = path.into();
        connection.send("GET", &[], b"");
        connection.answer()
    }

    /// The value of this metric.
    pub fn metric(&self, name: &str) -> u64 {
        let page = self.page("/metrics").text();
        let line = page.lines().find(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(' '))
        });
        let value = line
            .unwrap_or_else(|| panic!("no {name} in\n{page}"))
            .rsplit(' ')
            .next();
        value.unwrap().parse().unwrap()
    }

    /// Waits until this metric has this value.
    pub fn metric_is(&self, name: &str, value: u64) {
        until(&format!("{name} {value}"), || {
            (self.metric(name) == value).then_some(())
        });
    }

    /// Opens a session.
    pub fn session(&self) -> Session<'_> {
        self.session_at(&self.paths[0])
    }

    /// Opens a session at this path.
    pub fn session_at(&self, path: &str) -> Session<'_> {
        let mut connection = self.connect();
        connection.path = path.into();
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        connection.post(&[], &request(0, "initialize", &params));
        let answer = connection.answer();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let id = answer.header("mcp-session-id").unwrap().to_owned();
        let session = Session {
            front: self,
            id,
            path: path.into(),
            opening: answer.last(),
        };
        let answer =
            session.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(answer.status, 202);
        session
    }

    /// Sends a modern request on its own connection. The answer is not read yet.
    pub fn modern(&self, id: &Value, method: &str, params: Value) -> Connection {
        let mut connection = self.connect();
        connection.modern(id, method, params);
        connection
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // After a failed test it still runs. Its servers end with it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A session of the legacy era.
pub struct Session<'f> {
    pub front: &'f Front,
    pub id: String,
    pub path: String,
    pub opening: Value,
}

impl Session<'_> {
    /// A new connection with the session's path.
    pub fn connect(&self) -> Connection {
        let mut connection = self.front.connect();
        connection.path.clone_from(&self.path);
        connection
    }

    /// Sends a request on a connection and adds the session's headers.
    pub fn send(
        &self,
        connection: &mut Connection,
        method: &str,
        more: &[(&str, &str)],
        body: &[u8],
    ) {
        let mut headers = vec![
            ("mcp-session-id", self.id.as_str()),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        headers.extend(more);
        if method == "POST" {
            headers.extend(POSTING);
        } else if method == "GET" {
            headers.push(("accept", "text/event-stream"));
        }
        connection.send(method, &headers, body);
    }

    /// Posts a message on its own connection.
    pub fn post(&self, message: &Value) -> Answer {
        let mut connection = self.asking(message);
        connection.answer()
    }

    /// Posts a message. The answer is not read yet.
    pub fn asking(&self, message: &Value) -> Connection {
        let mut connection = self.connect();
        let body = serde_json::to_vec(message).unwrap();
        self.send(&mut connection, "POST", &[], &body);
        connection
    }

    /// Calls a tool and returns the whole answer.
    pub fn call(&self, id: i64, tool: &str, arguments: &Value) -> Value {
        self.post(&call(id, tool, arguments)).last()
    }

    /// The pid of its server.
    pub fn server(&self) -> i32 {
        let answer = self.call(1_000, "pid", &json!({}));
        answer["result"]["structuredContent"]["pid"]
            .as_i64()
            .unwrap_or_else(|| panic!("{answer}")) as i32
    }

    /// Every line that its server has read since its start.
    pub fn heard(&self) -> Vec<String> {
        let answer = self.call(900, "held", &json!({}));
        let heard = answer["result"]["structuredContent"]["heard"].as_array();
        let heard = heard.unwrap_or_else(|| panic!("{answer}")).iter();
        heard.map(|line| line.as_str().unwrap().into()).collect()
    }

    /// Opens the GET stream, after this event if there is one.
    pub fn news(&self, last: Option<&str>) -> Connection {
        let mut connection = self.connect();
        let last = last.map(|last| ("last-event-id", last));
        self.send(&mut connection, "GET", last.as_slice(), b"");
        connection
    }

    /// Deletes the session.
    pub fn delete(&self) -> Answer {
        let mut connection = self.connect();
        self.send(&mut connection, "DELETE", &[], b"");
        connection.answer()
    }
}

const POSTING: [(&str, &str); 2] = [
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
];

pub struct Connection {
    pub host: String,
    pub path: String,
    reader: BufReader<TcpStream>,
    chunked: bool,
    pending: Vec<u8>,
}

/// An answer with its whole body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// An event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub data: String,
}

impl Connection {
    fn over(socket: TcpStream, host: SocketAddr, path: &str) -> Self {
        socket.set_read_timeout(Some(HANG_STOP)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self {
            host: host.to_string(),
            path: path.into(),
            reader: BufReader::new(socket),
            chunked: false,
            pending: Vec::new(),
        }
    }

    /// Sends a request.
    pub fn send(&mut self, method: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut head = format!("{method} {} HTTP/1.1\r\nhost: {}\r\n", self.path, self.host);
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        write!(head, "content-length: {}\r\n\r\n", body.len()).unwrap();
        self.raw(head.as_bytes());
        self.raw(body);
    }

    /// Sends bytes as they are. If the peer does not read them, its answer shows that.
    pub fn raw(&mut self, bytes: &[u8]) {
        drop(self.reader.get_ref().write_all(bytes));
    }

    /// Posts a message.
    pub fn post(&mut self, more: &[(&str, &str)], message: &Value) {
        let mut headers = POSTING.to_vec();
        headers.extend(more);
        self.send("POST", &headers, &serde_json::to_vec(message).unwrap());
    }

    /// Posts a modern request with the headers that belong to it.
    pub fn modern(&mut self, id: &Value, method: &str, mut params: Value) {
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let name = params["name"].as_str().unwrap_or("").to_owned();
        let mut headers = vec![("mcp-protocol-version", MODERN), ("mcp-method", method)];
        if !name.is_empty() {
            headers.push(("mcp-name", &name));
        }
        self.post(
            &headers,
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}),
        );
    }

    /// Reads status and headers.
    pub fn head(&mut self) -> Answer {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        let status = line
            .split(' ')
            .nth(1)
            .unwrap_or_else(|| panic!("no status: {line:?}"));
        let mut answer = Answer {
            status: status.parse().unwrap(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim().split_once(':') else {
                break;
            };
            answer
                .headers
                .push((name.to_lowercase(), value.trim().into()));
        }
        self.chunked = answer.header("transfer-encoding") == Some("chunked");
        answer
    }

    /// Reads a whole answer.
    pub fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        if self.chunked {
            while let Some(chunk) = self.chunk() {
                answer.body.extend(chunk);
            }
        } else if let Some(length) = answer.header("content-length") {
            answer.body = vec![0; length.parse().unwrap()];
            self.reader.read_exact(&mut answer.body).unwrap();
        }
        answer
    }

    /// The next event, or none at the end of the stream. Skips comments.
    pub fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = find(&self.pending, b"\n\n") {
                let block: Vec<u8> = self.pending.drain(..end + 2).collect();
                if let Some(event) = event(std::str::from_utf8(&block).unwrap()) {
                    return Some(event);
                }
            } else {
                let chunk = self.chunk()?;
                self.pending.extend(chunk);
            }
        }
    }

    /// The next message of a stream.
    pub fn message(&mut self) -> Value {
        loop {
            let event = self.event().expect("the stream goes on");
            if !event.data.is_empty() {
                return serde_json::from_str(&event.data).unwrap();
            }
        }
    }

    /// Waits until the other side has closed, and says whether it did.
    pub fn closed(&mut self) -> bool {
        matches!(self.reader.read(&mut [0; 1]), Ok(0) | Err(_))
    }

    /// Closes it as a dying process does.
    pub fn drop_it(self) {
        drop(self.reader.get_ref().shutdown(Shutdown::Both));
    }

    fn chunk(&mut self) -> Option<Vec<u8>> {
        let read = |reader: &mut BufReader<TcpStream>| -> io::Result<Vec<u8>> {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let length = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            let mut chunk = vec![0; length + 2];
            reader.read_exact(&mut chunk)?;
            chunk.truncate(length);
            Ok(chunk)
        };
        read(&mut self.reader)
            .ok()
            .filter(|chunk| !chunk.is_empty())
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(held, _)| held == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The one message of a JSON answer.
    pub fn message(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("{}: {}", self.status, self.text()))
    }

    /// The last message, whether it came as JSON or as events.
    pub fn last(&self) -> Value {
        if self.header("content-type") == Some("text/event-stream") {
            let text = self.text();
            let last = text
                .split("\n\n")
                .filter_map(event)
                .filter(|event| !event.data.is_empty())
                .last();
            return serde_json::from_str(&last.unwrap().data).unwrap();
        }
        self.message()
    }

    /// The code of a JSON-RPC error.
    pub fn code(&self) -> i64 {
        self.message()["error"]["code"].as_i64().unwrap()
    }
}

fn event(block: &str) -> Option<Event> {
    let mut found = Event::default();
    let mut any = false;
    for line in block.lines() {
        if let Some(data) = line.strip_prefix("data:") {
            found.data.push_str(data.trim());
            any = true;
        } else if let Some(id) = line.strip_prefix("id:") {
            found.id = Some(id.trim().into());
            any = true;
        }
    }
    any.then_some(found)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Writes a file that only we can read, as required for a token.
pub fn secret_file(path: &std::path::Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

pub fn request(id: i64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub fn call(id: i64, tool: &str, arguments: &Value) -> Value {
    request(
        id,
        "tools/call",
        &json!({"name": tool, "arguments": arguments}),
    )
}

/// Waits until a process is gone.
pub fn gone(pid: i32) {
    until(&format!("pid {pid} is gone"), || {
        mainstay_os::census::stat(pid).is_err().then_some(())
    });
}

pub fn alive(pid: i32) -> bool {
    mainstay_os::census::stat(pid).is_ok_and(|stat| stat.state != b'Z')
}
