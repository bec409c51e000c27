//! Sessions of servers upstream: requests are passed on as they are, sessions are counted here and ended there.
//!
//! A *pass* is one request that is passed on, with its answer. The server upstream gives sessions their names; here each has a
//! key. The machine decides what a name means: an open session, one that is over (404, whatever the server thinks), or one that
//! only the server can know. It sees status and headers, never a body, and does no I/O: the shell sends requests, writes sessions
//! down and tells the server of their ends.
//!
//! Invariants:
//! - A name belongs to at most one open session of a path. A server that gives a name again has lost the older session.
//! - A session that this machine ended is 404 until the server gives its name again.
//! - An opening goes to its end even if its client leaves, because the server may have made a session by then.
//! - A DELETE is sent for a session that is over, and never once its name belongs to a newer one.

mod names;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::SessionEnd;
use mainstay_protocol::redact;

use super::lifetimes::Lifetimes;
use super::limits::CLOSE_TRIES;
use super::outputs::{Ended, Output, Outputs};
use super::requests::Refused;
use crate::headers::{SESSION, VERSION};
use names::Names;

/// The shortest time before a DELETE is tried again; it doubles with each try.
const AGAIN_MS: u64 = 250;
const NOT_FOUND: u16 = 404;

/// Headers in their order: names in lower case, and values.
pub type Headers = Vec<(String, Vec<u8>)>;

/// A request that is to be passed on.
#[derive(Clone, Debug)]
pub struct Pass<'a> {
    /// The path that it was sent to.
    pub path: u64,
    /// The session that it names.
    pub session: Option<&'a str>,
    /// What it is.
    pub kind: PassKind,
    /// Its headers, without those of the connection.
    pub headers: Headers,
}

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassKind {
    /// `initialize` of the legacy era.
    Open,
    /// Another message.
    Post,
    /// The end of a session.
    Delete,
    /// A client that only reads.
    Get,
}

/// What is to be done with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassAnswer {
    /// Pass it on.
    PassOn,
    /// First write down this session, which began with it: see [`Front::pass_noted`](super::front::Front::pass_noted).
    Note(u64),
}

/// The next try to tell a server of the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndAttempt {
    /// Send a DELETE after so many milliseconds, if there still is one.
    After(u64),
    /// It was tried often enough.
    GiveUp,
}

/// How far a pass is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It names no session, or has been answered.
    Outside,
    /// It is in the session that it belongs to.
    In(u64),
    /// It names a session that was not opened here: the server is asked whether it knows it.
    Unknown(String),
    /// It opens a session, for which this key is reserved.
    Opening(u64),
    /// The session with this key is being written down.
    Noting(u64),
}

#[derive(Clone, Debug)]
struct Passing {
    path: u64,
    kind: PassKind,
    headers: Headers,
    state: State,
    /// The session that it counts as a connection of.
    connection: Option<u64>,
    /// Whether its client waits for the answer, or reads it.
    awaited: bool,
}

/// A session that is open.
#[derive(Debug)]
struct UpstreamSession {
    path: u64,
    name: String,
    since: Moment,
    requests: u64,
    /// What it is ended with: the headers that it was opened with, the version that was agreed on, and the credentials that the
    /// server accepted last.
    headers: Headers,
}

/// A session that is over here, and whose server does not know it yet.
#[derive(Debug)]
struct UnclosedSession {
    path: u64,
    name: String,
    headers: Headers,
    attempts: u32,
}

/// The sessions of servers upstream, and the requests that are passed on.
#[derive(Debug, Default)]
pub struct Upstream {
    passes: BTreeMap<u64, Passing>,
    sessions: BTreeMap<u64, UpstreamSession>,
    names: Names,
    unclosed: BTreeMap<u64, UnclosedSession>,
}

/// Requests and their answers.
impl Upstream {
    /// Whether a request is to open a session, which needs a key.
    pub(super) fn opens(pass: &Pass<'_>) -> bool {
        pass.session.is_none() && pass.kind == PassKind::Open
    }

    /// A request is to be passed on. `opens` is the key that is reserved for the session that it opens.
    pub(super) fn begin(
        &mut self,
        number: u64,
        pass: Pass<'_>,
        opens: Option<u64>,
        lifetimes: &mut Lifetimes,
    ) {
        let mut passing = Passing {
            path: pass.path,
            kind: pass.kind,
            state: State::Outside,
            connection: opens,
            awaited: true,
            headers: pass.headers,
        };
        if let Some(key) = opens {
            passing.state = State::Opening(key);
        } else if let Some(name) = pass.session {
            passing.state = match self.names.key(pass.path, name) {
                Some(key) => {
                    lifetimes.enter(key);
                    passing.connection = Some(key);
                    self.count_request(key, &passing.headers);
                    State::In(key)
                }
                None => State::Unknown(name.into()),
            };
        }
        self.passes.insert(number, passing);
    }

    /// Refuses a session that is over; whether the server has to be asked for it, because it is not known here.
    pub(super) fn check_name(&self, pass: &Pass<'_>) -> Result<bool, Refused> {
        let Some(name) = pass.session else {
            return Ok(false);
        };
        if self.names.has_ended(pass.path, name) {
            return Err(Refused::NoSession);
        }
        Ok(self.names.key(pass.path, name).is_none())
    }

    /// The server has answered, and has given a session this name. `adopts` says whether a session that was opened elsewhere
    /// may be counted from now on.
    pub(super) fn answered(
        &mut self,
        now: Moment,
        number: u64,
        (status, given): (u16, Option<&str>),
        adopts: bool,
        (lifetimes, out): (&mut Lifetimes, &mut Outputs),
    ) -> PassAnswer {
        let Some(passing) = self.passes.get_mut(&number) else {
            return PassAnswer::PassOn;
        };
        let success = (200..300).contains(&status);
        let state = core::mem::replace(&mut passing.state, State::Outside);
        match (state, given.filter(|_| success)) {
            (State::Outside | State::Noting(_), _) => PassAnswer::PassOn,
            (State::In(key), _) => {
                let passing = passing.clone();
                if let Some(why) = self.judge(key, &passing, status) {
                    self.end(key, why, lifetimes, out);
                }
                PassAnswer::PassOn
            }
            (State::Unknown(name), _) => {
                let known = success && passing.kind != PassKind::Delete;
                let (path, headers) = (passing.path, passing.headers.clone());
                let mut note = None;
                let free =
                    self.names.key(path, &name).is_none() && !self.names.has_ended(path, &name);
                if known && adopts && free {
                    passing.state = State::Unknown(name.clone());
                    note = self.adopt(now, number, &name, lifetimes, out);
                    self.set_state(number, State::Outside);
                }
                // Only a session that was adopted while the request waited: a newer one may have its name by now.
                match self.passes.get(&number).and_then(|one| one.connection) {
                    Some(key) if known => self.count_request(key, &headers),
                    Some(key) if success => self.end(key, SessionEnd::Deleted, lifetimes, out),
                    Some(_) | None => {}
                }
                note.map_or(PassAnswer::PassOn, PassAnswer::Note)
            }
            (State::Opening(key), Some(name)) => {
                passing.state = State::Noting(key);
                let (path, headers) = (passing.path, passing.headers.clone());
                // A server that uses a session id again has dropped the older session: it need not be closed.
                if let Some(older) = self.names.key(path, name) {
                    self.end(older, SessionEnd::ServerGone, lifetimes, out);
                }
                self.open(now, key, path, name, headers, out);
                PassAnswer::Note(key)
            }
            (State::Opening(key), None) => {
                passing.connection = None;
                lifetimes.close(key);
                self.forget_if_left(number);
                PassAnswer::PassOn
            }
        }
    }

    /// The session that began with an answer was written down, or could not be: whether the answer is passed on. A session of an
    /// opening is ended at once if a death of ours could forget it, if its client has left, or if everything ends.
    pub(super) fn noted(
        &mut self,
        number: u64,
        noted: bool,
        closing: bool,
        (lifetimes, out): (&mut Lifetimes, &mut Outputs),
    ) -> bool {
        let Some(passing) = self.passes.get_mut(&number) else {
            return true;
        };
        let state = core::mem::replace(&mut passing.state, State::Outside);
        let State::Noting(key) = state else {
            return true;
        };
        let (awaited, headers) = (passing.awaited, passing.headers.clone());
        if closing {
            self.end(key, SessionEnd::Shutdown, lifetimes, out);
        } else if noted && awaited {
            self.count_request(key, &headers);
        } else {
            self.end(key, SessionEnd::OpeningFailed, lifetimes, out);
        }
        self.forget_if_left(number);
        noted
    }

    /// The server gave no answer.
    pub(super) fn failed(&mut self, number: u64, lifetimes: &mut Lifetimes) {
        if let Some(passing) = self.passes.get_mut(&number) {
            if let State::Opening(key) = passing.state {
                passing.connection = None;
                lifetimes.close(key);
            }
            passing.state = State::Outside;
            self.forget_if_left(number);
        }
    }

    /// The answer was sent to its end, or the client has left. An opening goes on without its client.
    pub(super) fn left(&mut self, now: Moment, number: u64, lifetimes: &mut Lifetimes) {
        let Some(passing) = self.passes.get_mut(&number) else {
            return;
        };
        passing.awaited = false;
        if matches!(passing.state, State::Opening(_) | State::Noting(_)) {
            return;
        }
        if let Some(key) = passing.connection {
            lifetimes.leave(now, key);
        }
        self.passes.remove(&number);
    }

    /// Whether no client waits for an answer. One that only reads never stops.
    pub(super) fn is_idle(&self) -> bool {
        let posted = |one: &Passing| matches!(one.kind, PassKind::Open | PassKind::Post);
        !self.passes.values().any(posted)
    }

    /// Why a session ends with this answer to a request in it.
    fn judge(&mut self, key: u64, passing: &Passing, status: u16) -> Option<SessionEnd> {
        let success = (200..300).contains(&status);
        let session = self.sessions.get_mut(&key)?;
        if success {
            session.accept(&passing.headers);
        }
        let deletes = passing.kind == PassKind::Delete;
        match status {
            // A server says 404 to other accounts, too.
            NOT_FOUND if !session.is_of(&passing.headers) => None,
            NOT_FOUND if deletes => Some(SessionEnd::Deleted),
            NOT_FOUND => Some(SessionEnd::ServerGone),
            _ if deletes && success => Some(SessionEnd::Deleted),
            _ => None,
        }
    }

    /// Counts a session that was opened elsewhere, if there is room: the requests that wait in it are its connections.
    fn adopt(
        &mut self,
        now: Moment,
        number: u64,
        name: &str,
        lifetimes: &mut Lifetimes,
        out: &mut Outputs,
    ) -> Option<u64> {
        let adopter = self.passes.get(&number)?;
        let (path, headers) = (adopter.path, adopter.headers.clone());
        let key = lifetimes.open_beside(now)?;
        self.open(now, key, path, name, headers, out);
        for passing in self.passes.values_mut() {
            let waits = matches!(&passing.state, State::Unknown(own) if own == name);
            if waits && passing.path == path {
                lifetimes.enter(key);
                passing.connection = Some(key);
            }
        }
        // The key was reserved with one connection, which is one of those.
        lifetimes.leave(now, key);
        Some(key)
    }

    fn set_state(&mut self, number: u64, state: State) {
        if let Some(passing) = self.passes.get_mut(&number) {
            passing.state = state;
        }
    }

    fn forget_if_left(&mut self, number: u64) {
        if self.passes.get(&number).is_some_and(|one| !one.awaited) {
            self.passes.remove(&number);
        }
    }
}

/// Sessions and their ends.
impl Upstream {
    fn open(
        &mut self,
        now: Moment,
        key: u64,
        path: u64,
        name: &str,
        headers: Headers,
        out: &mut Outputs,
    ) {
        self.names.open(path, name, key);
        let session = UpstreamSession {
            path,
            name: name.into(),
            since: now,
            requests: 0,
            headers,
        };
        let old = self.sessions.insert(key, session);
        debug_assert!(old.is_none(), "a key has one session");
        out.push(Output::Began { session: key, path });
    }

    fn count_request(&mut self, key: u64, headers: &Headers) {
        if let Some(session) = self.sessions.get_mut(&key) {
            session.requests += 1;
            session.agree(headers);
        }
    }

    pub(super) fn contains(&self, key: u64) -> bool {
        self.sessions.contains_key(&key)
    }

    pub(super) fn keys(&self) -> Vec<u64> {
        self.sessions.keys().copied().collect()
    }

    /// Ends a session. Its name is 404 from now on, and its server is told, unless it knows.
    pub(super) fn end(
        &mut self,
        key: u64,
        why: SessionEnd,
        lifetimes: &mut Lifetimes,
        out: &mut Outputs,
    ) {
        lifetimes.close(key);
        let Some(session) = self.sessions.remove(&key) else {
            return;
        };
        let (path, requests) = (session.path, session.requests);
        self.names.end(path, &session.name);
        let must_close = match why {
            SessionEnd::Deleted | SessionEnd::ServerGone => false,
            SessionEnd::Idle
            | SessionEnd::Evicted
            | SessionEnd::OpeningFailed
            | SessionEnd::Shutdown => true,
        };
        let since = session.since;
        // Noted here and not when the shell gets to it, because a stop must wait for it.
        if must_close {
            let unclosed = UnclosedSession {
                path,
                name: session.name,
                headers: session.headers,
                attempts: 0,
            };
            self.unclosed.insert(key, unclosed);
        }
        out.push(Output::EndUpstream {
            session: key,
            path,
            must_close,
        });
        out.push(Output::Over(Ended {
            session: key,
            path,
            why,
            since,
            requests,
        }));
    }

    /// Sessions whose end a server has not confirmed.
    pub(super) fn unclosed(&self) -> usize {
        self.unclosed.len()
    }

    /// The next try to tell the server of the end of this session.
    pub fn end_attempt(&mut self, key: u64) -> EndAttempt {
        let Some(unclosed) = self.unclosed.get_mut(&key) else {
            debug_assert!(false, "a session that need not be closed");
            return EndAttempt::GiveUp;
        };
        if unclosed.attempts >= CLOSE_TRIES {
            return EndAttempt::GiveUp;
        }
        let wait_ms = match unclosed.attempts {
            0 => 0,
            tried => AGAIN_MS << tried,
        };
        unclosed.attempts += 1;
        EndAttempt::After(wait_ms)
    }

    /// The headers of the DELETE for this session; none if the server has given its name to another session meanwhile, which
    /// shows that it does not have this one, and which the DELETE would end.
    pub fn delete_headers(&self, key: u64) -> Option<Headers> {
        let unclosed = self.unclosed.get(&key)?;
        if self.names.key(unclosed.path, &unclosed.name).is_some() {
            return None;
        }
        let kept = |(name, _): &&(String, Vec<u8>)| {
            !matches!(name.as_str(), "content-type" | "accept" | SESSION)
        };
        let mut headers: Headers = unclosed.headers.iter().filter(kept).cloned().collect();
        let accept = b"application/json, text/event-stream";
        headers.push(("accept".into(), accept.to_vec()));
        headers.push((SESSION.into(), unclosed.name.clone().into_bytes()));
        Some(headers)
    }

    /// The server was told of the end, or it is left to the next start.
    pub fn told(&mut self, key: u64) {
        let unclosed = self.unclosed.remove(&key);
        debug_assert!(unclosed.is_some(), "a session that need not be closed");
    }

    /// The name of a session that is open.
    pub fn name(&self, key: u64) -> Option<&str> {
        Some(&self.sessions.get(&key)?.name)
    }

    /// States what holds after each step.
    pub(super) fn check(&self, lifetimes: &Lifetimes) {
        self.names.check();
        debug_assert_eq!(
            self.names.len(),
            self.sessions.len(),
            "a name belongs to a session"
        );
        for (key, session) in &self.sessions {
            let named = self.names.key(session.path, &session.name);
            debug_assert_eq!(named, Some(*key), "a session has its name");
            let connected = |one: &&Passing| one.connection == Some(*key);
            debug_assert_eq!(
                lifetimes.connections(*key),
                Some(self.passes.values().filter(connected).count()),
                "the connections of a session are its requests"
            );
            debug_assert!(
                !self.unclosed.contains_key(key),
                "an open session is also listed as unclosed"
            );
        }
        for passing in self.passes.values() {
            if let State::Opening(key) = passing.state {
                debug_assert_eq!(
                    lifetimes.connections(key),
                    Some(1),
                    "an opening has a place"
                );
            }
        }
    }
}

impl UpstreamSession {
    /// A request names the version that was agreed on.
    fn agree(&mut self, headers: &Headers) {
        if let Some((_, version)) = headers.iter().find(|(name, _)| name == VERSION) {
            self.headers.retain(|(name, _)| name != VERSION);
            self.headers.push((VERSION.into(), version.clone()));
        }
    }

    /// The server accepted a request with these credentials: the session is ended with them, because the first ones may have
    /// expired by then.
    fn accept(&mut self, headers: &Headers) {
        self.headers.retain(|(name, _)| !redact::speaks(name));
        self.headers.extend(credentials(headers));
    }

    /// Whether a request has the credentials that the session is ended with.
    fn is_of(&self, headers: &Headers) -> bool {
        credentials(&self.headers) == credentials(headers)
    }
}

/// The headers that say on whose behalf a request comes, by name; those of one name in their order.
fn credentials(headers: &Headers) -> Headers {
    let named = |(name, _): &&(String, Vec<u8>)| redact::speaks(name);
    let mut all: Headers = headers.iter().filter(named).cloned().collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

#[cfg(test)]
#[path = "upstream/tests.rs"]
mod tests;
