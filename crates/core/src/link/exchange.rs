//! What client and server say to each other, apart from which server lives: who is owed an answer, which messages wait,
//! what the next generation must be told.
//!
//! It knows no life: [`Generation`](super::generation::Generation) tells it that a server is gone or serves again, and it
//! tells back what a line meant for the life ([`Happened`]). This file has the client's side and the settlement, the file
//! beside it the server's side.
//!
//! Invariants: each tracked request of the client's has exactly one answer, from the server or from us; no answer of a
//! generation reaches the client after it was settled.

mod from_server;

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::cache::Cache;
use super::io::{About, Route};
use super::long_ids::{self, Short};
use super::long_lines::{Gathered, LongLines};
use super::outbox::Outbox;
use super::own::{Own, Purpose};
use super::requests::Requests;
use super::server_requests::ServerRequests;
use super::session::{MidLine, Session};
use super::state::{Because, GivenUp, Settling};
use crate::clock::Moment;
use crate::event::{CallDeadline, Differs, Instant, OpeningSilent, What};
use crate::limits::Limits;
use crate::message::asked::Answered;
use crate::message::envelope::{self, cancelled_id};
use crate::message::frame::{Fed, Frame, Id, Kind, Scanner};
use crate::message::inflight::{Entry, Opened, Token, Tracked};
use crate::message::lists::Which;
use crate::message::orphans::Orphans;
use crate::message::remembered::Remembered;
use crate::message::resend::Fate;
use crate::message::tasks::Tasks;
use crate::message::{batch, settle};
use crate::policy::{Policy, Retry};
use crate::record::{Attached, Phase, Record};

pub(super) use from_server::{Happened, Speaker, members};

#[derive(Debug)]
pub(super) struct Exchange<'a> {
    about: About,
    policy: Policy,
    limits: Limits,
    outbox: Outbox,
    session: Session<'a>,
    requests: Requests<'a>,
    server_requests: ServerRequests,
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

/// How many requests a new generation was sent that an earlier one had left unanswered.
pub(super) struct Resent {
    pub listens: u32,
    pub calls: u32,
}

/// What a request was answered with from the record.
pub(super) enum Recalled {
    Opening,
    Other,
}

impl<'a> Exchange<'a> {
    pub fn new(
        about: About,
        limits: Limits,
        policy: Policy,
        record: Record<'a>,
        remembered: Remembered,
    ) -> Self {
        let Record {
            head,
            opening,
            slots,
            board,
            keepsakes,
        } = record;
        Self {
            outbox: Outbox::default(),
            session: Session::over(about.link, head, opening, board, keepsakes),
            requests: Requests::over(slots, &limits),
            server_requests: ServerRequests::default(),
            orphans: Orphans::default(),
            own: Own::of(about.link),
            tasks: Tasks::default(),
            cache: Cache::new(remembered),
            long_lines: LongLines::default(),
            happened: VecDeque::new(),
            about,
            policy,
            limits,
        }
    }

    pub fn about(&self) -> &About {
        &self.about
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    pub fn session(&self) -> &Session<'a> {
        &self.session
    }

    pub fn session_mut(&mut self) -> &mut Session<'a> {
        &mut self.session
    }

    pub fn requests(&self) -> &Requests<'a> {
        &self.requests
    }

    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    pub fn cache_mut(&mut self) -> &mut Cache {
        &mut self.cache
    }

    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    pub fn has_output(&self) -> bool {
        !self.outbox.is_empty()
    }

    pub fn long_lines(&mut self) -> &mut LongLines {
        &mut self.long_lines
    }

    pub fn mid_line(&mut self) -> MidLine<'_> {
        self.session.mid_line()
    }

    pub fn tell(&mut self, what: What) {
        self.outbox.tell(what);
    }

    /// The server is not what the client knows.
    pub fn tell_differs(&mut self, what: String) {
        let generation = self.session.generation();
        self.tell(What::Differs(Differs { generation, what }));
    }

    pub fn in_flight(&self) -> u32 {
        self.requests.len() as u32
    }

    /// What is to go to the client, with its own ids.
    pub fn send_client(&mut self, line: Vec<u8>) {
        let own = long_ids::lengthen(&line, &self.session);
        self.outbox.send_client(own.unwrap_or(line));
    }

    /// Whether questions of the server's wait at the client.
    pub fn client_is_asked(&self) -> bool {
        self.server_requests.pending() > 0
    }

    /// Whether the server has work, as far as is known.
    pub fn is_busy(&self, now: Moment) -> bool {
        let task = self.tasks.until().is_some_and(|until| now < until);
        task || !self.requests.is_empty() || self.client_is_asked()
    }

    /// Until when the server may not be put to rest; none if something keeps it awake that has no end yet.
    pub fn idle_from(&self, idle: Moment) -> Option<Moment> {
        let awake = !self.session.opened()
            || !self.requests.is_empty()
            || self.client_is_asked()
            || self.own.wants_more()
            || self.session.subscribed();
        (!awake).then(|| idle.max(self.tasks.until().unwrap_or(idle)))
    }

    /// Whether nothing is to be relabelled, kept for a retry or looked at for tasks: a call and its answer concern the
    /// table alone.
    pub fn is_plain(&self) -> bool {
        self.session.opened()
            && self.session.era_settled()
            && self.orphans.is_empty()
            && self.policy.retry != Retry::Annotated
            && self.limits.hibernate_ms == 0
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
        let generation = self.session.generation();
        let used = self.requests.pass_calls(now, generation, lines, passed);
        if used > 0 {
            self.session.set_spoken();
        }
        used
    }

    /// Lets the results of plain calls pass; how many bytes.
    #[inline]
    pub fn pass_results(&mut self, lines: &[u8], passed: impl FnMut(&Frame<'_>)) -> usize {
        let used = self.requests.pass_results(lines, passed);
        if used > 0 {
            self.session.answer_on_way();
        }
        used
    }

    // The client's side.

    /// Puts labels in the places of ids that are too long for the table.
    pub fn shorten(&mut self, frame: &Frame<'_>, line: &[u8]) -> Short {
        let (session, requests) = (&mut self.session, &self.requests);
        long_ids::shorten(frame, line, session, requests, &mut self.outbox)
    }

    /// Opens a request of the client's that the server is asked; false if there is no room and the client must wait.
    pub fn open(&mut self, now: Moment, id: &[u8], tracked: Tracked) -> bool {
        self.session.set_spoken();
        let generation = self.session.generation();
        match self.requests.open(id, tracked, generation, now) {
            Opened::New | Opened::Again | Opened::Untracked => true,
            Opened::Full => false,
        }
    }

    /// The same for a batch, whose requests have room.
    pub fn open_batch(&mut self, now: Moment, line: &[u8]) {
        self.session.set_spoken();
        let generation = self.session.generation();
        batch::each_member(line, |member| {
            if let (Kind::Request, Id::Token(id)) = (member.kind, member.id) {
                let tracked = Tracked::of(member.method.as_deref().unwrap_or_default());
                self.requests.open(id, tracked, generation, now);
            }
        });
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
            Tracked::Initialize => self.session.remember_opening(line),
            Tracked::Listen => self.session.note_listening(id, line),
            Tracked::ToolsCall => {
                if self.cache.may_repeat(self.policy.retry, tracked, line) {
                    self.requests.keep_line(id, line);
                } else {
                    self.requests.forget_line(id);
                }
            }
            Tracked::Discover
            | Tracked::Ping
            | Tracked::List
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe => self.requests.keep_line(id, line),
            Tracked::Task | Tracked::Other => {}
        }
        self.note_era(tracked, line);
        self.relabel(id, line)
    }

    /// The first request that belongs to an era fixes it.
    pub fn note_era(&mut self, tracked: Tracked, line: &[u8]) {
        if let Some(meta) = self.session.note_era(tracked, line) {
            self.tasks.opened(&meta);
        }
    }

    /// The request of a client that came back goes under a label, so that its answer is told apart from one to an earlier
    /// client; the request of a first client as it is.
    fn relabel(&mut self, id: &[u8], line: &[u8]) -> Route {
        if self.orphans.is_empty() {
            return Route::Forward;
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
        self.outbox.send_server(told);
        Route::Instead
    }

    /// A request that cannot be told apart from an orphan is answered by us.
    fn not_understood(&mut self, id: &[u8]) -> Route {
        if let Some(entry) = self.requests.get(id) {
            self.answer(id, entry.method, &Because::Lost);
            return Route::Instead;
        }
        Route::Drop
    }

    /// The client takes a request back, under the name that the server knows. The route, and whether the server may be at
    /// it all the same.
    pub fn cancel(&mut self, line: &[u8]) -> (Route, bool) {
        let Some(id) = cancelled_id(line) else {
            let alone = self.orphans.is_empty();
            return (if alone { Route::Forward } else { Route::Drop }, false);
        };
        let label = self.orphans.unlabel(id);
        let entry = self.requests.withdraw(id);
        self.session.stop_listening(id);
        let at_it = entry.is_some_and(|entry| !entry.is_held());
        if entry.is_some_and(|entry| entry.is_held()) {
            // No server has seen it.
            self.requests.let_go(id);
            return (Route::Drop, false);
        }
        if self.orphans.is_empty() {
            return (Route::Forward, at_it);
        }
        // Without a label its own is answered already, and an orphan is not its to take back.
        let route = match label.and_then(|label| envelope::with_request_id(line, &label)) {
            Some(line) => {
                self.outbox.send_server(line);
                Route::Instead
            }
            None => Route::Drop,
        };
        (route, at_it)
    }

    /// The client answers a request of the server's.
    pub fn client_answers(&mut self, frame: &Frame<'_>, line: &[u8]) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Forward;
        };
        match self.server_requests.answers(id, &mut self.session) {
            Answered::Relabel(own) => match envelope::with_id(line, &own) {
                Some(line) => {
                    self.outbox.send_server(line);
                    Route::Instead
                }
                None => Route::Drop,
            },
            Answered::Swallow => Route::Drop,
            Answered::Unknown if self.session.generation() > 1 => Route::Drop,
            Answered::Forward | Answered::Unknown => Route::Forward,
        }
    }

    /// The client answers while no server is there; whether it is known what.
    pub fn client_answers_in_vain(&mut self, id: &[u8]) -> bool {
        let answered = self.server_requests.answers(id, &mut self.session);
        answered != Answered::Unknown
    }

    /// Keeps a message within us until a server can take it; false if there is no room.
    pub fn try_hold(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> bool {
        self.requests.try_hold(now, frame, line)
    }

    /// A gathered line cannot go on now, and cannot be shown again: it waits within us, or has its answer.
    pub fn hold_gathered(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) {
        if let Some(line) = self.shorten_for_good(frame, line) {
            self.requests.hold(now, line);
        }
    }

    /// A line that cannot be shown again, with labels for its long ids; none if it has its answer.
    pub fn shorten_for_good(&mut self, frame: &Frame<'_>, line: &[u8]) -> Option<Vec<u8>> {
        match self.shorten(frame, line) {
            Short::AsItIs => Some(line.to_vec()),
            Short::Line(short) => Some(short),
            Short::Refused => None,
            Short::Full => {
                long_ids::refuse_all(line, &mut self.outbox);
                None
            }
        }
    }

    /// Whether a long line of the client's must be seen whole before it goes to a server that serves.
    pub fn must_see_client_line(&self, frame: Option<&Frame<'_>>) -> bool {
        let Some(frame) = frame else {
            // It may be anything.
            let labelled = self.session.generation() > 1 && self.client_is_asked();
            return labelled || !self.orphans.is_empty();
        };
        match frame.kind {
            // An answer to a question that has a label.
            Kind::Response | Kind::Error => self.session.generation() > 1 && self.client_is_asked(),
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
        self.requests.release()
    }

    /// The beginning of a request is gone while no server has seen any of it: a keeper that is killed before its end is
    /// followed by one that answers it.
    pub fn open_at_cut(&mut self, now: Moment, frame: &Frame<'_>) {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return;
        };
        let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
        match self.requests.open_unsent(id, tracked, now) {
            Opened::New | Opened::Again => self.long_lines.set_unsent(Token::new(id)),
            Opened::Full | Opened::Untracked => {}
        }
    }

    /// The long line of a request is at its end; whether no server has seen any of it, and whether it waits still.
    pub fn end_of_cut(&mut self) -> Option<Cut> {
        let id = self.long_lines.take_unsent()?;
        Some(match self.requests.get(&id) {
            Some(_) => Cut::Waits,
            None => Cut::Answered,
        })
    }

    /// What was gathered of the client's line.
    pub fn gathered_from_client(&mut self) -> Gathered {
        self.long_lines.end_from_client()
    }

    /// A line of the client's that we had to hold whole and could not: a request is answered, a batch as a whole.
    pub fn client_too_long(&mut self, now: Moment, frame: &Frame<'_>) {
        if frame.kind == Kind::Batch {
            let error = settle::error(b"null", TOO_LONG, "{}");
            self.outbox.send_client(error);
        } else {
            self.answer_line(now, frame, &Because::TooLong);
        }
    }

    /// Answers the request of a line that went nowhere.
    pub fn answer_line(&mut self, now: Moment, frame: &Frame<'_>, because: &Because) {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return;
        };
        let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
        let generation = self.session.generation();
        self.requests.open(id, tracked, generation, now);
        self.answer(id, tracked, because);
    }

    /// Answers a request of which the table knows nothing yet; false if it has no room, and the client must wait.
    pub fn answer_new(&mut self, now: Moment, id: &[u8], method: Tracked, answer: Vec<u8>) -> bool {
        // An entry of its own, so that a keeper that is killed right here is followed by one that answers.
        let generation = self.session.generation();
        if self.requests.open(id, method, generation, now) == Opened::Full {
            return false;
        }
        self.requests.answered_by_us(id);
        self.send_client(answer);
        true
    }

    // Answers from the record.

    /// When the opening request is answered from the record, if it can be.
    pub fn instant_at(&self) -> Option<Moment> {
        if self.limits.instant_opening_ms == 0
            || self.session.greeted()
            || (self.session.modern() && self.session.served())
        {
            return None;
        }
        let (_, entry) = self.recallable()?;
        if self.cache.is_too_slow(self.session.generation()) {
            return Some(entry.opened);
        }
        Some(entry.opened.after_ms(self.limits.instant_opening_ms))
    }

    /// The oldest request in flight that the record can answer. What waits within us is no server's slowness: it goes to
    /// the next one, which would answer it a second time.
    fn recallable(&self) -> Option<(Token, Entry)> {
        let mut all = self.requests.iter();
        all.find_map(|(id, entry)| {
            let known = !entry.is_held() && self.recalled_answer(id, entry.method).is_some();
            known.then_some((Token::new(id)?, entry))
        })
    }

    fn recalled_answer(&self, id: &[u8], method: Tracked) -> Option<Vec<u8>> {
        let line = self.requests.line(id);
        self.cache
            .answer(id, method, line, &self.session, self.policy.advertise)
    }

    /// The server is slow to answer: the record does.
    pub fn answer_from_record(&mut self, now: Moment) -> Option<Recalled> {
        let (id, entry) = self.recallable()?;
        let line = self.recalled_answer(&id, entry.method)?;
        let generation = self.session.generation();
        let recalled = if entry.method == Tracked::Initialize {
            self.answer_opening(&id, &line);
            self.cache.opening_recalled(id, generation);
            Recalled::Opening
        } else {
            // The server's own answer does not reach the client, but is compared with this one when it comes.
            let which = self.requests.line(&id).and_then(Which::asked);
            self.cache.request_recalled(id, which, &line, generation);
            self.requests.answered_ahead(&id);
            Recalled::Other
        };
        self.send_client(line);
        self.tell(What::Instant(Instant {
            method: entry.method.word().into(),
            ms: now.ms_since(entry.opened),
        }));
        Some(recalled)
    }

    /// The client is about to have its opening answered by us.
    fn answer_opening(&mut self, id: &[u8], line: &[u8]) {
        self.requests.answered_by_us(id);
        self.session.our_greeting_on_way(line);
    }

    /// The client asks while the server is not there to be asked: the route if the record has the answer.
    pub fn answered_from_record(
        &mut self,
        now: Moment,
        frame: &Frame<'_>,
        line: &[u8],
    ) -> Option<Route> {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return None;
        };
        let method = frame.method.as_deref().unwrap_or_default();
        let tracked = Tracked::of(method);
        let (session, advertise) = (&mut self.session, self.policy.advertise);
        let answer = match tracked {
            Tracked::Ping if session.greeted() => Some(settle::empty_result(id)),
            Tracked::Initialize if !session.greeted() => {
                session.remember_opening(line);
                self.cache.answer(id, tracked, None, session, advertise)
            }
            Tracked::Discover if !session.opened() => {
                let discovered = self.cache.discovered(id);
                discovered.or_else(|| self.refused_discover(id, method))
            }
            Tracked::List => self
                .cache
                .answer(id, tracked, Some(line), session, advertise),
            Tracked::Initialize
            | Tracked::Discover
            | Tracked::Ping
            | Tracked::Other
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe
            | Tracked::Listen
            | Tracked::Task => None,
        };
        let answer = answer?;
        // An entry of its own, so that a keeper that is killed right here is followed by one that answers.
        let generation = self.session.generation();
        if self.requests.open(id, tracked, generation, now) == Opened::Full {
            return Some(Route::Hold);
        }
        self.session.set_spoken();
        if tracked == Tracked::Initialize {
            self.answer_opening(id, &answer);
        } else {
            self.requests.answered_by_us(id);
        }
        if let (Tracked::List, Some(which)) = (tracked, Which::asked(line)) {
            self.cache.list_recalled(which, &answer);
        }
        self.send_client(answer);
        if tracked != Tracked::Ping {
            self.tell_instant(method);
        }
        Some(Route::Instead)
    }

    /// The answer to a `server/discover` that the server need not be asked.
    fn refused_discover(&self, id: &[u8], method: &str) -> Option<Vec<u8>> {
        if self.session.opened() {
            return None;
        }
        let may_answer = self.limits.instant_opening_ms > 0;
        self.cache.refusal(id, method, may_answer)
    }

    /// A `server/discover` of which it is known that the server refuses it has its answer at once: the route, if so.
    pub fn refuse_discover(&mut self, now: Moment, id: &[u8], method: &str) -> Option<Route> {
        let answer = self.refused_discover(id, method)?;
        if !self.answer_new(now, id, Tracked::Discover, answer) {
            return Some(Route::Hold);
        }
        self.tell_instant(method);
        Some(Route::Instead)
    }

    fn tell_instant(&mut self, method: &str) {
        let method = method.into();
        self.tell(What::Instant(Instant { method, ms: 0 }));
    }

    // What we answer ourselves.

    /// Answers a request in flight. Its entry stays until the answer is written ([`Exchange::written`]): a keeper that is
    /// killed in between is followed by one that answers again, and a second answer does no harm where a missing one would.
    pub fn answer(&mut self, id: &[u8], method: Tracked, because: &Because) {
        self.word_answer(id, method, because);
        self.requests.answered_by_us(id);
        if method.listens() {
            self.session.stop_listening(id);
        }
    }

    /// Answers a request before the server does, which is up and may answer all the same: that is swallowed.
    fn answer_ahead(&mut self, id: &[u8], method: Tracked, because: &Because) {
        self.word_answer(id, method, because);
        self.requests.answered_ahead(id);
        if method.listens() {
            self.session.stop_listening(id);
        }
    }

    fn word_answer(&mut self, id: &[u8], method: Tracked, because: &Because) {
        let why = because.why(&self.about);
        let answer = settle::answer(id, method, self.session.modern(), &why);
        self.send_client(answer);
    }

    /// Answers all that the server was asked, ahead of it.
    pub fn answer_all_ahead(&mut self, because: &Because) {
        for (id, method, sent_to) in self.requests.all() {
            if sent_to.is_some() {
                self.answer_ahead(&id, method, because);
            }
        }
    }

    /// The server has said nothing since it was opened.
    pub fn opening_silent(&mut self, ms: u64) {
        self.tell(What::OpeningSilent(OpeningSilent { ms }));
        self.answer_all_ahead(&Because::OpeningSilent { ms });
    }

    /// The server has not answered the opening that the record has answered: what waits for it is answered.
    pub fn held_in_vain(&mut self, ms: u64) {
        for (id, method, sent_to) in self.requests.all() {
            if sent_to.is_none() {
                self.answer(&id, method, &Because::OpeningSilent { ms });
            }
        }
        self.requests.release();
    }

    /// When the oldest request has taken too long.
    pub fn deadline_at(&self) -> Option<Moment> {
        if self.limits.call_deadline_ms == 0 {
            return None;
        }
        let (_, entry) = self.requests.oldest_call()?;
        Some(entry.opened.after_ms(self.limits.call_deadline_ms))
    }

    /// Answers the oldest request if it has taken too long; none if it has not, otherwise whether the server may be at it.
    pub fn call_deadline(&mut self, now: Moment) -> Option<bool> {
        self.deadline_at().filter(|&at| now >= at)?;
        let (id, entry) = self.requests.oldest_call()?;
        let id = id.to_vec();
        let ms = now.ms_since(entry.opened);
        let because = Because::Deadline { ms };
        if entry.is_held() {
            // No server has seen it.
            self.requests.let_go(&id);
            self.answer(&id, entry.method, &because);
            return Some(false);
        }
        self.answer_ahead(&id, entry.method, &because);
        let label = self.orphans.unlabel(&id);
        let known = label.as_deref().unwrap_or(&id);
        // Before the era is settled, a word of ours would settle it.
        if entry.method != Tracked::Discover || self.session.era_settled() {
            let cancel = settle::cancel(known, "the call deadline has passed");
            self.outbox.send_server(cancel);
        }
        let request = entry.method.word().into();
        self.tell(What::CallDeadline(CallDeadline { request, ms }));
        Some(true)
    }

    /// A server is gone, or none will come: what becomes of the requests in flight. How many are kept for the next one.
    pub fn settle(&mut self, settling: &Settling) -> u32 {
        let mut kept = 0;
        for (id, method, sent_to) in self.requests.all() {
            match settling {
                Settling::Keep { because, poisoned } => match self.fate(&id, method, sent_to) {
                    Fate::Resend => kept += 1,
                    Fate::Poisoned => {
                        self.answer(&id, method, poisoned.as_ref().unwrap_or(because));
                    }
                    Fate::NotKept => self.answer(&id, method, because),
                },
                Settling::Abandoned(given_up) => {
                    self.answer_abandoned(&id, method, sent_to, given_up);
                }
                Settling::All(because) => self.answer(&id, method, because),
            }
        }
        match settling {
            Settling::Keep { .. } => {}
            Settling::Abandoned(_) | Settling::All(_) => {
                self.requests.release();
                debug_assert!(self.requests.is_empty(), "each request has its answer");
            }
        }
        kept
    }

    /// That a request was not sent is said only of what waits within us and of what the dead server has not read, unless
    /// an earlier generation had it.
    fn answer_abandoned(
        &mut self,
        id: &[u8],
        method: Tracked,
        sent_to: Option<u32>,
        given_up: &GivenUp,
    ) {
        let because = Because::Abandoned {
            given_up: given_up.clone().into(),
            sent: sent_to.is_some() || self.requests.was_sent(id),
        };
        self.answer(id, method, &because);
    }

    fn fate(&self, id: &[u8], method: Tracked, sent_to: Option<u32>) -> Fate {
        if sent_to.is_none() || self.survives_keeper(id, method) {
            return Fate::Resend;
        }
        match self.policy.retry {
            Retry::Never => Fate::NotKept,
            Retry::Safe | Retry::Annotated => self.requests.fate(id),
        }
    }

    /// Whether the record has the line of a request, so that any later generation can be asked it.
    fn survives_keeper(&self, id: &[u8], method: Tracked) -> bool {
        match method {
            Tracked::Initialize => self.session.awaits_greeting(id),
            Tracked::Listen => self.session.listening(id).is_some(),
            Tracked::Other
            | Tracked::Discover
            | Tracked::Ping
            | Tracked::List
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe
            | Tracked::Task => false,
        }
    }

    /// The server has died of a `server/discover` before it was opened: it is a legacy one, and the answer of a legacy
    /// server is given on its behalf.
    pub fn answer_discover(&mut self) {
        if self.session.opened() {
            return;
        }
        for (id, method, sent_to) in self.requests.all() {
            if method == Tracked::Discover && sent_to.is_some() {
                self.cache.discover_killed();
                self.send_client(settle::method_not_found(&id, method.word()));
                self.requests.answered_by_us(&id);
            }
        }
    }

    /// The generation is gone: what it asked the client is taken back, what we asked it is void, and no late answer of its
    /// comes.
    pub fn server_gone(&mut self) {
        self.server_requests.server_gone(&mut self.outbox);
        let generation = self.session.generation();
        self.requests.forget_late_answers(generation);
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
                        && self.requests.unread(id, Tracked::of(method))
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
        self.requests.put_back(held);
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

    /// All lines of the server have reached the client: what they answered is closed for good.
    pub fn delivered(&mut self) {
        self.requests.delivered();
        self.session
            .forget_labels(|label| self.requests.knows(label));
        self.session.delivered();
    }

    /// All lines of ours have reached the client: what they answered is closed.
    pub fn written(&mut self) {
        self.requests.written();
        self.server_requests.written(&mut self.session);
        self.session.written();
        // A long answer of the server's may have gone this way, too.
        self.delivered();
    }

    // A killed keeper's successor.

    /// Lines that a killed keeper had read, and may have taken note of, but had not passed on: they are routed as if they
    /// were new, so they are not answered now.
    pub fn never_sent(&mut self, mut lines: &[u8]) {
        match self.session.phase() {
            Phase::Fresh | Phase::Serving => {}
            // Nothing is routed any more, so what was noted is answered.
            Phase::Stopping | Phase::Finished => return,
        }
        let mut scanner = Scanner::new();
        while let Fed::Line { used } = scanner.feed(lines) {
            let frame = scanner.frame();
            self.forget_request(&frame);
            if frame.kind == Kind::Batch {
                batch::each_member(&lines[..used], |member| self.forget_request(&member));
            }
            for label in long_ids::labels_in(&lines[..used], &self.session) {
                self.forget_request(&Frame {
                    kind: Kind::Request,
                    id: Id::Token(&label),
                    method: None,
                    bytes: 0,
                });
            }
            lines = &lines[used..];
        }
        if let Some(frame) = scanner.known() {
            self.forget_request(&frame);
        }
    }

    fn forget_request(&mut self, frame: &Frame<'_>) {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return;
        };
        if self.session.awaits_greeting(id) {
            self.session.forget_opening();
        }
        self.session.forget_listening(id);
        self.requests.forget(id);
    }

    /// Takes over what a killed keeper left in the record. What the next generation can be asked is kept, the rest is
    /// answered; how many were.
    pub fn take_over(&mut self) -> u32 {
        self.server_requests
            .restore(&self.session, &mut self.outbox);
        // The server that owed a late answer is dead.
        let generation = self.session.generation();
        self.requests.forget_late_answers(generation);
        for opening in self.session.openings() {
            self.tasks.opened(opening);
        }
        self.cache.restore(&self.session);
        let mut settled = 0;
        for (id, method, sent_to) in self.requests.all() {
            if !self.survives_keeper(&id, method) {
                self.answer(&id, method, &Because::KeeperLost);
                settled += 1;
            } else if sent_to.is_none() {
                // The line that was held is lost; what is kept of it counts as sent.
                self.requests.move_to(&id, generation);
            }
        }
        settled
    }

    // From one generation to the next.

    /// A generation was started.
    pub fn generation_started(&mut self) {
        self.session.next_generation();
        self.tasks.forget();
        self.orphans.forget();
        self.cache.generation_started();
    }

    /// Replays the client's opening; false if it is not known.
    pub fn replay_opening(&mut self) -> bool {
        self.own.replay_opening(&self.session, &mut self.outbox)
    }

    /// Asks a server that is on trial whether it serves; false if there is nothing to ask before the client's traffic.
    pub fn ask_on_trial(&mut self) -> bool {
        let Some(meta) = self.session.modern_meta() else {
            return false;
        };
        self.own.ask_on_trial(&meta, &mut self.outbox);
        true
    }

    pub fn probe(&mut self, purpose: Purpose) {
        self.own.probe(purpose, &self.session, &mut self.outbox);
    }

    /// The generation knows what its predecessor knew: it is sent what that one has left unanswered.
    pub fn resend(&mut self) -> Resent {
        let generation = self.session.generation();
        let (mut listens, mut calls) = (0, 0);
        for (id, method) in self.requests.sent_before(generation) {
            let line = match method {
                Tracked::Initialize if self.session.awaits_greeting(&id) => {
                    self.session.opening().map(<[u8]>::to_vec)
                }
                Tracked::Listen => self.session.listening(&id).map(<[u8]>::to_vec),
                Tracked::Initialize
                | Tracked::Other
                | Tracked::Discover
                | Tracked::Ping
                | Tracked::List
                | Tracked::ToolsCall
                | Tracked::Read
                | Tracked::SetLevel
                | Tracked::Subscribe
                | Tracked::Task => self.requests.resend(&id),
            };
            let Some(line) = line else {
                self.answer(&id, method, &Because::Lost);
                continue;
            };
            if method.listens() {
                listens += 1;
            } else {
                calls += 1;
            }
            self.requests.move_to(&id, generation);
            self.outbox.send_server(line);
        }
        debug_assert!(
            self.requests.sent_before(generation).is_empty(),
            "a request that no generation is asked has its answer"
        );
        Resent { listens, calls }
    }

    /// Asks whether the lists are still what the client has seen, where it can be told.
    pub fn check_lists(&mut self) {
        self.tell_changed_meanwhile();
        let later = self.session.generation() > 1;
        let (session, advertise) = (&self.session, self.policy.advertise);
        let may_tell = |which| later && may_tell(session, which, advertise);
        for which in self.cache.lists_to_check(may_tell) {
            self.own
                .ask_list(which, 0, None, &self.session, &mut self.outbox);
        }
    }

    /// Tells of lists that a server has called changed while the client could not be told.
    pub fn tell_changed_meanwhile(&mut self) {
        let noted = self.cache.take_changed_meanwhile();
        if !noted.is_empty() {
            self.tell_changed(&noted);
        }
    }

    /// Compares what the server now says of itself with what the client was told; why it cannot go on, if it cannot.
    fn compare_greeting(&mut self, line: &[u8]) -> Result<(), String> {
        let told = self.session.greeting().and_then(envelope::greeting);
        let (Some(told), Some(says)) = (told, envelope::greeting(line)) else {
            return Ok(());
        };
        if told.version != says.version {
            let by = if self.session.generation() > 1 {
                "its predecessor"
            } else {
                "the record of an earlier session"
            };
            return Err(format!(
                "it speaks protocol version {}, the client was told {} by {by}",
                says.version, told.version
            ));
        }
        let lost: Vec<&str> = told
            .capabilities
            .iter()
            .filter(|name| !says.capabilities.contains(name))
            .filter(|name| !(self.policy.advertise && name.ends_with(".listChanged")))
            .map(String::as_str)
            .collect();
        if !lost.is_empty() {
            self.tell_differs(format!("it has lost {}", lost.join(", ")));
        }
        Ok(())
    }

    // A client goes, and another one comes.

    /// The client is gone, and the server goes on: what it left unanswered is waited for by no client, in either direction.
    pub fn client_gone(&mut self) {
        // First: a keeper that is killed while requests are forgotten must not leave a successor with a client that waits
        // for them.
        self.session.set_attached(Attached::No);
        let generation = self.session.generation();
        for id in self.requests.client_gone(generation) {
            let label = self.orphans.unlabel(&id);
            let known = label.as_deref().unwrap_or(&id);
            self.outbox.send_server(settle::cancel(known, AWAY));
        }
        self.orphans.client_gone();
        for id in self.server_requests.client_gone() {
            self.outbox.send_server(settle::error(&id, AWAY, "{}"));
        }
        // What was on its way has gone nowhere, but the server is open, and that is what counts for the next client.
        self.written();
        for uri in self.session.client_gone() {
            self.own.unsubscribe(&uri, &mut self.outbox);
        }
        self.long_lines.client_gone();
        self.cache.client_gone();
    }

    /// How the server that is kept would answer a `server/discover`, as far as that is known without asking it: asked
    /// now, it would take the question for the session's.
    pub fn discovered(&self, id: &[u8]) -> Option<Vec<u8>> {
        if !self.session.modern() {
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

/// Whether the client may be told that this list has changed.
fn may_tell(session: &Session<'_>, which: Which, advertise: bool) -> bool {
    session.expects_change(which) || advertise && !session.modern()
}

/// Why a line is not passed on.
const TOO_LONG: &str = "the message is longer than can be held (16 MiB)";

/// Why a question of the server's is not answered, and why a request is taken back.
const AWAY: &str = "the client is away";
