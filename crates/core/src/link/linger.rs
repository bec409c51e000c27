//! A client that lives, and whose shim was killed all the same: its server is kept, and the client finds it again.
//!
//! Away is only a link whose server is up and serving. Whatever else the server does (it ends, it is to be replaced) ends
//! the link: there would be nothing to come back to. What the client left unanswered are orphans; a client that came back
//! opens the session again, and is answered with what the server said when it was opened.

use alloc::string::String;
use alloc::vec::Vec;

use super::own::Purpose;
use super::state::{Attachment, Away, Because, Fitness, Life, Server, Stage, Then, TreeState, Up};
use super::{Kept, Link, Output, Route};
use crate::clock::Moment;
use crate::event::{Cause, LingerEnded, Lingering, Parting, Reattached, Renewal, Renewing, What};
use crate::limits::{ANSWERS_MS, DOUBT_MS};
use crate::message::frame::{Frame, Id};
use crate::message::inflight::Tracked;
use crate::message::lists::Lists;
use crate::message::remembered;
use crate::message::{envelope, settle};
use crate::record::Attached;
use crate::record::keepsakes::Kind;

impl Link<'_> {
    /// How long the server is kept from now on, if it comes to that.
    pub fn set_linger(&mut self, ms: u64) {
        self.limits.linger_ms = ms;
    }

    /// Whether nobody is attached.
    pub fn away(&self) -> bool {
        matches!(self.attachment, Attachment::Away(_))
    }

    /// Whether an EOF is waited for that would say that the client wants the end.
    pub fn doubted(&self) -> bool {
        matches!(self.attachment, Attachment::Doubted { .. })
    }

    /// Whether the modern era is spoken.
    pub fn modern(&self) -> bool {
        self.head.modern != 0
    }

    /// How the server that is kept would answer a `server/discover`, as far as that is known without asking it: asked
    /// now, it would take the question for the session's.
    pub fn discovered(&self, id: &[u8]) -> Option<Vec<u8>> {
        if self.head.modern == 0 {
            return Some(settle::method_not_found(id, Tracked::Discover.word()));
        }
        let result = self.remembered.discover()?;
        Some(remembered::answer(id, result))
    }

    pub(super) fn linger_at(&self) -> Option<Moment> {
        match &self.attachment {
            Attachment::Doubted { until, .. } => Some(*until),
            Attachment::Away(away) => Some(away.wake_at()),
            Attachment::Held | Attachment::Reopening { .. } | Attachment::Parted => None,
        }
    }

    /// Whether a client is there for whom the server would be started again.
    pub(super) fn attached(&self) -> bool {
        match &self.attachment {
            Attachment::Held | Attachment::Doubted { .. } | Attachment::Reopening { .. } => true,
            Attachment::Away(_) | Attachment::Parted => false,
        }
    }

    pub(super) fn tick_linger(&mut self, now: Moment) {
        if self.linger_at().is_none_or(|at| now < at) {
            return;
        }
        match core::mem::replace(&mut self.attachment, Attachment::Held) {
            Attachment::Doubted { cause, .. } if self.may_linger() => self.linger(now, cause),
            // The server is not worth keeping any more.
            Attachment::Doubted { cause, .. } => self.stop_for(now, cause),
            Attachment::Away(mut away) if now < away.until => {
                // Not in time.
                away.fitness = Fitness::Stale(Renewing::Silent { ms: ANSWERS_MS });
                self.attachment = Attachment::Away(away);
            }
            Attachment::Away(away) => {
                let cause = away.cause.clone();
                self.attachment = Attachment::Away(away);
                self.part(now, Parting::TimeOver);
                self.stop_for(now, cause);
                self.let_go_already();
            }
            Attachment::Held | Attachment::Reopening { .. } | Attachment::Parted => {}
        }
    }

    /// Whether the server is kept although this has happened; if not, whoever wants the end goes on.
    pub(super) fn keeps(&mut self, now: Moment, cause: &Cause) -> bool {
        let unasked = matches!(cause, Cause::ShimSignal { .. } | Cause::ShimKilled);
        match &self.attachment {
            // The shim that was let go.
            Attachment::Away(_) if unasked => true,
            Attachment::Away(_) => {
                self.part(now, parting(cause));
                false
            }
            // A second signal, or the death of the shim: what the client does from now on may be its consequence.
            Attachment::Doubted { cause, .. } if unasked && self.may_linger() => {
                let cause = cause.clone();
                self.linger(now, cause);
                true
            }
            // That is the server's affair, and says nothing of the client.
            Attachment::Doubted { .. } if parting(cause) == Parting::ServerEnded => false,
            Attachment::Doubted { .. } => {
                self.attachment = Attachment::Held;
                false
            }
            Attachment::Held | Attachment::Reopening { .. } if unasked && self.may_linger() => {
                if *cause == Cause::ShimKilled {
                    self.linger(now, cause.clone());
                } else {
                    self.attachment = Attachment::Doubted {
                        cause: cause.clone(),
                        until: now.after_ms(DOUBT_MS),
                    };
                }
                true
            }
            Attachment::Held | Attachment::Reopening { .. } | Attachment::Parted => false,
        }
    }

    /// Only a server that has been opened and that serves can be gone on with.
    fn may_linger(&self) -> bool {
        let serving = matches!(
            self.life,
            Life::Up(Up {
                stage: Stage::Serving,
                giving_way: None,
                ..
            })
        );
        let told = self.keepsakes.get(Kept::Greeting, b"");
        let known = self.head.modern != 0 || (self.head.opening_len > 0 && told.is_some());
        self.limits.linger_ms > 0 && serving && self.opened() && known
    }

    /// The client is gone from here, and the server goes on.
    fn linger(&mut self, now: Moment, cause: Cause) {
        // First: a keeper that is killed while requests are forgotten must not leave a successor with a client that waits for them.
        self.head.set_attached(Attached::No);
        let in_flight = self.in_flight();
        if in_flight > 0 {
            self.taken_back(now);
        }
        self.orphan_all();
        // What was on its way has gone nowhere, but the server is open, and that is what counts for the next client.
        self.written();
        self.undo();
        self.client_gathered = None;
        self.cut = None;
        self.initialized_before = false;
        self.changed_in_replay.clear();
        self.lists = Lists::default();
        self.lists_from_record = false;
        self.head.client_mid_line = 0;
        self.head.server_mid_line = 0;
        let ms = self.limits.linger_ms;
        self.attachment = Attachment::Away(Away {
            cause: cause.clone(),
            since: now,
            until: now.after_ms(ms),
            dropped: 0,
            fitness: Fitness::Unasked,
        });
        self.push(Output::Linger);
        let uptime_ms = match &self.life {
            Life::Up(up) => now.ms_since(up.since),
            Life::Absent { .. }
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Closing(_)
            | Life::Finished => 0,
        };
        self.tell(What::Lingering(Lingering {
            cause,
            ms,
            uptime_ms,
            in_flight,
        }));
        self.busy_or_idle(now);
    }

    /// Nobody waits any more for what is in flight, in either direction.
    fn orphan_all(&mut self) {
        for (id, method, sent_to) in self.in_flight_now() {
            if sent_to.is_some() && method.listens() {
                let label = self.orphans.unlabel(&id);
                let known = label.as_deref().unwrap_or(&id);
                self.push(Output::ToServer(settle::cancel(known, AWAY)));
            }
            self.inflight.close(&id);
        }
        self.resend.clear();
        // A late answer to one of them is an orphan's, too.
        self.inflight.forget_settled(self.head.generation);
        self.orphans.client_gone();
        self.held.clear();
        self.held_bytes = 0;
        for id in self.asked.abandon() {
            self.push(Output::ToServer(settle::error(&id, AWAY, "{}")));
        }
        self.taken_back.clear();
    }

    /// What the client had asked to be told of is taken back. The log level stays: nobody knows what it was before.
    fn undo(&mut self) {
        let subscriptions = self.keepsakes.each(Kept::Subscription);
        let uris: Vec<Vec<u8>> = subscriptions.map(|(uri, _)| uri.to_vec()).collect();
        for uri in uris {
            let id = self.own.open(Purpose::Undo);
            self.push(Output::ToServer(envelope::unsubscribe(&id, &uri)));
        }
        for kind in [
            Kind::Subscription,
            Kind::Listen,
            Kind::Acknowledged,
            Kind::Asked,
            Kind::Seen,
        ] {
            self.keepsakes.clear(kind);
        }
    }

    /// Nobody is waited for any more.
    pub(super) fn part(&mut self, now: Moment, why: Parting) {
        let attachment = core::mem::replace(&mut self.attachment, Attachment::Parted);
        let Attachment::Away(away) = attachment else {
            self.attachment = attachment;
            return;
        };
        self.push(Output::LingerOver);
        self.tell(What::LingerEnded(LingerEnded {
            why,
            after_ms: now.ms_since(away.since),
            dropped: away.dropped,
        }));
    }

    /// A killed keeper's successor: the server that was kept is dead, so there is nothing to come back to.
    pub(super) fn away_no_more(&mut self, now: Moment) -> bool {
        match self.head.attached() {
            Attached::Yes => return false,
            Attached::Again => {
                self.attachment = Attachment::Reopening { stale: None };
                return false;
            }
            Attached::No => {}
        }
        self.push(Output::LingerOver);
        self.tell(What::LingerEnded(LingerEnded {
            why: Parting::KeeperLost,
            after_ms: 0,
            dropped: 0,
        }));
        let (because, gone) = (Because::Stopping, Server::Gone);
        self.close(now, TreeState::Empty, 128 + 9, because, gone);
        self.finish_if_done();
        true
    }

    /// A newcomer stands at the door: a server that hangs, or whose code has changed, is not handed over to it.
    pub(super) fn newcomer(&mut self, now: Moment, changed: Option<String>) {
        let Attachment::Away(away) = &mut self.attachment else {
            return;
        };
        if let Some(path) = changed {
            away.fitness = Fitness::Stale(Renewing::Changed { path });
            return;
        }
        let until = now.after_ms(ANSWERS_MS);
        away.fitness = Fitness::Asked { until };
        self.probe(Purpose::Fitness);
    }

    /// The server that is kept has answered.
    pub(super) fn fit(&mut self) {
        if let Attachment::Away(away) = &mut self.attachment
            && let Fitness::Asked { .. } = away.fitness
        {
            away.fitness = Fitness::Answers;
        }
    }

    /// Whether a newcomer may be taken in now: with the server that is kept, or (`false`) with the next generation.
    pub fn judged(&self) -> Option<bool> {
        let Attachment::Away(away) = &self.attachment else {
            return None;
        };
        match away.fitness {
            Fitness::Unasked | Fitness::Asked { .. } => None,
            Fitness::Answers => Some(true),
            Fitness::Stale(_) => Some(false),
        }
    }

    /// A client is there again. In the modern era it just goes on; in the other one it has to open first.
    pub(super) fn reattached(&mut self, now: Moment) {
        let attachment = core::mem::replace(&mut self.attachment, Attachment::Held);
        let Attachment::Away(away) = attachment else {
            self.attachment = attachment;
            return;
        };
        let stale = match away.fitness {
            Fitness::Stale(why) => Some(why),
            Fitness::Unasked | Fitness::Asked { .. } | Fitness::Answers => None,
        };
        if let Life::Up(up) = &mut self.life {
            up.used = now;
        }
        self.tell(What::Reattached(Reattached {
            after_ms: now.ms_since(away.since),
            dropped: away.dropped,
            replaced: stale.clone(),
        }));
        if self.head.modern == 0 {
            self.attachment = Attachment::Reopening { stale };
            self.head.set_attached(Attached::Again);
            return;
        }
        self.head.set_attached(Attached::Yes);
        if let Some(why) = stale {
            self.replace(now, why);
        }
    }

    /// The generation that is up goes at once, and the next one follows.
    fn replace(&mut self, now: Moment, why: Renewing) {
        let generation = self.head.generation;
        self.tell(What::Renewal(Renewal {
            generation,
            why: why.clone(),
            in_flight: 0,
        }));
        self.swap(now, Cause::Renewal(why), Then::Respawn { at: now });
    }

    /// The client that came back opens the session: `None` if that is to go to the server as any other opening.
    pub(super) fn reopen(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Option<Route> {
        let (Attachment::Reopening { .. }, Id::Token(id)) = (&self.attachment, frame.id) else {
            return None;
        };
        let full = self.inflight.room() == 0 && self.inflight.get(id).is_none();
        match Tracked::of(frame.method.as_deref().unwrap_or_default()) {
            Tracked::Initialize | Tracked::Discover if full => return Some(Route::Hold),
            Tracked::Discover => {
                let answer = settle::method_not_found(id, Tracked::Discover.word());
                self.answer_with(now, id, Tracked::Discover, answer);
                return Some(Route::Instead);
            }
            Tracked::Initialize => {}
            Tracked::Other
            | Tracked::Ping
            | Tracked::List
            | Tracked::ToolsCall
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe
            | Tracked::Listen
            | Tracked::Task => return None,
        }
        let attachment = core::mem::replace(&mut self.attachment, Attachment::Held);
        self.head.set_attached(Attached::Yes);
        if let Attachment::Reopening { stale: Some(why) } = attachment {
            return Some(self.open_anew(now, frame, line, why));
        }
        let before = self.opening.get(..self.head.opening_len as usize);
        let agrees = envelope::same_opening(before.unwrap_or_default(), line);
        let told = self.keepsakes.get(Kept::Greeting, b"");
        match told.and_then(|told| envelope::with_id(told, id)) {
            Some(answer) if agrees => {
                self.remember_opening(line);
                self.initialized_before = self.head.initialized != 0;
                self.answer_with(now, id, Tracked::Initialize, answer);
                self.on_way.greeting_of_ours = true;
                Some(Route::Instead)
            }
            Some(_) | None => Some(self.open_anew(now, frame, line, Renewing::Reopened)),
        }
    }

    fn answer_with(&mut self, now: Moment, id: &[u8], method: Tracked, answer: Vec<u8>) {
        // An entry of its own, so that a keeper that is killed right here is followed by one that answers.
        self.inflight.open(id, method, self.head.generation, now);
        self.inflight.answered_by_us(id);
        self.push(Output::ToClient(answer));
    }

    /// It opens in another way than before, or the server is not fit: that takes a server that has not been opened yet.
    fn open_anew(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8], why: Renewing) -> Route {
        self.head.greeted = 0;
        self.head.served = 0;
        self.head.initialized = 0;
        self.on_way = super::OnWay::default();
        self.tries = 0;
        self.keepsakes.clear(Kind::Greeting);
        self.keepsakes.clear(Kind::Level);
        self.remember_opening(line);
        let route = self.hold_back(now, frame, line);
        self.replace(now, why);
        route
    }

    /// The client that came back says that it has opened; whether the server has heard that before.
    pub(super) fn initialized_again(&mut self) -> bool {
        let before = core::mem::take(&mut self.initialized_before);
        if before {
            self.tell_changed_meanwhile();
        }
        before
    }

    /// A line of the server's while nobody is attached.
    pub(super) fn unheard(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) {
        use crate::message::frame::Kind as Line;
        match (frame.kind, frame.id) {
            (Line::Request, Id::Token(id)) => {
                let answer = settle::error(id, AWAY, "{}");
                self.push(Output::ToServer(answer));
            }
            (Line::Notification, _) => {
                let method = frame.method.as_deref().unwrap_or_default();
                let lists = crate::message::lists::Which::changed_by(method);
                self.changed_meanwhile(lists);
            }
            (Line::Response | Line::Error, Id::Token(id)) => {
                self.unheard_answer(now, frame, id, line);
            }
            (Line::Batch, _) => crate::message::batch::each_member(line, |member| {
                if let (Line::Response | Line::Error, Id::Token(id)) = (member.kind, member.id) {
                    self.unheard_answer(now, &member, id, b"");
                }
            }),
            (Line::Junk, _) => self.junk(line),
            (
                Line::Request | Line::Response | Line::Error | Line::Blank,
                Id::Absent | Id::Null | Id::TooLong | Id::Token(_),
            ) => {}
        }
    }

    fn unheard_answer(&mut self, now: Moment, frame: &Frame<'_>, id: &[u8], line: &[u8]) {
        if self.own.is(id) {
            self.own_answer(now, frame, id, line);
            return;
        }
        if let Attachment::Away(away) = &mut self.attachment {
            away.dropped = away.dropped.saturating_add(1);
        }
    }
}

impl Away {
    /// When there is something to do.
    fn wake_at(&self) -> Moment {
        match self.fitness {
            Fitness::Asked { until } => until.min(self.until),
            Fitness::Unasked | Fitness::Answers | Fitness::Stale(_) => self.until,
        }
    }
}

/// What ends the keeping, by what was told.
fn parting(cause: &Cause) -> Parting {
    match cause {
        Cause::ClientEof | Cause::ClientGone | Cause::ClientDeaf => Parting::ClientGone,
        Cause::Asked | Cause::KeeperSignal { .. } => Parting::Asked,
        Cause::LeaseEnded(_) => Parting::LeaseEnded,
        Cause::ServerExit | Cause::StartFailed | Cause::Renewal(_) | Cause::Differs => {
            Parting::ServerEnded
        }
        Cause::KeeperLost => Parting::KeeperLost,
        Cause::ShimSignal { .. } | Cause::ShimKilled => Parting::TimeOver,
    }
}

/// Why a question of the server's is not answered, and why a request is taken back.
const AWAY: &str = "the client is away";
