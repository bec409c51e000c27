//! The way of a client's message to the server.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Bridge, Delivery, Flight, Listen, Output, Purpose, Request, Session, Waiting};
use crate::clock::Moment;
use crate::http::headers;
use crate::http::lines::{Seen, flat, look, members, offered, version_of};
use crate::http::words::Why;
use crate::limits::{self, HELD_LINE_BYTES};
use crate::message::asked::Answered;
use crate::message::envelope;
use crate::message::frame::Kind;
use crate::message::slot::Tracked;
use crate::message::token;

impl Bridge {
    pub(super) fn client_line(&mut self, line: &[u8]) {
        let line = flat(line);
        let seen = look(&line);
        if seen.kind != Kind::Batch {
            self.client_message(line, seen);
            return;
        }
        for member in members(&line) {
            let member = flat(member);
            let seen = look(&member);
            self.client_message(member, seen);
        }
    }

    fn client_message(&mut self, line: Vec<u8>, seen: Seen) {
        match seen.kind {
            Kind::Request => self.client_request(line, seen),
            Kind::Notification => self.client_notification(line, &seen.method),
            Kind::Response | Kind::Error => self.client_answer(line, &seen),
            Kind::Batch | Kind::Blank | Kind::Junk => {}
        }
    }

    pub(super) fn client_long_line(&mut self, id: Option<Vec<u8>>, method: &str) {
        let method = Tracked::of(method);
        match id {
            Some(id) => self.answer(&id, method, false, &Why::TooLong { request: true }),
            None => self.outputs.push_back(Output::Tell(alloc::format!(
                "a message of the client's was longer than {} MiB and was not sent",
                HELD_LINE_BYTES >> 20
            ))),
        }
    }

    fn client_request(&mut self, line: Vec<u8>, seen: Seen) {
        let Some(id) = seen.id else {
            return;
        };
        if seen.method == "initialize" {
            self.open_session(&id, line);
            return;
        }
        if self.must_wait() || self.exchanges.len() >= limits::HTTP_EXCHANGES {
            self.wait(&id, line, &seen.method);
            return;
        }
        if self.is_lost() && version_of(&line).is_none() {
            self.wait(&id, line, &seen.method);
            self.reopen();
            return;
        }
        self.take_request(&id, Waiting::new(line), &seen.method);
    }

    fn wait(&mut self, id: &[u8], line: Vec<u8>, method: &str) {
        if self.waiting.len() >= limits::IN_FLIGHT_MAX {
            self.answer(id, Tracked::of(method), false, &Why::Busy);
            return;
        }
        self.hold(Waiting::new(line));
    }

    pub(super) fn hold(&mut self, waiting: Waiting) {
        self.waiting_bytes += waiting.line.len();
        self.waiting.push_back(waiting);
    }

    /// What was refused with its session goes before what came later.
    pub(super) fn hold_refused(&mut self, line: Vec<u8>) {
        self.waiting_bytes += line.len();
        let before = self.waiting.iter().take_while(|one| one.refused).count();
        let refused = true;
        self.waiting.insert(
            before,
            Waiting {
                line,
                sent: 0,
                refused,
            },
        );
    }

    /// Whether messages wait until the session is there.
    pub(super) fn must_wait(&self) -> bool {
        match self.session {
            Session::Opening | Session::Reopening(_) => true,
            Session::Closed | Session::Open | Session::Lost => {
                self.confirmed_by().is_some_and(|until| self.now < until)
            }
        }
    }

    /// Until when other messages wait for the client's `initialized` to arrive; none if it is not on its way.
    pub(super) fn confirmed_by(&self) -> Option<Moment> {
        let on_its_way = self.exchanges.values().find(|one| {
            one.head.is_none()
                && matches!(&one.purpose, Purpose::Deliver(one) if is_initialized(&one.line))
        });
        let rests = self.later.iter();
        let rests = rests.filter(|(_, one)| is_initialized(&one.line));
        let since = on_its_way
            .map(|one| one.at)
            .or_else(|| rests.map(|(at, _)| *at).next());
        let until = since?.after_ms(limits::HTTP_CONFIRM_MS);
        (self.now < until).then_some(until)
    }

    fn is_lost(&self) -> bool {
        self.session == Session::Lost
    }

    /// Sends what has waited, as far as it may go.
    pub(super) fn flush(&mut self) {
        while !self.waiting.is_empty()
            && !self.must_wait()
            && self.exchanges.len() < limits::HTTP_EXCHANGES
        {
            if self.is_lost() {
                self.reopen();
                return;
            }
            let Some(waiting) = self.waiting.pop_front() else {
                return;
            };
            self.waiting_bytes -= waiting.line.len();
            let seen = look(&waiting.line);
            match (seen.kind, seen.id) {
                (Kind::Request, Some(id)) => self.take_request(&id, waiting, &seen.method),
                (Kind::Request | Kind::Notification | Kind::Response | Kind::Error, _) => {
                    self.deliver(Delivery {
                        line: waiting.line,
                        tried: 0,
                        refused: waiting.refused,
                    });
                }
                (Kind::Batch | Kind::Blank | Kind::Junk, _) => {}
            }
        }
    }

    fn take_request(&mut self, id: &[u8], waiting: Waiting, method: &str) {
        let modern = version_of(&waiting.line).filter(|_| self.session == Session::Closed);
        let request = Request::new(waiting, Tracked::of(method), modern);
        self.requests.insert(id.to_vec(), request);
        self.send_request(id);
    }

    /// Sends a request of the client's, for the first time or again.
    pub(super) fn send_request(&mut self, id: &[u8]) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        // The client may have seen the list through a bridge that is dead, and a router needs the headers.
        let unlisted = request.modern.is_some()
            && request.method == Tracked::ToolsCall
            && !self.marks.are_known();
        if unlisted && !request.refreshed {
            request.refreshed = true;
            request.flight = Flight::Elsewhere;
            self.refresh(id);
            return;
        }
        let line = request.line.clone();
        let headers = match &request.modern {
            Some(version) => {
                let mut headers = self.marks.of(&look(&line).method, &line);
                headers.push((headers::VERSION.into(), version.clone()));
                headers
            }
            None => self.session_headers(),
        };
        let exchange = self.post(Purpose::Request(id.to_vec()), line, headers);
        if let Some(request) = self.requests.get_mut(id) {
            request.flight = Flight::Sent(exchange);
            request.sent = request.sent.saturating_add(1);
        }
    }

    fn client_notification(&mut self, line: Vec<u8>, method: &str) {
        match method {
            "notifications/cancelled" if self.cancel(&line) => return,
            "notifications/initialized" => self.initialized = Some(line.clone()),
            _ => {}
        }
        if self.must_wait() || self.exchanges.len() >= limits::HTTP_EXCHANGES {
            self.hold(Waiting::new(line));
        } else if !self.is_lost() {
            self.deliver(Delivery::new(line));
        }
    }

    /// The client takes a request back; whether the server need not be told in words.
    fn cancel(&mut self, line: &[u8]) -> bool {
        let Some(id) = envelope::cancelled_id(line) else {
            return false;
        };
        let waited = self.waiting.len();
        let bytes = &mut self.waiting_bytes;
        self.waiting.retain(|held| {
            let held_id = look(&held.line).id;
            let found = held_id.is_some_and(|held| token::same(&held, id));
            if found {
                *bytes -= held.line.len();
            }
            !found
        });
        if self.waiting.len() < waited {
            return true;
        }
        let modern = |one: &Request| one.modern.is_some();
        let key = self
            .requests
            .iter()
            .find(|(key, _)| token::same(key, id))
            .map(|(key, one)| (key.clone(), modern(one), one.flight));
        let Some((key, modern, flight)) = key else {
            return false;
        };
        self.requests.remove(&key);
        match flight {
            // In the modern era the end of the stream is the cancel.
            Flight::Sent(exchange) if modern => {
                self.close(exchange);
                true
            }
            // The answer is not wanted, but the session's server must be told.
            Flight::Sent(_) | Flight::Elsewhere | Flight::Resting(_) => modern,
        }
    }

    fn client_answer(&mut self, line: Vec<u8>, seen: &Seen) {
        let Some(id) = &seen.id else {
            return;
        };
        let line = match self.asked.answered(id) {
            Answered::Forward => line,
            Answered::Relabel(own) => match envelope::with_id(&line, &own) {
                Some(line) => line,
                None => return,
            },
            Answered::Swallow | Answered::Unknown => return,
        };
        self.deliver(Delivery::new(line));
    }

    /// Sends what needs no answer.
    pub(super) fn deliver(&mut self, delivery: Delivery) {
        let line = delivery.line.clone();
        let mut headers = self.session_headers();
        if self.session == Session::Closed
            && let Some(version) = version_of(&line)
        {
            headers.extend(self.marks.of(&look(&line).method, &line));
            headers.push((headers::VERSION.into(), version));
        }
        self.post(Purpose::Deliver(delivery), line, headers);
    }

    /// Sends what has rested because nobody took it.
    pub(super) fn deliver_due(&mut self, now: Moment) {
        while let Some(at) = self.later.iter().position(|(at, _)| *at <= now) {
            let (_, delivery) = self.later.remove(at);
            match self.session {
                // A session that is opened anew is confirmed on the way.
                Session::Opening | Session::Reopening(_) | Session::Lost
                    if is_initialized(&delivery.line) => {}
                Session::Opening | Session::Reopening(_) => self.hold(Waiting {
                    line: delivery.line,
                    sent: 0,
                    refused: delivery.refused,
                }),
                Session::Lost => {}
                Session::Closed | Session::Open => self.deliver(delivery),
            }
        }
    }

    /// The client's `initialize`.
    fn open_session(&mut self, id: &[u8], line: Vec<u8>) {
        // A client that begins anew has given its session up.
        if let Some(old) = self.id.take() {
            self.farewell(old);
        }
        self.close_listen();
        self.listen = Listen::Idle;
        self.later.clear();
        self.asked.died();
        self.epoch += 1;
        self.version = None;
        self.noted = false;
        self.session = Session::Opening;
        self.initialize = Some(line.clone());
        self.initialized = None;
        self.level = None;
        self.subscriptions.clear();
        let request = Request::new(Waiting::new(line), Tracked::Initialize, None);
        self.requests.insert(id.to_vec(), request);
        self.send_initialize(id);
    }

    pub(super) fn send_initialize(&mut self, id: &[u8]) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        request.sent = request.sent.saturating_add(1);
        let line = request.line.clone();
        let exchange = self.post(Purpose::Initialize, line, Vec::new());
        if let Some(request) = self.requests.get_mut(id) {
            request.flight = Flight::Sent(exchange);
        }
    }

    /// The request that opens the session, if it has no answer yet.
    pub(super) fn opening_id(&self) -> Option<Vec<u8>> {
        self.requests
            .iter()
            .find(|(_, one)| one.method == Tracked::Initialize)
            .map(|(id, _)| id.clone())
    }

    /// The version that a session is closed with while its own is not known: the one that the client offered.
    pub(super) fn likely_version(&self) -> Option<String> {
        self.version
            .clone()
            .or_else(|| self.initialize.as_deref().and_then(offered))
    }
}

impl Waiting {
    pub(super) fn new(line: Vec<u8>) -> Self {
        Self {
            line,
            sent: 0,
            refused: false,
        }
    }
}

impl Delivery {
    pub(super) fn new(line: Vec<u8>) -> Self {
        Self {
            line,
            tried: 0,
            refused: false,
        }
    }
}

impl Request {
    fn new(waiting: Waiting, method: Tracked, modern: Option<String>) -> Self {
        Self {
            line: waiting.line,
            method,
            modern,
            flight: Flight::Elsewhere,
            sent: waiting.sent,
            unsent: 0,
            last_event: None,
            retry_ms: None,
            stalled: None,
            asked: false,
            refused: waiting.refused,
            refreshed: false,
        }
    }
}

pub(super) fn is_initialized(line: &[u8]) -> bool {
    look(line).method == "notifications/initialized"
}
