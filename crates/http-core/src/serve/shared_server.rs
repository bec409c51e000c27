//! One server of the legacy era for many sessions, where the user allows it.
//!
//! The server sees one client, which opened it once and offered nothing: what the server asks is refused, because it cannot
//! say which session it asks. [`Relabel`] does requests, answers, progress and cancellations, as in the modern era. What a
//! session sets for itself is kept here: a level of log messages, the resources it subscribed to. News of lists go to all
//! sessions. Whatever comes back has the ids of its session again, and finds its stream there.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::message::envelope::{self, Members};
use mainstay_protocol::message::frame::{Id, Kind, Scanner};
use mainstay_protocol::message::remembered::result_of;

use super::framed;
use super::limits::HEEDS_MOST;
use super::posted::{Kind as Sort, LEGACY, Posted};
use super::relabel::{Draw, Relabel, Relabelled};
use super::words::{self, Code};

/// The levels of log messages, from the most talkative on.
const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// A line, and who gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// The server; with its newline.
    Server(Vec<u8>),
    /// The session with this number, as if its own server had said it.
    Session(u64, Vec<u8>),
}

/// What the server said of itself when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The version that it speaks.
    pub version: String,
    /// The result of `initialize`, raw.
    pub result: Vec<u8>,
}

/// How far the opening is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Opening {
    /// It was not asked.
    #[default]
    Before,
    /// It was asked by this question of ours.
    Asked(u64),
    /// It has answered; none if it cannot be opened.
    Over(Option<Greeting>),
}

/// A server and the sessions that share it.
#[derive(Clone, Debug)]
pub struct SharedServer {
    relabel: Relabel,
    opening: Opening,
    sessions: BTreeMap<u64, Own>,
    /// Whose each request is, and its id there.
    whose: BTreeMap<u64, (u64, Vec<u8>)>,
}

/// What one session has for itself.
#[derive(Clone, Debug, Default)]
struct Own {
    /// Its requests that are not answered, by its own ids.
    waiting: BTreeMap<Vec<u8>, u64>,
    /// The rank of the least that it wants to read of the log.
    level: Option<usize>,
    /// The resources that it wants to hear of.
    heeds: BTreeSet<String>,
}

impl SharedServer {
    /// A server that is not opened yet, with no sessions.
    pub fn new(draw: Draw) -> Self {
        Self {
            relabel: Relabel::new(draw),
            opening: Opening::default(),
            sessions: BTreeMap::new(),
            whose: BTreeMap::new(),
        }
    }

    /// Asks the server to open: what it is told.
    pub fn open(&mut self, version: &str) -> Vec<u8> {
        let (key, id) = self.relabel.ask();
        self.opening = Opening::Asked(key);
        let id = String::from_utf8_lossy(&id);
        let params = serde_json::json!({
            "protocolVersion": LEGACY[0],
            "capabilities": {},
            "clientInfo": {"name": "mainstay", "version": version},
        });
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"initialize\",\"params\":{params}}}\n"
        )
        .into_bytes()
    }

    /// What the server said of itself; the outer none is before it has said anything.
    pub fn greeting(&self) -> Option<Option<&Greeting>> {
        match &self.opening {
            Opening::Before | Opening::Asked(_) => None,
            Opening::Over(greeting) => Some(greeting.as_ref()),
        }
    }

    /// A session takes part.
    pub fn join(&mut self, session: u64) {
        self.sessions.entry(session).or_default();
    }

    /// Whether no session takes part.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Requests that are not answered.
    pub fn in_flight(&self) -> usize {
        self.whose.len()
    }

    /// States what holds after each step: a request belongs to one session, which knows it by its own id.
    pub fn check(&self) {
        let waiting = self.sessions.values().map(|own| own.waiting.len());
        debug_assert_eq!(
            waiting.sum::<usize>(),
            self.whose.len(),
            "a request is waited for once"
        );
        for (key, (session, id)) in &self.whose {
            let own = self.sessions.get(session);
            debug_assert_eq!(
                own.and_then(|own| own.waiting.get(id)),
                Some(key),
                "a session knows its request"
            );
        }
        debug_assert_eq!(
            self.relabel.len(),
            self.whose.len(),
            "a request has a session"
        );
    }

    /// A session is over: what the server is told to cancel its requests, and to end the subscriptions that only it had.
    pub fn leave(&mut self, session: u64) -> Vec<Vec<u8>> {
        let Some(own) = self.sessions.remove(&session) else {
            return Vec::new();
        };
        let mut out = Vec::new();
        for key in own.waiting.into_values() {
            self.whose.remove(&key);
            out.extend(self.relabel.cancel(key));
        }
        for uri in own.heeds {
            if !self.is_heeded(&uri) {
                let (_, id) = self.relabel.ask();
                out.push(envelope::unsubscribe(&id, uri.as_bytes()));
            }
        }
        out
    }

    /// A session says something.
    pub fn said(&mut self, session: u64, posted: &Posted<'_>, line: &[u8]) -> Vec<To> {
        if !self.sessions.contains_key(&session) {
            return Vec::new();
        }
        match posted.kind {
            // It was asked nothing.
            Sort::Answer(_) => Vec::new(),
            Sort::Notification => self.notified(session, &posted.method, line),
            Sort::Request(id) => self.asked(session, id, posted, line),
        }
    }

    fn notified(&mut self, session: u64, method: &str, line: &[u8]) -> Vec<To> {
        match method {
            "notifications/cancelled" => {
                let key = envelope::cancelled_id(line)
                    .and_then(|id| self.sessions.get_mut(&session)?.waiting.remove(id));
                let told = key.and_then(|key| {
                    self.whose.remove(&key);
                    self.relabel.cancel(key)
                });
                told.map(To::Server).into_iter().collect()
            }
            // The server has been opened already, and was offered nothing that these could be about.
            "notifications/initialized"
            | "notifications/roots/list_changed"
            | "notifications/progress"
            | "notifications/tasks/status" => Vec::new(),
            _ => alloc::vec![To::Server(line.to_vec())],
        }
    }

    fn asked(&mut self, session: u64, id: &[u8], posted: &Posted<'_>, line: &[u8]) -> Vec<To> {
        let here = |answer| alloc::vec![To::Session(session, answer)];
        let uri = || posted.param("uri").map(String::from);
        let level = posted.param("level");
        let mut leveled = None;
        match posted.method.as_ref() {
            "initialize" => {
                let message = "this session is open already";
                return here(words::error(Some(id), Code::Request, message, None));
            }
            "resources/subscribe" => {
                if let (Some(uri), Some(own)) = (uri(), self.sessions.get_mut(&session)) {
                    if own.heeds.len() >= HEEDS_MOST && !own.heeds.contains(&uri) {
                        let message = "this session is subscribed to too many resources";
                        return here(words::error(Some(id), Code::Request, message, None));
                    }
                    own.heeds.insert(uri);
                }
            }
            "resources/unsubscribe" => {
                if let (Some(uri), Some(own)) = (uri(), self.sessions.get_mut(&session)) {
                    own.heeds.remove(&uri);
                    if self.is_heeded(&uri) {
                        return here(words::answer(id, b"{}"));
                    }
                }
            }
            "logging/setLevel" => {
                // The server is told the most talkative level; each session gets only what its own level asks for.
                if let (Some(rank), Some(own)) = (
                    level.as_deref().and_then(rank),
                    self.sessions.get_mut(&session),
                ) {
                    own.level = Some(rank);
                    leveled = self.with_level(line);
                }
            }
            _ => {}
        }
        let line = leveled.as_deref().unwrap_or(line);
        let passed = match leveled.is_some().then(|| Posted::read(line)) {
            Some(Ok(again)) => self.relabel.asked(&again, line),
            Some(Err(_)) => None,
            None => self.relabel.asked(posted, line),
        };
        let Some((key, line)) = passed else {
            let message = "the request could not be read";
            return here(words::error(Some(id), Code::Request, message, None));
        };
        self.whose.insert(key, (session, id.to_vec()));
        if let Some(own) = self.sessions.get_mut(&session) {
            own.waiting.insert(id.to_vec(), key);
        }
        alloc::vec![To::Server(line)]
    }

    /// A request for a log level: the most verbose one that any client wants.
    fn with_level(&self, line: &[u8]) -> Option<Vec<u8>> {
        let most = self.sessions.values().filter_map(|own| own.level).min()?;
        let params = Members::of_line(line)?.object("params")?;
        let old = params.get("level")?.get().as_bytes();
        let new = format!("\"{}\"", LEVELS.get(most)?);
        super::relabel::spliced(line, alloc::vec![(old, new.as_bytes())])
    }

    /// A line of the server.
    pub fn heard(&mut self, line: &[u8]) -> Vec<To> {
        let mut scanner = Scanner::default();
        let frame = framed(&mut scanner, line);
        match (frame.kind, frame.id) {
            (Kind::Request, Id::Token(id)) => {
                let id = id.to_vec();
                let answer = if frame.method.as_deref() == Some("ping") {
                    words::answer(&id, b"{}")
                } else {
                    let message =
                        "this server is shared by several sessions and cannot ask any of them";
                    words::error(Some(&id), Code::Method, message, None)
                };
                alloc::vec![To::Server([answer.as_slice(), b"\n"].concat())]
            }
            (Kind::Notification, _) => match frame.method.as_deref().unwrap_or("") {
                "notifications/tools/list_changed"
                | "notifications/prompts/list_changed"
                | "notifications/resources/list_changed" => self.all(line, |_| true),
                "notifications/resources/updated" => {
                    let uri = envelope::uri(line).unwrap_or_default();
                    self.all(line, |own| {
                        own.heeds.iter().any(|heeded| within(&uri, heeded))
                    })
                }
                "notifications/message" => {
                    let level = Members::of_line(line)
                        .and_then(|message| message.object("params")?.text("level"))
                        .and_then(|level| rank(&level));
                    self.all(line, |own| {
                        own.level.is_some_and(|least| level >= Some(least))
                    })
                }
                _ => self.passed(line),
            },
            (
                Kind::Request
                | Kind::Response
                | Kind::Error
                | Kind::Batch
                | Kind::Blank
                | Kind::Junk,
                _,
            ) => self.passed(line),
        }
    }

    fn passed(&mut self, line: &[u8]) -> Vec<To> {
        match self.relabel.heard(line) {
            Relabelled::Last(key, line) => {
                let Some((session, id)) = self.whose.remove(&key) else {
                    return Vec::new();
                };
                if let Some(own) = self.sessions.get_mut(&session) {
                    own.waiting.remove(&id);
                }
                alloc::vec![To::Session(session, line)]
            }
            Relabelled::On(key, line) => {
                let whose = self.whose.get(&key);
                whose
                    .map(|(session, _)| To::Session(*session, line))
                    .into_iter()
                    .collect()
            }
            Relabelled::Ours(key, line) if self.opening == Opening::Asked(key) => {
                let greeting = envelope::greeting(&line).and_then(|greeting| {
                    Some(Greeting {
                        version: greeting.version,
                        result: result_of(&line)?.to_vec(),
                    })
                });
                let opened = greeting.is_some();
                self.opening = Opening::Over(greeting);
                let told = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
                let told = opened.then(|| To::Server([told.as_slice(), b"\n"].concat()));
                told.into_iter().collect()
            }
            Relabelled::Ours(..) | Relabelled::NoRequest => Vec::new(),
        }
    }

    fn all(&self, line: &[u8], wants: impl Fn(&Own) -> bool) -> Vec<To> {
        let each = self.sessions.iter().filter(|(_, own)| wants(own));
        each.map(|(session, _)| To::Session(*session, line.to_vec()))
            .collect()
    }

    fn is_heeded(&self, uri: &str) -> bool {
        self.sessions.values().any(|own| own.heeds.contains(uri))
    }
}

/// Whether news of a resource are news of this one: it is the same, or a part of it.
fn within(uri: &str, heeded: &str) -> bool {
    uri.strip_prefix(heeded).is_some_and(|rest| {
        rest.is_empty() || heeded.ends_with('/') || rest.starts_with(['/', '#', '?'])
    })
}

fn rank(level: &str) -> Option<usize> {
    LEVELS.iter().position(|one| *one == level)
}

#[cfg(test)]
#[path = "shared_server/tests.rs"]
mod tests;
