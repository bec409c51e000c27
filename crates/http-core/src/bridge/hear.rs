//! What comes back from the server.

use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::message::asked::Label;
use mainstay_protocol::message::frame::Kind;
use mainstay_protocol::message::slot::Tracked;
use mainstay_protocol::message::{batch, envelope, settle};

use super::close::{self, speaks_of_session};
use super::listen::Means;
use super::queue::{Delivered, Delivery};
use super::requests::{Circumstances, Flight, Request};
use super::session::AfterNote;
use super::tools::is_modern_call;
use super::wire::{Begun, Purpose};
use super::{Bridge, Content, End, ExchangeId, Head, Noted};
use crate::lines::{Seen, error_line, error_of, flat, look};
use crate::sse;
use crate::words::Why;

/// Headers of a request did not match its body.
const HEADER_MISMATCH: i64 = -32020;

impl Bridge {
    pub(super) fn head(&mut self, exchange: ExchangeId, head: Head) {
        let Some(Begun {
            purpose,
            late,
            opening,
        }) = self.wire.begun(exchange, &head)
        else {
            return;
        };
        match purpose {
            // What asked for this session has another one by now, or was refused.
            Purpose::Initialize(_) | Purpose::Reopen if late || (opening && !head.ok()) => {
                self.session.unwanted(&mut self.wire, head.session);
            }
            Purpose::Initialize(_) if head.ok() => self.session.take(&mut self.wire, head.session),
            Purpose::Reopen if head.ok() => {
                let wire = &mut self.wire;
                let progress = self.session.step_taken(wire, exchange, head.session);
                self.reopening(progress);
            }
            Purpose::Deliver(one) if one.confirms() && head.ok() => {
                if self.session.is_open() {
                    self.open_listen();
                }
            }
            Purpose::Listen => {
                let means = self.listen.head(&mut self.wire, exchange, &head);
                self.listen_means(means);
            }
            Purpose::Farewell(session) => {
                close::answered(&mut self.wire, exchange, session, &head);
            }
            Purpose::Old if !(head.ok() && head.content == Content::Events) => {
                self.wire.close(exchange);
                self.no_old(&alloc::format!("HTTP {}", head.status));
            }
            Purpose::Request(_) | Purpose::Deliver(_)
                if head.status == 404 && self.may_be_gone(exchange) =>
            {
                self.gone(exchange);
            }
            Purpose::Initialize(_)
            | Purpose::Reopen
            | Purpose::Request(_)
            | Purpose::Deliver(_)
            | Purpose::Refresh(_)
            | Purpose::Old => {}
        }
        self.wire.opened(exchange, opening, true);
    }

    pub(super) fn was_noted(&mut self, session: &str, noted: Noted) {
        let written = noted == Noted::Written;
        let after = self.session.noted(&mut self.wire, session, written);
        let Noted::Failed { why } = noted else {
            return;
        };
        match after {
            AfterNote::GoesOn => {}
            AfterNote::NotReopened => self.refuse_waiting(&why),
            AfterNote::NotOpened => {
                if let Some(id) = self.requests.opening() {
                    let why = Why::NotNoted { why: why.clone() };
                    self.settle(&id, Some(why));
                }
                self.refuse_waiting(&why);
            }
        }
    }

    pub(super) fn event(&mut self, exchange: ExchangeId, event: &sse::Event) {
        let Some(epoch) = self.wire.exchange(exchange).map(|one| one.epoch) else {
            return;
        };
        match self.wire.aim(exchange) {
            Some(Purpose::Request(id)) => {
                if let Some(request) = self.requests.get_mut(&id) {
                    request.heard(event, epoch);
                }
            }
            Some(Purpose::Old) if event.name == "endpoint" => {
                self.endpoint_named(event);
                return;
            }
            Some(Purpose::Listen) => self.listen.event(event),
            Some(
                Purpose::Initialize(_)
                | Purpose::Deliver(_)
                | Purpose::Farewell(_)
                | Purpose::Reopen
                | Purpose::Refresh(_)
                | Purpose::Old,
            )
            | None => {}
        }
        if !event.data.is_empty() && matches!(event.name.as_str(), "" | "message") {
            self.heard(exchange, &event.data);
        }
    }

    pub(super) fn body(&mut self, exchange: ExchangeId, body: &[u8]) {
        let Some(one) = self.wire.exchange(exchange) else {
            return;
        };
        let Some(head) = one.head.clone() else {
            return;
        };
        let purpose = one.purpose.clone();
        match purpose {
            Purpose::Farewell(session) => {
                close::explained(&mut self.wire, exchange, session, &head, body);
            }
            Purpose::Listen => {
                let in_session = self.session.has_id();
                let wire = &mut self.wire;
                let means = self.listen.refused(wire, exchange, body, in_session);
                self.listen_means(means);
            }
            Purpose::Initialize(_)
            | Purpose::Request(_)
            | Purpose::Deliver(_)
            | Purpose::Reopen
            | Purpose::Refresh(_)
            | Purpose::Old
                if head.ok() =>
            {
                if head.content == Content::Json {
                    self.heard(exchange, body);
                }
            }
            Purpose::Request(_) | Purpose::Deliver(_)
                if head.status == 400
                    && speaks_of_session(body)
                    && !self.was_refused_before(&purpose)
                    && self.may_be_gone(exchange) =>
            {
                self.gone(exchange);
            }
            Purpose::Request(id) => {
                if let Some((_, raw)) = error_of(body) {
                    self.heard(exchange, &error_line(&id, raw));
                }
            }
            // An exchange that the client cancelled proves nothing about the server.
            Purpose::Initialize(id) if !self.requests.went_with(&id, exchange) => {}
            Purpose::Initialize(id) => self.opening_refused(exchange, &id, head.status, body),
            Purpose::Reopen if self.wire.is_step(exchange) => {
                self.wire.forget(exchange);
                let why = alloc::format!("the server answered with HTTP {}", head.status);
                let progress = self.session.step_ended(&mut self.wire, &why);
                self.reopening(progress);
            }
            Purpose::Deliver(_) | Purpose::Reopen | Purpose::Refresh(_) | Purpose::Old => {}
        }
    }

    /// Whether a message was refused with its session before. A 400 may mean something else: then the new session says the
    /// same, and that is the answer.
    fn was_refused_before(&self, purpose: &Purpose) -> bool {
        match purpose {
            Purpose::Request(id) => self.requests.get(id).is_none_or(Request::was_refused),
            Purpose::Deliver(one) => one.was_refused(),
            Purpose::Initialize(_)
            | Purpose::Listen
            | Purpose::Farewell(_)
            | Purpose::Reopen
            | Purpose::Refresh(_)
            | Purpose::Old => true,
        }
    }

    /// The client's `initialize` was refused: with an error, or as a server of 2024 would.
    fn opening_refused(&mut self, exchange: ExchangeId, id: &[u8], status: u16, body: &[u8]) {
        if let Some((_, raw)) = error_of(body) {
            self.heard(exchange, &error_line(id, raw));
        } else if matches!(status, 400 | 404 | 405) {
            self.wire.forget(exchange);
            self.wire.try_old(status);
        }
    }

    /// True if a refusal may mean that the server no longer knows the session of this exchange.
    fn may_be_gone(&self, exchange: ExchangeId) -> bool {
        let epoch = self.wire.epoch();
        let in_session = self
            .wire
            .exchange(exchange)
            .is_some_and(|one| one.epoch < epoch || (one.epoch == epoch && self.session.has_id()));
        in_session && self.session.can_reopen()
    }

    /// The server does not know the session that this exchange was sent in, or so it seems. It refused before it acted, so
    /// that to send the message again does no harm.
    fn gone(&mut self, exchange: ExchangeId) {
        let Some(one) = self.wire.exchange(exchange).cloned() else {
            return;
        };
        self.wire.close(exchange);
        if one.epoch == self.wire.epoch() {
            self.session_gone();
        }
        match one.purpose {
            Purpose::Request(id) => {
                let Some(request) = self.requests.get_mut(&id) else {
                    return;
                };
                // One whose answer had begun was acted upon.
                if request.stop_resuming() {
                    self.broke(&id, "the server has ended the session");
                } else if request.was_refused() {
                    self.settle(&id, Some(Why::LostTwice));
                } else if let Some(request) = self.requests.close(&id) {
                    self.queue.push_refused(request.into_waiting().line);
                }
            }
            // What the client answers belongs to a question of the old session, and a new session is confirmed on the way.
            Purpose::Deliver(one)
                if !one.was_refused()
                    && look(one.line()).kind == Kind::Notification
                    && !one.confirms() =>
            {
                self.queue.push_refused(one.line().to_vec());
            }
            Purpose::Initialize(_)
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
    fn session_gone(&mut self) {
        if self.session.is_open() {
            self.session.give_up(&mut self.wire);
            self.reopen();
        }
    }

    fn listen_means(&mut self, means: Means) {
        match means {
            Means::Nothing => {}
            Means::SessionGone => self.session_gone(),
        }
    }

    fn broke(&mut self, id: &[u8], why: &str) {
        self.judge(id, |request, given| request.broke(given, why.into()));
    }

    /// Answers a request, if it says that there is nothing else to try.
    fn judge(
        &mut self,
        id: &[u8],
        judge: impl FnOnce(&mut Request, &Circumstances) -> Option<Why>,
    ) {
        let Some(request) = self.requests.get(id) else {
            return;
        };
        let given = self.circumstances(request);
        let request = self.requests.get_mut(id);
        let why = request.and_then(|request| judge(request, &given));
        self.settle(id, why);
    }

    /// A message, or an array of messages, of the server's.
    fn heard(&mut self, exchange: ExchangeId, message: &[u8]) {
        let line = flat(message);
        let seen = look(&line);
        if seen.kind != Kind::Batch {
            self.heard_one(exchange, line, seen);
            return;
        }
        batch::each_member_line(&line, |_, member| {
            let member = flat(member);
            let seen = look(&member);
            self.heard_one(exchange, member, seen);
        });
    }

    fn heard_one(&mut self, exchange: ExchangeId, line: Vec<u8>, seen: Seen) {
        match seen.kind {
            Kind::Response | Kind::Error => self.server_answer(exchange, line, seen.id),
            Kind::Request => self.server_request(exchange, line, seen.id),
            Kind::Notification => self.server_notification(line, &seen.method),
            Kind::Batch | Kind::Blank | Kind::Junk => {}
        }
    }

    fn server_answer(&mut self, exchange: ExchangeId, line: Vec<u8>, id: Option<Vec<u8>>) {
        // An error without an id can only be about the request that it answers.
        let about = match self.wire.aim(exchange) {
            Some(Purpose::Reopen) => {
                if self.wire.is_step(exchange) {
                    self.wire.spend(exchange);
                    self.own_answer(id.as_deref(), &line);
                }
                return;
            }
            Some(Purpose::Refresh(request)) => {
                self.tools.answered(&line);
                self.wire.spend(exchange);
                self.send_request(&request);
                return;
            }
            Some(Purpose::Old) if self.own_answer(id.as_deref(), &line) => return,
            Some(Purpose::Request(request) | Purpose::Initialize(request)) => Some(request),
            Some(Purpose::Deliver(_) | Purpose::Listen | Purpose::Farewell(_) | Purpose::Old)
            | None => None,
        };
        match (id, about) {
            (Some(id), _) => self.finish(exchange, &id, line),
            (None, Some(id)) => {
                if let Some((_, raw)) = error_of(&line) {
                    self.finish(exchange, &id, error_line(&id, raw));
                }
            }
            (None, None) => {}
        }
    }

    /// Handles an answer to a request of our own. False if it was not one.
    fn own_answer(&mut self, id: Option<&[u8]>, line: &[u8]) -> bool {
        let progress = self.session.own_answer(&mut self.wire, id, line);
        let ours = progress.is_some();
        if let Some(progress) = progress {
            self.reopening(progress);
        }
        ours
    }

    /// The answer to a request of the client. A second one, or one to a cancelled request, is dropped.
    fn finish(&mut self, exchange: ExchangeId, id: &[u8], line: Vec<u8>) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        let mismatch = is_modern_call(request)
            && error_of(&line).is_some_and(|(code, _)| code == HEADER_MISMATCH);
        if mismatch && request.refresh() {
            self.wire.spend(exchange);
            self.ask_for_tools(id);
            return;
        }
        let Some(request) = self.requests.close(id) else {
            return;
        };
        if let Flight::Sent(sent) = request.flight() {
            self.wire.spend(sent);
        }
        if request.method() == Tracked::Initialize {
            self.session.answered(&mut self.wire, line);
            return;
        }
        let line = self.learn(&request, line);
        self.wire.say(line);
    }

    /// Learns about the server from an answer. Returns the answer for the client.
    fn learn(&mut self, request: &Request, line: Vec<u8>) -> Vec<u8> {
        if let Some(shown) = self.tools.show(request, &line) {
            if !shown.left_out.is_empty() {
                let names = shown.left_out.join(", ");
                self.wire.tell(alloc::format!(
                    "left out tools whose x-mcp-header marks break the rules: {names}"
                ));
            }
            return shown.line;
        }
        if look(&line).kind == Kind::Response {
            self.session.learn(request.method(), request.line());
        }
        line
    }

    fn server_request(&mut self, exchange: ExchangeId, line: Vec<u8>, id: Option<Vec<u8>>) {
        let Some(id) = id else {
            return;
        };
        if let Some(Purpose::Request(request)) = self.wire.aim(exchange)
            && let Some(request) = self.requests.get_mut(&request)
        {
            request.asks_client();
        }
        match self.asked.open(self.wire.epoch(), &id) {
            Label::Same => self.wire.say(line),
            Label::New(label) => {
                if let Some(line) = envelope::with_id(&line, &label) {
                    self.wire.say(line);
                }
            }
            Label::Full => {
                let why = "too many requests wait at the client";
                let mut refusal = settle::error(&id, why, "{}");
                refusal.pop();
                self.deliver(Delivery::new(refusal));
            }
        }
    }

    fn server_notification(&mut self, line: Vec<u8>, method: &str) {
        let mut relabelled = None;
        if method == "notifications/cancelled"
            && let Some(id) = envelope::cancelled_id(&line)
        {
            let label = self.asked.cancelled(id);
            relabelled = label.and_then(|label| envelope::with_request_id(&line, &label));
        }
        self.wire.say(relabelled.unwrap_or(line));
    }

    /// Asks for the tool list, because the headers of a call did not match what the server wants, or are not known.
    pub(super) fn ask_for_tools(&mut self, id: &[u8]) {
        let Some(request) = self.requests.get(id) else {
            return;
        };
        let own = self.wire.own_id();
        let (line, headers) = self.tools.question(&own, request);
        let purpose = Purpose::Refresh(id.to_vec());
        self.wire.post(purpose, line, headers);
    }

    pub(super) fn end(&mut self, exchange: ExchangeId, end: End) {
        let Some(one) = self.wire.end(exchange, &end) else {
            return;
        };
        let head = one.head.as_ref();
        match one.purpose {
            // It has brought what it was for.
            Purpose::Reopen | Purpose::Refresh(_) if one.spent.is_some() => {}
            // It was a step towards a session that is no longer wanted.
            Purpose::Reopen if one.epoch < self.wire.epoch() => {}
            // Its answer may have come before, or it is on its way once more.
            Purpose::Request(id) | Purpose::Initialize(id)
                if !self.requests.went_with(&id, exchange) => {}
            Purpose::Request(id) | Purpose::Initialize(id)
                if one.elsewhere && head.is_some_and(Head::ok) && end == End::Done =>
            {
                if let Some(request) = self.requests.get_mut(&id) {
                    request.waits_elsewhere();
                }
            }
            Purpose::Request(id) => {
                self.judge(&id, |request, given| request.ended(given, head, end));
            }
            Purpose::Initialize(id) => self.opening_ended(&id, head, end),
            Purpose::Deliver(delivery) => self.delivered(delivery, head, &end),
            Purpose::Listen => self.listen.ended(self.wire.now(), exchange, one.at, head),
            Purpose::Farewell(session) => {
                close::unanswered(&mut self.wire, session, head, &end);
            }
            Purpose::Reopen => {
                let why = match end {
                    End::Failed { why, .. } => why,
                    End::Done | End::TooLong => "the server did not answer".into(),
                };
                let progress = self.session.step_ended(&mut self.wire, &why);
                self.reopening(progress);
            }
            Purpose::Refresh(id) => self.send_request(&id),
            Purpose::Old => self.old_ended(end),
        }
    }

    /// `initialize` has ended without an answer.
    fn opening_ended(&mut self, id: &[u8], head: Option<&Head>, end: End) {
        self.session.give_up(&mut self.wire);
        self.judge(id, |request, given| request.opening_ended(given, head, end));
        if self.requests.get(id).is_none() {
            self.session.fail_opening(&mut self.wire);
            self.refuse_waiting("its first message was not answered");
        }
    }

    /// A notification or an answer of the client's was taken, or not.
    fn delivered(&mut self, delivery: Delivery, head: Option<&Head>, end: &End) {
        match delivery.ended(head, end, self.is_closing()) {
            Delivered::Over => {}
            Delivered::Again(wait) => {
                let until = self.wire.now().after_ms(wait);
                self.queue.rest(until, delivery);
            }
            Delivered::Lost(text) => self.wire.tell(text),
        }
    }

    /// A server of 2024 names the URL for messages. It is accepted only on the same origin.
    fn endpoint_named(&mut self, event: &sse::Event) {
        let endpoint = String::from_utf8_lossy(&event.data).trim().into();
        self.wire.name_endpoint(endpoint);
        if self.session.endpoint_named(&mut self.wire)
            && let Some(id) = self.requests.opening()
        {
            self.send_request(&id);
        }
    }

    /// It is no server of 2024 either, or it is gone.
    fn no_old(&mut self, why: &str) {
        if let Some(id) = self.requests.opening() {
            let status = self.wire.give_up_old();
            self.session.fail_opening(&mut self.wire);
            self.settle(&id, Some(Why::Status { status }));
            self.refuse_waiting("its first message was refused");
            return;
        }
        let progress = self.session.fail_reopening(&mut self.wire, why);
        self.reopening(progress);
    }

    /// The stream of a server of 2024 has ended, and with it everything that was to come on it.
    fn old_ended(&mut self, end: End) {
        let why = match end {
            End::Failed { why, .. } => why,
            End::Done | End::TooLong => "the server ended its event stream".into(),
        };
        if self.session.is_on_its_way() {
            self.no_old(&why);
        } else if self.session.is_open() {
            self.session.lose();
        }
        for id in self.requests.elsewhere() {
            self.broke(&id, &why);
        }
    }
}
