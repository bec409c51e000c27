//! One opening of one server, through `mainstay run`: the handshake of a client, its lists, and nothing else.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use mainstay_clients::behaviour::Opens;
use mainstay_os::clock;
use mainstay_os::identity::{self, Handle};
use mainstay_protocol::clock::Moment;
use mainstay_protocol::ids::TAG_VARIABLE;
use mainstay_protocol::lease::LEASE_VARIABLE;
use mainstay_protocol::limits::{HELD_LINE_BYTES, Unit};
use mainstay_protocol::message::lines::{Line, Lines};
use mainstay_protocol::message::remembered::learning_line;
use mainstay_report::plain;
use mainstay_store::config::quantity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

/// The version of the modern era that is asked for.
const MODERN: &str = "2026-07-28";
/// How long a server and its keeper have to end: the stop ladder, and some more.
const END_MS: u64 = 20_000;
/// How much of a server's stderr is kept, for a server that says there why it fails.
const STDERR_BYTES_MAX: usize = 8 * 1024;

/// How a server is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The words after `mainstay run`.
    pub words: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, OsString>,
    /// Its directory; none is ours.
    pub cwd: Option<PathBuf>,
    /// The handshake.
    pub opens: Opens,
}

/// What a server said.
#[derive(Clone, Debug)]
pub struct Learned {
    /// From its start to its answer to the opening.
    pub opened_ms: u64,
    /// How many tools it has; none if it has no list of tools.
    pub tools: Option<usize>,
    pub modern: bool,
    pub protocol: Option<String>,
}

/// Why a server was not opened.
#[derive(Debug)]
pub struct NotOpened {
    trouble: Trouble,
    /// The last line that the server wrote to stderr.
    said: Option<String>,
}

/// What went wrong in the opening of a server.
#[derive(Debug)]
enum Trouble {
    /// `mainstay run` cannot be started.
    Start(io::Error),
    NoPipes,
    ClosedInput,
    /// The process ended before it answered.
    Ended,
    /// There was no answer in time.
    Silent {
        limit_ms: u64,
    },
    /// The server answered the opening with an error, which may have a message.
    Refused(Option<String>),
    /// The server answered, but its process did not end with the session.
    StillRuns,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "cannot be started: {}", plain(error)),
            Self::NoPipes => f.write_str("it was started without pipes"),
            Self::ClosedInput => f.write_str("it has closed its input"),
            Self::Ended => f.write_str("it ended before it answered"),
            Self::Silent { limit_ms } => {
                write!(
                    f,
                    "no answer within {}",
                    quantity::show(Unit::Time, *limit_ms)
                )
            }
            Self::Refused(Some(message)) => f.write_str(message),
            Self::Refused(None) => f.write_str("it refuses the opening"),
            Self::StillRuns => f.write_str("it was opened, but has not ended since"),
        }
    }
}

impl From<Trouble> for NotOpened {
    fn from(trouble: Trouble) -> Self {
        Self {
            trouble,
            said: None,
        }
    }
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.trouble.fmt(f)?;
        match &self.said {
            Some(said) => write!(f, "; it says: {said}"),
            None => Ok(()),
        }
    }
}

impl Error for NotOpened {}

/// Opens a server, asks for its lists, and waits until it has ended. The error says why it did not open.
pub fn learn(opening: &Opening, limit_ms: u64) -> Result<Learned, NotOpened> {
    let began = clock::now();
    let limit = began.after_ms(limit_ms);
    let mut child = start(opening).map_err(Trouble::Start)?;
    let mut wire = Wire::of(&mut child, limit, limit_ms)?;
    let learned = converse(&mut wire, opening.opens, began);
    let said = wire.close();
    // What was learned is written when the session ends.
    let ended = wait(&mut child);
    match (learned, ended) {
        (Ok(learned), true) => Ok(learned),
        (Ok(_), false) => Err(Trouble::StillRuns.into()),
        (Err(trouble), _) => {
            let last = said.lines().rfind(|line| !line.trim().is_empty());
            let said = last.map(|last| last.trim().into());
            Err(NotOpened { trouble, said })
        }
    }
}

fn start(opening: &Opening) -> io::Result<Child> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the mainstay program itself, which starts the server"
    )]
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["run", "--learn"])
        .args(&opening.words)
        .env_clear()
        .envs(&opening.env)
        .env_remove(TAG_VARIABLE)
        .env_remove(LEASE_VARIABLE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(cwd) = &opening.cwd {
        command.current_dir(cwd);
    }
    command.spawn()
}

fn converse(wire: &mut Wire, opens: Opens, began: Moment) -> Result<Learned, Trouble> {
    let opened_ms = || clock::now().ms_since(began);
    if opens.discovers {
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": MODERN });
        let answer = wire.ask("server/discover", &json!({ "_meta": meta }))?;
        if answer.get("result").is_some() {
            let opened_ms = opened_ms();
            let tools = wire.ask("tools/list", &json!({ "_meta": meta }))?;
            return Ok(Learned {
                opened_ms,
                tools: count(&tools),
                modern: true,
                protocol: Some(MODERN.into()),
            });
        }
    }
    let answer = wire.open(opens.version)?;
    let Some(result) = answer.get("result") else {
        let message = answer.pointer("/error/message").and_then(Value::as_str);
        return Err(Trouble::Refused(message.map(Into::into)));
    };
    let opened_ms = opened_ms();
    let protocol = result.get("protocolVersion").and_then(Value::as_str);
    let mut learned = Learned {
        opened_ms,
        tools: None,
        modern: false,
        protocol: protocol.map(Into::into),
    };
    let has = |sort: &str| result.pointer(&format!("/capabilities/{sort}")).is_some();
    let sorts = ["tools", "prompts", "resources"].map(|sort| (sort, has(sort)));
    wire.tell("notifications/initialized")?;
    for (sort, has) in sorts {
        // Every client asks for tools; most ask for the other lists only where the server has them.
        if has || sort == "tools" || opens.asks_for_all_lists {
            let list = wire.ask(&format!("{sort}/list"), &json!({}))?;
            if sort == "tools" {
                learned.tools = count(&list);
            }
        }
    }
    Ok(learned)
}

fn count(answer: &Value) -> Option<usize> {
    Some(answer.pointer("/result/tools")?.as_array()?.len())
}

/// Waits until the process has ended; false if it does not.
fn wait(child: &mut Child) -> bool {
    let handle = identity::of(child.id() as i32).and_then(Handle::open);
    if let Ok(handle) = &handle {
        ready(&[handle.as_fd()], clock::now().after_ms(END_MS));
    }
    if matches!(child.try_wait(), Ok(Some(_))) {
        return true;
    }
    // Its guard ends the server's tree once this process is gone.
    child.kill().ok();
    child.wait().ok();
    false
}

/// The pipes of one server.
struct Wire {
    to: Option<ChildStdin>,
    from: ChildStdout,
    errors: Option<ChildStderr>,
    said: Vec<u8>,
    lines: Lines,
    next_id: u64,
    limit: Moment,
    limit_ms: u64,
}

impl Wire {
    fn of(child: &mut Child, limit: Moment, limit_ms: u64) -> Result<Self, Trouble> {
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(to), Some(from), errors) = pipes else {
            return Err(Trouble::NoPipes);
        };
        Ok(Self {
            to: Some(to),
            from,
            errors,
            said: Vec::new(),
            lines: Lines::new(HELD_LINE_BYTES),
            next_id: 1,
            limit,
            limit_ms,
        })
    }

    /// The `initialize` of `learn`, and its answer.
    fn open(&mut self, version: &str) -> Result<Value, Trouble> {
        let id = self.id();
        self.send(&learning_line(id.to_string().as_bytes(), version))?;
        self.answer(id)
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value, Trouble> {
        let id = self.id();
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(format!("{line}\n").as_bytes())?;
        self.answer(id)
    }

    fn tell(&mut self, method: &str) -> Result<(), Trouble> {
        let line = json!({ "jsonrpc": "2.0", "method": method });
        self.send(format!("{line}\n").as_bytes())
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    fn send(&mut self, line: &[u8]) -> Result<(), Trouble> {
        let to = self.to.as_mut().ok_or(Trouble::ClosedInput)?;
        to.write_all(line).map_err(|_| Trouble::ClosedInput)
    }

    /// Waits for the answer to a request. What the server asks or tells meanwhile is not for us.
    fn answer(&mut self, id: u64) -> Result<Value, Trouble> {
        loop {
            let errors = self.errors.as_ref().map(AsFd::as_fd);
            let all: Vec<_> = std::iter::once(self.from.as_fd()).chain(errors).collect();
            let is_ready = ready(&all, self.limit);
            if is_ready.get(1) == Some(&true) {
                self.read_errors();
            }
            if is_ready.first() != Some(&true) {
                if clock::now() >= self.limit {
                    return Err(Trouble::Silent {
                        limit_ms: self.limit_ms,
                    });
                }
                continue;
            }
            let mut buffer = [0u8; 16 * 1024];
            let length = self.from.read(&mut buffer).unwrap_or(0);
            if length == 0 {
                return Err(Trouble::Ended);
            }
            let mut piece = &buffer[..length];
            let mut found = None;
            while let Some(line) = self.lines.next(&mut piece) {
                let Line::Whole(line) = line else { continue };
                let message: Value = serde_json::from_slice(&line).unwrap_or_default();
                let is_answer = message.get("method").is_none();
                if is_answer && message.get("id").and_then(Value::as_u64) == Some(id) {
                    found = Some(message);
                }
            }
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    /// Reads once. At its end the stream is closed, so that it is not ready for ever.
    fn read_errors(&mut self) {
        let mut buffer = [0u8; 4096];
        let length = match &mut self.errors {
            Some(errors) => errors.read(&mut buffer).unwrap_or(0),
            None => 0,
        };
        if length == 0 {
            self.errors = None;
        }
        self.said.extend_from_slice(&buffer[..length]);
        let extra = self.said.len().saturating_sub(STDERR_BYTES_MAX);
        self.said.drain(..extra);
    }

    /// Ends the session; what the server said on stderr.
    fn close(mut self) -> String {
        self.to = None;
        String::from_utf8_lossy(&self.said).into_owned()
    }
}

/// Waits until one of these can be read or is closed, or the time has come; which of them are.
fn ready(fds: &[std::os::fd::BorrowedFd<'_>], until: Moment) -> Vec<bool> {
    loop {
        let mut polled: Vec<PollFd<'_>> = fds
            .iter()
            .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        let left = until - clock::now();
        let time = Timespec {
            tv_sec: (left / 1_000_000_000) as i64,
            tv_nsec: (left % 1_000_000_000) as i64,
        };
        match poll(&mut polled, Some(&time)) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => {
                return polled.iter().map(|fd| !fd.revents().is_empty()).collect();
            }
        }
    }
}
