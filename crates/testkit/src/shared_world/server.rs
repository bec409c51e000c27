//! A link with a server behind it: it reads lines, works on several requests at once, answers late, twice, with errors or not
//! at all, and says things that belong to no request.

use std::collections::{BTreeSet, VecDeque};

use mainstay_http_core::serve::front::Front;
use mainstay_http_core::serve::server_queue::NextLine;
use serde_json::{Value, json};

use super::Held;
use crate::world::dice::Dice;

const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Legacy,
    /// It refuses to be opened.
    Broken,
    /// It answers nothing.
    Silent,
    Modern,
    /// It speaks both eras.
    Both,
}

pub fn kind(dice: &mut Dice) -> Kind {
    match dice.below(100) {
        0..=39 => Kind::Legacy,
        40..=44 => Kind::Broken,
        45..=47 => Kind::Silent,
        48..=67 => Kind::Modern,
        _ => Kind::Both,
    }
}

/// A request that it works on.
#[derive(Clone, Debug)]
struct Job {
    id: Value,
    token: Option<Value>,
    progress: u64,
    mark: Value,
    result: Value,
    listens: bool,
}

/// A server with its link.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    /// How much longer its progress is.
    pad: usize,
    jobs: Vec<Job>,
    done: Vec<Job>,
    seen: BTreeSet<String>,
    resources: Vec<String>,
    out: VecDeque<u8>,
    /// Bytes that it has taken from the pipe without the pipe having said so.
    taken: usize,
    rung: bool,
    closed: bool,
    asked: u64,
}

impl Server {
    pub fn new(kind: Kind, pad: usize) -> Self {
        Self {
            kind,
            pad,
            jobs: Vec::new(),
            done: Vec::new(),
            seen: BTreeSet::new(),
            resources: Vec::new(),
            out: VecDeque::new(),
            taken: 0,
            rung: true,
            closed: false,
            asked: 0,
        }
    }

    /// There is something to write, or the pipe is to be closed.
    pub fn ring(&mut self) {
        self.rung = true;
    }

    /// The link writes what it has, and the server reads it.
    pub fn read(&mut self, front: &mut Front, link: u64, dice: &mut Dice) -> Held {
        front.written(link, std::mem::take(&mut self.taken));
        if !self.rung {
            return Ok(());
        }
        self.rung = false;
        loop {
            match front.next_line(link) {
                NextLine::Line(line) => {
                    if self.closed {
                        return Err("a line after the end of the pipe".into());
                    }
                    self.taken += line.len();
                    self.hear(&line, dice)?;
                }
                NextLine::Nothing => return Ok(()),
                NextLine::Close => {
                    self.closed = true;
                    return Ok(());
                }
            }
        }
    }

    /// Whether its client is gone, and it has said everything.
    pub fn is_gone(&self) -> bool {
        self.closed && self.out.is_empty()
    }

    pub fn has_bytes(&self) -> bool {
        !self.out.is_empty()
    }

    /// So many bytes of what it said.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let count = count.min(self.out.len());
        self.out.drain(..count).collect()
    }

    fn say(&mut self, line: &Value) {
        self.out.extend(line.to_string().bytes());
        self.out.push_back(b'\n');
    }

    fn hear(&mut self, line: &[u8], dice: &mut Dice) -> Held {
        let text = String::from_utf8_lossy(line).into_owned();
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            return Err(format!("a server gets what is no message: {text}"));
        };
        let params = message.get("params").cloned().unwrap_or_default();
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            return Ok(());
        };
        let Some(id) = message.get("id").cloned() else {
            if method == "notifications/cancelled" && dice.permille(700) {
                let id = &params["requestId"];
                self.jobs.retain(|job| job.id != *id);
            }
            return Ok(());
        };
        // A client with a server of its own may use an id again that it has cancelled.
        let ours = id.as_str().is_some_and(|id| id.starts_with('h'));
        if ours && !self.seen.insert(id.to_string()) {
            return Err(format!("two requests have one id of ours: {text}"));
        }
        self.asked_for(method, id, &params);
        Ok(())
    }

    fn asked_for(&mut self, method: &str, id: Value, params: &Value) {
        let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}});
        let (legacy, modern) = match self.kind {
            Kind::Silent => (false, false),
            Kind::Broken => {
                self.say(&error);
                return;
            }
            Kind::Legacy => (true, false),
            Kind::Modern => (false, true),
            Kind::Both => (true, true),
        };
        let mark = params["arguments"]["mark"].clone();
        let mut job = Job {
            id,
            token: params["_meta"].get("progressToken").cloned(),
            progress: 0,
            result: json!({"mark": mark}),
            mark,
            listens: false,
        };
        match method {
            "initialize" if legacy => {
                job.result = json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "serverInfo": {"name": "s", "version": "1"},
                });
            }
            "server/discover" if modern => {
                job.result = json!({"supportedVersions": ["2026-07-28"]});
            }
            "initialize" | "server/discover" if self.kind != Kind::Silent => {
                self.say(&error);
                return;
            }
            "tools/list" => {
                let schema = json!({"type": "object", "properties": {
                    "region": {"type": "string", "x-mcp-header": "region"},
                }});
                job.result = json!({"tools": [{"name": "work", "inputSchema": schema}]});
            }
            "subscriptions/listen" => job.listens = true,
            "resources/subscribe" => {
                let uri = params["uri"].as_str().unwrap_or_default();
                self.resources.push(uri.into());
            }
            "tools/call" if params["name"] == "say" => {
                for raw in params["arguments"]["raw"].as_array().into_iter().flatten() {
                    self.out.extend(raw.as_str().unwrap_or_default().bytes());
                    self.out.push_back(b'\n');
                }
            }
            _ => {}
        }
        self.jobs.push(job);
    }

    /// It says something, or not.
    pub fn act(&mut self, dice: &mut Dice, calm: bool) {
        if calm && self.kind == Kind::Silent {
            // In the end its keeper gives it up.
            while !self.jobs.is_empty() {
                self.fail(0);
            }
        }
        if self.kind == Kind::Silent {
            return;
        }
        if calm {
            while let Some(at) = self.jobs.iter().position(|job| !job.listens) {
                self.answer(at);
            }
            return;
        }
        let at = dice.below(self.jobs.len() as u64) as usize;
        let some = self.jobs.get(at).is_some_and(|job| !job.listens);
        match dice.below(100) {
            0..=24 if some => self.answer(at),
            25..=54 if some => self.progress(at),
            55..=59 if some => self.fail(at),
            60..=61 => {
                // Its server crashes: the keeper answers for it.
                while let Some(at) = self.jobs.iter().position(|job| !job.listens) {
                    self.fail(at);
                }
            }
            62..=69 => {
                let news = "notifications/tools/list_changed";
                self.say(&json!({"jsonrpc": "2.0", "method": news}));
            }
            70..=74 => {
                let which = dice.below(self.resources.len() as u64) as usize;
                if let Some(uri) = self.resources.get(which).cloned() {
                    let updated = "notifications/resources/updated";
                    self.say(&json!({"jsonrpc": "2.0", "method": updated, "params": {"uri": uri}}));
                }
            }
            75..=79 => {
                let params = json!({"level": dice.pick(&["debug", "error"]), "data": "d"});
                let log = "notifications/message";
                self.say(&json!({"jsonrpc": "2.0", "method": log, "params": params}));
            }
            80..=83 if some => {
                self.asked += 1;
                let (id, mark) = (self.asked, self.jobs[at].mark.clone());
                self.say(&json!({"jsonrpc": "2.0", "id": id, "method": "roots/list", "params": {"mark": mark}}));
            }
            84..=87 => self.speak_of_the_past(dice),
            88..=90 => self.listeners_hear(),
            91 => self.out.extend(b"no message\n"),
            _ => {}
        }
    }

    fn answer(&mut self, at: usize) {
        let job = self.jobs.remove(at);
        self.say(&json!({"jsonrpc": "2.0", "id": job.id, "result": job.result}));
        self.done.push(job);
    }

    fn fail(&mut self, at: usize) {
        let job = self.jobs.remove(at);
        let error = json!({"code": -32603, "message": format!("failed {}", job.mark)});
        self.say(&json!({"jsonrpc": "2.0", "id": job.id, "error": error}));
        self.done.push(job);
    }

    fn progress(&mut self, at: usize) {
        let job = &mut self.jobs[at];
        let Some(token) = job.token.clone() else {
            return;
        };
        job.progress += 1;
        let pad = "x".repeat(self.pad);
        let params =
            json!({"progressToken": token, "progress": job.progress, "mark": job.mark, "pad": pad});
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
    }

    /// A second answer, or progress of what is over.
    fn speak_of_the_past(&mut self, dice: &mut Dice) {
        let which = dice.below(self.done.len() as u64) as usize;
        let Some(job) = self.done.get(which).cloned() else {
            return;
        };
        let in_flight = self
            .jobs
            .iter()
            .any(|one| one.id == job.id || (one.token.is_some() && one.token == job.token));
        if in_flight {
            // A client of its own may use an id and a token again: then it would be no past.
            return;
        }
        match job.token {
            Some(token) if dice.permille(500) => {
                let params = json!({"progressToken": token, "progress": 99, "mark": job.mark});
                let method = "notifications/progress";
                self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
            }
            Some(_) | None => {
                self.say(&json!({"jsonrpc": "2.0", "id": job.id, "result": job.result}));
            }
        }
    }

    fn listeners_hear(&mut self) {
        let listeners = self.jobs.iter().filter(|job| job.listens);
        let all: Vec<Value> = listeners.map(|job| job.id.clone()).collect();
        for id in all {
            let params = json!({"_meta": {SUBSCRIPTION_KEY: id}});
            let method = "notifications/tools/list_changed";
            self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
        }
    }
}
