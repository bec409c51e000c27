//! The modern era: one server for all clients of a configuration.
//!
//! Before any client's traffic the server is asked what it speaks: a legacy server might take a modern request under its
//! own rules. Calls are compared with its tool list, which is asked for when it is needed and relabel by all that wait for
//! it. Ids, tokens and subscriptions are [`Relabel`]'s.
//!
//! Invariants: no request of a client is sent before the server has said what it speaks; a request is answered once, to
//! the exchange that sent it; after [`ModernServer::settle`] nothing is in flight.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::message::envelope::{self, PROTOCOL_VERSION_KEY};
use mainstay_protocol::message::remembered::result_of;
use serde_json::{Value, json};

use super::client_queues::ClientQueues;
use super::headers::Mirrors;
use super::limits::{QUESTION_MS, TOOLS_KNOWN_MS, TOOLS_PAGES, TOOLS_WAIT_MS};
use super::posted::{CAPABILITIES_KEY, Posted};
use super::relabel::{self, Draw, Relabel};
use super::words::{self, Code};

/// The version that our own questions are asked in.
const VERSION: &str = "2026-07-28";

/// What the server speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// It has been asked by this question, and has until then to answer.
    Asked(u64, Moment),
    /// These versions.
    Modern(Vec<String>),
    /// It is of the legacy era, or has ended. It counts as such for later clients too only if it said so itself.
    Legacy(Said),
}

/// Whether a server of the legacy era has said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It answered the question.
    Itself,
    /// It was silent, or ended.
    Nothing,
}

/// What is known of the tools.
#[derive(Clone, Debug)]
enum Tools {
    Unknown,
    Asked(Question),
    Known {
        asked: Moment,
        at: Moment,
        mirrors: Mirrors,
    },
    /// The server gave no list when it was asked at this time.
    Unanswered(Moment),
}

/// A tool list that is on its way.
#[derive(Clone, Debug)]
struct Question {
    number: u64,
    asked: Moment,
    until: Moment,
    pages: usize,
    mirrors: Mirrors,
}

/// How fresh a tool list has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fresh {
    /// A recent one is good enough to let a call through. The caller wants it since this time.
    Recent(Moment),
    /// It must have been asked for at this time or later: only such a one refuses a call.
    Since(Moment),
}

/// An answer to "which arguments are repeated in headers".
#[derive(Debug)]
pub enum Listed<'m> {
    /// These.
    Known(&'m Mirrors),
    /// The server does not say: calls are not compared.
    Unanswered,
    /// It has been asked.
    Wait,
    /// It is to be sent this question first.
    Ask(Vec<u8>),
}

/// What a line of the server was.
#[derive(Debug, PartialEq, Eq)]
pub enum ModernLine {
    /// It answered a request after this time.
    Answered(u64),
    /// It was passed on.
    Passed,
    /// It was dropped because the client does not read.
    Dropped,
    /// It answered a question of ours; what the server is told now.
    Learned(Option<Vec<u8>>),
    /// It belongs to no request.
    Unexpected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// It takes no new request.
    Retiring,
    /// Everything is answered and nothing more comes.
    Over,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    reader: u64,
    since: Moment,
}

/// One server for many.
#[derive(Clone, Debug)]
pub struct ModernServer {
    relabel: Relabel,
    asked: BTreeMap<u64, Asked>,
    speaks: Speaks,
    tools: Tools,
    /// When it was last used.
    used: Moment,
    life: Life,
}

impl ModernServer {
    /// A server that has just been started, and what it is asked first.
    pub fn new(now: Moment, draw: Draw) -> (Self, Vec<u8>) {
        let mut relabel = Relabel::new(draw);
        let (number, line) = question(&mut relabel, "server/discover", json!({}));
        let modern = Self {
            relabel,
            asked: BTreeMap::new(),
            speaks: Speaks::Asked(number, now.after_ms(QUESTION_MS)),
            tools: Tools::Unknown,
            used: now,
            life: Life::Open,
        };
        (modern, line)
    }

    /// What it speaks.
    pub fn speaks(&self) -> &Speaks {
        &self.speaks
    }

    /// Whether it takes new requests.
    pub fn is_open(&self) -> bool {
        self.life == Life::Open
    }

    /// Whether it takes no new request and has answered all.
    pub fn is_done(&self) -> bool {
        self.life != Life::Open && self.in_flight() == 0
    }

    /// Requests of clients that are not answered.
    pub fn in_flight(&self) -> usize {
        self.asked.len()
    }

    /// Whether all of them only listen.
    pub fn is_idle(&self) -> bool {
        self.in_flight() == self.relabel.listening().len()
    }

    /// Since when it is unused; none while it is used, or has not said what it speaks.
    pub fn unused_since(&self) -> Option<Moment> {
        let asked = matches!(self.speaks, Speaks::Asked(..));
        (self.asked.is_empty() && !asked && self.is_open()).then_some(self.used)
    }

    /// When something is to be done without any input.
    pub fn wake_at(&self) -> Option<Moment> {
        let speaks = match &self.speaks {
            Speaks::Asked(_, until) => Some(*until),
            Speaks::Modern(_) | Speaks::Legacy(_) => None,
        };
        let tools = match &self.tools {
            Tools::Asked(question) => Some(question.until),
            Tools::Unknown | Tools::Known { .. } | Tools::Unanswered(_) => None,
        };
        speaks.into_iter().chain(tools).min()
    }

    /// A request of a client, whose messages go to this reader: its number, and the line that the server gets.
    pub fn ask(
        &mut self,
        now: Moment,
        posted: &Posted<'_>,
        line: &[u8],
        reader: u64,
    ) -> Option<(u64, Vec<u8>)> {
        debug_assert!(self.is_open(), "a request for a server that takes none");
        debug_assert!(
            matches!(self.speaks, Speaks::Modern(_)),
            "a request before the server has said what it speaks"
        );
        let (number, line) = self.relabel.asked(posted, line)?;
        self.asked.insert(number, Asked { reader, since: now });
        Some((number, line))
    }

    /// The client of a request has left: what the server is told, if it was not answered yet.
    pub fn left(&mut self, now: Moment, number: u64) -> Option<Vec<u8>> {
        self.used = now;
        self.asked.remove(&number)?;
        self.relabel.cancel(number)
    }

    /// Which arguments its tools want repeated in headers.
    pub fn tools(&mut self, now: Moment, fresh: Fresh) -> Listed<'_> {
        let (since, strict) = match fresh {
            Fresh::Recent(since) => (since, false),
            Fresh::Since(since) => (since, true),
        };
        let ask = match &self.tools {
            Tools::Asked(_) => return Listed::Wait,
            Tools::Unanswered(asked) if *asked >= since => return Listed::Unanswered,
            Tools::Known { asked, at, .. } => {
                let recent = now.ms_since(*at) <= TOOLS_KNOWN_MS;
                !(if strict { *asked >= since } else { recent })
            }
            Tools::Unknown | Tools::Unanswered(_) => true,
        };
        if ask {
            let (number, line) = question(&mut self.relabel, "tools/list", json!({}));
            self.tools = Tools::Asked(Question {
                number,
                asked: now,
                until: now.after_ms(TOOLS_WAIT_MS),
                pages: 0,
                mirrors: Mirrors::default(),
            });
            return Listed::Ask(line);
        }
        match &self.tools {
            Tools::Known { mirrors, .. } => Listed::Known(mirrors),
            Tools::Unknown | Tools::Asked(_) | Tools::Unanswered(_) => Listed::Unanswered,
        }
    }

    /// A line of the server.
    pub fn hear(&mut self, now: Moment, line: &[u8], readers: &mut ClientQueues) -> ModernLine {
        match self.relabel.heard(line) {
            relabel::Relabelled::Last(number, line) => {
                self.used = now;
                let Some(asked) = self.asked.remove(&number) else {
                    debug_assert!(false, "an answer without a reader");
                    return ModernLine::Unexpected;
                };
                readers.finish(asked.reader, None, &line);
                ModernLine::Answered(now - asked.since)
            }
            relabel::Relabelled::On(number, line) => {
                let changed =
                    envelope::method(&line).as_deref() == Some("notifications/tools/list_changed");
                if changed && matches!(self.tools, Tools::Known { .. }) {
                    self.tools = Tools::Unknown;
                }
                let asked = self.asked.get(&number);
                match asked.map(|asked| readers.push(asked.reader, None, &line)) {
                    Some(false) => ModernLine::Dropped,
                    Some(true) | None => ModernLine::Passed,
                }
            }
            relabel::Relabelled::Ours(number, line) => {
                ModernLine::Learned(self.learn(now, number, &line))
            }
            relabel::Relabelled::NoRequest => ModernLine::Unexpected,
        }
    }

    /// Time has passed: what the server is told.
    pub fn tick(&mut self, now: Moment) -> Option<Vec<u8>> {
        if let Speaks::Asked(number, until) = self.speaks
            && until <= now
        {
            self.speaks = Speaks::Legacy(Said::Nothing);
            return self.relabel.cancel(number);
        }
        let Tools::Asked(question) = &self.tools else {
            return None;
        };
        if question.until > now {
            return None;
        }
        let (number, asked) = (question.number, question.asked);
        self.tools = Tools::Unanswered(asked);
        self.relabel.cancel(number)
    }

    /// It takes nothing new; what is in flight is answered.
    pub fn retire(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Retiring;
        }
    }

    /// It is over: what is in flight is answered here, and those who only listen are told so without an error. How many
    /// requests got an error.
    pub fn settle(&mut self, why: &str, readers: &mut ClientQueues) -> usize {
        self.life = Life::Over;
        if matches!(self.speaks, Speaks::Asked(..)) {
            self.speaks = Speaks::Legacy(Said::Nothing);
        }
        self.tools = match &self.tools {
            Tools::Asked(question) => Tools::Unanswered(question.asked),
            Tools::Unknown | Tools::Known { .. } | Tools::Unanswered(_) => Tools::Unknown,
        };
        let mut settled = 0;
        for (number, id, listens) in self.relabel.drain() {
            let (Some(id), Some(asked)) = (id, self.asked.remove(&number)) else {
                continue;
            };
            let answer = if listens {
                words::listened(&id)
            } else {
                settled += 1;
                let message = format!("{why}; the request may or may not have taken effect");
                words::error(Some(&id), Code::Internal, &message, None)
            };
            readers.finish(asked.reader, None, &answer);
        }
        debug_assert!(self.asked.is_empty(), "a request is left without an answer");
        settled
    }

    /// States what holds after each step.
    pub fn check(&self) {
        debug_assert_eq!(
            self.asked.len(),
            self.relabel.len(),
            "a request has one reader"
        );
        debug_assert!(
            self.life != Life::Over || self.asked.is_empty(),
            "a request waits for a server that is over"
        );
    }

    /// An answer to a question of ours: the next question, if there is one.
    fn learn(&mut self, now: Moment, number: u64, line: &[u8]) -> Option<Vec<u8>> {
        if matches!(self.speaks, Speaks::Asked(asked, _) if asked == number) {
            self.used = now;
            self.speaks = versions(line).map_or(Speaks::Legacy(Said::Itself), Speaks::Modern);
            return None;
        }
        let Tools::Asked(question) = &mut self.tools else {
            return None;
        };
        if question.number != number {
            return None;
        }
        question.pages += 1;
        let Some(result) = result_of(line) else {
            // What the earlier pages said holds.
            self.list_ends(now);
            return None;
        };
        question.mirrors.learn(result);
        let Ok(page) = serde_json::from_slice::<Value>(result) else {
            self.tools = Tools::Unanswered(question.asked);
            return None;
        };
        let cursor = page.get("nextCursor").filter(|next| next.is_string());
        let Some(cursor) = cursor.filter(|_| question.pages < TOOLS_PAGES) else {
            self.list_ends(now);
            return None;
        };
        let params = json!({"cursor": cursor});
        let (next, line) = self::question(&mut self.relabel, "tools/list", params);
        question.number = next;
        question.until = now.after_ms(TOOLS_WAIT_MS);
        Some(line)
    }

    fn list_ends(&mut self, now: Moment) {
        let tools = core::mem::replace(&mut self.tools, Tools::Unknown);
        if let Tools::Asked(question) = tools {
            self.tools = Tools::Known {
                asked: question.asked,
                at: now,
                mirrors: question.mirrors,
            };
        }
    }
}

/// The versions that an answer to `server/discover` names; none if it names none.
fn versions(line: &[u8]) -> Option<Vec<String>> {
    let result: Value = serde_json::from_slice(result_of(line)?).ok()?;
    let listed = result.get("supportedVersions")?.as_array()?;
    let texts = listed
        .iter()
        .filter_map(|one| one.as_str().map(String::from));
    let versions: Vec<String> = texts.collect();
    (!versions.is_empty()).then_some(versions)
}

/// A question of ours: its number, and the line that the server gets.
fn question(relabel: &mut Relabel, method: &str, mut params: Value) -> (u64, Vec<u8>) {
    params["_meta"] = json!({
        PROTOCOL_VERSION_KEY: VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "mainstay", "version": env!("CARGO_PKG_VERSION")},
        CAPABILITIES_KEY: {},
    });
    let (number, id) = relabel.ask();
    let id = String::from_utf8_lossy(&id);
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n"
    );
    (number, line.into_bytes())
}

#[cfg(test)]
#[path = "modern_server/tests.rs"]
mod tests;
