//! The end: what is in flight has its time, then the debts are paid, and then we go.

use alloc::string::{String, ToString};

use super::{Bridge, Closed, End, ExchangeId, Flight, Head, Output, Purpose, Verb};
use crate::clock::Moment;
use crate::http::headers;
use crate::limits;

/// How far the end is.
#[derive(Clone, Debug)]
pub(super) struct Closing {
    /// Until when what is in flight has its time.
    drain_until: Moment,
    /// Until when sessions may be closed; none while it has not begun.
    pay_until: Option<Moment>,
}

impl Closing {
    pub(super) fn wake_at(&self) -> Moment {
        self.pay_until.unwrap_or(self.drain_until)
    }
}

/// Whether an answer to DELETE means that the session is closed.
pub fn is_paid(status: u16, body: &[u8]) -> bool {
    match status {
        200..=299 | 404 | 405 | 410 | 501 => true,
        400 => speaks_of_session(body),
        _ => false,
    }
}

/// Whether an answer to DELETE only says that there is no such session: to somebody with other credentials than it was
/// opened with, that may be said of one that is there.
pub fn is_unknown(status: u16) -> bool {
    matches!(status, 400 | 404 | 410)
}

/// Who has closed a session, if that status answers our DELETE.
fn closed_by(status: u16) -> Closed {
    if is_unknown(status) {
        Closed::Server
    } else {
        Closed::Delete(status)
    }
}

/// Whether the body of a 400 says something about the session: that is how some servers say that they know none such.
pub(super) fn speaks_of_session(body: &[u8]) -> bool {
    let body = body.to_ascii_lowercase();
    body.windows(7).any(|word| word == b"session")
}

impl Bridge {
    pub(super) fn begin_closing(&mut self, now: Moment, drain_ms: u64) {
        let until = now.after_ms(drain_ms);
        match &mut self.closing {
            Some(closing) => closing.drain_until = closing.drain_until.min(until),
            None => {
                self.closing = Some(Closing {
                    drain_until: until,
                    pay_until: None,
                });
            }
        }
    }

    /// Goes on with the end, if it has come.
    pub(super) fn close_if_idle(&mut self, now: Moment) {
        let Some(closing) = &self.closing else {
            return;
        };
        if self.done {
            return;
        }
        if closing.pay_until.is_none() {
            let busy = !self.requests.is_empty() || !self.waiting.is_empty() || self.delivering();
            if busy && now < closing.drain_until {
                return;
            }
            self.begin_paying(now);
        }
        let until = self.closing.as_ref().and_then(|closing| closing.pay_until);
        let late = until.is_some_and(|until| now >= until);
        if self.paying() && !late {
            return;
        }
        self.leave();
    }

    fn delivering(&self) -> bool {
        if !self.later.is_empty() {
            return true;
        }
        let mut purposes = self.exchanges.values().map(|one| &one.purpose);
        purposes.any(|purpose| matches!(purpose, Purpose::Deliver(_)))
    }

    /// What is in flight is broken off, but for what may have opened a session; every session is closed.
    fn begin_paying(&mut self, now: Moment) {
        if let Some(closing) = &mut self.closing {
            closing.pay_until = Some(now.after_ms(limits::HTTP_FAREWELL_MS));
        }
        let over: alloc::vec::Vec<ExchangeId> = self
            .exchanges
            .iter()
            .filter(|(_, one)| match one.purpose {
                Purpose::Farewell(_) => false,
                Purpose::Initialize | Purpose::Reopen => one.head.is_some(),
                Purpose::Request(_)
                | Purpose::Deliver(_)
                | Purpose::Listen
                | Purpose::Refresh(_)
                | Purpose::Old => true,
            })
            .map(|(id, _)| *id)
            .collect();
        for exchange in over {
            self.close(exchange);
        }
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.later.clear();
        self.requests
            .retain(|_, one| matches!(one.flight, Flight::Sent(_)));
        if let Some(session) = self.id.take() {
            self.farewell(session);
        }
    }

    /// Whether a session is being closed, or may yet appear.
    fn paying(&mut self) -> bool {
        // One that appeared after all.
        if let Some(session) = self.id.take() {
            self.farewell(session);
        }
        self.exchanges.values().any(|one| match one.purpose {
            Purpose::Farewell(_) => true,
            Purpose::Initialize | Purpose::Reopen => one.head.is_none(),
            Purpose::Request(_)
            | Purpose::Deliver(_)
            | Purpose::Listen
            | Purpose::Refresh(_)
            | Purpose::Old => false,
        })
    }

    fn leave(&mut self) {
        self.done = true;
        for (exchange, one) in core::mem::take(&mut self.exchanges) {
            self.opened_by(exchange, one.opening, false);
            if let Purpose::Farewell(session) = one.purpose {
                let why = "it has not answered in time".to_string();
                self.outputs.push_back(Output::Owed { session, why });
            }
        }
        self.requests.clear();
        self.outputs.push_back(Output::Done);
    }

    /// Closes a session.
    pub(super) fn farewell(&mut self, session: String) {
        let mut headers = alloc::vec![(headers::SESSION.to_string(), session.clone())];
        let version = self.likely_version();
        headers.extend(version.map(|version| (headers::VERSION.to_string(), version)));
        let purpose = Purpose::Farewell(session);
        self.send(purpose, Verb::Delete, headers, alloc::vec::Vec::new(), None);
    }

    pub(super) fn farewell_head(&mut self, exchange: ExchangeId, session: String, head: &Head) {
        // What a 400 means is in its body.
        if head.status != 400 && is_paid(head.status, &[]) {
            self.close(exchange);
            let by = closed_by(head.status);
            self.outputs.push_back(Output::Paid { session, by });
        }
    }

    pub(super) fn farewell_body(
        &mut self,
        exchange: ExchangeId,
        session: String,
        head: &Head,
        body: &[u8],
    ) {
        self.close(exchange);
        self.outputs.push_back(if is_paid(head.status, body) {
            let by = closed_by(head.status);
            Output::Paid { session, by }
        } else {
            let why = alloc::format!("it answered with HTTP {}", head.status);
            Output::Owed { session, why }
        });
    }

    pub(super) fn farewell_ended(&mut self, session: String, head: Option<&Head>, end: &End) {
        let why = match (head, end) {
            (_, End::Failed { why, .. }) => why.clone(),
            (Some(head), End::Done | End::TooLong) => {
                alloc::format!("it answered with HTTP {}", head.status)
            }
            (None, End::Done | End::TooLong) => "it did not answer".to_string(),
        };
        self.outputs.push_back(Output::Owed { session, why });
    }
}
