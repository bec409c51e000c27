//! Answers from the record: while a server is not up yet, what an earlier session saw is told to the client, and
//! compared when the server itself speaks.

use alloc::vec::Vec;

use super::state::{Because, Client, Closing, Life, Silence, Stage, TreeState, Up};
use super::{Kept, Link, Output, Route};
use crate::clock::Moment;
use crate::event::{Instant, Renewing, What};
use crate::message::envelope;
use crate::message::frame::{Frame, Id, Kind};
use crate::message::inflight::{Opened, Token, Tracked};
use crate::message::lists::{self, Which};
use crate::message::remembered::{self, Learned};
use crate::message::{settle, token};

/// The client of the legacy era has not opened.
struct Unopened;

impl Link<'_> {
    /// When the opening request is answered from the record, if it can be.
    pub(super) fn instant_at(&self) -> Option<Moment> {
        if self.limits.instant_opening_ms == 0
            || self.greeted()
            || (self.head.modern != 0 && self.head.served != 0)
        {
            return None;
        }
        let (_, asked) = self.recallable()?;
        if self.waited_for == self.head.generation {
            return Some(asked);
        }
        Some(asked.after_ms(self.limits.instant_opening_ms))
    }

    /// The answer to a `server/discover` of which it is known that the server refuses it or dies of it. It is given at
    /// once and the server is not asked, because some servers take the question for the choice of an era.
    pub(super) fn recalled_refusal(&self, id: &[u8], method: &str) -> Option<Vec<u8>> {
        if self.opened() {
            return None;
        }
        if self.remembered.is_legacy() {
            return Some(settle::method_not_found(id, method));
        }
        let error = self.remembered.refusal()?;
        (self.limits.instant_opening_ms > 0).then(|| remembered::refusal(id, error))
    }

    /// The oldest request in flight that the record can answer, and when it was asked. What waits within us is no server's
    /// slowness: it goes to the next one, which would answer it a second time.
    fn recallable(&self) -> Option<(Token, Moment)> {
        let mut all = self.inflight.iter();
        all.find_map(|(id, entry)| {
            if entry.is_held() {
                return None;
            }
            let known = match entry.method {
                Tracked::Initialize => self.recalled_opening().is_some(),
                Tracked::Discover => self.remembered.discover().is_some(),
                Tracked::List => self.recalled_list(id, self.resend.line(id)?).is_some(),
                Tracked::Other
                | Tracked::Ping
                | Tracked::ToolsCall
                | Tracked::Read
                | Tracked::SetLevel
                | Tracked::Subscribe
                | Tracked::Listen
                | Tracked::Task => false,
            };
            known.then_some((Token::new(id)?, entry.opened))
        })
    }

    fn recalled_opening(&self) -> Option<&[u8]> {
        let opening = self.remembered.opening(self.params_digest()?)?;
        Some(&opening.result)
    }

    /// The answer to a request for a list: the list, or the server's word that it has none of that sort.
    fn recalled_list(&self, id: &[u8], request: &[u8]) -> Option<Vec<u8>> {
        let which = Which::asked(request)?;
        let digest = self.lists_digest().ok()?;
        if let Some(result) = self.remembered.list(digest, which) {
            return Some(self.answer_from(id, result));
        }
        let error = self.remembered.list_refusal(digest, which)?;
        Some(remembered::refusal(id, error))
    }

    /// Under what lists are remembered: the client's opening, or nothing more in the modern era.
    fn lists_digest(&self) -> Result<Option<u64>, Unopened> {
        if self.head.modern != 0 {
            return Ok(None);
        }
        self.params_digest().map(Some).ok_or(Unopened)
    }

    /// The digest of the client's opening.
    fn params_digest(&self) -> Option<u64> {
        let opening = self.opening.get(..self.head.opening_len as usize)?;
        remembered::digest_of_params(opening)
    }

    /// The server is slow to answer the opening: the record does.
    pub(super) fn open_from_record(&mut self, now: Moment) {
        let Some((id, asked)) = self.recallable() else {
            return;
        };
        let Some(entry) = self.inflight.get(&id) else {
            return;
        };
        let answer = |result| self.answer_from(&id, result);
        let line = match entry.method {
            Tracked::Initialize => self.recalled_opening().map(answer),
            Tracked::Discover => self.remembered.discover().map(answer),
            Tracked::List => {
                let request = self.resend.line(&id);
                request.and_then(|request| self.recalled_list(&id, request))
            }
            Tracked::Other
            | Tracked::Ping
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe
            | Tracked::Listen
            | Tracked::Task => None,
        };
        let Some(line) = line else { return };
        if let Life::Up(up) = &mut self.life {
            up.silence = Silence::Broken;
        }
        if entry.method == Tracked::Initialize {
            self.open_instantly(&id, &line);
            self.set_stage(Stage::Instant);
            self.instant_id = Some(id);
        } else {
            if entry.method == Tracked::List
                && let Some(which) = self.resend.line(&id).and_then(Which::asked)
            {
                self.lists.client_saw(which, false, &line);
            }
            // The server's own answer does not reach the client, but is compared with this one when it comes.
            let asked = self.resend.line(&id).and_then(Which::asked);
            self.recalled.push((id, asked));
            self.inflight.settle(&id);
            self.resend.forget(&id);
        }
        self.waited_for = self.head.generation;
        self.push(Output::ToClient(line));
        self.tell(What::Instant(Instant {
            method: entry.method.word().into(),
            ms: now.ms_since(asked),
        }));
    }

    /// An answer from the record, with what the user wants to have announced.
    fn answer_from(&self, id: &[u8], result: &[u8]) -> Vec<u8> {
        let line = remembered::answer(id, result);
        let told = self.policy.advertise.then(|| envelope::advertised(&line));
        told.flatten().unwrap_or(line)
    }

    /// The client is about to have its opening answered by us.
    pub(super) fn open_instantly(&mut self, id: &[u8], line: &[u8]) {
        self.inflight.answered_by_us(id);
        self.on_way.greeting_of_ours = true;
        self.keepsakes.put(Kept::Greeting, b"", line);
    }

    /// The client asks while the server is not there to be asked: what becomes of it if the record has the answer.
    pub(super) fn answered_from_record(
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
        let answer = match tracked {
            Tracked::Ping if self.greeted() => Some(settle::empty_result(id)),
            Tracked::Initialize if !self.greeted() => {
                self.remember_opening(line);
                self.recalled_opening()
                    .map(|result| self.answer_from(id, result))
            }
            Tracked::Discover if !self.opened() => {
                let result = self.remembered.discover();
                result
                    .map(|result| remembered::answer(id, result))
                    .or_else(|| self.recalled_refusal(id, method))
            }
            Tracked::List => self.recalled_list(id, line),
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
        let generation = self.head.generation;
        if self.inflight.open(id, tracked, generation, now) == Opened::Full {
            return Some(Route::Hold);
        }
        self.head.spoken = 1;
        match tracked {
            Tracked::Initialize => self.open_instantly(id, &answer),
            Tracked::List => {
                self.inflight.answered_by_us(id);
                if let Some(which) = Which::asked(line) {
                    self.lists.client_saw(which, false, &answer);
                    self.lists_from_record = true;
                }
            }
            Tracked::Discover
            | Tracked::Ping
            | Tracked::Other
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe
            | Tracked::Listen
            | Tracked::Task => {
                self.inflight.answered_by_us(id);
            }
        }
        self.push(Output::ToClient(answer));
        if tracked != Tracked::Ping {
            self.tell(What::Instant(Instant {
                method: method.into(),
                ms: 0,
            }));
        }
        Some(Route::Instead)
    }

    /// A message of the client's before the server has answered the opening that the record has answered.
    pub(super) fn line_before_opening(
        &mut self,
        now: Moment,
        frame: &Frame<'_>,
        line: &[u8],
    ) -> Route {
        if let Some(route) = self.answered_from_record(now, frame, line) {
            return route;
        }
        match (frame.kind, frame.method.as_deref()) {
            (Kind::Notification, Some("notifications/initialized")) => {
                self.head.initialized = 1;
                Route::Drop
            }
            (Kind::Blank | Kind::Junk, _) => Route::Drop,
            (
                Kind::Request | Kind::Notification | Kind::Response | Kind::Error | Kind::Batch,
                _,
            ) => self.hold_back(now, frame, line),
        }
    }

    /// When a message that waits for the server's own answer to the opening has waited for too long.
    pub(super) fn held_at(&self) -> Option<Moment> {
        let Life::Up(Up {
            stage: Stage::Instant,
            ..
        }) = &self.life
        else {
            return None;
        };
        let waits = !self.held.is_empty();
        waits.then(|| self.held_since.after_ms(self.limits.opening_ms))
    }

    /// The server has not answered the opening that the record has answered: whoever waits for it is told.
    pub(super) fn held_in_vain(&mut self, now: Moment) {
        let ms = now.ms_since(self.held_since);
        for (id, method, sent_to) in self.in_flight_now() {
            if sent_to.is_none() {
                self.answer(&id, method, &Because::OpeningSilent { ms });
            }
        }
        self.held.clear();
        self.held_bytes = 0;
    }

    /// The server itself answers the opening that the record has answered.
    pub(super) fn opening_confirmed(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) {
        self.instant_id = None;
        if frame.kind == Kind::Error {
            let what = "it refuses the opening that an earlier session's record has answered";
            // Learned again from the next generation, if that takes it.
            if let Some(digest) = self.params_digest() {
                self.remembered.forget_opening(digest);
            }
            self.remembered.forget_refusal();
            if matches!(self.life, Life::Up(_)) {
                // One refusal may be a moment's trouble. The client has its answer, so it is the next one's turn, as after
                // any opening of ours that is refused; what waits goes there.
                self.differs(what.into());
                self.renew(now, Renewing::Opening);
            } else {
                self.end_differing(now, what.into());
            }
            return;
        }
        self.learn_opening(line);
        if !self.compare_greeting(now, line) {
            return;
        }
        if self.head.initialized != 0 {
            self.push(Output::ToServer(super::replay::INITIALIZED.to_vec()));
        }
        if self.awaits_last_answers() {
            self.release_held(now);
        } else {
            self.resume(now);
        }
    }

    /// Whether the client has closed its end and waits for what it had asked before.
    fn awaits_last_answers(&self) -> bool {
        match &self.life {
            Life::Closing(Closing {
                tree: TreeState::Descending(ladder),
                client: Client::Reading,
                ..
            }) => ladder.drains(),
            Life::Closing(_)
            | Life::Absent { .. }
            | Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => false,
        }
    }

    /// Whether no answer to the client's opening is remembered, because the server refused it.
    pub(super) fn forgot_opening(&self) -> bool {
        let digest = self.params_digest();
        digest.is_some_and(|digest| self.remembered.opening(digest).is_none())
    }

    /// Remembers how the server answered the client's opening.
    pub(super) fn learn_opening(&mut self, line: &[u8]) {
        self.tasks.opened(line);
        if let (Some(digest), Some(result)) = (self.params_digest(), remembered::result_of(line)) {
            self.remembered.learn_opening(digest, result);
            if self.discover_killed {
                self.remembered.learn_legacy();
            }
        }
    }

    /// Remembers a list that the client has seen.
    pub(super) fn learn_list(&mut self, request: &[u8], line: &[u8]) {
        let Some(which) = Which::of(&envelope::method(request).unwrap_or_default()) else {
            return;
        };
        let further = lists::has_cursor(request);
        self.lists.client_saw(which, further, line);
        if let Some(digest) = self.lists.digest(which) {
            self.keepsakes
                .put(Kept::Seen, which.method().as_bytes(), &digest);
        }
        if !further {
            self.learn_first_page(which, line);
        }
    }

    /// Remembers what the server says of a list now, whether the client has seen it or not.
    pub(super) fn learn_first_page(&mut self, which: Which, line: &[u8]) {
        let Ok(digest) = self.lists_digest() else {
            return;
        };
        if let Some(result) = remembered::result_of(line) {
            self.remembered.learn_list(digest, which, result);
        } else if let Some(error) = remembered::error_of(line) {
            self.remembered.learn_list_refusal(digest, which, error);
        }
    }

    /// The server's own answer to a `server/discover`.
    pub(super) fn learn_discover(&mut self, line: &[u8]) {
        if let Some(result) = remembered::result_of(line) {
            let learned = self.remembered.learn_discover(result);
            if learned == Learned::Other {
                self.differs("its discovery is not what was remembered".into());
            }
        } else if let Some(error) = remembered::error_of(line) {
            self.remembered.learn_refusal(error);
        }
    }

    /// The server itself answers what the record has answered already. It is up, so the next question may wait for it.
    pub(super) fn recalled_answered(&mut self, id: &[u8], frame: &Frame<'_>, line: &[u8]) {
        let mut recalled = self.recalled.iter();
        let Some(at) = recalled.position(|(own, _)| token::same(own, id)) else {
            return;
        };
        self.waited_for = 0;
        match self.recalled.swap_remove(at) {
            (_, None) => self.learn_discover(line),
            (_, Some(which)) if frame.kind == Kind::Response => self.list_checked(which, 0, line),
            (_, Some(which)) => self.learn_first_page(which, line),
        }
    }
}
