//! What comes back from the server.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::close::speaks_of_session;
use super::route::is_initialized;
use super::{
    Bridge, Content, Delivery, End, Exchange, ExchangeId, Flight, Head, Output, Purpose, Session,
    reopen,
};
use crate::clock::Moment;
use crate::http::headers;
use crate::http::lines::{Seen, error_line, error_of, flat, look, members};
use crate::http::sse;
use crate::http::words::Why;
use crate::limits;
use crate::message::asked::Label;
use crate::message::envelope;
use crate::message::frame::Kind;
use crate::message::lists::{self, Which};
use crate::message::slot::Tracked;

/// Headers of a request did not match its body.
const HEADER_MISMATCH: i64 = -32020;

impl Bridge {
    pub(super) fn head(&mut self, now: Moment, exchange: ExchangeId, head: Head) {
        let Some(one) = self.exchanges.get_mut(&exchange) else {
            return;
        };
        if one.head.is_some() {
            return;
        }
        one.head = Some(head.clone());
        let (purpose, late) = (one.purpose.clone(), one.epoch < self.epoch);
        let opening = core::mem::take(&mut one.opening);
        match purpose {
            // Whoever asked for this session has another one by now, or was refused.
            Purpose::Initialize | Purpose::Reopen if late || (opening && !head.ok()) => {
                self.unwanted(head.session);
            }
            Purpose::Initialize if head.ok() => self.take_session(head.session),
            Purpose::Reopen if head.ok() => self.reopen_head(now, exchange, head.session),
            Purpose::Deliver(one) if is_initialized(&one.line) && head.ok() => {
                if self.session == Session::Open {
                    self.open_listen();
                }
            }
            Purpose::Listen => self.listen_head(now, exchange, &head),
            Purpose::Farewell(session) => self.farewell_head(exchange, session, &head),
            Purpose::Old => self.old_head(exchange, &head),
            Purpose::Request(_) | Purpose::Deliver(_) if self.is_gone(exchange, head.status) => {
                self.gone(now, exchange);
            }
            Purpose::Initialize
            | Purpose::Reopen
            | Purpose::Request(_)
            | Purpose::Deliver(_)
            | Purpose::Refresh(_) => {}
        }
        self.opened_by(exchange, opening, true);
    }

    /// A session that nobody uses: it is noted, so that it is closed by somebody if not by us.
    fn unwanted(&mut self, session: Option<String>) {
        if let Some(session) = session.filter(|session| self.id.as_ref() != Some(session)) {
            self.note(session.clone());
            self.farewell(session);
        }
    }

    /// The session that is used from now on, noted before anything else. One that was there before is not forgotten.
    pub(super) fn take_session(&mut self, session: Option<String>) {
        if let Some(old) = self.id.take()
            && session.as_ref() != Some(&old)
        {
            self.farewell(old);
        }
        self.noted = session.is_none();
        self.id.clone_from(&session);
        if let Some(session) = session {
            self.note(session);
        }
    }

    fn note(&mut self, session: String) {
        let version = self.likely_version();
        self.outputs.push_back(Output::Note { session, version });
    }

    pub(super) fn was_noted(&mut self, session: &str, result: Result<(), String>) {
        if self.id.as_deref() != Some(session) {
            // It is being closed, noted or not.
            return;
        }
        match result {
            Ok(()) => {
                self.noted = true;
                if let Some(answer) = self.held_answer.take() {
                    self.greeted(&answer);
                }
            }
            Err(why) => self.not_noted(&why),
        }
    }

    /// What cannot be written down is not kept: a session that nobody would close is worse than none.
    fn not_noted(&mut self, why: &str) {
        if self.session == Session::Open {
            // It is written down already, with another version.
            return;
        }
        self.held_answer = None;
        if let Some(session) = self.id.take() {
            self.farewell(session);
        }
        if let Session::Reopening(_) = self.session {
            self.reopen_failed(why);
            return;
        }
        self.session = Session::Closed;
        if let Some(id) = self.opening_id() {
            let why = Why::NotNoted {
                why: why.to_string(),
            };
            self.answer(&id, Tracked::Initialize, false, &why);
        }
        self.refuse_waiting(why);
    }

    pub(super) fn event(&mut self, now: Moment, exchange: ExchangeId, event: &sse::Event) {
        let Some(one) = self.exchanges.get(&exchange) else {
            return;
        };
        let (purpose, epoch) = (one.aim(), one.epoch);
        if let Some(Purpose::Request(id)) = &purpose
            && let Some(request) = self.requests.get_mut(id)
        {
            request.stalled = None;
            if let Some(event_id) = &event.id {
                request.last_event = resumable(event_id).map(|last| (last, epoch));
            }
            request.retry_ms = event.retry_ms.or(request.retry_ms);
            if request.method == Tracked::Listen {
                // It has been heard: a stream that breaks later has its tries anew.
                (request.sent, request.unsent) = (1, 0);
            }
        }
        if purpose == Some(Purpose::Old) && self.old_event(event) {
            return;
        }
        if purpose == Some(Purpose::Listen) {
            self.listen_event(event);
        }
        if !event.data.is_empty() && matches!(event.name.as_str(), "" | "message") {
            self.heard(now, exchange, &event.data);
        }
    }

    pub(super) fn body(&mut self, now: Moment, exchange: ExchangeId, body: &[u8]) {
        let Some(one) = self.exchanges.get(&exchange) else {
            return;
        };
        let (purpose, head) = (one.purpose.clone(), one.head.clone());
        let Some(head) = head else {
            return;
        };
        if let Purpose::Farewell(session) = purpose {
            self.farewell_body(exchange, session, &head, body);
            return;
        }
        if purpose == Purpose::Listen {
            self.listen_refused(now, exchange, body);
            return;
        }
        if head.ok() {
            if head.content == Content::Json {
                self.heard(now, exchange, body);
            }
            return;
        }
        // It may mean something else: then the new session is told the same, and that is the answer.
        let again = match &purpose {
            Purpose::Request(id) => self.requests.get(id).is_none_or(|one| one.refused),
            Purpose::Deliver(one) => one.refused,
            Purpose::Initialize
            | Purpose::Listen
            | Purpose::Farewell(_)
            | Purpose::Reopen
            | Purpose::Refresh(_)
            | Purpose::Old => true,
        };
        if head.status == 400 && speaks_of_session(body) && !again && self.is_gone(exchange, 404) {
            self.gone(now, exchange);
            return;
        }
        self.refused(now, exchange, &purpose, &head, body);
    }

    /// An answer that is no success.
    fn refused(
        &mut self,
        now: Moment,
        exchange: ExchangeId,
        purpose: &Purpose,
        head: &Head,
        body: &[u8],
    ) {
        let error = error_of(body);
        match (purpose, error) {
            (Purpose::Request(id), Some((_, raw))) => {
                let line = error_line(id, raw);
                self.heard(now, exchange, &line);
            }
            (Purpose::Initialize, Some((_, raw))) => {
                if let Some(id) = self.opening_id() {
                    let line = error_line(&id, raw);
                    self.heard(now, exchange, &line);
                }
            }
            (Purpose::Initialize, None) if matches!(head.status, 400 | 404 | 405) => {
                self.exchanges.remove(&exchange);
                self.try_old(head.status);
            }
            (Purpose::Reopen, _) if self.is_step(exchange) => {
                let why = alloc::format!("it answered with HTTP {}", head.status);
                self.reopen_step_failed(exchange, &why);
            }
            (Purpose::Request(_) | Purpose::Initialize, None)
            | (
                Purpose::Deliver(_)
                | Purpose::Listen
                | Purpose::Farewell(_)
                | Purpose::Reopen
                | Purpose::Refresh(_)
                | Purpose::Old,
                _,
            ) => {}
        }
    }

    /// A message, or an array of messages, of the server's.
    fn heard(&mut self, now: Moment, exchange: ExchangeId, message: &[u8]) {
        let line = flat(message);
        let seen = look(&line);
        if seen.kind != Kind::Batch {
            self.heard_one(now, exchange, line, seen);
            return;
        }
        for member in members(&line) {
            let member = flat(member);
            let seen = look(&member);
            self.heard_one(now, exchange, member, seen);
        }
    }

    fn heard_one(&mut self, now: Moment, exchange: ExchangeId, line: Vec<u8>, seen: Seen) {
        match seen.kind {
            Kind::Response | Kind::Error => self.server_answer(now, exchange, line, seen.id),
            Kind::Request => self.server_request(exchange, line, seen.id),
            Kind::Notification => self.server_notification(line, &seen.method),
            Kind::Batch | Kind::Blank | Kind::Junk => {}
        }
    }

    fn server_answer(
        &mut self,
        now: Moment,
        exchange: ExchangeId,
        line: Vec<u8>,
        id: Option<Vec<u8>>,
    ) {
        let purpose = self.exchanges.get(&exchange).and_then(Exchange::aim);
        match purpose {
            Some(Purpose::Reopen) if !self.is_step(exchange) => return,
            Some(Purpose::Reopen) => {
                self.reopen_answer(now, exchange, &line);
                return;
            }
            Some(Purpose::Refresh(request)) => {
                self.marks.learn(&line);
                self.spend(now, exchange);
                self.send_request(&request);
                return;
            }
            Some(Purpose::Old) if self.own_answer(id.as_deref(), &line) => {
                return;
            }
            Some(
                Purpose::Initialize
                | Purpose::Request(_)
                | Purpose::Deliver(_)
                | Purpose::Listen
                | Purpose::Farewell(_)
                | Purpose::Old,
            )
            | None => {}
        }
        // An error without an id can only be about the request that it answers.
        let (id, line) = match (id, purpose) {
            (Some(id), _) => (id, line),
            (None, Some(Purpose::Request(id))) => {
                let Some((_, raw)) = error_of(&line) else {
                    return;
                };
                let fixed = error_line(&id, raw);
                (id, fixed)
            }
            (None, Some(Purpose::Initialize)) => {
                let (Some(id), Some((_, raw))) = (self.opening_id(), error_of(&line)) else {
                    return;
                };
                let fixed = error_line(&id, raw);
                (id, fixed)
            }
            (None, _) => return,
        };
        self.finish(now, exchange, &id, line);
    }

    /// The answer to a request of the client's.
    fn finish(&mut self, now: Moment, exchange: ExchangeId, id: &[u8], line: Vec<u8>) {
        let Some(request) = self.requests.get_mut(id) else {
            // Nobody waits for it: a second answer, or one to a request that was cancelled.
            return;
        };
        let mismatch = request.modern.is_some()
            && request.method == Tracked::ToolsCall
            && !request.refreshed
            && error_of(&line).is_some_and(|(code, _)| code == HEADER_MISMATCH);
        if mismatch {
            request.refreshed = true;
            request.flight = Flight::Elsewhere;
            self.spend(now, exchange);
            self.refresh(id);
            return;
        }
        let (method, flight) = (request.method, request.flight);
        if let Flight::Sent(sent) = flight {
            self.spend(now, sent);
        }
        if method == Tracked::Initialize {
            self.requests.remove(id);
            self.opened(line);
            return;
        }
        let Some(request) = self.requests.remove(id) else {
            return;
        };
        let line = self.learn(&request.line, method, request.modern.is_some(), line);
        self.say(line);
    }

    /// What an answer says about the server; the answer as it is shown.
    fn learn(&mut self, asked: &[u8], method: Tracked, modern: bool, line: Vec<u8>) -> Vec<u8> {
        let succeeded = look(&line).kind == Kind::Response;
        match method {
            Tracked::List if Which::asked(asked) == Some(Which::Tools) => {
                let mut line = line;
                if modern && let Some((shown, refused)) = self.marks.learn(&line) {
                    line = shown;
                    let names = refused.join(", ");
                    self.outputs.push_back(Output::Tell(alloc::format!(
                        "left out tools whose x-mcp-header marks break the rules: {names}"
                    )));
                }
                self.lists
                    .client_saw(Which::Tools, lists::has_cursor(asked), &line);
                return line;
            }
            Tracked::SetLevel if succeeded => self.level = Some(asked.to_vec()),
            Tracked::Subscribe if succeeded => {
                if let Some(uri) = envelope::uri(asked) {
                    if look(asked).method == "resources/subscribe" {
                        if self.subscriptions.len() < limits::HTTP_SUBSCRIPTIONS {
                            self.subscriptions.insert(uri.into_owned(), asked.to_vec());
                        }
                    } else {
                        self.subscriptions.remove(uri.as_ref());
                    }
                }
            }
            Tracked::Other
            | Tracked::Initialize
            | Tracked::Discover
            | Tracked::Ping
            | Tracked::List
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe
            | Tracked::Listen
            | Tracked::Task => {}
        }
        line
    }

    /// The answer to the client's `initialize` has come.
    fn opened(&mut self, line: Vec<u8>) {
        if let Some(greeting) = envelope::greeting(&line) {
            let offered = self.likely_version();
            self.announces = reopen::announced(&greeting.capabilities);
            self.version = Some(greeting.version);
            if self.version != offered
                && let Some(session) = self.id.clone()
            {
                self.note(session);
            }
            if self.noted {
                self.greeted(&line);
            } else {
                self.held_answer = Some(line);
            }
            return;
        }
        // It was refused: what it may have opened all the same is closed.
        self.session = Session::Closed;
        self.initialize = None;
        if let Some(session) = self.id.take() {
            self.farewell(session);
        }
        self.say(line);
    }

    /// The session is open, and noted.
    fn greeted(&mut self, answer: &[u8]) {
        self.session = Session::Open;
        self.say(answer.to_vec());
    }

    fn server_request(&mut self, exchange: ExchangeId, line: Vec<u8>, id: Option<Vec<u8>>) {
        let Some(id) = id else {
            return;
        };
        if let Some(Purpose::Request(request)) =
            self.exchanges.get(&exchange).map(|one| &one.purpose)
            && let Some(request) = self.requests.get_mut(request)
        {
            request.asked = true;
        }
        match self.asked.open(self.epoch, &id) {
            Label::Same => self.say(line),
            Label::New(label) => {
                if let Some(line) = envelope::with_id(&line, &label) {
                    self.say(line);
                }
            }
            Label::Full => {
                let mut refusal = crate::message::settle::error(
                    &id,
                    "too many requests wait at the client",
                    "{}",
                );
                refusal.pop();
                self.deliver(Delivery::new(refusal));
            }
        }
    }

    fn server_notification(&mut self, line: Vec<u8>, method: &str) {
        if method == "notifications/cancelled"
            && let Some(id) = envelope::cancelled_id(&line)
        {
            let label = self.asked.cancelled(id);
            let relabelled = label.and_then(|label| envelope::with_request_id(&line, &label));
            self.say(relabelled.unwrap_or(line));
            return;
        }
        self.say(line);
    }

    /// The exchange has brought what it was for. Its stream may end by itself; if not, it is broken off soon.
    pub(super) fn spend(&mut self, now: Moment, exchange: ExchangeId) {
        if let Some(one) = self.exchanges.get_mut(&exchange)
            && one.purpose != Purpose::Old
            && one.purpose != Purpose::Listen
        {
            one.spent = Some(now);
        }
    }

    /// Asks for the tool list, because the headers of a call did not match what the server wants, or nobody knows them.
    pub(super) fn refresh(&mut self, id: &[u8]) {
        let Some(request) = self.requests.get(id) else {
            return;
        };
        let meta = envelope::meta(&request.line);
        let version = request.modern.clone();
        let own = self.own_id();
        let mut line = lists::request(Which::Tools, &own, None, meta.as_deref());
        line.pop();
        let mut headers = self.marks.of("tools/list", &line);
        headers.extend(version.map(|version| (headers::VERSION.to_string(), version)));
        self.post(Purpose::Refresh(id.to_vec()), line, headers);
    }

    pub(super) fn end(&mut self, now: Moment, exchange: ExchangeId, end: End) {
        let Some(one) = self.exchanges.remove(&exchange) else {
            return;
        };
        let known = matches!(end, End::Failed { unsent: true, .. });
        self.opened_by(exchange, one.opening, known);
        match one.purpose {
            // It has brought what it was for.
            Purpose::Reopen | Purpose::Refresh(_) if one.spent.is_some() => {}
            // It was a step on the way to a session that is not wanted any more.
            Purpose::Initialize | Purpose::Reopen if one.epoch < self.epoch => {}
            Purpose::Request(id) => self.request_ended(now, exchange, &id, one.head, end),
            Purpose::Initialize => self.initialize_ended(now, one.head, end),
            Purpose::Deliver(delivery) => self.delivered(now, delivery, one.head.as_ref(), &end),
            Purpose::Listen => self.listen_ended(now, exchange, one.at, one.head.as_ref()),
            Purpose::Farewell(session) => self.farewell_ended(session, one.head.as_ref(), &end),
            Purpose::Reopen => {
                let why = match end {
                    End::Failed { why, .. } => why,
                    End::Done | End::TooLong => "it did not answer".into(),
                };
                self.reopen_ended(&why);
            }
            Purpose::Refresh(id) => self.send_request(&id),
            Purpose::Old => self.old_ended(now, &end),
        }
    }
}

impl Exchange {
    /// What it is for, unless that is a delivery: nothing that comes back belongs to one, and its line may be long and is not
    /// copied for each.
    fn aim(&self) -> Option<Purpose> {
        let aim = Some(&self.purpose);
        aim.filter(|one| !matches!(one, Purpose::Deliver(_)))
            .cloned()
    }
}

/// An event's id, if it can be sent back to resume after it.
pub(super) fn resumable(id: &[u8]) -> Option<String> {
    let id = core::str::from_utf8(id).ok()?;
    let sendable = !id.is_empty() && !id.chars().any(|c| c.is_control() && c != '\t');
    sendable.then(|| id.into())
}
