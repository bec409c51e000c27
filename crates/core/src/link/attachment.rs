//! Whose pipes the link holds. If a client lives and only its shim was killed, the client gets its server back.
//!
//! A link can be without a client only while its server is up and serving. If the server ends or is to be replaced, the
//! link ends, because there is nothing to come back to. Requests that the client left unanswered are orphans. A client
//! that comes back opens the session again and gets the answer that the server gave to the first opening.
//!
//! Every request to end comes through [`Attachment::stop`], which decides whether the link ends.

use alloc::string::String;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{
    Cause, LingerEnded, Lingering, Parting, Reattached, RestartReason, What,
};
use mainstay_protocol::limits::{ANSWERS_MS, DOUBT_MS};
use mainstay_protocol::message::frame::{Frame, Id};
use mainstay_protocol::message::inflight::Tracked;
use mainstay_protocol::message::{envelope, settle};

use super::exchange::Exchange;
use super::generation::Generation;
use super::io::{Output, Route};
use super::own::Purpose;
use crate::record::Attached;

#[derive(Debug)]
pub(super) struct Attachment {
    state: State,
    /// How long a server is kept for a client that may come back; 0: not at all.
    linger_ms: u64,
}

#[derive(Debug)]
enum State {
    /// The link holds a client's pipes.
    Held,
    /// The same, but the client's shim was signalled: an EOF before this time means that the client wants the end.
    Doubted {
        cause: Cause,
        until: Moment,
        /// That client came back and has not opened yet.
        unopened: Option<Unopened>,
    },
    /// No pipes are held: the server, which is up and serving, is kept.
    Away(Away),
    /// The pipes of a client are held that came back and has not opened yet.
    Reopening(Unopened),
    /// The link holds no pipes and waits for no client: it ends.
    Parted,
}

/// The server that was kept, for a client that has not opened yet.
#[derive(Debug)]
struct Unopened {
    /// Why the server is replaced when the client opens, if it is.
    stale: Option<RestartReason>,
}

#[derive(Debug)]
struct Away {
    /// What happened to the shim.
    cause: Cause,
    since: Moment,
    until: Moment,
    /// Answers that reached no client.
    dropped: u32,
    fitness: Fitness,
}

/// Whether a newcomer can continue with the kept server.
#[derive(Debug)]
enum Fitness {
    /// No newcomer has come yet.
    Unasked,
    /// The server was asked a question that every server answers at once.
    Asked { until: Moment },
    /// The server has answered.
    Answers,
    /// The server hangs, or its code has changed since it was started: the newcomer gets the next generation.
    Stale(RestartReason),
}

/// What becomes of the first request of a client that came back.
pub(super) enum Reopened {
    /// It is answered, or goes to the server like any other; the route.
    Routed(Route),
    /// The session is opened anew: the request waits for the next generation.
    Anew(RestartReason),
}

impl Attachment {
    pub fn new(linger_ms: u64) -> Self {
        Self {
            state: State::Held,
            linger_ms,
        }
    }

    /// How long the server is kept from now on if its client goes away.
    pub fn set_linger(&mut self, ms: u64) {
        self.linger_ms = ms;
    }

    /// Whether no client is attached and one may come back.
    pub fn away(&self) -> bool {
        matches!(self.state, State::Away(_))
    }

    /// Whether the link waits for an EOF that would mean that the client wants the end.
    pub fn doubted(&self) -> bool {
        matches!(self.state, State::Doubted { .. })
    }

    /// Whether a client is attached, and nothing is about to change that.
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Held)
    }

    /// Whether a client is attached for which the server would be restarted.
    pub fn attached(&self) -> bool {
        match &self.state {
            State::Held | State::Doubted { .. } | State::Reopening(_) => true,
            State::Away(_) | State::Parted => false,
        }
    }

    /// When to be woken.
    pub fn wake_at(&self) -> Option<Moment> {
        match &self.state {
            State::Doubted { until, .. } => Some(*until),
            State::Away(away) => Some(away.wake_at()),
            State::Held | State::Reopening(_) | State::Parted => None,
        }
    }

    pub fn tick(&mut self, now: Moment, generation: &mut Generation, ex: &mut Exchange<'_>) {
        if self.wake_at().is_none_or(|at| now < at) {
            return;
        }
        match core::mem::replace(&mut self.state, State::Held) {
            State::Doubted { cause, .. } if self.may_linger(generation, ex) => {
                self.linger(now, cause, generation, ex);
            }
            // The server is no longer worth keeping.
            State::Doubted { cause, .. } => generation.stop(now, cause, true, ex),
            State::Away(mut away) if now < away.until => {
                // The client did not come back in time.
                away.fitness = Fitness::Stale(RestartReason::Silent { ms: ANSWERS_MS });
                self.state = State::Away(away);
            }
            State::Away(away) => {
                let cause = away.cause.clone();
                self.state = State::Away(away);
                self.part(now, Parting::TimeOver, ex);
                generation.stop(now, cause, false, ex);
                generation.client_released_before(ex);
            }
            state @ (State::Held | State::Reopening(_) | State::Parted) => self.state = state,
        }
    }

    /// The end is requested. A signal to the shim, or its death, need not be the client's wish: then the server is
    /// kept.
    pub fn stop(
        &mut self,
        now: Moment,
        cause: Cause,
        generation: &mut Generation,
        ex: &mut Exchange<'_>,
    ) {
        let released = self.away();
        if self.keeps(now, &cause, generation, ex) {
            return;
        }
        generation.stop(now, cause, self.attached(), ex);
        if released {
            generation.client_released_before(ex);
        }
    }

    /// Whether the server is kept after this cause.
    fn keeps(
        &mut self,
        now: Moment,
        cause: &Cause,
        generation: &mut Generation,
        ex: &mut Exchange<'_>,
    ) -> bool {
        let unasked = matches!(cause, Cause::ShimSignal { .. } | Cause::ShimKilled);
        match &self.state {
            // This is the shim that was released.
            State::Away(_) if unasked => true,
            State::Away(_) => {
                self.part(now, parting(cause), ex);
                false
            }
            // A second signal, or the death of the shim: what the client does from now on may follow from it.
            State::Doubted { cause, .. } if unasked && self.may_linger(generation, ex) => {
                let cause = cause.clone();
                self.linger(now, cause, generation, ex);
                true
            }
            // This concerns the server and says nothing about the client.
            State::Doubted { .. } if parting(cause) == Parting::ServerEnded => false,
            State::Doubted { .. } => {
                self.state = State::Held;
                false
            }
            State::Held | State::Reopening(_) if unasked && self.may_linger(generation, ex) => {
                if *cause == Cause::ShimKilled {
                    self.linger(now, cause.clone(), generation, ex);
                } else {
                    self.state = State::Doubted {
                        cause: cause.clone(),
                        until: now.after_ms(DOUBT_MS),
                        unopened: self.opens(),
                    };
                }
                true
            }
            State::Held | State::Reopening(_) | State::Parted => false,
        }
    }

    /// Only a server that is open and serves can be continued with.
    fn may_linger(&self, generation: &Generation, ex: &Exchange<'_>) -> bool {
        let session = ex.session();
        let known = session.modern() || session.opening().is_some() && session.greeting().is_some();
        self.linger_ms > 0 && generation.is_serving() && session.opened() && known
    }

    /// The client is detached, and the server stays.
    fn linger(
        &mut self,
        now: Moment,
        cause: Cause,
        generation: &mut Generation,
        ex: &mut Exchange<'_>,
    ) {
        debug_assert!(generation.is_serving(), "only a server that serves is kept");
        let in_flight = ex.in_flight();
        ex.client_gone();
        let ms = self.linger_ms;
        self.state = State::Away(Away {
            cause: cause.clone(),
            since: now,
            until: now.after_ms(ms),
            dropped: 0,
            fitness: Fitness::Unasked,
        });
        ex.outbox().push(Output::Linger);
        let up = generation.up();
        ex.owed().tell(What::Lingering(Lingering {
            cause,
            ms,
            uptime_ms: up.as_ref().map_or(0, |up| now.ms_since(up.since())),
            in_flight,
        }));
        if let Some(up) = up {
            if in_flight > 0 {
                up.taken_back(now);
            }
            up.busy_or_idle(now, ex);
        }
    }

    /// The link stops waiting for a client.
    pub fn part(&mut self, now: Moment, why: Parting, ex: &mut Exchange<'_>) {
        let state = core::mem::replace(&mut self.state, State::Parted);
        let State::Away(away) = state else {
            self.state = state;
            return;
        };
        ex.outbox().push(Output::LingerOver);
        ex.owed().tell(What::LingerEnded(LingerEnded {
            why,
            after_ms: now.ms_since(away.since),
            dropped: away.dropped,
        }));
    }

    /// For a killed keeper's successor: whether the server was kept without a client. That server is dead, so there is
    /// nothing to come back to.
    pub fn take_over(&mut self, ex: &mut Exchange<'_>) -> bool {
        match ex.session().attached() {
            Attached::Yes => false,
            Attached::Again => {
                self.state = State::Reopening(Unopened { stale: None });
                false
            }
            Attached::No => {
                ex.outbox().push(Output::LingerOver);
                ex.owed().tell(What::LingerEnded(LingerEnded {
                    why: Parting::KeeperLost,
                    after_ms: 0,
                    dropped: 0,
                }));
                true
            }
        }
    }

    /// A newcomer wants the server. A server that hangs, or whose code has changed, is not handed over.
    pub fn newcomer(&mut self, now: Moment, changed: Option<String>, ex: &mut Exchange<'_>) {
        let State::Away(away) = &mut self.state else {
            return;
        };
        if let Some(path) = changed {
            away.fitness = Fitness::Stale(RestartReason::Changed { path });
            return;
        }
        let until = now.after_ms(ANSWERS_MS);
        away.fitness = Fitness::Asked { until };
        ex.probe(Purpose::Fitness);
    }

    /// The kept server has answered.
    pub fn fit(&mut self) {
        if let State::Away(away) = &mut self.state
            && let Fitness::Asked { .. } = away.fitness
        {
            away.fitness = Fitness::Answers;
        }
    }

    /// Counts answers of the kept server that reached no client.
    pub fn dropped(&mut self, answers: u32) {
        if let State::Away(away) = &mut self.state {
            away.dropped = away.dropped.saturating_add(answers);
        }
    }

    /// Whether a newcomer can be attached now: to the kept server, or (`false`) to the next generation.
    pub fn judged(&self) -> Option<bool> {
        let State::Away(away) = &self.state else {
            return None;
        };
        match away.fitness {
            Fitness::Unasked | Fitness::Asked { .. } => None,
            Fitness::Answers => Some(true),
            Fitness::Stale(_) => Some(false),
        }
    }

    /// A client is attached again. In the modern era it just continues; in the legacy era it has to open first.
    pub fn reattached(&mut self, now: Moment, generation: &mut Generation, ex: &mut Exchange<'_>) {
        let state = core::mem::replace(&mut self.state, State::Held);
        let State::Away(away) = state else {
            self.state = state;
            return;
        };
        let stale = match away.fitness {
            Fitness::Stale(why) => Some(why),
            Fitness::Unasked | Fitness::Asked { .. } | Fitness::Answers => None,
        };
        if let Some(up) = generation.up() {
            up.used(now);
        }
        ex.owed().tell(What::Reattached(Reattached {
            after_ms: now.ms_since(away.since),
            dropped: away.dropped,
            replaced: stale.clone(),
        }));
        if !ex.session().modern() {
            self.state = State::Reopening(Unopened { stale });
            ex.session_mut().set_attached(Attached::Again);
            return;
        }
        ex.session_mut().set_attached(Attached::Yes);
        if let Some(why) = stale {
            generation.replace(now, why, ex);
        }
    }

    /// Whether a client came back and has not opened yet.
    fn unopened(&self) -> bool {
        match &self.state {
            State::Reopening(_) => true,
            State::Doubted { unopened, .. } => unopened.is_some(),
            State::Held | State::Away(_) | State::Parted => false,
        }
    }

    /// The client opens now: the server that was kept for it.
    fn opens(&mut self) -> Option<Unopened> {
        match core::mem::replace(&mut self.state, State::Held) {
            State::Reopening(unopened) => Some(unopened),
            State::Doubted {
                cause,
                until,
                unopened,
            } => {
                self.state = State::Doubted {
                    cause,
                    until,
                    unopened: None,
                };
                unopened
            }
            state @ (State::Held | State::Away(_) | State::Parted) => {
                self.state = state;
                None
            }
        }
    }

    /// A request of a client that came back; none if it goes to the server like any other.
    pub fn reopen(
        &mut self,
        now: Moment,
        frame: &Frame<'_>,
        line: &[u8],
        ex: &mut Exchange<'_>,
    ) -> Option<Reopened> {
        let Id::Token(id) = frame.id else {
            return None;
        };
        if !self.unopened() {
            return None;
        }
        let full = ex.requests().room() == 0 && ex.requests().get(id).is_none();
        match Tracked::of(frame.method.as_deref().unwrap_or_default()) {
            Tracked::Initialize | Tracked::Discover if full => {
                return Some(Reopened::Routed(Route::Later));
            }
            Tracked::Discover => {
                let answer = settle::method_not_found(id, Tracked::Discover.word());
                ex.owed().answer_new(now, id, Tracked::Discover, answer);
                return Some(Reopened::Routed(Route::Replaced));
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
        if let Some(Unopened { stale: Some(why) }) = self.opens() {
            return Some(Reopened::Anew(why));
        }
        let before = ex.session().opening().unwrap_or_default();
        let agrees = envelope::same_opening(before, line);
        let told = ex.session().greeting();
        match told.and_then(|told| envelope::with_id(told, id)) {
            Some(answer) if agrees => {
                ex.session_mut().remember_opening(line);
                let of_ours = ex.outbox().next_for_client();
                ex.owed().answer_new(now, id, Tracked::Initialize, answer);
                ex.session_mut().greeting_again_on_way(of_ours);
                Some(Reopened::Routed(Route::Replaced))
            }
            // It opens in another way than before, which needs a server that has not been opened yet.
            Some(_) | None => Some(Reopened::Anew(RestartReason::Reopened)),
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

/// Why the keeping ends, by what happened.
fn parting(cause: &Cause) -> Parting {
    match cause {
        Cause::ClientEof | Cause::ClientGone | Cause::ClientDeaf => Parting::ClientGone,
        Cause::Asked | Cause::KeeperSignal { .. } => Parting::Asked,
        Cause::LeaseEnded(_) => Parting::LeaseEnded,
        Cause::ServerExit | Cause::StartFailed | Cause::Restart(_) | Cause::Differs => {
            Parting::ServerEnded
        }
        Cause::KeeperLost => Parting::KeeperLost,
        Cause::ShimSignal { .. } | Cause::ShimKilled => Parting::TimeOver,
    }
}
