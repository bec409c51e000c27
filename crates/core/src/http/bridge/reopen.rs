//! A session that the server does not know any more: opened again, unnoticed by the client.
//!
//! `initialize` as the client sent it, `initialized`, the log level and the subscriptions; then what was refused, and what
//! has waited, in order. The server refused before it acted, so that to send it again does no harm.

use alloc::string::String;
use alloc::vec::Vec;

use super::old::Old;
use super::route::is_initialized;
use super::{Bridge, ExchangeId, Output, Purpose, Session};
use crate::clock::Moment;
use crate::http::lines::look;
use crate::http::words::Why;
use crate::message::envelope;
use crate::message::frame::Kind;
use crate::message::settle;

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The old transport's stream is on its way.
    Dial,
    /// `initialize` is on its way.
    Greet {
        /// Its id.
        own: Vec<u8>,
    },
    /// `initialized` is on its way.
    Confirm,
    /// Level and subscriptions are on their way: how many, and their ids.
    Restore(Vec<Vec<u8>>),
}

/// The notification of each list that the server says it announces.
pub(super) fn announced(capabilities: &[String]) -> Vec<&'static str> {
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

impl Bridge {
    /// Whether a status means that the session of this exchange is not known any more.
    pub(super) fn is_gone(&self, exchange: ExchangeId, status: u16) -> bool {
        let in_session = self.exchanges.get(&exchange).is_some_and(|one| {
            one.epoch < self.epoch || (one.epoch == self.epoch && self.id.is_some())
        });
        status == 404 && in_session && self.initialize.is_some()
    }

    /// The server does not know the session that this exchange was sent in, or so it seems.
    pub(super) fn gone(&mut self, now: Moment, exchange: ExchangeId) {
        let Some(one) = self.exchanges.get(&exchange).cloned() else {
            return;
        };
        self.close(exchange);
        if one.epoch == self.epoch {
            self.session_gone();
        }
        match one.purpose {
            Purpose::Request(id) => {
                let Some(request) = self.requests.get_mut(&id) else {
                    return;
                };
                // One whose answer had begun was acted upon.
                if request.last_event.take().is_some() {
                    self.broke(now, &id, "the server has ended the session".into());
                } else if request.refused {
                    let (method, modern) = (request.method, request.modern.is_some());
                    self.answer(&id, method, modern, &Why::LostTwice);
                } else if let Some(request) = self.requests.remove(&id) {
                    self.hold_refused(request.line);
                }
            }
            // What the client answers belongs to a question that nobody asks any more, and a new session is confirmed
            // on the way.
            Purpose::Deliver(one)
                if !one.refused
                    && look(&one.line).kind == Kind::Notification
                    && !is_initialized(&one.line) =>
            {
                self.hold_refused(one.line);
            }
            Purpose::Initialize
            | Purpose::Deliver(_)
            | Purpose::Listen
            | Purpose::Farewell(_)
            | Purpose::Reopen
            | Purpose::Refresh(_)
            | Purpose::Old => {}
        }
    }

    /// The server has ended the session by itself, or so it seems: it is closed all the same. A balancer that asked
    /// another server says 404, too.
    pub(super) fn session_gone(&mut self) {
        if self.session != Session::Open {
            return;
        }
        if let Some(session) = self.id.take() {
            self.farewell(session);
        }
        self.reopen();
    }

    /// Opens a session again.
    pub(super) fn reopen(&mut self) {
        if self.closing.is_some() && self.requests.is_empty() && self.waiting.is_empty() {
            self.session = Session::Lost;
            return;
        }
        for token in self.asked.died() {
            let line = settle::cancel(&token, "the server has ended the session");
            self.say(line);
        }
        self.close_listen();
        self.version = None;
        self.epoch += 1;
        if self.old.is_some() {
            self.session = Session::Reopening(Step::Dial);
            self.dial_old();
        } else {
            self.greet();
        }
    }

    /// Sends the client's `initialize` once more, as ours.
    pub(super) fn greet(&mut self) {
        let own = self.own_id();
        let line = self
            .initialize
            .as_deref()
            .map(envelope::without_progress)
            .and_then(|line| envelope::with_id(&line, &own));
        let Some(line) = line else {
            self.session = Session::Lost;
            return;
        };
        self.noted = false;
        self.session = Session::Reopening(Step::Greet { own });
        self.post(Purpose::Reopen, line, Vec::new());
    }

    /// Whether this exchange is a step on the way to the session that is being opened.
    pub(super) fn is_step(&self, exchange: ExchangeId) -> bool {
        let one = self.exchanges.get(&exchange);
        one.is_some_and(|one| one.epoch == self.epoch && one.spent.is_none())
    }

    /// The head of the answer to our `initialize`, or to one of the later steps.
    pub(super) fn reopen_head(
        &mut self,
        now: Moment,
        exchange: ExchangeId,
        session: Option<String>,
    ) {
        match &self.session {
            Session::Reopening(Step::Greet { .. }) => {
                self.take_session(session);
            }
            Session::Reopening(Step::Confirm) => {
                self.spend(now, exchange);
                self.restore();
            }
            Session::Reopening(Step::Dial | Step::Restore(_))
            | Session::Closed
            | Session::Opening
            | Session::Open
            | Session::Lost => {}
        }
    }

    pub(super) fn reopen_answer(&mut self, now: Moment, exchange: ExchangeId, line: &[u8]) {
        self.spend(now, exchange);
        self.own_answer(look(line).id.as_deref(), line);
    }

    /// An answer to a request of ours; whether it was one.
    pub(super) fn own_answer(&mut self, id: Option<&[u8]>, line: &[u8]) -> bool {
        match &mut self.session {
            Session::Reopening(Step::Greet { own }) if id == Some(own) => {
                self.greeted_again(line);
                true
            }
            Session::Reopening(Step::Restore(left)) => {
                let before = left.len();
                left.retain(|one| Some(one.as_slice()) != id);
                let found = left.len() < before;
                if left.is_empty() {
                    self.reopened();
                }
                found
            }
            Session::Reopening(Step::Dial | Step::Greet { .. } | Step::Confirm)
            | Session::Closed
            | Session::Opening
            | Session::Open
            | Session::Lost => false,
        }
    }

    fn greeted_again(&mut self, line: &[u8]) {
        let Some(greeting) = envelope::greeting(line) else {
            self.reopen_failed("it refused to open one");
            return;
        };
        self.announces = announced(&greeting.capabilities);
        self.version = Some(greeting.version);
        let line = self.initialized.clone().unwrap_or_else(|| {
            br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec()
        });
        self.session = Session::Reopening(Step::Confirm);
        let headers = self.session_headers();
        self.post(Purpose::Reopen, line, headers);
    }

    /// Tells the new session what the old one knew.
    fn restore(&mut self) {
        let lines: Vec<Vec<u8>> = self
            .level
            .iter()
            .chain(self.subscriptions.values())
            .cloned()
            .collect();
        let mut left = Vec::new();
        for line in lines {
            let own = self.own_id();
            let line = envelope::without_progress(&line);
            if let Some(line) = envelope::with_id(&line, &own) {
                let headers = self.session_headers();
                self.post(Purpose::Reopen, line, headers);
                left.push(own);
            }
        }
        if left.is_empty() {
            self.reopened();
        } else {
            self.session = Session::Reopening(Step::Restore(left));
        }
    }

    /// The new session is as the old one was.
    fn reopened(&mut self) {
        self.session = Session::Open;
        self.outputs.push_back(Output::Tell(
            "the server had ended the session; a new one was opened and told what the old one knew"
                .into(),
        ));
        for notification in self.announces.clone() {
            let line = alloc::format!(r#"{{"jsonrpc":"2.0","method":"{notification}"}}"#);
            self.say(line.into_bytes());
        }
        self.open_listen();
        self.flush();
    }

    /// A step was refused. Level and subscriptions are not worth a session.
    pub(super) fn reopen_step_failed(&mut self, exchange: ExchangeId, why: &str) {
        self.exchanges.remove(&exchange);
        self.reopen_ended(why);
    }

    /// A step has ended without an answer.
    pub(super) fn reopen_ended(&mut self, why: &str) {
        match &self.session {
            Session::Reopening(Step::Greet { .. }) if self.old.is_some() => {}
            Session::Reopening(Step::Greet { .. } | Step::Dial) => self.reopen_failed(why),
            Session::Reopening(Step::Confirm) => self.restore(),
            Session::Reopening(Step::Restore(_)) => {
                let running = self
                    .exchanges
                    .values()
                    .any(|one| one.purpose == Purpose::Reopen && one.spent.is_none());
                if !running && self.old.is_none() {
                    self.reopened();
                }
            }
            Session::Closed | Session::Opening | Session::Open | Session::Lost => {}
        }
    }

    /// No new session can be had now; the next request tries again.
    pub(super) fn reopen_failed(&mut self, why: &str) {
        if let Some(session) = self.id.take() {
            self.farewell(session);
        }
        self.session = Session::Lost;
        if let Some(Old { endpoint, .. }) = &mut self.old {
            *endpoint = None;
        }
        self.refuse_waiting(why);
    }
}
