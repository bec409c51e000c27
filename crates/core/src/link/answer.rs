//! The answers that we give ourselves: at a death, after a killed keeper, to requests that no server will see.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use super::state::{Because, Client, GivenUp, Life, Then};
use super::{Kept, Link, Output, Route};
use crate::clock::Moment;
use crate::event::{OpeningSilent, Status, What};
use crate::message::frame::{Fed, Frame, Id, Kind, Scanner};
use crate::message::inflight::{Opened, Token, Tracked};
use crate::message::lists::Which;
use crate::message::resend::Fate;
use crate::message::{batch, settle, token};
use crate::policy::Retry;
use crate::record::Phase;

impl Link<'_> {
    /// Answers a request in flight. Its entry stays until the answer is written ([`Link::written`]): a keeper that is
    /// killed in between is followed by one that answers again, and a second answer does no harm where a missing one would.
    pub(super) fn answer(&mut self, id: &[u8], method: Tracked, because: &Because) {
        let why = because.why(&self.about);
        let answer = settle::answer(id, method, self.head.modern != 0, &why);
        self.push(Output::ToClient(answer));
        self.inflight.answered_by_us(id);
        self.resend.forget(id);
        if method.listens() {
            self.stop_listening(id);
        }
    }

    /// Answers a request before the server does, which is up and may answer all the same: that is swallowed.
    pub(super) fn answer_ahead(&mut self, id: &[u8], method: Tracked, because: &Because) {
        let why = because.why(&self.about);
        let answer = settle::answer(id, method, self.head.modern != 0, &why);
        self.push(Output::ToClient(answer));
        self.inflight.settle(id);
        self.resend.forget(id);
        if method.listens() {
            self.stop_listening(id);
        }
    }

    /// The same for all that it was asked.
    pub(super) fn answer_all_ahead(&mut self, because: &Because) {
        for (id, method, sent_to) in self.in_flight_now() {
            if sent_to.is_some() {
                self.answer_ahead(&id, method, because);
            }
        }
    }

    /// Answers a request that no server will see.
    pub(super) fn refuse(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        if frame.method.as_deref() == Some("notifications/initialized") {
            self.head.initialized = 1;
        }
        if frame.kind == Kind::Batch {
            if !self.has_room(line) {
                return Route::Hold;
            }
            let mut route = Route::Drop;
            batch::each_member(line, |member| {
                if self.refuse(now, &member, b"") == Route::Instead {
                    route = Route::Instead;
                }
            });
            return route;
        }
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return Route::Drop;
        };
        let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
        let about = &self.about;
        let why = match &mut self.life {
            Life::Closing(closing) if closing.client == Client::Reading => {
                if tracked == Tracked::Initialize {
                    // The client has heard it where it matters; it need not be told twice.
                    closing.explain = None;
                }
                closing.because.why(about)
            }
            Life::Abandoned(given_up) => given_up.why(about, false),
            Life::Up(up) => match &up.trial {
                Some(given_up) => given_up.why(about, false),
                None => return Route::Drop,
            },
            Life::Absent { .. }
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Closing(_)
            | Life::Finished => return Route::Drop,
        };
        let answer = settle::answer(id, tracked, self.head.modern != 0, &why);
        if self.inflight.open(id, tracked, self.head.generation, now) == Opened::Full {
            return Route::Hold;
        }
        self.inflight.answered_by_us(id);
        self.push(Output::ToClient(answer));
        Route::Instead
    }

    /// Answers everything in flight; how many.
    pub(super) fn settle_all(&mut self, because: &Because) -> u32 {
        let all = self.in_flight_now();
        for (id, method, _) in &all {
            self.answer(id, *method, because);
        }
        self.held.clear();
        self.held_bytes = 0;
        all.len() as u32
    }

    /// Nobody is started for what is in flight. That it was not sent is said only of what waits within us and of what the
    /// dead server has not read, unless an earlier generation had it.
    pub(super) fn settle_abandoned(&mut self, given_up: &GivenUp) {
        for (id, method, sent_to) in self.in_flight_now() {
            let because = Because::Abandoned {
                given_up: given_up.clone().into(),
                sent: sent_to.is_some() || self.resend.was_sent(&id),
            };
            self.answer(&id, method, &because);
        }
        self.held.clear();
        self.held_bytes = 0;
    }

    /// At a death: what cannot be sent again is answered; how many are kept for the next generation.
    pub(super) fn settle_at_death(&mut self, then: &Then, status: Status, tail: &[String]) -> u32 {
        let (status, stderr_tail) = (status, tail.to_vec());
        match then {
            Then::Abandon(given_up) => {
                self.settle_abandoned(given_up);
                0
            }
            Then::Mourn { .. } | Then::Respawn { .. } | Then::Rest => {
                let because = Because::ServerExit {
                    status,
                    stderr_tail: stderr_tail.clone(),
                    restarted: true,
                    tries: 0,
                };
                let poisoned = Because::Poisoned {
                    status,
                    stderr_tail,
                };
                self.settle_or_keep(&because, Some(&poisoned))
            }
        }
    }

    /// The same for any end of a generation.
    pub(super) fn settle_or_keep(&mut self, because: &Because, poisoned: Option<&Because>) -> u32 {
        let mut kept = 0;
        for (id, method, sent_to) in self.in_flight_now() {
            if sent_to.is_none() {
                kept += 1;
                continue;
            }
            match self.fate(&id, method) {
                Fate::Resend => kept += 1,
                Fate::Poisoned => self.answer(&id, method, poisoned.unwrap_or(because)),
                Fate::NotKept => self.answer(&id, method, because),
            }
        }
        kept
    }

    fn fate(&self, id: &[u8], method: Tracked) -> Fate {
        match method {
            Tracked::Initialize if !self.greeted() && self.is_opening(id) => Fate::Resend,
            Tracked::Listen if self.keepsakes.get(Kept::Listen, id).is_some() => Fate::Resend,
            Tracked::Initialize
            | Tracked::Listen
            | Tracked::Other
            | Tracked::Discover
            | Tracked::Ping
            | Tracked::List
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe
            | Tracked::Task => match self.policy.retry {
                Retry::Never => Fate::NotKept,
                Retry::Safe | Retry::Annotated => self.resend.fate(id),
            },
        }
    }

    /// A dead server has not read these lines: whatever they ask, the next generation can be asked it for the first time.
    pub fn unread(&mut self, mut lines: &[u8]) {
        let mut held = VecDeque::new();
        let mut scanner = Scanner::new();
        while let Fed::Line { used } = scanner.feed(lines) {
            let (line, rest) = lines.split_at(used);
            let frame = scanner.frame();
            let own = self.own_words(&frame, line);
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
            let again = match (frame.kind, frame.id, frame.method.as_deref()) {
                (Kind::Request, Id::Token(id), Some(method)) if !self.own.is(id) => {
                    // What a client that is gone had asked is nobody's wish any more.
                    (own.is_some() || self.orphans.is_empty())
                        && self.untouched(id, Tracked::of(method))
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
            if again {
                self.held_bytes += line.len();
                held.push_back(line.to_vec());
            }
            lines = rest;
        }
        held.append(&mut self.held);
        self.held = held;
    }

    /// A request in flight that no server has seen waits within us again.
    fn untouched(&mut self, id: &[u8], method: Tracked) -> bool {
        let Some(entry) = self.inflight.get(id) else {
            return false;
        };
        self.inflight.hold(id, method, entry.opened);
        self.resend.unread(id);
        true
    }

    /// Whether this is the id of the opening that is remembered: of two, only the last one is.
    pub(super) fn is_opening(&self, id: &[u8]) -> bool {
        let mut scanner = Scanner::new();
        let opening = self.opening.get(..self.head.opening_len as usize);
        scanner.feed(opening.unwrap_or_default());
        matches!(scanner.frame().id, Id::Token(own) if token::same(own, id))
    }

    /// The server has died of a `server/discover` before it was opened: it is a legacy one, and the answer of a legacy
    /// server is given on its behalf.
    pub(super) fn answer_discover(&mut self) {
        if self.opened() {
            return;
        }
        for (id, method, sent_to) in self.in_flight_now() {
            if method == Tracked::Discover && sent_to.is_some() {
                self.discover_killed = true;
                let answer = settle::method_not_found(&id, method.word());
                self.push(Output::ToClient(answer));
                self.inflight.answered_by_us(&id);
                self.resend.forget(&id);
            }
        }
    }

    /// Lines that a killed keeper had read, and may have taken note of, but had not passed on: they are routed as if they were
    /// new, so nobody else answers them. To be told before [`begin`](Self::begin).
    pub fn never_sent(&mut self, mut lines: &[u8]) {
        match self.head.phase() {
            Phase::Fresh | Phase::Serving => {}
            // Nothing is routed any more, so what was noted is answered.
            Phase::Stopping | Phase::Finished => return,
        }
        let mut scanner = Scanner::new();
        while let Fed::Line { used } = scanner.feed(lines) {
            let frame = scanner.frame();
            self.take_no_note(&frame);
            if frame.kind == Kind::Batch {
                batch::each_member(&lines[..used], |member| self.take_no_note(&member));
            }
            for label in self.labels_in(&lines[..used]) {
                self.take_no_note(&Frame {
                    kind: Kind::Request,
                    id: Id::Token(&label),
                    method: None,
                    bytes: 0,
                });
            }
            lines = &lines[used..];
        }
        if let Some(frame) = scanner.known() {
            self.take_no_note(&frame);
        }
    }

    fn take_no_note(&mut self, frame: &Frame<'_>) {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return;
        };
        if !self.greeted() && self.is_opening(id) {
            self.head.opening_len = 0;
        }
        self.keepsakes.remove(Kept::Listen, id);
        self.inflight.close(id);
    }

    /// After a killed keeper: what the next generation can be asked is kept, the rest is answered; how many were.
    pub(super) fn settle_after_keeper(&mut self) -> u32 {
        let mut settled = 0;
        for (id, method, sent_to) in self.in_flight_now() {
            let keep = match method {
                Tracked::Initialize => !self.greeted() && self.is_opening(&id),
                Tracked::Listen => self.keepsakes.get(Kept::Listen, &id).is_some(),
                Tracked::Other
                | Tracked::Discover
                | Tracked::Ping
                | Tracked::List
                | Tracked::ToolsCall
                | Tracked::Read
                | Tracked::SetLevel
                | Tracked::Subscribe
                | Tracked::Task => false,
            };
            if !keep {
                self.answer(&id, method, &Because::KeeperLost);
                settled += 1;
            } else if sent_to.is_none()
                && let Some(entry) = self.inflight.get(&id)
            {
                // The line that was held is lost; what is kept of it counts as sent.
                let last = self.head.generation;
                self.inflight.open(&id, method, last, entry.opened);
            }
        }
        settled
    }

    /// What a killed keeper knew and left in the record.
    pub(super) fn restore(&mut self) {
        let pending: Vec<Vec<u8>> = self
            .keepsakes
            .each(Kept::Asked)
            .map(|(id, _)| id.to_vec())
            .collect();
        for id in pending {
            self.asked.restore_dead(&id);
            self.take_back(id);
        }
        // Whoever owed a late answer is dead.
        let generation = self.head.generation;
        self.inflight.forget_settled(generation);
        for (_, opening) in self.keepsakes.each(Kept::Greeting) {
            self.tasks.opened(opening);
        }
        for which in Which::ALL {
            if let Some(digest) = self.keepsakes.get(Kept::Seen, which.method().as_bytes()) {
                self.lists.restore(which, digest);
            }
        }
    }

    /// The generation is gone: what it asked the client is taken back.
    pub(super) fn cancel_asked(&mut self) {
        for id in self.asked.died() {
            self.take_back(id);
        }
        let generation = self.head.generation;
        self.inflight.forget_settled(generation);
    }

    /// A successor takes it back once more, unless that has been written.
    fn take_back(&mut self, id: Vec<u8>) {
        self.push(Output::ToClient(settle::cancel(&id, GONE)));
        self.taken_back.push(id);
    }

    /// All lines of the server have reached the client: what they answered is closed for good.
    pub fn delivered(&mut self) {
        self.inflight.delivered();
        self.forget_long_ids();
        if core::mem::take(&mut self.on_way.greeting) {
            self.head.greeted = 1;
        }
        if core::mem::take(&mut self.on_way.answer) {
            self.head.served = 1;
        }
    }

    /// All lines of ours have reached the client: what they answered is closed.
    pub fn written(&mut self) {
        self.inflight.written();
        for id in core::mem::take(&mut self.taken_back) {
            self.keepsakes.remove(Kept::Asked, &id);
        }
        if core::mem::take(&mut self.on_way.greeting_of_ours) {
            self.head.greeted = 1;
        }
        // A long answer of the server's may have gone this way, too.
        self.delivered();
    }

    pub(super) fn opening_silent(&mut self, ms: u64) {
        self.tell(What::OpeningSilent(OpeningSilent { ms }));
        self.answer_all_ahead(&Because::OpeningSilent { ms });
    }

    pub(super) fn in_flight_now(&self) -> Vec<(Token, Tracked, Option<u32>)> {
        self.inflight
            .iter()
            .filter_map(|(id, entry)| Some((Token::new(id)?, entry.method, entry.sent_to)))
            .collect()
    }
}

/// Why a request of the server's is taken back.
const GONE: &str = "the server that asked is gone";
