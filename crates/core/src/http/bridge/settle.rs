//! Requests whose answer did not come: sent again, resumed, or answered by us.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{
    Bridge, Content, Delivery, End, ExchangeId, Flight, Head, Purpose, Session, Verb, Waiting,
};
use crate::clock::Moment;
use crate::http::headers;
use crate::http::words::{self, Why};
use crate::limits;
use crate::message::retry;
use crate::message::slot::Tracked;
use crate::policy::Retry;

impl Bridge {
    /// Answers a request ourselves.
    pub(super) fn answer(&mut self, id: &[u8], method: Tracked, modern: bool, why: &Why) {
        self.requests.remove(id);
        let super::About { name, place, .. } = &self.about;
        let line = words::answer(id, method, modern, name, place, why);
        self.say(line);
    }

    fn settle(&mut self, id: &[u8], why: &Why) {
        let Some(request) = self.requests.get(id) else {
            return;
        };
        let (method, modern) = (request.method, request.modern.is_some());
        self.answer(id, method, modern, why);
    }

    /// Everything that waits for a session which will not come.
    pub(super) fn refuse_waiting(&mut self, why: &str) {
        self.waiting_bytes = 0;
        for waiting in core::mem::take(&mut self.waiting) {
            let seen = crate::http::lines::look(&waiting.line);
            if let Some(id) = seen.id
                && !seen.method.is_empty()
            {
                let why = Why::NoSession {
                    why: why.to_string(),
                };
                self.answer(&id, Tracked::of(&seen.method), false, &why);
            }
        }
    }

    /// Whether this may be done twice.
    fn may_repeat(&self, id: &[u8]) -> bool {
        let Some(request) = self.requests.get(id) else {
            return false;
        };
        !request.asked
            && retry::may_repeat(self.about.retry, request.method, &request.line, &self.lists)
    }

    /// The exchange of a request is over; its answer may have come before.
    pub(super) fn request_ended(
        &mut self,
        now: Moment,
        exchange: ExchangeId,
        id: &[u8],
        head: Option<Head>,
        end: End,
    ) {
        let Some(request) = self.requests.get(id) else {
            return;
        };
        if request.flight != Flight::Sent(exchange) {
            return;
        }
        let accepted = head.as_ref().is_some_and(Head::ok);
        if self.old.is_some() && accepted && end == End::Done {
            // The answer comes on the other stream.
            if let Some(request) = self.requests.get_mut(id) {
                request.flight = Flight::Elsewhere;
            }
            return;
        }
        if let End::TooLong = end {
            self.settle(id, &Why::TooLong { request: false });
            return;
        }
        if self.resume_later(now, id, head.as_ref(), &end) {
            return;
        }
        let resumed = self
            .requests
            .get_mut(id)
            .is_some_and(|request| request.last_event.take().is_some());
        match (head, end) {
            // It was acted upon, whatever became of the question for the rest.
            (Some(head), _) if resumed && !head.ok() => {
                let status = head.status;
                let why = format!("it broke off, and the rest was refused with HTTP {status}");
                self.broke(now, id, why);
            }
            (None, End::Failed { why, .. }) if resumed => self.broke(now, id, why),
            (None, End::Failed { unsent: true, why }) => self.unsent(now, id, why),
            (_, End::Failed { why, .. }) => self.broke(now, id, why),
            (Some(head), _) if !head.ok() => self.status(now, id, &head),
            (Some(head), _) => match head.content {
                Content::Other(content) if head.status != 202 => {
                    self.settle(id, &Why::NotMcp { content });
                }
                Content::Json | Content::Events | Content::Other(_) => self.silent(now, id),
            },
            (None, _) => self.silent(now, id),
        }
    }

    /// The server has not seen it: whatever it is, it may be sent again.
    fn unsent(&mut self, now: Moment, id: &[u8], why: String) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        request.sent = request.sent.saturating_sub(1);
        match limits::HTTP_AGAIN_MS.get(usize::from(request.unsent)) {
            Some(wait) if self.closing.is_none() => {
                request.unsent += 1;
                request.flight = Flight::Resting(now.after_ms(*wait));
            }
            // An earlier sending may have been acted upon.
            Some(_) | None if request.sent > 0 => {
                self.settle(id, &Why::Broke { why, again: false });
            }
            Some(_) | None => self.settle(id, &Why::Unreachable { why }),
        }
    }

    pub(super) fn broke(&mut self, now: Moment, id: &[u8], why: String) {
        let sent = self.requests.get(id).map_or(0, |request| request.sent);
        if sent < 2 && self.may_repeat(id) {
            self.rest(now, id, limits::HTTP_AGAIN_MS[0]);
            return;
        }
        let again = sent > 1;
        self.settle(id, &Why::Broke { why, again });
    }

    fn silent(&mut self, now: Moment, id: &[u8]) {
        let sent = self.requests.get(id).map_or(0, |request| request.sent);
        if sent < 2 && self.may_repeat(id) {
            self.rest(now, id, limits::HTTP_AGAIN_MS[0]);
            return;
        }
        self.settle(id, &Why::Silent);
    }

    fn status(&mut self, now: Moment, id: &[u8], head: &Head) {
        let sent = self.requests.get(id).map_or(0, |request| request.sent);
        let passing = matches!(head.status, 429 | 502 | 503 | 504);
        if passing && sent < 2 && self.may_repeat(id) {
            let wait = head.retry_after_ms.unwrap_or(limits::HTTP_RETRY_MS);
            if wait <= limits::HTTP_RETRY_AFTER_MS {
                self.rest(now, id, wait);
                return;
            }
        }
        let status = head.status;
        self.settle(id, &Why::Status { status });
    }

    fn rest(&mut self, now: Moment, id: &[u8], ms: u64) {
        if let Some(request) = self.requests.get_mut(id) {
            request.last_event = None;
            request.flight = Flight::Resting(now.after_ms(ms));
        }
    }

    /// Whether the answer goes on where it broke off.
    fn resume_later(&mut self, now: Moment, id: &[u8], head: Option<&Head>, end: &End) -> bool {
        let epoch = self.epoch;
        let Some(request) = self.requests.get_mut(id) else {
            return false;
        };
        let same_session = request
            .last_event
            .as_ref()
            .is_some_and(|(_, of)| *of == epoch);
        if !same_session || request.modern.is_some() || self.closing.is_some() {
            return false;
        }
        let wait = request
            .retry_ms
            .unwrap_or(limits::HTTP_RETRY_MS)
            .clamp(limits::HTTP_RETRY_LEAST_MS, limits::HTTP_RETRY_MOST_MS);
        match head {
            // It hung up in good order, or in the middle of what it had to say: it is asked for the rest.
            Some(head) if head.ok() && head.content == Content::Events => {
                let (since, count) = request.stalled.unwrap_or((now, 0));
                if matches!(end, End::Failed { .. })
                    && count > 0
                    && now.ms_since(since) > limits::HTTP_RESUME_MS
                {
                    return false;
                }
                request.stalled = Some((since, count + 1));
                request.flight = Flight::Resting(now.after_ms(wait));
                true
            }
            // The resumption itself did not work out: for a while it is tried again.
            None
            | Some(Head {
                status: 500..=599 | 429,
                ..
            }) => {
                let (since, count) = request.stalled.unwrap_or((now, 0));
                if now.ms_since(since) > limits::HTTP_RESUME_MS {
                    return false;
                }
                request.stalled = Some((since, count + 1));
                let wait = wait.max(limits::HTTP_RETRY_MS);
                let grown = wait.saturating_mul(1 << count.min(16));
                let grown = grown.min(limits::HTTP_RETRY_MOST_MS).max(wait);
                request.flight = Flight::Resting(now.after_ms(grown));
                true
            }
            Some(_) => false,
        }
    }

    /// A request that has rested goes on: sent again, or resumed.
    pub(super) fn go_on(&mut self, id: &[u8]) {
        let Some(request) = self.requests.get(id) else {
            return;
        };
        if request.method == Tracked::Initialize {
            self.send_initialize(id);
            return;
        }
        let resumed = request
            .last_event
            .as_ref()
            .filter(|(_, epoch)| *epoch == self.epoch)
            .map(|(event, _)| event.clone());
        let Some(last) = resumed else {
            if self.must_wait() || self.session == Session::Lost {
                // It goes the way of all messages that wait for a session.
                if let Some(request) = self.requests.remove(id) {
                    self.hold(Waiting {
                        line: request.line,
                        sent: request.sent,
                        refused: request.refused,
                    });
                }
                return;
            }
            self.send_request(id);
            return;
        };
        let mut headers = self.session_headers();
        headers.push((headers::LAST_EVENT.into(), last));
        let purpose = Purpose::Request(id.to_vec());
        let exchange = self.send(purpose, Verb::Get, headers, Vec::new(), None);
        if let Some(request) = self.requests.get_mut(id) {
            request.flight = Flight::Sent(exchange);
        }
    }

    /// `initialize` has ended; its answer may have come before.
    pub(super) fn initialize_ended(&mut self, now: Moment, head: Option<Head>, end: End) {
        let Some(id) = self.opening_id() else {
            return;
        };
        if self.old.is_some() && head.as_ref().is_some_and(Head::ok) && end == End::Done {
            return;
        }
        // A session whose opening was not answered is of no use to anybody.
        if let Some(session) = self.id.take() {
            self.farewell(session);
        }
        let request = self.requests.get_mut(&id);
        let (sent, unsent) = request
            .as_ref()
            .map_or((0, 0), |request| (request.sent, request.unsent));
        let failed_unsent = matches!(end, End::Failed { unsent: true, .. });
        if failed_unsent
            && self.closing.is_none()
            && let Some(wait) = limits::HTTP_AGAIN_MS.get(usize::from(unsent))
            && let Some(request) = request
        {
            request.unsent += 1;
            request.sent = request.sent.saturating_sub(1);
            request.flight = Flight::Resting(now.after_ms(*wait));
            return;
        }
        let broke = matches!(&end, End::Failed { unsent: false, .. });
        if broke && sent < 2 && self.about.retry != Retry::Never && self.closing.is_none() {
            if let Some(request) = self.requests.get_mut(&id) {
                request.flight = Flight::Resting(now.after_ms(limits::HTTP_AGAIN_MS[0]));
            }
            return;
        }
        let again = sent > 1;
        let why = match (end, head) {
            (End::Failed { unsent: true, why }, _) => Why::Unreachable { why },
            (End::Failed { why, .. }, _) => Why::Broke { why, again },
            (End::TooLong, _) => Why::TooLong { request: false },
            (End::Done, Some(head)) if !head.ok() => Why::Status {
                status: head.status,
            },
            (End::Done, Some(head)) => match head.content {
                Content::Other(content) => Why::NotMcp { content },
                Content::Json | Content::Events => Why::Silent,
            },
            (End::Done, None) => Why::Silent,
        };
        self.session = Session::Closed;
        self.initialize = None;
        self.settle(&id, &why);
        self.refuse_waiting("its first message was not answered");
    }

    /// A notification or an answer of the client's was taken, or not.
    pub(super) fn delivered(
        &mut self,
        now: Moment,
        delivery: Delivery,
        head: Option<&Head>,
        end: &End,
    ) {
        let wait = limits::HTTP_AGAIN_MS.get(usize::from(delivery.tried));
        let again = match (head, end) {
            (None, End::Failed { unsent: true, .. }) => wait.copied(),
            (Some(head), _) if matches!(head.status, 429 | 503) => wait.and_then(|wait| {
                let asked = head.retry_after_ms.unwrap_or(*wait);
                (asked <= limits::HTTP_RETRY_AFTER_MS).then_some(asked)
            }),
            (_, End::Done | End::TooLong | End::Failed { .. }) => None,
        };
        if let Some(wait) = again
            && self.closing.is_none()
        {
            let tried = delivery.tried + 1;
            let delivery = Delivery { tried, ..delivery };
            self.later.push((now.after_ms(wait), delivery));
            return;
        }
        let trouble = match (head, end) {
            (Some(head), _) if !head.ok() => Some(format!("HTTP {}", head.status)),
            (_, End::Failed { why, .. }) => Some(why.clone()),
            (_, End::Done | End::TooLong) => None,
        };
        if let Some(trouble) = trouble {
            let method = crate::http::lines::look(&delivery.line).method;
            let what = if method.is_empty() {
                "an answer of the client's"
            } else {
                &method
            };
            let text = format!("{what} did not reach the server: {trouble}");
            self.outputs.push_back(super::Output::Tell(text));
        }
    }
}
