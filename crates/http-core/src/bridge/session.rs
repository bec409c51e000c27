//! The session: asked for, noted, used, lost, opened again, closed.
//!
//! A session that the server no longer knows is opened again, and the client does not notice it: see [`ReplayLog`]. What was
//! refused with it waits in the [queue](super::queue).
//!
//! Invariants:
//! - The client sees no answer to its `initialize` before the session is noted.
//! - A session that is no longer used is closed or noted as unclosed: code that drops a session id must close the session.

use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::message::envelope;
use mainstay_protocol::message::slot::Tracked;

use super::close::farewell;
use super::io::{ExchangeId, Output};
use super::replay::ReplayLog;
use super::wire::{Purpose, Wire};
use crate::headers;

/// The session.
#[derive(Debug)]
pub(super) struct HttpSession {
    state: State,
    /// Its id, from its first appearance until it is closed.
    id: Option<String>,
    /// The version that is spoken in it.
    version: Option<String>,
    note: Note,
    /// The notification of each list that the server says it announces.
    announces: Vec<&'static str>,
    log: ReplayLog,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// None was asked for.
    Closed,
    /// The client's `initialize` is on its way.
    Opening,
    /// It is there.
    Open,
    /// It was lost, and a new one is on its way.
    Reopening(Step),
    /// It was lost, and the next message opens a new one.
    Lost,
}

/// How far a session is that is opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// The old transport's stream is on its way.
    Dial,
    /// `initialize` is on its way, under this id.
    Greet { own: Vec<u8> },
    /// `initialized` is on its way.
    Confirm,
    /// Level and subscriptions are on their way, under these ids.
    Restore(Vec<Vec<u8>>),
}

/// Whether the session has a note on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Note {
    /// Not yet; the answer to `initialize` waits for it, if it is there.
    Wanted { answer: Option<Vec<u8>> },
    /// Yes, or there is nothing to write down.
    Written,
}

/// What became of a step on the way to a new session.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The next one is on its way, or it was not the last.
    GoesOn,
    /// The new session is as the old one was.
    Reopened,
    /// No new session can be had now, and why; the next request tries again.
    Failed(String),
}

/// What follows when a session was noted, or could not be.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterNote {
    /// It goes on.
    GoesOn,
    /// The session was given up: one that would never be closed is worse than none. The client's `initialize` failed.
    NotOpened,
    /// The same for a session that was opened again.
    NotReopened,
}

impl HttpSession {
    pub fn new() -> Self {
        Self {
            state: State::Closed,
            id: None,
            version: None,
            note: Note::Wanted { answer: None },
            announces: Vec::new(),
            log: ReplayLog::default(),
        }
    }

    /// True if messages wait until it is open.
    pub fn is_on_its_way(&self) -> bool {
        match self.state {
            State::Opening | State::Reopening(_) => true,
            State::Closed | State::Open | State::Lost => false,
        }
    }

    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    /// Whether a message can go out under its id.
    pub fn has_id(&self) -> bool {
        self.id.is_some()
    }

    /// Whether it can be opened again.
    pub fn can_reopen(&self) -> bool {
        self.log.has_opening()
    }

    /// The headers of every message in it.
    pub fn headers(&self) -> Vec<(String, String)> {
        let session = self.id.iter().map(|id| (headers::SESSION, id));
        let version = self
            .version
            .iter()
            .map(|version| (headers::VERSION, version));
        session
            .chain(version)
            .map(|(name, value)| (name.into(), value.clone()))
            .collect()
    }

    /// The client's `initialize` is about to be sent. A client that begins anew has given its session up.
    pub fn begin(&mut self, wire: &mut Wire, initialize: Vec<u8>) {
        self.give_up(wire);
        wire.stop_dialing();
        wire.next_epoch();
        self.version = None;
        let before = core::mem::replace(&mut self.note, Note::Wanted { answer: None });
        if let Note::Wanted { answer } = before
            && let Some(answer) = answer
        {
            wire.say(answer);
        }
        self.state = State::Opening;
        self.log = ReplayLog::begun_with(initialize);
    }

    /// The client's `initialized` has come.
    pub fn confirmed_with(&mut self, line: Vec<u8>) {
        self.log.confirmed_with(line);
    }

    /// A request of this sort succeeded.
    pub fn learn(&mut self, method: Tracked, asked: &[u8]) {
        self.log.learn(method, asked);
    }

    /// The session that is used from now on, noted before anything else. One that was there before is not forgotten.
    pub fn take(&mut self, wire: &mut Wire, session: Option<String>) {
        if self.id != session {
            self.give_up(wire);
        }
        self.id.clone_from(&session);
        match session {
            Some(session) => {
                self.note = Note::Wanted { answer: None };
                self.write_down(wire, session);
            }
            None => self.note = Note::Written,
        }
    }

    /// A session that is not used: it is noted, so that it is closed at the next start if not by us.
    pub fn unwanted(&mut self, wire: &mut Wire, session: Option<String>) {
        if let Some(session) = session.filter(|session| self.id.as_ref() != Some(session)) {
            self.write_down(wire, session.clone());
            farewell(wire, session, self.likely_version());
        }
    }

    fn write_down(&self, wire: &mut Wire, session: String) {
        let version = self.likely_version();
        wire.put(Output::Note { session, version });
    }

    /// The session is noted, or could not be.
    pub fn noted(&mut self, wire: &mut Wire, session: &str, noted: bool) -> AfterNote {
        if self.id.as_deref() != Some(session) {
            // It is being closed, noted or not.
            return AfterNote::GoesOn;
        }
        if noted {
            if let Note::Wanted { answer } = core::mem::replace(&mut self.note, Note::Written)
                && let Some(answer) = answer
            {
                self.greeted(wire, answer);
            }
            return AfterNote::GoesOn;
        }
        let after = match self.state {
            // It is written down already, with another version.
            State::Open => return AfterNote::GoesOn,
            State::Reopening(_) => AfterNote::NotReopened,
            State::Closed | State::Opening | State::Lost => AfterNote::NotOpened,
        };
        self.note = Note::Wanted { answer: None };
        self.give_up(wire);
        if after == AfterNote::NotReopened {
            self.state = State::Lost;
            wire.lose_endpoint();
        } else {
            self.state = State::Closed;
        }
        after
    }

    /// The client's `initialize` has its answer.
    pub fn answered(&mut self, wire: &mut Wire, line: Vec<u8>) {
        let Some(greeting) = envelope::greeting(&line) else {
            // It was refused: what it may have opened all the same is closed.
            self.fail_opening(wire);
            wire.say(line);
            return;
        };
        let likely = self.likely_version();
        self.announces = announced(&greeting.capabilities);
        self.version = Some(greeting.version);
        if self.version != likely
            && let Some(session) = self.id.clone()
        {
            self.write_down(wire, session);
        }
        match &mut self.note {
            Note::Wanted { answer } => *answer = Some(line),
            Note::Written => self.greeted(wire, line),
        }
    }

    /// It is open, and noted.
    fn greeted(&mut self, wire: &mut Wire, answer: Vec<u8>) {
        self.state = State::Open;
        wire.say(answer);
    }

    /// The client's `initialize` has no answer that opens a session.
    pub fn fail_opening(&mut self, wire: &mut Wire) {
        self.give_up(wire);
        self.state = State::Closed;
        self.log.forget_opening();
    }

    /// Closes it, if it is there.
    pub fn give_up(&mut self, wire: &mut Wire) {
        if let Some(session) = self.id.take() {
            farewell(wire, session, self.likely_version());
        }
    }

    /// It was lost; the next message opens a new one.
    pub fn lose(&mut self) {
        self.state = State::Lost;
    }

    /// Opens it again.
    pub fn reopen(&mut self, wire: &mut Wire) {
        self.version = None;
        wire.next_epoch();
        if wire.is_old() {
            self.state = State::Reopening(Step::Dial);
            wire.dial_old();
        } else {
            self.greet(wire);
        }
    }

    /// Sends the client's `initialize` once more, as ours.
    fn greet(&mut self, wire: &mut Wire) {
        let own = wire.own_id();
        let Some(line) = self.log.initialize(&own) else {
            self.state = State::Lost;
            return;
        };
        self.note = Note::Wanted { answer: None };
        self.state = State::Reopening(Step::Greet { own });
        wire.post(Purpose::Reopen, line, Vec::new());
    }

    /// The head of the answer to a step of ours.
    pub fn step_taken(
        &mut self,
        wire: &mut Wire,
        exchange: ExchangeId,
        session: Option<String>,
    ) -> Progress {
        match &self.state {
            State::Reopening(Step::Greet { .. }) => {
                self.take(wire, session);
                Progress::GoesOn
            }
            State::Reopening(Step::Confirm) => {
                wire.spend(exchange);
                self.restore(wire)
            }
            State::Reopening(Step::Dial | Step::Restore(_))
            | State::Closed
            | State::Opening
            | State::Open
            | State::Lost => Progress::GoesOn,
        }
    }

    /// An answer to a request of ours; none if it is not one.
    pub fn own_answer(
        &mut self,
        wire: &mut Wire,
        id: Option<&[u8]>,
        line: &[u8],
    ) -> Option<Progress> {
        match &mut self.state {
            State::Reopening(Step::Greet { own }) if id == Some(own) => {
                Some(self.greeted_again(wire, line))
            }
            State::Reopening(Step::Restore(left)) => {
                let at = left.iter().position(|one| Some(one.as_slice()) == id)?;
                left.swap_remove(at);
                if left.is_empty() {
                    return Some(self.reopened(wire));
                }
                Some(Progress::GoesOn)
            }
            State::Reopening(Step::Dial | Step::Greet { .. } | Step::Confirm)
            | State::Closed
            | State::Opening
            | State::Open
            | State::Lost => None,
        }
    }

    fn greeted_again(&mut self, wire: &mut Wire, line: &[u8]) -> Progress {
        let Some(greeting) = envelope::greeting(line) else {
            return self.fail_reopening(wire, "it refused to open one");
        };
        self.announces = announced(&greeting.capabilities);
        self.version = Some(greeting.version);
        self.state = State::Reopening(Step::Confirm);
        wire.post(Purpose::Reopen, self.log.initialized(), self.headers());
        Progress::GoesOn
    }

    /// Tells the new session what the old one knew.
    fn restore(&mut self, wire: &mut Wire) -> Progress {
        let rest = self.log.rest(|| wire.own_id());
        let mut left = Vec::with_capacity(rest.len());
        for (own, line) in rest {
            wire.post(Purpose::Reopen, line, self.headers());
            left.push(own);
        }
        if left.is_empty() {
            return self.reopened(wire);
        }
        self.state = State::Reopening(Step::Restore(left));
        Progress::GoesOn
    }

    /// The new session is as the old one was.
    fn reopened(&mut self, wire: &mut Wire) -> Progress {
        self.state = State::Open;
        wire.tell(
            "the server had ended the session; a new one was opened and told what the old one knew"
                .into(),
        );
        for notification in &self.announces {
            let line = alloc::format!(r#"{{"jsonrpc":"2.0","method":"{notification}"}}"#);
            wire.say(line.into_bytes());
        }
        Progress::Reopened
    }

    /// A step has ended without an answer. Level and subscriptions are not worth a session.
    pub fn step_ended(&mut self, wire: &mut Wire, why: &str) -> Progress {
        match &self.state {
            State::Reopening(Step::Greet { .. }) if wire.is_old() => Progress::GoesOn,
            State::Reopening(Step::Greet { .. } | Step::Dial) => self.fail_reopening(wire, why),
            State::Reopening(Step::Confirm) => self.restore(wire),
            State::Reopening(Step::Restore(_)) => {
                let running = wire.any(|one| one.purpose == Purpose::Reopen && one.spent.is_none());
                if running || wire.is_old() {
                    return Progress::GoesOn;
                }
                self.reopened(wire)
            }
            State::Closed | State::Opening | State::Open | State::Lost => Progress::GoesOn,
        }
    }

    /// No new session can be had now.
    pub fn fail_reopening(&mut self, wire: &mut Wire, why: &str) -> Progress {
        self.give_up(wire);
        self.state = State::Lost;
        wire.lose_endpoint();
        Progress::Failed(why.into())
    }

    /// A server of 2024 has named its endpoint; whether the client's `initialize` goes there now.
    pub fn endpoint_named(&mut self, wire: &mut Wire) -> bool {
        match &self.state {
            State::Opening => {
                self.note = Note::Written;
                true
            }
            State::Reopening(Step::Dial) => {
                self.greet(wire);
                false
            }
            State::Reopening(Step::Greet { .. } | Step::Confirm | Step::Restore(_))
            | State::Closed
            | State::Open
            | State::Lost => false,
        }
    }

    /// The version that it is closed with while its own is not known: the one that the client offered.
    fn likely_version(&self) -> Option<String> {
        self.version.clone().or_else(|| self.log.offered())
    }
}

/// The notification of each list that the server says it announces.
fn announced(capabilities: &[String]) -> Vec<&'static str> {
    [
        ("tools.listChanged", "notifications/tools/list_changed"),
        ("prompts.listChanged", "notifications/prompts/list_changed"),
        (
            "resources.listChanged",
            "notifications/resources/list_changed",
        ),
    ]
    .into_iter()
    .filter(|(capability, _)| capabilities.iter().any(|one| one == capability))
    .map(|(_, notification)| notification)
    .collect()
}
