//! The server's side of the exchange: whose answer a line is, what it asks the client, what of it must be known later.

use alloc::string::String;
use alloc::vec::Vec;

use super::owed::TOO_LONG;
use super::{AWAY, Exchange};
use crate::clock::Moment;
use crate::link::io::Route;
use crate::link::long_ids;
use crate::link::long_lines::Gathered;
use crate::link::own::Purpose;
use crate::link::state::Because;
use crate::message::asked::Label;
use crate::message::envelope::{self, cancelled_id};
use crate::message::frame::{Frame, Id, Kind};
use crate::message::inflight::Tracked;
use crate::message::lists::Which;
use crate::message::{batch, settle};

/// How far the server is that speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) enum Speaker {
    /// It is being told what its predecessor knew.
    Replaying,
    Serving,
    /// It is on its way down, and another one follows.
    GoingDown,
    /// It is on its way down with the link.
    Closing,
}

/// What a line of the server's means for its life.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::link) enum Happened {
    /// It has taken the replayed opening; so many of the requests that follow it have no answer yet.
    OpeningReplayed { unanswered: u32 },
    /// It refuses the replayed opening.
    OpeningRefused,
    /// One of the requests that follow the replayed opening has its answer.
    ReplayAnswered,
    /// It has answered the opening that the record has answered before, and agrees.
    RecordConfirmed,
    /// It refuses the opening that the record has answered.
    RecordRefused,
    /// It cannot go on with the session, for this reason.
    Differs(String),
    /// It has answered this probe.
    ProbeAnswered(u64),
    /// It has answered what it was asked on behalf of a newcomer.
    Fit,
}

pub(in crate::link) const INITIALIZED: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";

impl Exchange<'_> {
    /// What the lines so far meant for the life of the server, the oldest first.
    pub fn next_happened(&mut self) -> Option<Happened> {
        self.happened.pop_front()
    }

    /// Whether an id is that of a request of our own.
    pub fn is_own(&self, id: &[u8]) -> bool {
        self.own.is(id)
    }

    /// Notes what a line says of tasks.
    #[inline]
    pub fn note_tasks(&mut self, now: Moment, line: &[u8]) {
        if self.owed.limits.hibernate_ms > 0 || self.tasks.possible() {
            self.tasks.seen(now, line);
        }
    }

    /// A message of the server's for the client: which way it goes. `line` is none if it was too long to be seen.
    pub fn server_says(
        &mut self,
        speaker: Speaker,
        frame: &Frame<'_>,
        line: Option<&[u8]>,
    ) -> Route {
        match (frame.kind, line) {
            (Kind::Request, line) => self.server_asks(frame, line),
            (Kind::Notification, Some(line)) => self.notified(speaker, frame, line),
            (Kind::Response | Kind::Error, line) => self.answered(frame, line),
            (Kind::Batch, Some(line)) if self.splits_server_batch(line) => {
                self.split_server_batch(speaker, line)
            }
            (Kind::Batch, Some(line)) => {
                batch::each_member(line, |member| {
                    if matches!(member.kind, Kind::Response | Kind::Error) {
                        self.answered(&member, None);
                    }
                });
                Route::Pass
            }
            (Kind::Notification, None) => {
                let method = frame.method.as_deref().unwrap_or_default();
                self.lists_changed(speaker, method)
            }
            (Kind::Batch, None) => Route::Pass,
            (Kind::Blank | Kind::Junk, _) => Route::Consumed,
        }
    }

    /// A line goes on, with the client's own ids.
    pub fn forwarded(&mut self, frame: &Frame<'_>, line: Option<&[u8]>) -> Route {
        if self.owed.session.no_long_ids()
            && !matches!(frame.id, Id::Token(id) if self.owed.session.is_label(id))
        {
            return Route::Pass;
        }
        let own = line.and_then(|line| long_ids::lengthen(line, &self.owed.session));
        match (own, frame.id) {
            (Some(own), Id::Token(label)) => {
                self.owed.goes_with_ours(label);
                self.owed.outbox.send_client(own);
                Route::Replaced
            }
            (Some(own), Id::Absent | Id::Null | Id::TooLong) => {
                self.owed.outbox.send_client(own);
                Route::Replaced
            }
            // Its request was cancelled: the client knows of no such id.
            (None, Id::Token(id)) if self.owed.session.is_label(id) => Route::Consumed,
            (None, _) => Route::Pass,
        }
    }

    /// The server asks the client.
    fn server_asks(&mut self, frame: &Frame<'_>, line: Option<&[u8]>) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Pass;
        };
        self.owed
            .requests
            .give_up_calls(self.owed.session.generation());
        match self.owed.server_requests.asks(id, &mut self.owed.session) {
            Label::Same => Route::Pass,
            Label::New(label) => match line.and_then(|line| envelope::with_id(line, &label)) {
                Some(line) => {
                    self.owed.send_client(line);
                    Route::Replaced
                }
                None => Route::Consumed,
            },
            Label::Full => {
                let answer = settle::error(id, "too many requests wait for the client", "{}");
                self.owed.outbox.send_server(answer);
                Route::Consumed
            }
        }
    }

    /// News of the server's. Those for a listening request while there are orphans get this client's own id back, and an
    /// orphan's reach no client.
    fn notified(&mut self, speaker: Speaker, frame: &Frame<'_>, line: &[u8]) -> Route {
        if self.orphans.is_empty() {
            return self.notified_own(speaker, frame, line);
        }
        let Some(subscription) = envelope::subscription(line) else {
            return self.notified_own(speaker, frame, line);
        };
        let Some(own) = self.orphans.own(subscription) else {
            return Route::Consumed;
        };
        let Some(line) = envelope::with_subscription(line, own) else {
            return self.notified_own(speaker, frame, line);
        };
        match self.notified_own(speaker, frame, &line) {
            Route::Pass | Route::Later => {
                self.owed.send_client(line);
                Route::Replaced
            }
            route @ (Route::Consumed | Route::Replaced | Route::Gather) => route,
        }
    }

    /// News that are no orphan's.
    fn notified_own(&mut self, speaker: Speaker, frame: &Frame<'_>, line: &[u8]) -> Route {
        let method = frame.method.as_deref().unwrap_or_default();
        match method {
            // What a server on its way down has begun is answered by us or begun anew.
            "notifications/progress" if speaker == Speaker::GoingDown => Route::Consumed,
            "notifications/progress" if !self.orphans.is_empty() => self.progress(line),
            "notifications/progress" if !self.owed.requests.may_progress(line) => Route::Consumed,
            "notifications/cancelled" => self.server_cancels(line),
            "notifications/subscriptions/acknowledged" => self.acknowledged(line),
            _ => self.lists_changed(speaker, method),
        }
    }

    fn lists_changed(&mut self, speaker: Speaker, method: &str) -> Route {
        let lists: Vec<Which> = Which::changed_by(method).collect();
        match speaker {
            Speaker::Replaying if !lists.is_empty() => {
                self.cache.changed_meanwhile(lists);
                Route::Consumed
            }
            Speaker::Replaying | Speaker::GoingDown | Speaker::Closing => Route::Pass,
            Speaker::Serving => {
                for which in lists {
                    self.cache.list_changed(which);
                }
                Route::Pass
            }
        }
    }

    /// Progress while orphans may report some: only what is under a label is this client's.
    fn progress(&mut self, line: &[u8]) -> Route {
        let Some(token) = envelope::reported_token(line) else {
            return Route::Pass;
        };
        let own = self.orphans.progress(token);
        match own.and_then(|own| envelope::with_progress(line, own)) {
            Some(line) if self.owed.requests.may_progress(&line) => {
                self.owed.send_client(line);
                Route::Replaced
            }
            Some(_) | None => Route::Consumed,
        }
    }

    /// The server takes a request of its own back: the client may know it by another name.
    fn server_cancels(&mut self, line: &[u8]) -> Route {
        let Some(id) = cancelled_id(line) else {
            return Route::Pass;
        };
        match self
            .owed
            .server_requests
            .cancels(id, &mut self.owed.session)
        {
            Some(label) if label == id => Route::Pass,
            Some(label) => match envelope::with_request_id(line, &label) {
                Some(line) => {
                    self.owed.send_client(line);
                    Route::Replaced
                }
                None => Route::Consumed,
            },
            None => self.listening_ended(id, line),
        }
    }

    /// The server takes back what is no question of its own: a listening request ends like this.
    fn listening_ended(&mut self, id: &[u8], line: &[u8]) -> Route {
        let labelled = !self.orphans.is_empty();
        let own = if labelled {
            self.orphans.own(id)
        } else {
            Some(id)
        };
        let Some(own) = own.map(<[u8]>::to_vec) else {
            // It was asked for a client that is gone.
            return Route::Consumed;
        };
        let entry = self.owed.requests.get(&own);
        if entry.is_some_and(|entry| entry.method.listens()) {
            self.orphans.close(id);
            self.owed.requests.withdraw(&own);
            self.owed.session.stop_listening(&own);
        }
        if !labelled {
            return Route::Pass;
        }
        match envelope::with_request_id(line, &own) {
            Some(line) => {
                self.owed.send_client(line);
                Route::Replaced
            }
            None => Route::Consumed,
        }
    }

    /// A listening request is granted; a second time after a respawn, which the client need not know.
    fn acknowledged(&mut self, line: &[u8]) -> Route {
        let (Some(id), Some(granted)) = (envelope::subscription(line), envelope::granted(line))
        else {
            return Route::Pass;
        };
        let Some(before) = self.owed.session.granted(id) else {
            self.owed.session.note_granted(id, granted);
            return Route::Pass;
        };
        if envelope::same_value(before, granted) {
            return Route::Consumed;
        }
        // It grants something else than before: the listening ends, so that the client notices.
        let (id, result) = (id.to_vec(), settle::listening_ends(id));
        let label = self.orphans.unlabel(&id);
        self.owed.answered_ahead_by_next(&id);
        self.owed.send_client(result);
        let known = label.as_deref().unwrap_or(&id);
        let cancel = settle::cancel(known, "the client was granted something else");
        self.owed.outbox.send_server(cancel);
        self.owed.session.stop_listening(&id);
        self.owed
            .tell_differs("a listening request is granted something else than before".into());
        Route::Replaced
    }

    /// An answer: to us, to an earlier client, or to this one.
    fn answered(&mut self, frame: &Frame<'_>, line: Option<&[u8]>) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Pass;
        };
        if self.own.is(id) {
            self.own_answer(frame, id, line);
            return Route::Consumed;
        }
        if self.orphans.is_empty() {
            return self.answered_client(frame, id, line);
        }
        match self.orphans.close(id) {
            Some(own) => self.answered_label(frame, &own, line),
            None => Route::Consumed,
        }
    }

    /// The answer to a request that went under a label.
    fn answered_label(&mut self, frame: &Frame<'_>, own: &[u8], line: Option<&[u8]>) -> Route {
        let Some(line) = line.and_then(|line| envelope::with_id(line, own)) else {
            // Not to be mended: the request is answered by us.
            return self.not_understood(own);
        };
        match self.answered_client(frame, own, Some(&line)) {
            Route::Pass | Route::Later => {
                self.owed.goes_with_ours(own);
                self.owed.send_client(line);
                Route::Replaced
            }
            route @ (Route::Consumed | Route::Replaced | Route::Gather) => route,
        }
    }

    /// The answer to a request of the client that is attached.
    fn answered_client(&mut self, frame: &Frame<'_>, id: &[u8], line: Option<&[u8]>) -> Route {
        if self.cache.is_recalled_opening(id) {
            self.opening_confirmed(frame, line);
            return Route::Replaced;
        }
        if self.owed.requests.swallow(id) {
            let (own, owed) = (&mut self.own, &mut self.owed);
            self.cache.recalled_answered(id, frame, line, own, owed);
            return Route::Consumed;
        }
        if self.advertises(frame, id)
            && let Some(line) = line
            && let Some(told) = envelope::advertised(line)
        {
            self.learn_opening(line);
            self.owed.answer_opening(id, &told);
            self.owed.send_client(told);
            return Route::Replaced;
        }
        let Some(entry) = self.owed.requests.answered(id) else {
            return if self.orphans.is_empty() {
                Route::Pass
            } else {
                Route::Consumed
            };
        };
        let end = self.owed.line_end;
        self.owed.session.answer_on_way(|| end);
        if let Some(line) = line {
            if (frame.kind, entry.method) == (Kind::Response, Tracked::Initialize) {
                self.tasks.opened(line);
            }
            self.cache
                .learn(frame.kind, entry.method, id, line, &mut self.owed);
        }
        if entry.method == Tracked::Initialize && frame.kind == Kind::Error {
            // What a server that knows no `server/discover` must know.
            self.cache.forget_refusal();
        }
        if entry.method.listens() {
            self.owed.session.stop_listening(id);
        }
        self.owed.requests.forget_line(id);
        Route::Pass
    }

    /// Whether this is the answer to the client's opening, and more is to be announced in it than the server does.
    fn advertises(&self, frame: &Frame<'_>, id: &[u8]) -> bool {
        let opening = |id| {
            let entry = self.owed.requests.get(id);
            entry.is_some_and(|entry| entry.method == Tracked::Initialize)
        };
        self.owed.policy.advertise && frame.kind == Kind::Response && opening(id)
    }

    /// The answer to a request of our own.
    fn own_answer(&mut self, frame: &Frame<'_>, id: &[u8], line: Option<&[u8]>) {
        let happened = match self.own.close(id) {
            Some(Purpose::Opening) => self.opening_replayed(frame, line),
            Some(Purpose::Replay) => {
                if frame.kind == Kind::Error {
                    let what =
                        "it refuses the log level or a subscription that its predecessor had taken";
                    self.owed.tell_differs(what.into());
                }
                Happened::ReplayAnswered
            }
            Some(Purpose::List { which, page }) => {
                if let (Kind::Response, Some(line)) = (frame.kind, line) {
                    let (own, owed) = (&mut self.own, &mut self.owed);
                    self.cache.list_checked(which, page, line, own, owed);
                }
                return;
            }
            Some(Purpose::Probe { n }) => Happened::ProbeAnswered(n),
            Some(Purpose::Fitness) => Happened::Fit,
            Some(Purpose::Undo) | None => return,
        };
        self.happened.push_back(happened);
    }

    /// Our replayed opening has its answer: the rest follows.
    fn opening_replayed(&mut self, frame: &Frame<'_>, line: Option<&[u8]>) -> Happened {
        if self.owed.session.modern() {
            // Any answer will do: it is there.
            return Happened::OpeningReplayed { unanswered: 0 };
        }
        if frame.kind == Kind::Error {
            self.owed
                .tell_differs("it refuses the client's opening".into());
            return Happened::OpeningRefused;
        }
        if let Some(line) = line {
            if self.cache.forgot_opening(&self.owed.session) {
                self.learn_opening(line);
            }
            if let Err(what) = self.owed.compare_greeting(line) {
                return Happened::Differs(what);
            }
        }
        self.replay_initialized();
        let unanswered = self
            .own
            .replay_wishes(&self.owed.session, &mut self.owed.outbox);
        Happened::OpeningReplayed { unanswered }
    }

    fn replay_initialized(&mut self) {
        if self.owed.session.initialized() {
            self.owed.outbox.send_server(INITIALIZED.to_vec());
        }
    }

    /// The server itself answers the opening that the record has answered.
    fn opening_confirmed(&mut self, frame: &Frame<'_>, line: Option<&[u8]>) {
        self.cache.opening_confirmed();
        let happened = if frame.kind == Kind::Error {
            self.cache.opening_refused(&self.owed.session);
            Happened::RecordRefused
        } else {
            if let Some(line) = line {
                self.learn_opening(line);
            }
            match line.map_or(Ok(()), |line| self.owed.compare_greeting(line)) {
                Ok(()) => {
                    self.replay_initialized();
                    Happened::RecordConfirmed
                }
                Err(what) => Happened::Differs(what),
            }
        };
        self.happened.push_back(happened);
    }

    fn learn_opening(&mut self, line: &[u8]) {
        self.tasks.opened(line);
        self.cache.learn_opening(&self.owed.session, line);
    }

    /// A line of the server's while no client is attached; how many answers reach no client.
    pub fn unheard(&mut self, frame: &Frame<'_>, line: Option<&[u8]>) -> u32 {
        match (frame.kind, frame.id, line) {
            (Kind::Request, Id::Token(id), _) => {
                self.owed.outbox.send_server(settle::error(id, AWAY, "{}"));
                0
            }
            (Kind::Notification, _, _) => {
                let method = frame.method.as_deref().unwrap_or_default();
                self.cache.changed_meanwhile(Which::changed_by(method));
                0
            }
            (Kind::Response | Kind::Error, Id::Token(id), line) => {
                self.unheard_answer(frame, id, line)
            }
            (Kind::Batch, _, Some(line)) => {
                let mut dropped = 0;
                batch::each_member(line, |member| {
                    if let (Kind::Response | Kind::Error, Id::Token(id)) = (member.kind, member.id)
                    {
                        dropped += self.unheard_answer(&member, id, None);
                    }
                });
                dropped
            }
            (
                Kind::Request
                | Kind::Response
                | Kind::Error
                | Kind::Batch
                | Kind::Blank
                | Kind::Junk,
                _,
                _,
            ) => 0,
        }
    }

    fn unheard_answer(&mut self, frame: &Frame<'_>, id: &[u8], line: Option<&[u8]>) -> u32 {
        if self.own.is(id) {
            self.own_answer(frame, id, line);
            return 0;
        }
        1
    }

    /// Whether a batch of the server's holds what the client must not see: an orphan's answer, one to a request that we have
    /// answered ourselves, one to a request of our own; or a question, which is known by itself and may need a label.
    fn splits_server_batch(&self, line: &[u8]) -> bool {
        let mut split = !self.orphans.is_empty() || !self.owed.session.no_long_ids();
        if !split {
            batch::each_member(line, |member| {
                split |= member.kind == Kind::Request;
                if let (Kind::Response | Kind::Error, Id::Token(id)) = (member.kind, member.id) {
                    split |= self.own.is(id)
                        || self.owed.requests.is_answered_ahead(id)
                        || self.cache.is_recalled_opening(id);
                }
            });
        }
        split
    }

    /// The members of such a batch are judged one by one.
    fn split_server_batch(&mut self, speaker: Speaker, line: &[u8]) -> Route {
        for (member, line) in members(line) {
            let frame = member.frame();
            if frame.kind == Kind::Batch {
                // No message is a batch within a batch.
                continue;
            }
            match self.server_says(speaker, &frame, Some(&line)) {
                Route::Pass | Route::Later => {
                    if let Id::Token(id) = frame.id {
                        self.owed.goes_with_ours(id);
                    }
                    self.owed.send_client(line);
                }
                Route::Consumed | Route::Replaced | Route::Gather => {}
            }
        }
        Route::Replaced
    }

    /// May a long line go on as it comes, or must it be seen whole?
    pub fn long_line_route(&mut self, frame: Option<&Frame<'_>>) -> Route {
        let later = self.owed.session.generation() > 1;
        let gather = match frame {
            Some(frame) => match (frame.kind, frame.id) {
                (Kind::Response | Kind::Error, Id::Token(id)) => {
                    let ours = self.own.is(id)
                        || self.orphans.own(id).is_some()
                        || self.owed.session.long_id(id).is_some();
                    if !ours
                        && (!self.orphans.is_empty() || self.owed.requests.is_answered_ahead(id))
                    {
                        return Route::Consumed;
                    }
                    ours || self.learns_from(id)
                }
                // Whose it is comes at its end.
                (Kind::Response | Kind::Error, Id::Absent) => self.learns_from_any(),
                (Kind::Request, _) => later,
                // Progress is told apart from an orphan's.
                (Kind::Notification, _) => {
                    !self.orphans.is_empty()
                        && frame.method.as_deref() == Some("notifications/progress")
                }
                // What its members are is known when all of it is there.
                (Kind::Batch, _) => true,
                (Kind::Response | Kind::Error | Kind::Blank | Kind::Junk, _) => false,
            },
            // A question of a later generation's needs a label.
            None => later || self.learns_from_any(),
        };
        if gather {
            self.long_lines.begin_from_server();
            Route::Gather
        } else {
            Route::Pass
        }
    }

    /// Whether the answer to this request is one that we learn from.
    fn learns_from(&self, id: &[u8]) -> bool {
        let entry = self.owed.requests.get(id);
        entry.is_some_and(|entry| entry.method.teaches()) || self.cache.is_recalled_opening(id)
    }

    /// Whether any answer that may come is one that we learn from, or that the client must not see. What a probe brings is
    /// short: a long one is the client's if it waits for any.
    fn learns_from_any(&self) -> bool {
        self.own.wants_more()
            || self.owed.requests.is_empty() && !self.own.is_empty()
            || self.cache.awaits_opening()
            || self.owed.requests.late_answers() > 0
            || !self.orphans.is_empty()
            || !self.owed.session.no_long_ids()
            || self.owed.requests.teaches()
    }

    /// The end of a long line of the server's that was gathered.
    pub fn gathered_from_server(&mut self) -> Gathered {
        self.long_lines.end_from_server()
    }

    /// A gathered line goes to the client.
    pub fn send_gathered(&mut self, frame: &Frame<'_>, line: Vec<u8>) {
        if let Id::Token(id) = frame.id {
            self.owed.goes_with_ours(id);
        }
        if frame.kind == Kind::Batch {
            batch::each_member(&line, |member| {
                if let Id::Token(id) = member.id {
                    self.owed.goes_with_ours(id);
                }
            });
        }
        self.owed.send_client(line);
    }

    /// A line of the server's that we had to hold whole and could not: what waits for an answer to it, or in it, has ours.
    pub fn server_too_long(&mut self, frame: &Frame<'_>) {
        match (frame.kind, frame.id) {
            (Kind::Response | Kind::Error, Id::Token(id)) => {
                let id = self.orphans.close(id).unwrap_or_else(|| id.to_vec());
                if let Some(entry) = self.owed.requests.get(&id) {
                    self.owed.answer(&id, entry.method, &Because::TooLong);
                }
            }
            (Kind::Request, Id::Token(id)) => {
                self.owed
                    .outbox
                    .send_server(settle::error(id, TOO_LONG, "{}"));
            }
            (
                Kind::Request
                | Kind::Response
                | Kind::Error
                | Kind::Notification
                | Kind::Batch
                | Kind::Blank
                | Kind::Junk,
                Id::Absent | Id::Null | Id::Token(_) | Id::TooLong,
            ) => {}
        }
    }
}

/// What is known of a member, apart from the batch that it came in.
pub(in crate::link) struct Member {
    kind: Kind,
    id: Option<Vec<u8>>,
    method: Option<String>,
}

impl Member {
    pub fn frame(&self) -> Frame<'_> {
        Frame {
            kind: self.kind,
            id: self.id.as_deref().map_or(Id::Absent, Id::Token),
            method: self.method.as_deref().map(Into::into),
            bytes: 0,
        }
    }
}

/// The members of a batch, each as a line of its own.
pub(in crate::link) fn members(line: &[u8]) -> Vec<(Member, Vec<u8>)> {
    let mut all = Vec::new();
    batch::each_member_line(line, |frame, line| {
        let id = match frame.id {
            Id::Token(id) => Some(id.to_vec()),
            Id::Absent | Id::Null | Id::TooLong => None,
        };
        let member = Member {
            kind: frame.kind,
            id,
            method: frame.method.as_deref().map(Into::into),
        };
        all.push((member, line.to_vec()));
    });
    all
}
