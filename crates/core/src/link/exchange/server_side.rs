//! The server's side of the exchange: whose answer a line is, what it teaches, and what it means for the server's life.
//!
//! It owns what is known of the server: what we asked it, the labels of the client's requests, its tasks, its answers of
//! earlier. What the client is owed is [`Owed`]'s; each verb is lent it.
//!
//! Invariant: no answer to a request of ours, or to one of an earlier client's, reaches the client.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::message::envelope::{self, cancelled_id};
use mainstay_protocol::message::frame::{Frame, Id, Kind};
use mainstay_protocol::message::inflight::Tracked;
use mainstay_protocol::message::lists::Which;
use mainstay_protocol::message::remembered::Remembered;
use mainstay_protocol::message::tasks::Tasks;
use mainstay_protocol::message::{batch, settle};

use super::AWAY;
use super::cache::Cache;
use super::labels::{Labels, Unlabelled};
use super::members::members;
use super::owed::{Owed, TOO_LONG};
use crate::link::io::Route;
use crate::link::outbox::Outbox;
use crate::link::own::{Own, Purpose};
use crate::link::session::Session;
use crate::link::state::Because;

/// The stage of the server whose line is routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link) enum Speaker {
    /// It is being replayed what its predecessor knew.
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
    /// It has accepted the replayed opening; this many of the requests that follow it are unanswered.
    OpeningReplayed { unanswered: u32 },
    /// It refuses the replayed opening.
    OpeningRefused,
    /// One of the requests that follow the replayed opening has its answer.
    ReplayAnswered,
    /// It has answered the opening that the cache had answered, and agrees with it.
    RecordConfirmed,
    /// It refuses the opening that the cache has answered.
    RecordRefused,
    /// It cannot go on with the session, for this reason.
    Differs(String),
    /// It has answered this probe.
    ProbeAnswered(u64),
    /// It has answered the probe for a newcomer.
    Fit,
}

#[derive(Debug)]
pub(super) struct ServerSide {
    /// The names of the client's requests at a server that has served another client before.
    labels: Labels,
    /// Our own requests.
    own: Own,
    /// What the server works on after it has answered.
    tasks: Tasks,
    cache: Cache,
    /// What the server's lines meant for its life, in order.
    happened: VecDeque<Happened>,
}

impl ServerSide {
    pub fn new(link: LinkId, remembered: Remembered) -> Self {
        Self {
            labels: Labels::default(),
            own: Own::of(link),
            tasks: Tasks::default(),
            cache: Cache::new(remembered),
            happened: VecDeque::new(),
        }
    }

    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    pub fn labels_mut(&mut self) -> &mut Labels {
        &mut self.labels
    }

    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    pub fn cache_mut(&mut self) -> &mut Cache {
        &mut self.cache
    }

    /// What the lines so far meant for the life of the server, the oldest first.
    pub fn next_happened(&mut self) -> Option<Happened> {
        self.happened.pop_front()
    }

    /// Whether an id is that of a request of our own.
    pub fn is_own(&self, id: &[u8]) -> bool {
        self.own.is(id)
    }

    /// Whether we await an answer that says more than that the server is alive.
    pub fn owes_us(&self) -> bool {
        self.own.wants_more()
    }

    // Its tasks.

    /// What opens the session may say that there are tasks.
    pub fn opened(&mut self, opening: &[u8]) {
        self.tasks.opened(opening);
    }

    /// Whether the server may work on after it has answered.
    pub fn may_have_tasks(&self) -> bool {
        self.tasks.possible()
    }

    /// Until when it is at work after it has answered, as far as is known.
    pub fn works_until(&self) -> Option<Moment> {
        self.tasks.until()
    }

    /// Notes what a line says of tasks.
    pub fn note_tasks(&mut self, now: Moment, line: &[u8]) {
        self.tasks.seen(now, line);
    }

    // It comes and goes.

    /// A generation was started.
    pub fn started(&mut self) {
        self.tasks.forget();
        self.labels.server_gone();
        self.cache.generation_started();
    }

    /// The generation is gone: what we asked it is void.
    pub fn gone(&mut self) {
        self.own.forget();
    }

    /// A killed keeper's successor: what the session says of the server.
    pub fn restore(&mut self, session: &Session<'_>) {
        for opening in session.openings() {
            self.tasks.opened(opening);
        }
        self.cache.restore(session);
    }

    /// The client is gone, and had subscribed to these resources.
    pub fn client_gone(&mut self, subscribed: &[Vec<u8>], outbox: &mut Outbox) {
        for uri in subscribed {
            self.own.unsubscribe(uri, outbox);
        }
        self.cache.client_gone();
    }

    // What we ask it.

    /// Replays the client's opening; false if it is not known.
    pub fn replay_opening(&mut self, owed: &mut Owed<'_>) -> bool {
        self.own.replay_opening(&owed.session, &mut owed.outbox)
    }

    /// Asks a server that is on trial whether it serves; false if there is nothing to ask before the client's traffic.
    pub fn ask_on_trial(&mut self, owed: &mut Owed<'_>) -> bool {
        let Some(meta) = owed.session.modern_meta() else {
            return false;
        };
        self.own.ask_on_trial(&meta, &mut owed.outbox);
        true
    }

    /// Asks whether the lists are still what the client has seen, where it can be told.
    pub fn check_lists(&mut self, owed: &mut Owed<'_>) {
        self.cache.check_lists(&mut self.own, owed);
    }

    pub fn probe(&mut self, purpose: Purpose, owed: &mut Owed<'_>) {
        self.own.probe(purpose, &owed.session, &mut owed.outbox);
    }

    // What it says.

    /// A message of the server's for the client: which way it goes. `line` is none if it was too long to be seen.
    pub fn says(
        &mut self,
        speaker: Speaker,
        frame: &Frame<'_>,
        line: Option<&[u8]>,
        owed: &mut Owed<'_>,
    ) -> Route {
        match (frame.kind, line) {
            (Kind::Request, line) => owed.server_asks(frame, line),
            (Kind::Notification, Some(line)) => self.notified(speaker, frame, line, owed),
            (Kind::Response | Kind::Error, line) => self.answered(frame, line, owed),
            (Kind::Batch, Some(line)) if self.splits_batch(line, owed) => {
                self.split_batch(speaker, line, owed)
            }
            (Kind::Batch, Some(line)) => {
                batch::each_member(line, |member| {
                    if matches!(member.kind, Kind::Response | Kind::Error) {
                        self.answered(&member, None, owed);
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

    /// A notification of the server, with this client's own ids; one for an earlier client is dropped.
    fn notified(
        &mut self,
        speaker: Speaker,
        frame: &Frame<'_>,
        line: &[u8],
        owed: &mut Owed<'_>,
    ) -> Route {
        let line = match self.labels.news(line) {
            Unlabelled::AsItIs => return self.notified_own(speaker, frame, line, owed),
            Unlabelled::Orphan => return Route::Consumed,
            Unlabelled::Line(line) => line,
        };
        match self.notified_own(speaker, frame, &line, owed) {
            Route::Pass | Route::Later => {
                owed.send_client(line);
                Route::Replaced
            }
            route @ (Route::Consumed | Route::Replaced | Route::Gather) => route,
        }
    }

    /// A notification that belongs to no orphan.
    fn notified_own(
        &mut self,
        speaker: Speaker,
        frame: &Frame<'_>,
        line: &[u8],
        owed: &mut Owed<'_>,
    ) -> Route {
        let method = frame.method.as_deref().unwrap_or_default();
        match method {
            // A request that a stopping server has begun is answered by us or sent again.
            "notifications/progress" if speaker == Speaker::GoingDown => Route::Consumed,
            "notifications/progress" if self.labels.in_use() => self.progress(line, owed),
            "notifications/progress" if !owed.requests.may_progress(line) => Route::Consumed,
            "notifications/cancelled" => self.server_cancels(line, owed),
            "notifications/subscriptions/acknowledged" => self.acknowledged(line, owed),
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

    /// Progress while an earlier client's requests may report some: only what is under a label is this client's.
    fn progress(&mut self, line: &[u8], owed: &mut Owed<'_>) -> Route {
        match self.labels.progress(line) {
            Unlabelled::AsItIs => Route::Pass,
            Unlabelled::Line(line) if owed.requests.may_progress(&line) => {
                owed.send_client(line);
                Route::Replaced
            }
            Unlabelled::Line(_) | Unlabelled::Orphan => Route::Consumed,
        }
    }

    /// The server takes a request of its own back: the client may know it by another name.
    fn server_cancels(&mut self, line: &[u8], owed: &mut Owed<'_>) -> Route {
        let Some(id) = cancelled_id(line) else {
            return Route::Pass;
        };
        match owed.server_requests.cancels(id, &mut owed.session) {
            Some(label) if label == id => Route::Pass,
            Some(label) => match envelope::with_request_id(line, &label) {
                Some(line) => {
                    owed.send_client(line);
                    Route::Replaced
                }
                None => Route::Consumed,
            },
            None => self.listening_ended(id, line, owed),
        }
    }

    /// The server takes back what is no question of its own: a listening request ends like this.
    fn listening_ended(&mut self, id: &[u8], line: &[u8], owed: &mut Owed<'_>) -> Route {
        let Some(own) = self.labels.own(id).map(<[u8]>::to_vec) else {
            // It was asked for a client that is gone.
            return Route::Consumed;
        };
        let entry = owed.requests.get(&own);
        if entry.is_some_and(|entry| entry.method.listens()) {
            self.labels.close(id);
            owed.requests.withdraw(&own);
            owed.session.stop_listening(&own);
        }
        if !self.labels.in_use() {
            return Route::Pass;
        }
        match envelope::with_request_id(line, &own) {
            Some(line) => {
                owed.send_client(line);
                Route::Replaced
            }
            None => Route::Consumed,
        }
    }

    /// A listening request is granted; a second time after a respawn, which the client need not know.
    fn acknowledged(&mut self, line: &[u8], owed: &mut Owed<'_>) -> Route {
        let (Some(id), Some(granted)) = (envelope::subscription(line), envelope::granted(line))
        else {
            return Route::Pass;
        };
        let Some(before) = owed.session.granted(id) else {
            owed.session.note_granted(id, granted);
            return Route::Pass;
        };
        if envelope::same_value(before, granted) {
            return Route::Consumed;
        }
        // It grants something else than before: the listening ends, so that the client notices.
        let (id, result) = (id.to_vec(), settle::listening_ends(id));
        owed.answered_ahead_by_next(&id);
        owed.send_client(result);
        let known = self.labels.known_as(&id);
        let cancel = settle::cancel(&known, "the client was granted something else");
        owed.outbox.send_server(cancel);
        owed.session.stop_listening(&id);
        owed.tell_differs("a listening request is granted something else than before".into());
        Route::Replaced
    }

    /// An answer: to us, to an earlier client, or to this one.
    fn answered(&mut self, frame: &Frame<'_>, line: Option<&[u8]>, owed: &mut Owed<'_>) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Pass;
        };
        if self.own.is(id) {
            self.own_answer(frame, id, line, owed);
            return Route::Consumed;
        }
        if !self.labels.in_use() {
            return self.answered_client(frame, id, line, owed);
        }
        match self.labels.close(id) {
            Some(own) => self.answered_label(frame, &own, line, owed),
            None => Route::Consumed,
        }
    }

    /// The answer to a request that went under a label.
    fn answered_label(
        &mut self,
        frame: &Frame<'_>,
        own: &[u8],
        line: Option<&[u8]>,
        owed: &mut Owed<'_>,
    ) -> Route {
        let Some(line) = line.and_then(|line| envelope::with_id(line, own)) else {
            // The id cannot be restored: we answer the request.
            return owed.not_understood(own);
        };
        match self.answered_client(frame, own, Some(&line), owed) {
            Route::Pass | Route::Later => {
                owed.goes_with_ours(own);
                owed.send_client(line);
                Route::Replaced
            }
            route @ (Route::Consumed | Route::Replaced | Route::Gather) => route,
        }
    }

    /// The answer to a request of the client that is attached.
    fn answered_client(
        &mut self,
        frame: &Frame<'_>,
        id: &[u8],
        line: Option<&[u8]>,
        owed: &mut Owed<'_>,
    ) -> Route {
        if self.cache.is_recalled_opening(id) {
            self.opening_confirmed(frame, line, owed);
            return Route::Replaced;
        }
        if owed.requests.swallow(id) {
            self.cache
                .recalled_answered(id, frame, line, &mut self.own, owed);
            return Route::Consumed;
        }
        if owed.advertises(frame, id)
            && let Some(line) = line
            && let Some(told) = envelope::advertised(line)
        {
            self.learn_opening(line, owed);
            owed.answer_opening(id, &told);
            owed.send_client(told);
            return Route::Replaced;
        }
        let Some(entry) = owed.requests.answered(owed.heard_at, id, frame.kind) else {
            return if self.labels.in_use() {
                Route::Consumed
            } else {
                Route::Pass
            };
        };
        let end = owed.line_end;
        owed.session.answer_on_way(|| end);
        if let Some(line) = line {
            if (frame.kind, entry.method) == (Kind::Response, Tracked::Initialize) {
                self.tasks.opened(line);
            }
            self.cache.learn(frame.kind, entry.method, id, line, owed);
        }
        if entry.method == Tracked::Initialize && frame.kind == Kind::Error {
            // What a server that knows no `server/discover` must know.
            self.cache.forget_refusal();
        }
        if entry.method.listens() {
            owed.session.stop_listening(id);
        }
        owed.requests.forget_line(id);
        Route::Pass
    }

    /// The answer to a request of our own.
    fn own_answer(
        &mut self,
        frame: &Frame<'_>,
        id: &[u8],
        line: Option<&[u8]>,
        owed: &mut Owed<'_>,
    ) {
        let happened = match self.own.close(id) {
            Some(Purpose::Opening) => self.opening_replayed(frame, line, owed),
            Some(Purpose::Replay) => {
                if frame.kind == Kind::Error {
                    let what =
                        "it refuses the log level or a subscription that its predecessor had taken";
                    owed.tell_differs(what.into());
                }
                Happened::ReplayAnswered
            }
            Some(Purpose::List { which, page }) => {
                if let (Kind::Response, Some(line)) = (frame.kind, line) {
                    self.cache
                        .list_checked(which, page, line, &mut self.own, owed);
                }
                return;
            }
            Some(Purpose::Probe { n }) => Happened::ProbeAnswered(n),
            Some(Purpose::Fitness) => Happened::Fit,
            Some(Purpose::Undo) | None => return,
        };
        self.happened.push_back(happened);
    }

    /// The replayed opening is answered: the rest of the replay follows.
    fn opening_replayed(
        &mut self,
        frame: &Frame<'_>,
        line: Option<&[u8]>,
        owed: &mut Owed<'_>,
    ) -> Happened {
        if owed.session.modern() {
            // Any answer shows that the server is alive.
            return Happened::OpeningReplayed { unanswered: 0 };
        }
        if frame.kind == Kind::Error {
            owed.tell_differs("it refuses the client's opening".into());
            return Happened::OpeningRefused;
        }
        if let Some(line) = line {
            if self.cache.forgot_opening(&owed.session) {
                self.learn_opening(line, owed);
            }
            if let Err(changed) = owed.compare_greeting(line) {
                return Happened::Differs(changed.to_string());
            }
        }
        owed.replay_initialized();
        let unanswered = self.own.replay_wishes(&owed.session, &mut owed.outbox);
        Happened::OpeningReplayed { unanswered }
    }

    /// The server itself answers the opening that the cache has answered.
    fn opening_confirmed(&mut self, frame: &Frame<'_>, line: Option<&[u8]>, owed: &mut Owed<'_>) {
        self.cache.opening_confirmed();
        let happened = if frame.kind == Kind::Error {
            self.cache.opening_refused(&owed.session);
            Happened::RecordRefused
        } else {
            if let Some(line) = line {
                self.learn_opening(line, owed);
            }
            match line.map_or(Ok(()), |line| owed.compare_greeting(line)) {
                Ok(()) => {
                    owed.replay_initialized();
                    Happened::RecordConfirmed
                }
                Err(changed) => Happened::Differs(changed.to_string()),
            }
        };
        self.happened.push_back(happened);
    }

    fn learn_opening(&mut self, line: &[u8], owed: &mut Owed<'_>) {
        self.tasks.opened(line);
        self.cache.learn_opening(&owed.session, line);
    }

    /// A line of the server's while no client is attached; how many answers reach no client.
    pub fn unheard(&mut self, frame: &Frame<'_>, line: Option<&[u8]>, owed: &mut Owed<'_>) -> u32 {
        match (frame.kind, frame.id, line) {
            (Kind::Request, Id::Token(id), _) => {
                owed.outbox.send_server(settle::error(id, AWAY, "{}"));
                0
            }
            (Kind::Notification, _, _) => {
                let method = frame.method.as_deref().unwrap_or_default();
                self.cache.changed_meanwhile(Which::changed_by(method));
                0
            }
            (Kind::Response | Kind::Error, Id::Token(id), line) => {
                self.unheard_answer(frame, id, line, owed)
            }
            (Kind::Batch, _, Some(line)) => {
                let mut dropped = 0;
                batch::each_member(line, |member| {
                    if let (Kind::Response | Kind::Error, Id::Token(id)) = (member.kind, member.id)
                    {
                        dropped += self.unheard_answer(&member, id, None, owed);
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

    fn unheard_answer(
        &mut self,
        frame: &Frame<'_>,
        id: &[u8],
        line: Option<&[u8]>,
        owed: &mut Owed<'_>,
    ) -> u32 {
        if self.own.is(id) {
            self.own_answer(frame, id, line, owed);
            return 0;
        }
        1
    }

    /// Whether a batch of the server's holds what the client must not see: an orphan's answer, one to a request that we have
    /// answered ourselves, one to a request of our own; or a question, which is known by itself and may need a label.
    fn splits_batch(&self, line: &[u8], owed: &Owed<'_>) -> bool {
        let mut split = self.labels.in_use() || !owed.session.no_long_ids();
        if !split {
            batch::each_member(line, |member| {
                split |= member.kind == Kind::Request;
                if let (Kind::Response | Kind::Error, Id::Token(id)) = (member.kind, member.id) {
                    split |= self.own.is(id)
                        || owed.requests.is_answered_ahead(id)
                        || self.cache.is_recalled_opening(id);
                }
            });
        }
        split
    }

    /// The members of such a batch are judged one by one.
    fn split_batch(&mut self, speaker: Speaker, line: &[u8], owed: &mut Owed<'_>) -> Route {
        for (member, line) in members(line) {
            let frame = member.frame();
            if frame.kind == Kind::Batch {
                // No message is a batch within a batch.
                continue;
            }
            match self.says(speaker, &frame, Some(&line), owed) {
                Route::Pass | Route::Later => {
                    if let Id::Token(id) = frame.id {
                        owed.goes_with_ours(id);
                    }
                    owed.send_client(line);
                }
                Route::Consumed | Route::Replaced | Route::Gather => {}
            }
        }
        Route::Replaced
    }

    /// May a long line go on as it comes, or must it be seen whole?
    pub fn long_line_route(&mut self, frame: Option<&Frame<'_>>, owed: &Owed<'_>) -> Route {
        let later = owed.session.generation() > 1;
        let gather = match frame {
            Some(frame) => match (frame.kind, frame.id) {
                (Kind::Response | Kind::Error, Id::Token(id)) => {
                    let ours = self.own.is(id)
                        || self.labels.is_label(id)
                        || owed.session.long_id(id).is_some();
                    if !ours && (self.labels.in_use() || owed.requests.is_answered_ahead(id)) {
                        return Route::Consumed;
                    }
                    ours || self.learns_from(id, owed)
                }
                // The id, which says whose answer it is, comes at the end.
                (Kind::Response | Kind::Error, Id::Absent) => self.learns_from_any(owed),
                (Kind::Request, _) => later,
                // Progress must be told from an orphan's.
                (Kind::Notification, _) => {
                    self.labels.in_use()
                        && frame.method.as_deref() == Some("notifications/progress")
                }
                // The members are known only when all of it is there.
                (Kind::Batch, _) => true,
                (Kind::Response | Kind::Error | Kind::Blank | Kind::Junk, _) => false,
            },
            // A question of a later generation's needs a label.
            None => later || self.learns_from_any(owed),
        };
        if gather { Route::Gather } else { Route::Pass }
    }

    /// Whether the answer to this request is one that we learn from.
    fn learns_from(&self, id: &[u8], owed: &Owed<'_>) -> bool {
        let entry = owed.requests.get(id);
        entry.is_some_and(|entry| entry.method.teaches()) || self.cache.is_recalled_opening(id)
    }

    /// Whether any answer that may come is one that we learn from, or that the client must not see. What a probe brings is
    /// short: a long one is the client's if it waits for any.
    fn learns_from_any(&self, owed: &Owed<'_>) -> bool {
        self.own.wants_more()
            || owed.requests.is_empty() && !self.own.is_empty()
            || self.cache.awaits_opening()
            || owed.requests.late_answers() > 0
            || self.labels.in_use()
            || !owed.session.no_long_ids()
            || owed.requests.teaches()
    }

    /// A line of the server's that we had to hold whole and could not: what waits for an answer to it, or in it, has ours.
    pub fn too_long(&mut self, frame: &Frame<'_>, owed: &mut Owed<'_>) {
        match (frame.kind, frame.id) {
            (Kind::Response | Kind::Error, Id::Token(id)) => {
                let id = self.labels.close(id).unwrap_or_else(|| id.to_vec());
                if let Some(entry) = owed.requests.get(&id) {
                    owed.answer(&id, entry.method, &Because::TooLong);
                }
            }
            (Kind::Request, Id::Token(id)) => {
                owed.outbox.send_server(settle::error(id, TOO_LONG, "{}"));
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
