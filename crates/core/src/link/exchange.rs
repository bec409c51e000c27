//! What client and server say to each other, apart from which server lives: who is owed an answer, which messages wait,
//! what the next generation must be told.
//!
//! It knows no life: [`Generation`](super::generation::Generation) tells it that a server is gone or serves again, and it
//! tells back what a line meant for the life ([`Happened`]). [`Owed`] is what the client is owed, [`ServerSide`] what is
//! known of the server. This file has the client's lines, and what changes on both sides when a server or a client
//! comes or goes.
//!
//! Invariants: each tracked request of the client's has exactly one answer, from the server or from us; no answer of a
//! generation reaches the client after it was settled.

mod cache;
mod labels;
mod members;
mod owed;
mod recall;
mod server_side;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{CallDeadline, What};
use mainstay_protocol::limits::Limits;
use mainstay_protocol::message::envelope::{self, cancelled_id};
use mainstay_protocol::message::frame::{Fed, Frame, Id, Kind, Scanner};
use mainstay_protocol::message::inflight::{Opened, Token, Tracked};
use mainstay_protocol::message::remembered::Remembered;
use mainstay_protocol::message::{batch, settle};
use mainstay_protocol::policy::{Policy, Retry};

use super::io::{About, Route};
use super::long_lines::{Gathered, LongLines};
use super::outbox::Outbox;
use super::own::Purpose;
use super::requests::Requests;
use super::session::{MidLine, Session};
use super::state::Because;
use crate::record::{Attached, Record};

use cache::Cache;
pub(super) use members::members;
use owed::Owed;
pub(super) use recall::Recalled;
use server_side::ServerSide;
pub(super) use server_side::{Happened, Speaker};

#[derive(Debug)]
pub(super) struct Exchange<'a> {
    /// What the client is owed.
    owed: Owed<'a>,
    /// What is known of the server.
    server: ServerSide,
    long_lines: LongLines,
}

impl<'a> Exchange<'a> {
    pub fn new(
        about: About,
        limits: Limits,
        policy: Policy,
        record: Record<'a>,
        remembered: Remembered,
    ) -> Self {
        Self {
            server: ServerSide::new(about.link, remembered),
            long_lines: LongLines::default(),
            owed: Owed::new(about, limits, policy, record),
        }
    }

    /// What the client is owed, to answer and settle it.
    pub fn owed(&mut self) -> &mut Owed<'a> {
        &mut self.owed
    }

    pub fn about(&self) -> &About {
        &self.owed.about
    }

    pub fn policy(&self) -> Policy {
        self.owed.policy
    }

    pub fn session(&self) -> &Session<'a> {
        &self.owed.session
    }

    pub fn session_mut(&mut self) -> &mut Session<'a> {
        &mut self.owed.session
    }

    pub fn requests(&self) -> &Requests<'a> {
        &self.owed.requests
    }

    pub fn cache(&self) -> &Cache {
        self.server.cache()
    }

    /// What earlier sessions saw. The client may have opened already.
    pub fn recall(&mut self, remembered: Remembered) {
        let cache = self.server.cache_mut();
        cache.recall(remembered);
        if let Some(opening) = self.owed.session.opening() {
            cache.client_opens(opening);
        }
    }

    pub fn cache_mut(&mut self) -> &mut Cache {
        self.server.cache_mut()
    }

    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.owed.outbox
    }

    pub fn has_output(&self) -> bool {
        !self.owed.outbox.is_empty()
    }

    pub fn long_lines(&mut self) -> &mut LongLines {
        &mut self.long_lines
    }

    pub fn mid_line(&mut self) -> MidLine<'_> {
        self.owed.session.mid_line()
    }

    pub fn in_flight(&self) -> u32 {
        self.owed.requests.len() as u32
    }

    /// Whether questions of the server's wait at the client.
    pub fn client_is_asked(&self) -> bool {
        self.owed.server_requests.pending() > 0
    }

    /// Whether the server has work, as far as is known.
    pub fn is_busy(&self, now: Moment) -> bool {
        let until = self.server.works_until();
        until.is_some_and(|until| now < until)
            || !self.owed.requests.is_empty()
            || self.client_is_asked()
    }

    /// Until when the server may not be put to rest; none if something keeps it awake that has no end yet.
    pub fn idle_from(&self, idle: Moment) -> Option<Moment> {
        let awake = !self.owed.session.opened()
            || !self.owed.requests.is_empty()
            || self.client_is_asked()
            || self.server.owes_us()
            || self.owed.session.subscribed();
        (!awake).then(|| idle.max(self.server.works_until().unwrap_or(idle)))
    }

    /// Whether nothing is to be relabelled, kept for a retry or looked at for tasks: a call and its answer concern the
    /// table alone.
    pub fn is_plain(&self) -> bool {
        self.owed.session.opened()
            && self.owed.session.era_settled()
            && !self.server.labels().in_use()
            && self.owed.policy.retry != Retry::Annotated
            && self.owed.limits.hibernate_ms == 0
            && !self.server.may_have_tasks()
    }

    /// Lets plain calls pass; how many bytes.
    #[inline]
    pub fn pass_calls(
        &mut self,
        now: Moment,
        lines: &[u8],
        passed: impl FnMut(&Frame<'_>),
    ) -> usize {
        let generation = self.owed.session.generation();
        let used = self
            .owed
            .requests
            .pass_calls(now, generation, lines, passed);
        if used > 0 {
            self.owed.session.set_spoken();
        }
        used
    }

    /// Lets the results of plain calls pass; how many bytes.
    #[inline]
    pub fn pass_results(
        &mut self,
        now: Moment,
        lines: &[u8],
        begin: u64,
        passed: impl FnMut(&Frame<'_>),
    ) -> usize {
        let used = self.owed.requests.pass_results(now, lines, begin, passed);
        if used > 0 {
            self.owed.heard_at = now;
            let first = || memchr::memchr(b'\n', lines).map_or(used, |end| end + 1);
            self.owed.session.answer_on_way(|| begin + first() as u64);
        }
        used
    }

    /// Whether a batch of the client's goes to the server member by member: an answer gets the id back that its question
    /// had, and a request of a later client a label.
    pub fn splits_client_batch(&self, line: &[u8]) -> bool {
        let mut split = self.server.labels().in_use();
        batch::each_member(line, |member| {
            split |= matches!(member.kind, Kind::Response | Kind::Error);
        });
        split
    }

    /// A request that has been opened goes to the server: what must be known of it later, and under what id it goes.
    pub fn send(&mut self, id: &[u8], tracked: Tracked, line: &[u8]) -> Route {
        match tracked {
            Tracked::Initialize => {
                self.owed.session.remember_opening(line);
                self.server.cache_mut().client_opens(line);
            }
            Tracked::Listen => self.owed.session.note_listening(id, line),
            Tracked::ToolsCall => {
                let retry = self.owed.policy.retry;
                if self.server.cache().may_repeat(retry, tracked, line) {
                    self.owed.requests.keep_line(id, line);
                } else {
                    self.owed.requests.forget_line(id);
                }
            }
            Tracked::Discover
            | Tracked::Ping
            | Tracked::List
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe => self.owed.requests.keep_line(id, line),
            Tracked::Task | Tracked::Other => {}
        }
        self.note_era(tracked, line);
        self.relabel(id, line)
    }

    /// The first request that belongs to an era fixes it.
    pub fn note_era(&mut self, tracked: Tracked, line: &[u8]) {
        if let Some(meta) = self.owed.session.note_era(tracked, line) {
            self.server.opened(&meta);
        }
    }

    /// The request of a client that came back goes under a label, so that its answer is told apart from one to an earlier
    /// client; the request of a first client as it is.
    fn relabel(&mut self, id: &[u8], line: &[u8]) -> Route {
        if !self.server.labels().in_use() {
            return Route::Pass;
        }
        match self.server.labels_mut().request(id, line) {
            Some(line) => {
                self.owed.outbox.send_server(line);
                Route::Replaced
            }
            // It would be taken for another.
            None => self.owed.not_understood(id),
        }
    }

    /// The client takes a request back, under the name that the server knows. The route, and whether the server may be at
    /// it all the same.
    pub fn cancel(&mut self, line: &[u8]) -> (Route, bool) {
        let Some(id) = cancelled_id(line) else {
            let route = if self.server.labels().in_use() {
                Route::Consumed
            } else {
                Route::Pass
            };
            return (route, false);
        };
        let label = self.server.labels_mut().unlabel(id);
        let entry = self.owed.requests.withdraw(id);
        self.owed.session.stop_listening(id);
        let at_it = entry.is_some_and(|entry| !entry.is_held());
        if entry.is_some_and(|entry| entry.is_held()) {
            // No server has seen it.
            self.owed.requests.let_go(id);
            return (Route::Consumed, false);
        }
        if !self.server.labels().in_use() {
            return (Route::Pass, at_it);
        }
        // A request without a label is answered already, and an orphan belongs to an earlier client.
        let route = match label.and_then(|label| envelope::with_request_id(line, &label)) {
            Some(line) => {
                self.owed.outbox.send_server(line);
                Route::Replaced
            }
            None => Route::Consumed,
        };
        (route, at_it)
    }

    /// Keeps a message within us until a server can take it; false if there is no room.
    pub fn try_hold(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> bool {
        self.owed.requests.try_hold(now, frame, line)
    }

    /// Whether a long line of the client's must be seen whole before it goes to a server that serves.
    pub fn must_see_client_line(&self, frame: Option<&Frame<'_>>) -> bool {
        let Some(frame) = frame else {
            // Any message is possible.
            let labelled = self.owed.session.generation() > 1 && self.client_is_asked();
            return labelled || self.server.labels().in_use();
        };
        match frame.kind {
            // An answer to a question that has a label.
            Kind::Response | Kind::Error => {
                self.owed.session.generation() > 1 && self.client_is_asked()
            }
            Kind::Request => self.server.labels().in_use() || frame.id == Id::TooLong,
            Kind::Batch => true,
            Kind::Notification | Kind::Blank | Kind::Junk => false,
        }
    }

    /// Whether a line has ids that are found only in the whole of it: a batch, or a request whose id is too long.
    pub fn has_more_ids(frame: Option<&Frame<'_>>) -> bool {
        frame.is_some_and(|frame| {
            frame.kind == Kind::Batch || (frame.kind, frame.id) == (Kind::Request, Id::TooLong)
        })
    }

    /// The messages that waited within us; each is to be routed as if it came now.
    pub fn release_held(&mut self) -> VecDeque<Vec<u8>> {
        self.owed.requests.release()
    }

    /// The beginning of a request's line is gone, and no server has seen any of it. If this keeper is killed before the
    /// line ends, its successor answers the request.
    pub fn open_at_cut(&mut self, now: Moment, frame: &Frame<'_>) {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return;
        };
        let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
        match self.owed.requests.open_unsent(id, tracked, now) {
            Opened::New | Opened::Again => self.long_lines.set_unsent(Token::new(id)),
            Opened::Full | Opened::Untracked => {}
        }
    }

    /// The long line of a request has ended: whether no server has seen any of it, and whether the request still waits.
    pub fn end_of_cut(&mut self) -> Option<Cut> {
        let id = self.long_lines.take_unsent()?;
        Some(match self.owed.requests.get(&id) {
            Some(_) => Cut::Waits,
            None => Cut::Answered,
        })
    }

    /// What was gathered of the client's line.
    pub fn gathered_from_client(&mut self) -> Gathered {
        self.long_lines.end_from_client()
    }

    /// When the oldest request has taken too long.
    pub fn deadline_at(&self) -> Option<Moment> {
        if self.owed.limits.call_deadline_ms == 0 {
            return None;
        }
        let (_, entry) = self.owed.requests.oldest_call(self.long_lines.answer())?;
        Some(entry.opened.after_ms(self.owed.limits.call_deadline_ms))
    }

    /// Answers the oldest request if it has taken too long; none if it has not, otherwise whether the server may be
    /// working on it.
    pub fn call_deadline(&mut self, now: Moment) -> Option<bool> {
        self.deadline_at().filter(|&at| now >= at)?;
        let (id, entry) = self.owed.requests.oldest_call(self.long_lines.answer())?;
        let id = id.to_vec();
        let ms = now.ms_since(entry.opened);
        let because = Because::Deadline { ms };
        if entry.is_held() {
            // No server has seen it.
            self.owed.requests.let_go(&id);
            self.owed.answer(&id, entry.method, &because);
            return Some(false);
        }
        self.owed.answer_ahead(&id, entry.method, &because);
        let known = self.server.labels_mut().known_as(&id);
        // Before the era is fixed, a message of ours would fix it.
        if entry.method != Tracked::Discover || self.owed.session.era_settled() {
            let cancel = settle::cancel(&known, "the call deadline has passed");
            self.owed.outbox.send_server(cancel);
        }
        let request = entry.method.word().into();
        self.owed
            .tell(What::CallDeadline(CallDeadline { request, ms }));
        Some(true)
    }

    /// The server has died of a `server/discover` before it was opened: it is a legacy server, so we give the answer of
    /// a legacy server.
    pub fn answer_discover(&mut self) {
        if self.owed.session.opened() {
            return;
        }
        for (id, method, sent_to) in self.owed.requests.all() {
            if method == Tracked::Discover && sent_to.is_some() {
                self.cache_mut().discover_killed();
                self.owed.answered_by_next(&id);
                self.owed
                    .send_client(settle::method_not_found(&id, method.word()));
            }
        }
    }

    /// The generation is gone: its questions to the client are cancelled, our requests to it are void, and no late
    /// answer of it can come.
    pub fn server_gone(&mut self) {
        self.owed.server_requests.server_gone(&mut self.owed.outbox);
        let generation = self.owed.session.generation();
        self.owed.requests.forget_late_answers(generation);
        self.server.gone();
        self.long_lines.answer_ends();
    }

    /// A dead server has not read these lines. The next generation is the first one that can read them.
    pub fn unread(&mut self, mut lines: &[u8]) {
        let mut held = VecDeque::new();
        let mut scanner = Scanner::new();
        while let Fed::Line { used } = scanner.feed(lines) {
            let (line, rest) = lines.split_at(used);
            let frame = scanner.frame();
            let own = self.server.labels().original(&frame, line);
            let (frame, line) = match &own {
                Some((id, line)) => (
                    Frame {
                        id: Id::Token(id),
                        ..frame
                    },
                    line.as_slice(),
                ),
                None => (frame, line),
            };
            let waits = match (frame.kind, frame.id, frame.method.as_deref()) {
                (Kind::Request, Id::Token(id), Some(method)) if !self.server.is_own(id) => {
                    // Requests of a client that is gone are not sent again.
                    (own.is_some() || !self.server.labels().in_use())
                        && self.owed.requests.unread(id, Tracked::of(method))
                }
                // That one is sent again with the opening.
                (Kind::Notification, _, method) => method != Some("notifications/initialized"),
                (
                    Kind::Request
                    | Kind::Response
                    | Kind::Error
                    | Kind::Batch
                    | Kind::Blank
                    | Kind::Junk,
                    _,
                    _,
                ) => false,
            };
            if waits {
                held.push_back(line.to_vec());
            }
            lines = rest;
        }
        self.owed.requests.put_back(held);
    }

    /// Takes over what a killed keeper left in the record. Requests that the next generation can be asked are kept, the
    /// others are answered; how many were.
    pub fn take_over(&mut self) -> u32 {
        self.owed
            .server_requests
            .restore(&self.owed.session, &mut self.owed.outbox);
        // The server that owed a late answer is dead.
        let generation = self.owed.session.generation();
        self.owed.requests.forget_late_answers(generation);
        self.server.restore(&self.owed.session);
        let mut settled = 0;
        for (id, method, sent_to) in self.owed.requests.all() {
            if !self.owed.survives_keeper(&id, method) {
                self.owed.answer(&id, method, &Because::KeeperLost);
                self.long_lines.answered_at_take_over(&id);
                settled += 1;
            } else if sent_to.is_none() {
                // The line that was held is lost; a request whose line is kept counts as sent.
                self.owed.requests.move_to(&id, generation);
            }
        }
        settled
    }

    // From one generation to the next.

    /// When a request is answered from the cache, if it can be.
    pub fn instant_at(&self) -> Option<Moment> {
        self.server.cache().instant_at(&self.owed)
    }

    /// The server is slow to answer: the cache answers.
    pub fn answer_from_record(&mut self, now: Moment) -> Option<Recalled> {
        let cache = self.server.cache_mut();
        cache.answer_from_record(now, &mut self.owed)
    }

    /// The client asks while no server can be asked: the route, if the cache has the answer.
    pub fn answered_from_record(
        &mut self,
        now: Moment,
        frame: &Frame<'_>,
        line: &[u8],
    ) -> Option<Route> {
        let cache = self.server.cache_mut();
        cache.answered_from_record(now, frame, line, &mut self.owed)
    }

    /// A `server/discover` that the server is known to refuse is answered at once: the route, if so.
    pub fn refuse_discover(&mut self, now: Moment, id: &[u8], method: &str) -> Option<Route> {
        let cache = self.server.cache();
        cache.refuse_discover(now, id, method, &mut self.owed)
    }

    /// Asks the server for its lists, to compare them with what the client has seen, if the client can be told of a
    /// change.
    pub fn check_lists(&mut self) {
        self.server.check_lists(&mut self.owed);
    }

    /// Tells the client of lists that a server reported as changed while the client could not be told.
    pub fn tell_changed_meanwhile(&mut self) {
        let cache = self.server.cache_mut();
        cache.tell_changed_meanwhile(&mut self.owed);
    }

    /// A generation was started.
    pub fn generation_started(&mut self) {
        self.owed.session.next_generation();
        self.server.started();
    }

    /// Replays the client's opening; false if it is not known.
    pub fn replay_opening(&mut self) -> bool {
        self.server.replay_opening(&mut self.owed)
    }

    /// Asks a server that is on trial whether it serves; false if there is nothing to ask before the client's traffic.
    pub fn ask_on_trial(&mut self) -> bool {
        self.server.ask_on_trial(&mut self.owed)
    }

    pub fn probe(&mut self, purpose: Purpose) {
        self.server.probe(purpose, &mut self.owed);
    }

    // What the server says.

    /// A message of the server's for the client: which way it goes. `line` is none if it was too long to be seen.
    pub fn server_says(
        &mut self,
        now: Moment,
        speaker: Speaker,
        frame: &Frame<'_>,
        line: Option<&[u8]>,
    ) -> Route {
        self.owed.heard_at = now;
        self.server.says(speaker, frame, line, &mut self.owed)
    }

    /// A line of the server's while no client is attached; how many answers reach no client.
    pub fn unheard(&mut self, frame: &Frame<'_>, line: Option<&[u8]>) -> u32 {
        self.server.unheard(frame, line, &mut self.owed)
    }

    /// What the lines so far meant for the life of the server, the oldest first.
    pub fn next_happened(&mut self) -> Option<Happened> {
        self.server.next_happened()
    }

    /// Whether an id is that of a request of our own.
    pub fn is_own(&self, id: &[u8]) -> bool {
        self.server.is_own(id)
    }

    /// Notes what a line says of tasks.
    #[inline]
    pub fn note_tasks(&mut self, now: Moment, line: &[u8]) {
        if self.owed.limits.hibernate_ms > 0 || self.server.may_have_tasks() {
            self.server.note_tasks(now, line);
        }
    }

    /// May a long line of the server's go on as it comes, or must it be seen whole?
    pub fn long_line_route(&mut self, frame: Option<&Frame<'_>>) -> Route {
        let route = self.server.long_line_route(frame, &self.owed);
        match route {
            Route::Gather => self.long_lines.begin_from_server(),
            Route::Pass => self.long_lines.passes_from_server(frame),
            Route::Consumed | Route::Later | Route::Replaced => {}
        }
        route
    }

    /// What was gathered of the server's line.
    pub fn gathered_from_server(&mut self) -> Gathered {
        self.long_lines.end_from_server()
    }

    /// A line of the server that we had to hold whole and could not: each request that it answers gets an answer of
    /// ours.
    pub fn server_too_long(&mut self, frame: &Frame<'_>) {
        self.server.too_long(frame, &mut self.owed);
    }

    // A client goes, and another one comes.

    /// The client is gone, and the server stays: no client waits for its unanswered requests, in either direction.
    pub fn client_gone(&mut self) {
        // First, because if this keeper is killed while requests are forgotten, its successor must not believe that a
        // client still waits for them.
        self.owed.session.set_attached(Attached::No);
        let generation = self.owed.session.generation();
        for id in self.owed.requests.client_gone(generation) {
            let known = self.server.labels_mut().known_as(&id);
            self.owed.outbox.send_server(settle::cancel(&known, AWAY));
        }
        self.server.labels_mut().client_gone();
        for id in self.owed.server_requests.client_gone() {
            self.owed.outbox.send_server(settle::error(&id, AWAY, "{}"));
        }
        // Lines on their way to the client are lost, but the server is open, which is what counts for the next client.
        self.owed.delivered_to(u64::MAX);
        self.owed.written_to(u64::MAX);
        let subscribed = self.owed.session.client_gone();
        self.server.client_gone(&subscribed, &mut self.owed.outbox);
        self.long_lines.client_gone();
    }

    /// How the kept server would answer `server/discover`, if that is known without asking it. The question is not
    /// sent, because the server would count it as part of the session.
    pub fn discovered(&self, id: &[u8]) -> Option<Vec<u8>> {
        if !self.owed.session.modern() {
            return Some(settle::method_not_found(id, Tracked::Discover.word()));
        }
        self.server.cache().discovered(id)
    }
}

/// What has become of a request whose long line no server has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Waits,
    Answered,
}

/// Why a question of the server is not answered, and why a request is cancelled.
const AWAY: &str = "the client is away";
