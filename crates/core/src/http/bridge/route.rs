//! The way of a client's message to the server.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Bridge, Flight, Listen, Output, Purpose, Request, Session};
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
        match seen.kind {
            Kind::Batch => {
                for member in members(&line) {
                    self.client_line(&member);
                }
            }
            Kind::Request => self.client_request(line, seen),
            Kind::Notification => self.client_notification(line, &seen.method),
            Kind::Response | Kind::Error => self.client_answer(line, &seen),
            Kind::Blank | Kind::Junk => {}
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
        self.take_request(&id, line, &seen.method);
    }

    fn wait(&mut self, id: &[u8], line: Vec<u8>, method: &str) {
        if self.waiting.len() >= limits::IN_FLIGHT_MAX {
            self.answer(id, Tracked::of(method), false, &Why::Busy);
            return;
        }
        self.hold(line);
    }

    pub(super) fn hold(&mut self, line: Vec<u8>) {
        self.waiting_bytes += line.len();
        self.waiting.push_back(line);
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
                && matches!(&one.purpose, Purpose::Deliver(line, _) if is_initialized(line))
        });
        let until = on_its_way?.at.after_ms(limits::HTTP_CONFIRM_MS);
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
            let Some(line) = self.waiting.pop_front() else {
                return;
            };
            self.waiting_bytes -= line.len();
            let seen = look(&line);
            match (seen.kind, seen.id) {
                (Kind::Request, Some(id)) => self.take_request(&id, line, &seen.method),
                (Kind::Request | Kind::Notification | Kind::Response | Kind::Error, _) => {
                    self.deliver(line, 0);
                }
                (Kind::Batch | Kind::Blank | Kind::Junk, _) => {}
            }
        }
    }

    fn take_request(&mut self, id: &[u8], line: Vec<u8>, method: &str) {
        let (sent, refused) = self.carried.remove(id).unwrap_or_default();
        let request = Request {
            modern: version_of(&line).filter(|_| self.session == Session::Closed),
            method: Tracked::of(method),
            line,
            flight: Flight::Elsewhere,
            sent,
            unsent: 0,
            last_event: None,
            retry_ms: None,
            stalled: None,
            asked: false,
            refused,
            refreshed: false,
        };
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
            self.hold(line);
        } else if !self.is_lost() {
            self.deliver(line, 0);
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
            let found = look(held).id.is_some_and(|held| token::same(&held, id));
            if found {
                *bytes -= held.len();
            }
            !found
        });
        if self.waiting.len() < waited {
            self.carried.remove(id);
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
        self.deliver(line, 0);
    }

    /// Sends what needs no answer.
    pub(super) fn deliver(&mut self, line: Vec<u8>, tried: u8) {
        let mut headers = self.session_headers();
        if self.session == Session::Closed
            && let Some(version) = version_of(&line)
        {
            headers.extend(self.marks.of(&look(&line).method, &line));
            headers.push((headers::VERSION.into(), version));
        }
        self.post(Purpose::Deliver(line.clone(), tried), line, headers);
    }

    /// The client's `initialize`.
    fn open_session(&mut self, id: &[u8], line: Vec<u8>) {
        // A client that begins anew has given its session up.
        if let Some(old) = self.id.take() {
            self.farewell(old);
        }
        self.close_listen();
        self.listen = Listen::Idle;
        self.asked.died();
        self.epoch += 1;
        self.version = None;
        self.noted = false;
        self.session = Session::Opening;
        self.initialize = Some(line.clone());
        self.initialized = None;
        self.level = None;
        self.subscriptions.clear();
        self.requests.insert(
            id.to_vec(),
            Request {
                modern: None,
                method: Tracked::Initialize,
                line,
                flight: Flight::Elsewhere,
                sent: 0,
                unsent: 0,
                last_event: None,
                retry_ms: None,
                stalled: None,
                asked: false,
                refused: false,
                refreshed: false,
            },
        );
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

pub(super) fn is_initialized(line: &[u8]) -> bool {
    look(line).method == "notifications/initialized"
}
