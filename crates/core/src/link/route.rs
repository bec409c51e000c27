//! The way of a line from the client: which way it goes, and who waits for an answer to it.

use super::state::{Because, Closing, Life, Silence, Stage};
use super::{Kept, Link, Output, Route};
use crate::clock::Moment;
use crate::event::{Instant, What};
use crate::message::asked::Answered;
use crate::message::envelope::{self, Era, cancelled_id};
use crate::message::frame::{Frame, Id, Kind, Scanner};
use crate::message::inflight::{Opened, Tracked};
use crate::message::{batch, retry, token};
use alloc::vec::Vec;

impl Link<'_> {
    /// Routes a whole line from the client, whose ids have their place in the table.
    pub(super) fn routed(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        match &self.life {
            Life::Up(up) => match &up.stage {
                Stage::Serving if up.giving_way.is_some() && frame.kind == Kind::Request => {
                    self.hold_back(now, frame, line)
                }
                Stage::Serving => self.track(now, frame, line),
                // What the server asks before it goes on may be what it waits for.
                Stage::Instant | Stage::Greeting { .. } | Stage::Replaying { .. }
                    if matches!(frame.kind, Kind::Response | Kind::Error) =>
                {
                    self.client_answers(frame, line)
                }
                Stage::Instant => self.line_before_opening(now, frame, line),
                Stage::Greeting { .. } | Stage::Replaying { .. } if up.trial.is_some() => {
                    self.refuse(now, frame, line)
                }
                // The answer lies behind it.
                Stage::Greeting { .. } if self.asked.pending() > 0 => {
                    if frame.method.as_deref() == Some("notifications/initialized") {
                        // The replay says it, also that of a killed keeper's successor, who has nothing of what is held.
                        self.head.initialized = 1;
                        return Route::Drop;
                    }
                    self.hold_back(now, frame, line)
                }
                Stage::Replaying { .. } if self.asked.pending() > 0 => {
                    self.hold_back(now, frame, line)
                }
                Stage::Greeting { .. } | Stage::Replaying { .. } => Route::Hold,
            },
            Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Swapping(_)
            | Life::Closing(Closing {
                because: Because::Leaving,
                ..
            }) => Route::Hold,
            Life::Resting => self.line_at_rest(now, frame, line),
            Life::Abandoned(_) | Life::Closing(_) | Life::Finished => {
                let route = self.refuse(now, frame, line);
                self.finish_if_done();
                route
            }
        }
    }

    /// Learns what is known of a long line from the client while it is being forwarded.
    pub fn client_known(&mut self, now: Moment, frame: &Frame<'_>) {
        let nobody_answers = match &self.life {
            Life::Abandoned(_) | Life::Finished => true,
            Life::Closing(closing) => closing.is_over(),
            Life::Absent { .. }
            | Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting => false,
        };
        if nobody_answers {
            self.client_lost(now, frame);
        } else if let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) {
            let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
            self.open(now, id, tracked);
        }
    }

    /// The end of a long line from the client that went nowhere, and that nobody knew: it is answered now.
    pub fn client_lost(&mut self, now: Moment, frame: &Frame<'_>) {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return;
        };
        // Nobody had the beginning of one that was opened at its cut; of another, a server that is gone may have had it.
        let unsent = self.cut.is_some();
        if self.answered_since_cut() {
            return;
        }
        if frame.method.is_none() && self.asked.answered(id) != Answered::Unknown {
            // The beginning was lost with a keeper: it answered what a dead server had asked.
            return;
        }
        if let (Life::Abandoned(given_up), false) = (&self.life, unsent) {
            let because = Because::Abandoned {
                given_up: given_up.clone().into(),
                sent: true,
            };
            let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
            self.inflight.open(id, tracked, self.head.generation, now);
            self.answer(id, tracked, &because);
            return;
        }
        if self.over() {
            if self.refuse(now, frame, b"") == Route::Hold {
                // It cannot be shown again: it is answered without a place in the table.
                let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
                self.answer(id, tracked, &Because::Lost);
            }
            self.finish_if_done();
            return;
        }
        let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
        self.inflight.open(id, tracked, self.head.generation, now);
        self.answer(id, tracked, &Because::Lost);
    }

    /// A line of the client's on its way to a server that serves.
    pub(super) fn track(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        if let Life::Up(up) = &mut self.life {
            up.used = now;
        }
        match frame.kind {
            Kind::Request => self.track_request(now, frame, line),
            Kind::Notification => {
                match frame.method.as_deref() {
                    Some("notifications/initialized") if self.initialized_again() => {
                        return Route::Instead;
                    }
                    Some("notifications/initialized") => self.head.initialized = 1,
                    Some("notifications/cancelled") => {
                        let route = self.cancels(now, line);
                        if route != Route::Forward {
                            self.busy_or_idle(now);
                            return route;
                        }
                    }
                    Some(_) | None => {}
                }
                self.busy_or_idle(now);
                Route::Forward
            }
            Kind::Batch => {
                if !self.has_room(line) {
                    return Route::Hold;
                }
                // An answer gets the id back that its question had.
                let mut apart = !self.orphans.is_empty();
                batch::each_member(line, |member| {
                    apart |= matches!(member.kind, Kind::Response | Kind::Error);
                });
                if apart {
                    return self.split_client_batch(now, line);
                }
                self.head.spoken = 1;
                batch::each_member(line, |member| {
                    if let (Kind::Request, Id::Token(id)) = (member.kind, member.id) {
                        let tracked = Tracked::of(member.method.as_deref().unwrap_or_default());
                        self.open(now, id, tracked);
                    }
                });
                Route::Forward
            }
            Kind::Response | Kind::Error => self.client_answers(frame, line),
            Kind::Blank | Kind::Junk => Route::Forward,
        }
    }

    pub(super) fn track_request(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Forward;
        };
        if let Some(route) = self.reopen(now, frame, line) {
            return route;
        }
        let method = frame.method.as_deref().unwrap_or_default();
        let tracked = Tracked::of(method);
        if tracked == Tracked::Discover
            && let Some(answer) = self.recalled_refusal(id, method)
        {
            let generation = self.head.generation;
            if self.inflight.open(id, tracked, generation, now) == Opened::Full {
                return Route::Hold;
            }
            self.inflight.answered_by_us(id);
            self.push(Output::ToClient(answer));
            self.tell(What::Instant(Instant {
                method: method.into(),
                ms: 0,
            }));
            return Route::Instead;
        }
        if !self.open(now, id, tracked) {
            return Route::Hold;
        }
        match tracked {
            Tracked::Initialize => self.remember_opening(line),
            Tracked::Listen => {
                self.keepsakes.put(Kept::Listen, id, line);
            }
            Tracked::ToolsCall => {
                if retry::may_repeat(self.policy.retry, tracked, line, &self.lists) {
                    self.resend.keep(id, line);
                } else {
                    self.resend.forget(id);
                }
            }
            Tracked::Discover
            | Tracked::Ping
            | Tracked::List
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe => self.resend.keep(id, line),
            Tracked::Task | Tracked::Other => {}
        }
        self.note_era(tracked, line);
        self.told_apart(id, line)
    }

    /// The first request that belongs to an era fixes it.
    pub(super) fn note_era(&mut self, tracked: Tracked, line: &[u8]) {
        if self.head.modern == 0
            && !self.greeted()
            && tracked != Tracked::Initialize
            && envelope::era(line) == Era::Modern
        {
            self.head.modern = 1;
            if let Some(meta) = envelope::meta(line) {
                self.tasks.opened(&meta);
                self.keepsakes.put(Kept::Greeting, b"meta", &meta);
            }
        }
    }

    /// Whether the client has chosen an era: a `server/discover` and its answer leave both open.
    pub(super) fn era_settled(&self) -> bool {
        self.head.modern != 0 || self.greeted()
    }

    /// The client takes a request back; whether no server has seen it yet.
    pub(super) fn client_cancels(&mut self, now: Moment, line: &[u8]) -> bool {
        let Some(id) = cancelled_id(line) else {
            return false;
        };
        let entry = self.inflight.close(id);
        self.resend.forget(id);
        self.stop_listening(id);
        let held = entry.is_some_and(|entry| entry.is_held());
        if held {
            self.let_go(id);
        } else if entry.is_some() {
            self.taken_back(now);
        }
        held
    }

    /// Nobody waits any more for something that the server was asked, and that it may be at all the same.
    pub(super) fn taken_back(&mut self, now: Moment) {
        if let Life::Up(up) = &mut self.life {
            up.health.taken_back(now);
        }
    }

    /// Forgets a message that waits within us: its request has its answer, or needs none. Of a batch, all members came at
    /// one time, so that what is answered for one of them is answered for all.
    pub(super) fn let_go(&mut self, id: &[u8]) {
        self.held.retain(|line| {
            let mut found = false;
            each_request(line, |held, _| found |= token::same(held, id));
            !found
        });
        self.held_bytes = self.held.iter().map(Vec::len).sum();
    }

    pub(super) fn stop_listening(&mut self, id: &[u8]) {
        self.keepsakes.remove(Kept::Listen, id);
        self.keepsakes.remove(Kept::Acknowledged, id);
    }

    /// The client answers a request of the server's.
    pub(super) fn client_answers(&mut self, frame: &Frame<'_>, line: &[u8]) -> Route {
        let Id::Token(id) = frame.id else {
            return Route::Forward;
        };
        self.keepsakes.remove(Kept::Asked, id);
        match self.asked.answered(id) {
            Answered::Relabel(own) => match envelope::with_id(line, &own) {
                Some(line) => {
                    self.push(Output::ToServer(line));
                    Route::Instead
                }
                None => Route::Drop,
            },
            Answered::Swallow => Route::Drop,
            Answered::Unknown if self.head.generation > 1 => Route::Drop,
            Answered::Forward | Answered::Unknown => Route::Forward,
        }
    }

    /// Opens an entry; `false` if there is no room and the client must wait.
    pub(super) fn open(&mut self, now: Moment, id: &[u8], tracked: Tracked) -> bool {
        // A client that is served already may call something that takes its time.
        let opened = self.opened();
        if let Life::Up(up) = &mut self.life {
            if let (Silence::NothingAsked, false) = (&up.silence, opened) {
                up.silence = Silence::Since(now);
            }
            up.health.busy(now);
        }
        self.head.spoken = 1;
        match self.inflight.open(id, tracked, self.head.generation, now) {
            Opened::New | Opened::Again | Opened::Untracked => true,
            Opened::Full => false,
        }
    }

    /// Keeps a message within us until the server can take it; not if there is no room.
    pub(super) fn hold_back(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        let full = self.held.len() >= self.limits.held_messages as usize
            || self.held_bytes + line.len() > self.limits.held_bytes as usize;
        if full || line.is_empty() {
            return Route::Hold;
        }
        if matches!(frame.kind, Kind::Request | Kind::Batch) {
            if !self.has_room(line) {
                return Route::Hold;
            }
            each_request(line, |id, tracked| {
                self.inflight.hold(id, tracked, now);
            });
        }
        if self.held.is_empty() {
            self.held_since = now;
        }
        self.held_bytes += line.len();
        self.held.push_back(line.to_vec());
        Route::Drop
    }

    /// Whether every request of a message can be tracked.
    pub(super) fn has_room(&self, line: &[u8]) -> bool {
        let mut wanted = 0;
        each_request(line, |id, _| {
            wanted += usize::from(self.inflight.get(id).is_none());
        });
        wanted <= self.inflight.room()
    }

    /// A message of the client's while nobody is there to take it: a request wakes the server.
    pub(super) fn line_at_rest(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        if frame.kind == Kind::Request {
            let method = frame.method.as_deref().unwrap_or_default();
            self.note_era(Tracked::of(method), line);
        }
        if let Some(route) = self.answered_from_record(now, frame, line) {
            return route;
        }
        match frame.kind {
            Kind::Request | Kind::Batch => {
                self.spawn(None);
                Route::Hold
            }
            Kind::Notification => {
                if frame.method.as_deref() == Some("notifications/initialized") {
                    self.head.initialized = 1;
                }
                Route::Drop
            }
            Kind::Response | Kind::Error => {
                if let Id::Token(id) = frame.id {
                    self.asked.answered(id);
                }
                Route::Drop
            }
            Kind::Blank | Kind::Junk => Route::Drop,
        }
    }

    pub(super) fn remember_opening(&mut self, line: &[u8]) {
        self.head.opening_len = 0;
        if let Some(room) = self.opening.get_mut(..line.len()) {
            room.copy_from_slice(line);
            self.head.opening_len = line.len() as u32;
        }
    }

    /// Whether resources or lists are listened to, which a sleeping server could not tell about.
    pub(super) fn subscribed(&self) -> bool {
        self.keepsakes.each(Kept::Subscription).next().is_some()
            || self.keepsakes.each(Kept::Listen).next().is_some()
    }

    /// Tells the health whether the server has work.
    pub(super) fn busy_or_idle(&mut self, now: Moment) {
        let task = self.tasks.until().is_some_and(|until| now < until);
        let busy = task || !self.inflight.is_empty() || self.asked.pending() > 0;
        // A message of ours before the opening would fix the era, and a server that is not open yet may be slow.
        let open = self.opened() && self.era_settled();
        if let Life::Up(up) = &mut self.life {
            let serving = open && matches!(up.stage, Stage::Serving);
            if busy || !serving {
                up.health.busy(now);
            } else {
                up.health.idle(now);
            }
        }
    }
}

/// Shows the ids of the requests in a line, be it a batch.
pub(super) fn each_request(line: &[u8], mut show: impl FnMut(&[u8], Tracked)) {
    let mut one = |frame: &Frame<'_>| {
        if let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) {
            let method = frame.method.as_deref().unwrap_or_default();
            show(id, Tracked::of(method));
        }
    };
    let mut scanner = Scanner::new();
    scanner.feed(line);
    let frame = scanner.frame();
    if frame.kind == Kind::Batch {
        batch::each_member(line, |member| one(&member));
    } else {
        one(&frame);
    }
}
