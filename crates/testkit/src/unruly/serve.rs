//! The server's loop: lines in, answers out, and delayed answers.
//!
//! One thread. A call that sleeps does not delay the others. At EOF the delayed answers are sent first.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use mainstay_os::clock;
use mainstay_protocol::clock::Moment;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, getpid, kill_process};
use rustix::stdio::{stdin, stdout};
use serde_json::{Value, json};

use super::hold::Hold;
use super::linger;
use super::tools::{self, Outcome};
use crate::fork::leave;
use crate::unruly::Flags;
use crate::wait::{poll_for, span};

/// Serves until EOF (or for ever, if the flags say so).
pub fn serve(flags: &Flags) -> io::Result<()> {
    let record = flags.record.as_ref().map(File::create).transpose()?;
    Server {
        flags,
        record,
        due: Vec::new(),
        heard: false,
        calls: 0,
        counted: Counted::default(),
        hold: Hold::default(),
        mute: false,
        opening: None,
    }
    .run()
}

struct Server<'a> {
    flags: &'a Flags,
    record: Option<File>,
    /// Answers that are sent later.
    due: Vec<(Moment, Value)>,
    heard: bool,
    calls: u64,
    counted: Counted,
    hold: Hold,
    /// True after the call from which on it answers nothing.
    mute: bool,
    /// The opening that waits for the client's answer: its id and its parameters.
    opening: Option<(Value, Value)>,
}

/// How many numbered notifications came, and whether each was in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// How many.
    pub count: u64,
    /// How many came out of order.
    pub out_of_order: u64,
}

impl Server<'_> {
    fn run(&mut self) -> io::Result<()> {
        let mut unread = Vec::new();
        let mut chunk = vec![0u8; 64 * 1024];
        loop {
            self.close_due()?;
            if !self.wait_input() {
                continue;
            }
            let n = rustix::io::read(stdin(), &mut chunk)?;
            if n == 0 {
                break;
            }
            if let Some(record) = &mut self.record {
                record.write_all(&chunk[..n])?;
            }
            self.take(&mut unread, &chunk[..n])?;
        }
        if !unread.is_empty() {
            self.line(&unread)?;
        }
        while !self.due.is_empty() {
            poll_for(&mut [], span(self.until_due()));
            self.close_due()?;
        }
        if self.flags.ignore_eof {
            linger();
        }
        Ok(())
    }

    fn take(&mut self, unread: &mut Vec<u8>, chunk: &[u8]) -> io::Result<()> {
        let mut rest = chunk;
        while let Some(at) = rest.iter().position(|&b| b == b'\n') {
            unread.extend_from_slice(&rest[..at]);
            rest = &rest[at + 1..];
            let line = std::mem::take(unread);
            self.line(&line)?;
        }
        unread.extend_from_slice(rest);
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if !self.heard {
            self.heard = true;
            if let Some(file) = &self.flags.replay {
                write(&std::fs::read(file)?)?;
            }
        }
        if let Some(number) = tools::numbered(line) {
            self.counted.out_of_order += u64::from(number != self.counted.count);
            self.counted.count += 1;
            return Ok(());
        }
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            return Ok(());
        };
        self.hold.hear(line);
        if let Value::Array(batch) = message {
            batch.iter().try_for_each(|one| self.message(one))
        } else {
            self.message(&message)
        }
    }

    fn message(&mut self, message: &Value) -> io::Result<()> {
        let none = Value::Null;
        let params = message.get("params").unwrap_or(&none);
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            if let Some((id, params)) = self.opening.take() {
                let result = opening(self.flags, &params);
                self.hold.answered(message);
                return self.answer(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
            }
            return match self.hold.answered(message) {
                Some(call) => self.content(&call, &json!({"said": message})),
                None => Ok(()),
            };
        };
        let tool = params.get("name").and_then(Value::as_str);
        if [Some(method), tool].iter().flatten().any(|word| {
            let mut deadly = self.flags.dies_of.iter();
            deadly.any(|deadly| deadly == word)
        }) {
            leave(i32::from(self.flags.exit_code.unwrap_or(1)));
        }
        if method == "notifications/cancelled" {
            self.hold.cancelled(params);
        }
        match message.get("id") {
            Some(id) if !self.flags.silent && (!self.mute || method == SYNC) => {
                self.request(id, method, params)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn request(&mut self, id: &Value, method: &str, params: &Value) -> io::Result<()> {
        let flags = self.flags;
        let unknown =
            || Err(json!({"code": -32601, "message": format!("method not found: {method}")}));
        let result = match method {
            _ if flags.refuses.iter().any(|refused| refused == method) => {
                Err(json!({"code": -32602, "message": format!("refused: {method}")}))
            }
            "initialize" if flags.modern => Err(json!({
                "code": -32022,
                "message": "Unsupported protocol version",
                "data": {"supported": [MODERN]},
            })),
            "initialize" if flags.asks_first => {
                self.opening = Some((id.clone(), params.clone()));
                let question = self.hold.ask("ping", &json!({}), None);
                return self.answer(&question);
            }
            "initialize" => Ok(opening(flags, params)),
            "server/discover" if flags.modern => Ok(json!({
                "supportedVersions": [MODERN],
                "capabilities": capabilities(flags),
                "ttlMs": 0,
                "cacheScope": "private",
            })),
            "subscriptions/listen" if flags.modern => {
                let granted = self.hold.listen(id, params, flags.grants.as_deref());
                return self.answer(&granted);
            }
            "ping" if !flags.modern => Ok(json!({})),
            "tools/list" => Ok(json!({"tools": tools::list(flags)})),
            "prompts/list" => Ok(json!({"prompts": tools::prompts(flags)})),
            "resources/list" => Ok(json!({"resources": []})),
            "resources/read" => Ok(json!({"contents": [{
                "uri": params.get("uri"),
                "text": format!("generation {}", flags.generation),
            }]})),
            "logging/setLevel" => Ok(self.hold.set_level(params)),
            "resources/subscribe" => Ok(self.hold.subscribe(params)),
            "resources/unsubscribe" => Ok(self.hold.unsubscribe(params)),
            "tools/call" => return self.call(id, params),
            _ => unknown(),
        };
        self.answer(&match result {
            Ok(mut result) => {
                if let (true, Some(result)) = (flags.modern, result.as_object_mut()) {
                    result.insert("resultType".into(), "complete".into());
                }
                json!({"jsonrpc": "2.0", "id": id, "result": result})
            }
            Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
        })?;
        if self.flags.deaf {
            linger();
        }
        Ok(())
    }

    fn content(&self, id: &Value, content: &Value) -> io::Result<()> {
        self.answer(&said(id, content))
    }

    fn call(&mut self, id: &Value, params: &Value) -> io::Result<()> {
        self.calls += 1;
        if self.flags.die_mid_line {
            write(
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"te"#).as_bytes(),
            )?;
            kill_process(getpid(), Signal::KILL)?;
        }
        match tools::call(self.flags, params, self.calls, self.counted)? {
            Outcome::Now(content) => self.content(id, &content),
            Outcome::After(time, content) => {
                let at = clock::now().after_ms(time.as_millis() as u64);
                self.due.push((at, said(id, &content)));
                Ok(())
            }
            Outcome::Wake => {
                let now = clock::now();
                self.due.iter_mut().for_each(|(at, _)| *at = now);
                self.content(id, &json!({"woken": self.due.len()}))
            }
            Outcome::Notify(count) => {
                let mut lines = String::new();
                for number in 0..count {
                    lines.push_str(&tools::notification(number));
                    if lines.len() > 32 * 1024 {
                        write(lines.as_bytes())?;
                        lines.clear();
                    }
                }
                write(lines.as_bytes())?;
                self.content(id, &json!({"done": true}))
            }
            Outcome::Big(bytes, die_after) => big(id, bytes, die_after),
            Outcome::BigIdLast(bytes) => big_id_last(id, bytes),
            Outcome::HangUp(end) => {
                self.content(id, &json!({"without": end}))?;
                let null = OwnedFd::from(File::open("/dev/null")?);
                match end.as_str() {
                    "stdin" => rustix::stdio::dup2_stdin(&null)?,
                    _ => rustix::stdio::dup2_stdout(&null)?,
                }
                linger()
            }
            Outcome::Mute => {
                self.content(id, &json!({"mute": true}))?;
                self.mute = true;
                Ok(())
            }
            Outcome::Held => self.content(id, &self.hold.all(self.flags.generation)),
            Outcome::Ask { method, wait } => {
                let waits = wait.then(|| id.clone());
                let question = self.hold.ask(&method, &json!({}), waits);
                self.answer(&question)?;
                if wait {
                    Ok(())
                } else {
                    self.content(id, &json!({"asked": question["id"]}))
                }
            }
            Outcome::News(method) => {
                let mut all = self.hold.news(&method);
                if !self.flags.modern {
                    all.push(json!({"jsonrpc": "2.0", "method": method}));
                }
                all.iter().try_for_each(|one| self.answer(one))?;
                self.content(id, &json!({"told": all.len()}))
            }
            Outcome::Steps { count, die_after } => {
                let token = params.pointer("/_meta/progressToken");
                for step in 1..=count {
                    self.answer(&json!({
                        "jsonrpc": "2.0",
                        "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": step, "total": count},
                    }))?;
                    if die_after == Some(step) && self.flags.generation <= 1 {
                        kill_process(getpid(), Signal::KILL)?;
                    }
                }
                self.content(id, &json!({"steps": count}))
            }
            Outcome::Unknown(what) => self.answer(&json!({"jsonrpc": "2.0", "id": id, "result": {
                "content": [{"type": "text", "text": what}], "isError": true,
            }})),
        }
    }

    fn answer(&self, message: &Value) -> io::Result<()> {
        let mut line = String::new();
        if self.flags.junk_lines {
            line.push_str("npm warn deprecated junk@1.0.0: no longer supported\n\n[INFO] server listening on stdio\n");
        }
        line.push_str(&message.to_string());
        line.push('\n');
        write(line.as_bytes())
    }

    fn close_due(&mut self) -> io::Result<()> {
        let now = clock::now();
        self.due.sort_by_key(|&(at, _)| at);
        while self.due.first().is_some_and(|&(at, _)| at <= now) {
            let (_, message) = self.due.remove(0);
            self.answer(&message)?;
        }
        Ok(())
    }

    fn until_due(&self) -> Duration {
        let now = clock::now();
        let next = self.due.iter().map(|&(at, _)| at - now).min();
        Duration::from_nanos(next.unwrap_or(3_600_000_000_000))
    }

    fn wait_input(&self) -> bool {
        let input = stdin();
        let mut fds = [PollFd::new(&input, PollFlags::IN)];
        poll_for(&mut fds, span(self.until_due())) > 0
    }
}

/// The one request that a mute server still answers. Its answer shows that everything before it was read.
const SYNC: &str = "unruly/sync";

const MODERN: &str = "2026-07-28";

fn said(id: &Value, content: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {
        "content": [{"type": "text", "text": content.to_string()}],
        "structuredContent": content,
    }})
}

fn opening(flags: &Flags, params: &Value) -> Value {
    let version = match (&flags.version, params.get("protocolVersion")) {
        (Some(version), _) => json!(version),
        (None, Some(offered)) => offered.clone(),
        (None, None) => json!("2025-11-25"),
    };
    json!({
        "protocolVersion": version,
        "capabilities": capabilities(flags),
        "serverInfo": {"name": "unruly", "version": "1"},
    })
}

fn capabilities(flags: &Flags) -> Value {
    let told = flags.capabilities.as_deref();
    told.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_else(|| json!({"tools": {}}))
}

/// A result of that many bytes, made while it is written, so that a big line needs no big buffer.
fn big(id: &Value, bytes: u64, die_after: Option<u64>) -> io::Result<()> {
    write(
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":""#)
            .as_bytes(),
    )?;
    pad(die_after.unwrap_or(bytes))?;
    if die_after.is_some() {
        kill_process(getpid(), Signal::KILL)?;
    }
    write(b"\"}]}}\n")
}

/// The same with the id last, as TypeScript servers write it.
fn big_id_last(id: &Value, bytes: u64) -> io::Result<()> {
    write(br#"{"result":{"content":[{"type":"text","text":""#)?;
    pad(bytes)?;
    write(format!("\"}}]}},\"jsonrpc\":\"2.0\",\"id\":{id}}}\n").as_bytes())
}

fn pad(bytes: u64) -> io::Result<()> {
    let chunk = vec![b'x'; 64 * 1024];
    let mut left = bytes as usize;
    while left > 0 {
        let part = left.min(chunk.len());
        write(&chunk[..part])?;
        left -= part;
    }
    Ok(())
}

/// Writes everything and waits for a slow reader.
pub fn write(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(stdout(), bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
