//! A stdio client in front of a streamable-HTTP server: everything that the bridge decides, as `(now, input) → outputs`.
//!
//! Each message of the client's becomes a POST; what comes back, as JSON or as events, becomes lines. The session that a
//! legacy server opens must be closed: it is [noted](Output::Note) before the client sees the answer that opened it, and
//! [closed](Output::SessionClosed) by a DELETE, or by the server itself when it says that it no longer knows the session.
//! It does not know sockets, files, secrets or processes.
//!
//! It is made of machines that own their fields: `Wire` (what goes out), `HttpSession` (with its replay),
//! `Requests` (those of the client that are not answered yet), `Queue` (what waits), `Listen` (the stream for what comes unasked), `Tools`
//! (what is known of the tools). Here they are put together: this file has the way of a client's message and the end, `hear` the way back.
//!
//! Invariants:
//! - Each request of the client's gets exactly one answer: the server's, or one of ours that says why. A second answer,
//!   or one to no open request, is dropped. What the client cancels needs none.
//! - Nothing that the server may have acted upon is sent again, unless the protocol or the user says that this does no
//!   harm, and then once.
//! - No session is shown to the client that is not noted; no session is left without a DELETE or a note.
//! - Every wait of ours has an end; [`Bridge::wake_at`] says when.

use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::limits::{self, HELD_LINE_BYTES};
use mainstay_protocol::message::asked::{Answered, Asked};
use mainstay_protocol::message::frame::Kind;
use mainstay_protocol::message::slot::Tracked;
use mainstay_protocol::message::{batch, envelope, settle};

use super::headers;
use super::lines::{Seen, flat, look, version_of};
use super::words::{self, Why};

pub mod close;
mod hear;
mod io;
mod listen;
mod queue;
mod replay;
mod requests;
mod session;
mod tools;
mod wire;

pub use io::{About, Closed, Content, End, ExchangeId, Head, Input, Noted, Output, Sending, Verb};
use listen::Listen;
use queue::{Delivery, Queue, Waiting};
use requests::{Circumstances, Flight, Request, Requests};
use session::{HttpSession, Progress};
use tools::Tools;
use wire::{Purpose, Wire};

/// The bridge.
#[derive(Debug)]
pub struct Bridge {
    about: About,
    life: Life,
    wire: Wire,
    session: HttpSession,
    requests: Requests,
    queue: Queue,
    listen: Listen,
    asked: Asked,
    tools: Tools,
}

/// How far the bridge is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// The client is there.
    Serving,
    /// What is in flight has its time until then.
    Draining { until: Moment },
    /// Sessions are closed until then.
    Paying { until: Moment },
    /// All is done.
    Over,
}

impl Life {
    /// When the time of this part is over.
    fn until(self) -> Option<Moment> {
        match self {
            Self::Draining { until } | Self::Paying { until } => Some(until),
            Self::Serving | Self::Over => None,
        }
    }

    /// What is in flight has its time until then, and no longer than it had.
    fn drain(&mut self, by: Moment) {
        match self {
            Self::Serving => *self = Self::Draining { until: by },
            Self::Draining { until } => *until = by.min(*until),
            Self::Paying { .. } | Self::Over => {}
        }
    }
}

impl Bridge {
    /// No message was exchanged yet.
    pub fn new(about: About) -> Self {
        Self {
            about,
            life: Life::Serving,
            wire: Wire::new(),
            session: HttpSession::new(),
            requests: Requests::new(),
            queue: Queue::default(),
            listen: Listen::new(),
            asked: Asked::new(),
            tools: Tools::default(),
        }
    }

    /// Takes one input; then the outputs are to be drained.
    pub fn handle(&mut self, now: Moment, input: Input) {
        self.wire.set_time(now);
        match input {
            Input::Line(line) => self.client_line(&line),
            Input::LongLine(id, method) => self.client_long_line(id, &method),
            Input::Eof => self.begin_closing(self.about.drain_ms),
            Input::Term => self.begin_closing(0),
            Input::Head(exchange, head) => self.head(exchange, head),
            Input::Event(exchange, event) => self.event(exchange, &event),
            Input::Body(exchange, body) => self.body(exchange, &body),
            Input::End(exchange, end) => self.end(exchange, end),
            Input::Noted(session, noted) => self.was_noted(&session, noted),
            Input::Tick => {}
        }
        self.due();
        self.close_if_idle();
        debug_assert!(self.requests.agree());
    }

    /// The next thing to be done.
    pub fn output(&mut self) -> Option<Output> {
        self.wire.output()
    }

    /// When to come back.
    pub fn wake_at(&self) -> Option<Moment> {
        if self.life == Life::Over {
            return None;
        }
        [
            self.life.until(),
            self.requests.wake_at(),
            self.wire.wake_at(),
            self.listen.wake_at(),
            self.queue.wake_at(),
            self.confirmed_by(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Requests of the client's that have no answer yet.
    pub fn in_flight(&self) -> usize {
        self.requests.len() + self.queue.len()
    }

    /// Bytes that wait within: a reason not to read more of the client's.
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// What is due by now.
    fn due(&mut self) {
        let now = self.wire.now();
        for id in self.requests.due(now) {
            self.go_on(&id);
        }
        if self.listen.wake_at().is_some_and(|at| at <= now) {
            self.open_listen();
        }
        self.wire.close_spent();
        self.deliver_due();
        self.flush();
    }

    fn client_line(&mut self, line: &[u8]) {
        let line = flat(line);
        let seen = look(&line);
        if seen.kind != Kind::Batch {
            self.client_message(line, seen);
            return;
        }
        batch::each_member_line(&line, |_, member| {
            let member = flat(member);
            let seen = look(&member);
            self.client_message(member, seen);
        });
    }

    fn client_message(&mut self, line: Vec<u8>, seen: Seen) {
        match seen.kind {
            Kind::Request => self.client_request(line, seen),
            Kind::Notification => self.client_notification(line, &seen.method),
            Kind::Response | Kind::Error => self.client_answer(line, &seen),
            Kind::Batch | Kind::Blank | Kind::Junk => {}
        }
    }

    fn client_long_line(&mut self, id: Option<Vec<u8>>, method: &str) {
        match id {
            Some(id) => {
                let why = Why::TooLong { request: true };
                self.answer(&id, Tracked::of(method), false, &why);
            }
            None => self.wire.tell(alloc::format!(
                "a message of the client's was longer than {} MiB and was not sent",
                HELD_LINE_BYTES >> 20
            )),
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
        let lost = self.session.is_lost() && version_of(&line).is_none();
        if !lost && !self.must_wait() && !self.requests.is_full() {
            self.take_request(&id, Waiting::new(line), &seen.method);
            return;
        }
        if self.queue.len() >= limits::IN_FLIGHT_MAX {
            self.answer(&id, Tracked::of(&seen.method), false, &Why::Busy);
        } else {
            self.queue.push(Waiting::new(line));
        }
        if lost && !self.must_wait() {
            self.reopen();
        }
    }

    /// True if messages wait for the session or for room.
    fn must_wait(&self) -> bool {
        self.waits_for_session() || self.wire.is_full()
    }

    fn waits_for_session(&self) -> bool {
        self.session.is_on_its_way() || self.confirmed_by().is_some()
    }

    /// Until when other messages wait for the client's `initialized` to arrive; none if it is not on its way.
    fn confirmed_by(&self) -> Option<Moment> {
        let since = self.wire.confirming_since();
        let since = since.or_else(|| self.queue.confirming_at())?;
        let until = since.after_ms(limits::HTTP_CONFIRM_MS);
        (self.wire.now() < until).then_some(until)
    }

    /// Sends what has waited, as far as it may go.
    fn flush(&mut self) {
        while !self.queue.is_empty() && !self.must_wait() && !self.requests.is_full() {
            if self.session.is_lost() {
                self.reopen();
                return;
            }
            let Some(waiting) = self.queue.pop() else {
                return;
            };
            let seen = look(&waiting.line);
            match (seen.kind, seen.id) {
                (Kind::Request, Some(id)) => self.take_request(&id, waiting, &seen.method),
                (Kind::Request | Kind::Notification | Kind::Response | Kind::Error, _) => {
                    self.deliver(waiting.into());
                }
                (Kind::Batch | Kind::Blank | Kind::Junk, _) => {}
            }
        }
    }

    fn take_request(&mut self, id: &[u8], waiting: Waiting, method: &str) {
        let modern = version_of(&waiting.line).filter(|_| self.session.is_closed());
        let request = Request::new(waiting, Tracked::of(method), modern);
        if self.open(id, request) {
            self.send_request(id);
        }
    }

    /// Takes a request up; one that finds no room is answered.
    fn open(&mut self, id: &[u8], request: Request) -> bool {
        let (method, modern) = (request.method(), request.modern().is_some());
        let (now, epoch) = (self.wire.now(), self.wire.epoch());
        let open = self.requests.open(now, epoch, id, request);
        if !open {
            self.answer(id, method, modern, &Why::Busy);
        }
        open
    }

    /// Sends a request of the client's, for the first time or again.
    fn send_request(&mut self, id: &[u8]) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        if self.tools.lacks_headers(request) && request.refresh() {
            self.ask_for_tools(id);
            return;
        }
        let line = request.line().to_vec();
        let (purpose, headers) = match (request.method(), request.modern()) {
            (Tracked::Initialize, _) => (Purpose::Initialize(id.to_vec()), Vec::new()),
            (_, Some(version)) => {
                let headers = self.tools.headers(&line, version);
                (Purpose::Request(id.to_vec()), headers)
            }
            (_, None) => (Purpose::Request(id.to_vec()), self.session.headers()),
        };
        let exchange = self.wire.post(purpose, line, headers);
        if let Some(request) = self.requests.get_mut(id) {
            request.goes_with(exchange);
        }
    }

    fn client_notification(&mut self, line: Vec<u8>, method: &str) {
        match method {
            "notifications/cancelled" if self.cancel(&line) => return,
            "notifications/initialized" => self.session.confirmed_with(line.clone()),
            _ => {}
        }
        if self.must_wait() {
            self.queue.push(Waiting::new(line));
        } else if !self.session.is_lost() {
            self.deliver(Delivery::new(line));
        }
    }

    /// The client cancels a request. True if no cancel notification needs to be sent.
    fn cancel(&mut self, line: &[u8]) -> bool {
        let Some(id) = envelope::cancelled_id(line) else {
            return false;
        };
        if self.queue.cancel(id) {
            return true;
        }
        let request = self.requests.get(id);
        if request.is_some_and(|one| one.method() == Tracked::Initialize) {
            // The protocol forbids it, and everything else waits for its answer.
            return true;
        }
        let Some(request) = self.requests.close(id) else {
            return false;
        };
        let modern = request.modern().is_some();
        // In the modern era the end of the stream is the cancel. In a session the server must be told.
        if let (true, Flight::Sent(exchange)) = (modern, request.flight()) {
            self.wire.close(exchange);
        }
        modern
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
    fn deliver(&mut self, delivery: Delivery) {
        let line = delivery.line().to_vec();
        let mut headers = self.session.headers();
        if self.session.is_closed()
            && let Some(version) = version_of(&line)
        {
            headers.extend(self.tools.headers(&line, &version));
        }
        self.wire.post(Purpose::Deliver(delivery), line, headers);
    }

    /// Sends what has rested because no server took it.
    fn deliver_due(&mut self) {
        while let Some(delivery) = self.queue.rested(self.wire.now()) {
            let on_its_way = self.session.is_on_its_way();
            if !on_its_way && !self.session.is_lost() {
                self.deliver(delivery);
            } else if on_its_way && !delivery.confirms() {
                // A session that is opened anew is confirmed on the way.
                self.queue.push(delivery.into());
            }
        }
    }

    /// The client's `initialize`.
    fn open_session(&mut self, id: &[u8], line: Vec<u8>) {
        self.listen.reset(&mut self.wire);
        self.queue.forget_resting();
        self.asked.died();
        if let Some(given_up) = self.requests.opening() {
            let why = "the client has begun another session".into();
            self.settle(&given_up, Some(Why::Broke { why, again: false }));
        }
        self.session.begin(&mut self.wire, line.clone());
        if self.open(
            id,
            Request::new(Waiting::new(line), Tracked::Initialize, None),
        ) {
            self.send_request(id);
        } else {
            self.session.fail_opening(&mut self.wire);
        }
    }

    /// The wait of a request is over: it is sent again, or its answer is resumed.
    fn go_on(&mut self, id: &[u8]) {
        let Some(request) = self.requests.get(id) else {
            return;
        };
        let last = request.resumes_after(self.wire.epoch()).map(String::from);
        if request.method() == Tracked::Initialize {
            self.send_request(id);
        } else if let Some(last) = last {
            let mut headers = self.session.headers();
            headers.push((headers::LAST_EVENT.into(), last));
            let exchange = self.wire.get(Purpose::Request(id.to_vec()), headers);
            if let Some(request) = self.requests.get_mut(id) {
                request.resumes_with(exchange);
            }
        } else if self.session.is_lost() || self.waits_for_session() {
            // It is queued like all messages that wait for a session.
            if let Some(request) = self.requests.close(id) {
                self.queue.push(request.into_waiting());
            }
        } else {
            self.send_request(id);
        }
    }

    /// Answers a request ourselves.
    fn answer(&mut self, id: &[u8], method: Tracked, modern: bool, why: &Why) {
        self.requests.close(id);
        let About { name, place, .. } = &self.about;
        let line = words::answer(id, method, modern, name, place, why);
        self.wire.say(line);
    }

    /// Answers a request that waits, if there is a reason to.
    fn settle(&mut self, id: &[u8], why: Option<Why>) {
        if let (Some(request), Some(why)) = (self.requests.get(id), why) {
            let (method, modern) = (request.method(), request.modern().is_some());
            self.answer(id, method, modern, &why);
        }
    }

    /// Everything that waits for a session which will not come.
    fn refuse_waiting(&mut self, why: &str) {
        while let Some(waiting) = self.queue.pop() {
            let seen = look(&waiting.line);
            if let (Some(id), false) = (seen.id, seen.method.is_empty()) {
                let why = Why::NoSession { why: why.into() };
                self.answer(&id, Tracked::of(&seen.method), false, &why);
            }
        }
    }

    /// How things stand for a request whose exchange is over.
    fn circumstances(&self, request: &Request) -> Circumstances {
        Circumstances {
            now: self.wire.now(),
            epoch: self.wire.epoch(),
            closing: self.is_closing(),
            may_repeat: self.tools.may_repeat(self.about.retry, request),
        }
    }

    /// Opens a session again.
    fn reopen(&mut self) {
        if self.is_closing() && self.requests.is_empty() && self.queue.is_empty() {
            self.session.lose();
            return;
        }
        for token in self.asked.died() {
            let line = settle::cancel(&token, "the server has ended the session");
            self.wire.say(line);
        }
        self.listen.close(&mut self.wire);
        self.session.reopen(&mut self.wire);
    }

    /// A step on the way to a new session was taken.
    fn reopening(&mut self, progress: Progress) {
        match progress {
            Progress::GoesOn => {}
            Progress::Reopened => {
                self.open_listen();
                self.flush();
            }
            Progress::Failed(why) => self.refuse_waiting(&why),
        }
    }

    /// Opens the stream for messages that the server sends on its own, if there can be one.
    fn open_listen(&mut self) {
        let may = self.session.is_open() && !self.wire.is_old() && !self.is_closing();
        let session = may.then(|| self.session.headers());
        self.listen.open(&mut self.wire, session);
    }

    fn is_closing(&self) -> bool {
        self.life != Life::Serving
    }

    /// Requests in flight have this time, then the sessions are closed, then the bridge exits.
    fn begin_closing(&mut self, drain_ms: u64) {
        self.life.drain(self.wire.now().after_ms(drain_ms));
    }

    /// Goes on with the end, if it has come.
    fn close_if_idle(&mut self) {
        let now = self.wire.now();
        match self.life {
            Life::Serving | Life::Over => return,
            Life::Draining { until } => {
                let busy = !self.requests.is_empty() || !self.queue.is_empty() || self.delivering();
                if busy && now < until {
                    return;
                }
                self.begin_paying();
            }
            Life::Paying { .. } => {}
        }
        let late = self.life.until().is_some_and(|until| now >= until);
        if self.paying() && !late {
            return;
        }
        self.life = Life::Over;
        self.requests.retain(|_| false);
        self.wire.abandon();
    }

    fn delivering(&self) -> bool {
        let under_way = |one: &wire::HttpExchange| matches!(one.purpose, Purpose::Deliver(_));
        self.queue.has_resting() || self.wire.any(under_way)
    }

    /// What is in flight is broken off, but for what may have opened a session; every session is closed.
    fn begin_paying(&mut self) {
        let until = self.wire.now().after_ms(limits::HTTP_FAREWELL_MS);
        self.life = Life::Paying { until };
        self.wire.close_each(|one| !may_bring_session(one));
        self.queue = Queue::default();
        self.requests
            .retain(|one| matches!(one.flight(), Flight::Sent(_)));
        self.session.give_up(&mut self.wire);
    }

    /// True if a session is being closed, or may still be opened.
    fn paying(&mut self) -> bool {
        // One that appeared after all.
        self.session.give_up(&mut self.wire);
        self.wire.any(may_bring_session)
    }
}

/// True if an exchange closes a session, or may open one.
fn may_bring_session(one: &wire::HttpExchange) -> bool {
    match one.purpose {
        Purpose::Farewell(_) => true,
        Purpose::Initialize(_) | Purpose::Reopen => one.head.is_none(),
        Purpose::Request(_)
        | Purpose::Deliver(_)
        | Purpose::Listen
        | Purpose::Refresh(_)
        | Purpose::Old => false,
    }
}

#[cfg(test)]
mod tests;
