//! What client and server say to each other, apart from which server lives: who is owed an answer, which messages wait,
//! what the next generation must be told.
//!
//! It knows no life: [`Generation`](super::generation::Generation) tells it that a server is gone or serves again, and it
//! tells back what a line meant for the life ([`Happened`]). This file has the client's side, the folder
//! beside it the server's side, what the client is owed, and what an earlier session saw.
//!
//! Invariants: each tracked request of the client's has exactly one answer, from the server or from us; no answer of a
//! generation reaches the client after it was settled.

mod cache;
mod from_server;
mod owed;
mod recall;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::io::{About, Route};
use super::long_lines::{Gathered, LongLines};
use super::outbox::Outbox;
use super::own::{Own, Purpose};
use super::requests::Requests;
use super::session::{MidLine, Session};
use super::state::Because;
use crate::clock::Moment;
use crate::event::{CallDeadline, What};
use crate::limits::Limits;
use crate::message::envelope::{self, cancelled_id};
use crate::message::frame::{Fed, Frame, Id, Kind, Scanner};
use crate::message::inflight::{Opened, Token, Tracked};
use crate::message::orphans::Orphans;
use crate::message::remembered::Remembered;
use crate::message::tasks::Tasks;
use crate::message::{batch, settle};
use crate::policy::{Policy, Retry};
use crate::record::{Attached, Record};

use cache::Cache;
pub(super) use from_server::{Happened, Speaker, members};
use owed::Owed;
pub(super) use recall::Recalled;

#[derive(Debug)]
pub(super) struct Exchange<'a> {
    /// What the client is owed.
    owed: Owed<'a>,
    /// What the server works on for clients that are gone, and the labels that tell it apart.
    orphans: Orphans,
    own: Own,
    /// What the server works on after it has answered.
    tasks: Tasks,
    cache: Cache,
    long_lines: LongLines,
    /// What the server's lines meant for its life, in order.
    happened: VecDeque<Happened>,
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
            orphans: Orphans::default(),
            own: Own::of(about.link),
            tasks: Tasks::default(),
            cache: Cache::new(remembered),
            long_lines: LongLines::default(),
            happened: VecDeque::new(),
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
        &self.cache
    }

    pub fn cache_mut(&mut self) -> &mut Cache {
        &mut self.cache
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
        let task = self.tasks.until().is_some_and(|until| now < until);
        task || !self.owed.requests.is_empty() || self.client_is_asked()
    }

    /// Until when the server may not be put to rest; none if something keeps it awake that has no end yet.
    pub fn idle_from(&self, idle: Moment) -> Option<Moment> {
        let awake = !self.owed.session.opened()
            || !self.owed.requests.is_empty()
            || self.client_is_asked()
            || self.own.wants_more()
            || self.owed.session.subscribed();
        (!awake).then(|| idle.max(self.tasks.until().unwrap_or(idle)))
    }

    /// Whether nothing is to be relabelled, kept for a retry or looked at for tasks: a call and its answer concern the
    /// table alone.
    pub fn is_plain(&self) -> bool {
        self.owed.session.opened()
            && self.owed.session.era_settled()
            && self.orphans.is_empty()
            && self.owed.policy.retry != Retry::Annotated
            && self.owed.limits.hibernate_ms == 0
            && !self.tasks.possible()
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
        lines: &[u8],
        begin: u64,
        passed: impl FnMut(&Frame<'_>),
    ) -> usize {
        let used = self.owed.requests.pass_results(lines, begin, passed);
        if used > 0 {
            let first = || memchr::memchr(b'\n', lines).map_or(used, |end| end + 1);
            self.owed.session.answer_on_way(|| begin + first() as u64);
        }
        used
    }

    /// Whether a batch of the client's goes to the server member by member: an answer gets the id back that its question
    /// had, and a request of a later client a label.
    pub fn splits_client_batch(&self, line: &[u8]) -> bool {
        let mut split = !self.orphans.is_empty();
        batch::each_member(line, |member| {
            split |= matches!(member.kind, Kind::Response | Kind::Error);
        });
        split
    }

    /// A request that has been opened goes to the server: what must be known of it later, and under what id it goes.
    pub fn send(&mut self, id: &[u8], tracked: Tracked, line: &[u8]) -> Route {
        match tracked {
            Tracked::Initialize => self.owed.session.remember_opening(line),
            Tracked::Listen => self.owed.session.note_listening(id, line),
            Tracked::ToolsCall => {
                if self.cache.may_repeat(self.owed.policy.retry, tracked, line) {
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
            self.tasks.opened(&meta);
        }
    }

    /// The request of a client that came back goes under a label, so that its answer is told apart from one to an earlier
    /// client; the request of a first client as it is.
    fn relabel(&mut self, id: &[u8], line: &[u8]) -> Route {
        if self.orphans.is_empty() {
            return Route::Pass;
        }
        let label = self.orphans.label(id);
        let Some(mut told) = envelope::with_id(line, &label) else {
            // Two ids, or none that can be found: it would be taken for another.
            self.orphans.close(&label);
            return self.not_understood(id);
        };
        if let Some(token) = envelope::progress_token(line) {
            let label = self.orphans.progress_label(token);
            told = envelope::with_progress_token(&told, &label).unwrap_or(told);
        }
        self.owed.outbox.send_server(told);
        Route::Replaced
    }

    /// A request that cannot be told apart from an orphan is answered by us.
    fn not_understood(&mut self, id: &[u8]) -> Route {
        if let Some(entry) = self.owed.requests.get(id) {
            self.owed.answer(id, entry.method, &Because::Lost);
            return Route::Replaced;
        }
        Route::Consumed
    }

    /// The client takes a request back, under the name that the server knows. The route, and whether the server may be at
    /// it all the same.
    pub fn cancel(&mut self, line: &[u8]) -> (Route, bool) {
        let Some(id) = cancelled_id(line) else {
            let alone = self.orphans.is_empty();
            return (if alone { Route::Pass } else { Route::Consumed }, false);
        };
        let label = self.orphans.unlabel(id);
        let entry = self.owed.requests.withdraw(id);
        self.owed.session.stop_listening(id);
        let at_it = entry.is_some_and(|entry| !entry.is_held());
        if entry.is_some_and(|entry| entry.is_held()) {
            // No server has seen it.
            self.owed.requests.let_go(id);
            return (Route::Consumed, false);
        }
        if self.orphans.is_empty() {
            return (Route::Pass, at_it);
        }
        // Without a label its own is answered already, and an orphan is not its to take back.
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
            // It may be anything.
            let labelled = self.owed.session.generation() > 1 && self.client_is_asked();
            return labelled || !self.orphans.is_empty();
        };
        match frame.kind {
            // An answer to a question that has a label.
            Kind::Response | Kind::Error => {
                self.owed.session.generation() > 1 && self.client_is_asked()
            }
            Kind::Request => !self.orphans.is_empty() || frame.id == Id::TooLong,
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

    /// The beginning of a request is gone while no server has seen any of it: a keeper that is killed before its end is
    /// followed by one that answers it.
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

    /// The long line of a request is at its end; whether no server has seen any of it, and whether it waits still.
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
        let (_, entry) = self.owed.requests.oldest_call()?;
        Some(entry.opened.after_ms(self.owed.limits.call_deadline_ms))
    }

    /// Answers the oldest request if it has taken too long; none if it has not, otherwise whether the server may be at it.
    pub fn call_deadline(&mut self, now: Moment) -> Option<bool> {
        self.deadline_at().filter(|&at| now >= at)?;
        let (id, entry) = self.owed.requests.oldest_call()?;
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
        let label = self.orphans.unlabel(&id);
        let known = label.as_deref().unwrap_or(&id);
        // Before the era is settled, a word of ours would settle it.
        if entry.method != Tracked::Discover || self.owed.session.era_settled() {
            let cancel = settle::cancel(known, "the call deadline has passed");
            self.owed.outbox.send_server(cancel);
        }
        let request = entry.method.word().into();
        self.owed
            .tell(What::CallDeadline(CallDeadline { request, ms }));
        Some(true)
    }

    /// The server has died of a `server/discover` before it was opened: it is a legacy one, and the answer of a legacy
    /// server is given on its behalf.
    pub fn answer_discover(&mut self) {
        if self.owed.session.opened() {
            return;
        }
        for (id, method, sent_to) in self.owed.requests.all() {
            if method == Tracked::Discover && sent_to.is_some() {
                self.cache.discover_killed();
                self.owed.answered_by_next(&id);
                self.owed
                    .send_client(settle::method_not_found(&id, method.word()));
            }
        }
    }

    /// The generation is gone: what it asked the client is taken back, what we asked it is void, and no late answer of its
    /// comes.
    pub fn server_gone(&mut self) {
        self.owed.server_requests.server_gone(&mut self.owed.outbox);
        let generation = self.owed.session.generation();
        self.owed.requests.forget_late_answers(generation);
        self.own.forget();
    }

    /// A dead server has not read these lines: whatever they ask, the next generation can be asked it for the first time.
    pub fn unread(&mut self, mut lines: &[u8]) {
        let mut held = VecDeque::new();
        let mut scanner = Scanner::new();
        while let Fed::Line { used } = scanner.feed(lines) {
            let (line, rest) = lines.split_at(used);
            let frame = scanner.frame();
            let own = self.client_words(&frame, line);
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
                (Kind::Request, Id::Token(id), Some(method)) if !self.own.is(id) => {
                    // What a client that is gone had asked is wanted no more.
                    (own.is_some() || self.orphans.is_empty())
                        && self.owed.requests.unread(id, Tracked::of(method))
                }
                // That one is said again with the opening.
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

    /// A line that the server has not read, as the client wrote it, with the client's own id.
    fn client_words(&self, frame: &Frame<'_>, line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return None;
        };
        let own = self.orphans.own(id)?.to_vec();
        let line = envelope::with_id(line, &own)?;
        let token = envelope::progress_token(&line).and_then(|token| self.orphans.progress(token));
        let told = token.and_then(|token| envelope::with_progress_token(&line, token));
        Some((own, told.unwrap_or(line)))
    }

    /// Takes over what a killed keeper left in the record. What the next generation can be asked is kept, the rest is
    /// answered; how many were.
    pub fn take_over(&mut self) -> u32 {
        self.owed
            .server_requests
            .restore(&self.owed.session, &mut self.owed.outbox);
        // The server that owed a late answer is dead.
        let generation = self.owed.session.generation();
        self.owed.requests.forget_late_answers(generation);
        for opening in self.owed.session.openings() {
            self.tasks.opened(opening);
        }
        self.cache.restore(&self.owed.session);
        let mut settled = 0;
        for (id, method, sent_to) in self.owed.requests.all() {
            if !self.owed.survives_keeper(&id, method) {
                self.owed.answer(&id, method, &Because::KeeperLost);
                settled += 1;
            } else if sent_to.is_none() {
                // The line that was held is lost; what is kept of it counts as sent.
                self.owed.requests.move_to(&id, generation);
            }
        }
        settled
    }

    // From one generation to the next.

    /// When a request is answered from the record, if it can be.
    pub fn instant_at(&self) -> Option<Moment> {
        self.cache.instant_at(&self.owed)
    }

    /// The server is slow to answer: the record does.
    pub fn answer_from_record(&mut self, now: Moment) -> Option<Recalled> {
        self.cache.answer_from_record(now, &mut self.owed)
    }

    /// The client asks while the server is not there to be asked: the route if the record has the answer.
    pub fn answered_from_record(
        &mut self,
        now: Moment,
        frame: &Frame<'_>,
        line: &[u8],
    ) -> Option<Route> {
        self.cache
            .answered_from_record(now, frame, line, &mut self.owed)
    }

    /// A `server/discover` of which it is known that the server refuses it has its answer at once: the route, if so.
    pub fn refuse_discover(&mut self, now: Moment, id: &[u8], method: &str) -> Option<Route> {
        self.cache.refuse_discover(now, id, method, &mut self.owed)
    }

    /// Asks whether the lists are still what the client has seen, where it can be told.
    pub fn check_lists(&mut self) {
        self.cache.check_lists(&mut self.own, &mut self.owed);
    }

    /// Tells of lists that a server has called changed while the client could not be told.
    pub fn tell_changed_meanwhile(&mut self) {
        self.cache.tell_changed_meanwhile(&mut self.owed);
    }

    /// A generation was started.
    pub fn generation_started(&mut self) {
        self.owed.session.next_generation();
        self.tasks.forget();
        self.orphans.forget();
        self.cache.generation_started();
    }

    /// Replays the client's opening; false if it is not known.
    pub fn replay_opening(&mut self) -> bool {
        self.own
            .replay_opening(&self.owed.session, &mut self.owed.outbox)
    }

    /// Asks a server that is on trial whether it serves; false if there is nothing to ask before the client's traffic.
    pub fn ask_on_trial(&mut self) -> bool {
        let Some(meta) = self.owed.session.modern_meta() else {
            return false;
        };
        self.own.ask_on_trial(&meta, &mut self.owed.outbox);
        true
    }

    pub fn probe(&mut self, purpose: Purpose) {
        self.own
            .probe(purpose, &self.owed.session, &mut self.owed.outbox);
    }

    // A client goes, and another one comes.

    /// The client is gone, and the server goes on: what it left unanswered is waited for by no client, in either direction.
    pub fn client_gone(&mut self) {
        // First: a keeper that is killed while requests are forgotten must not leave a successor with a client that waits
        // for them.
        self.owed.session.set_attached(Attached::No);
        let generation = self.owed.session.generation();
        for id in self.owed.requests.client_gone(generation) {
            let label = self.orphans.unlabel(&id);
            let known = label.as_deref().unwrap_or(&id);
            self.owed.outbox.send_server(settle::cancel(known, AWAY));
        }
        self.orphans.client_gone();
        for id in self.owed.server_requests.client_gone() {
            self.owed.outbox.send_server(settle::error(&id, AWAY, "{}"));
        }
        // What was on its way has gone nowhere, but the server is open, and that is what counts for the next client.
        self.owed.delivered_to(u64::MAX);
        self.owed.written_to(u64::MAX);
        for uri in self.owed.session.client_gone() {
            self.own.unsubscribe(&uri, &mut self.owed.outbox);
        }
        self.long_lines.client_gone();
        self.cache.client_gone();
    }

    /// How the server that is kept would answer a `server/discover`, as far as that is known without asking it: asked
    /// now, it would take the question for the session's.
    pub fn discovered(&self, id: &[u8]) -> Option<Vec<u8>> {
        if !self.owed.session.modern() {
            return Some(settle::method_not_found(id, Tracked::Discover.word()));
        }
        self.cache.discovered(id)
    }
}

/// What has become of a request whose long line no server has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Waits,
    Answered,
}

/// Why a question of the server's is not answered, and why a request is taken back.
const AWAY: &str = "the client is away";
