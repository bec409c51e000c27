//! Whose pipes the link holds. A client that lives, and whose shim was killed all the same, finds its server again.
//!
//! Away is only a link whose server is up and serving. Whatever else the server does (it ends, it is to be replaced) ends
//! the link: there would be nothing to come back to. What the client left unanswered are orphans; a client that came back
//! opens the session again, and is answered with what the server said when it was opened.
//!
//! Every wish for the end comes through [`Attachment::stop`]: here it is decided whether it is one.

use alloc::string::String;

use super::exchange::Exchange;
use super::generation::Generation;
use super::io::{Output, Route};
use super::own::Purpose;
use crate::clock::Moment;
use crate::event::{Cause, LingerEnded, Lingering, Parting, Reattached, Renewing, What};
use crate::limits::{ANSWERS_MS, DOUBT_MS};
use crate::message::frame::{Frame, Id};
use crate::message::inflight::Tracked;
use crate::message::{envelope, settle};
use crate::record::Attached;

#[derive(Debug)]
pub(super) struct Attachment {
    state: State,
    /// How long a server is kept for a client that may come back; 0: not at all.
    linger_ms: u64,
}

#[derive(Debug)]
enum State {
    /// A client's pipes are held.
    Held,
    /// So they are, but the client's shim was signalled: an EOF until then says that the client wants the end.
    Doubted { cause: Cause, until: Moment },
    /// No pipes are held: the server, which is up and serving, is kept.
    Away(Away),
    /// The pipes of a client are held that came back and has not opened yet.
    Reopening {
        /// Why the server that was kept is replaced as soon as the client opens, if it is.
        stale: Option<Renewing>,
    },
    /// No pipes are held, and no client is waited for: the link ends.
    Parted,
}

#[derive(Debug)]
struct Away {
    /// What was done to the shim.
    cause: Cause,
    since: Moment,
    until: Moment,
    /// Answers that no client got.
    dropped: u32,
    fitness: Fitness,
}

/// Whether the server that is kept is one that a newcomer can go on with.
#[derive(Debug)]
enum Fitness {
    /// No newcomer has come yet.
    Unasked,
    /// The server was asked a question that every server answers at once.
    Asked { until: Moment },
    /// It has answered.
    Answers,
    /// It hangs, or is not what would be started now: the newcomer gets the next generation.
    Stale(Renewing),
}

/// What becomes of the first request of a client that came back.
pub(super) enum Reopened {
    /// It is answered, or goes to the server as any other; the route.
    Routed(Route),
    /// The session is opened anew: it waits for the next generation.
    Anew(Renewing),
}

impl Attachment {
    pub fn new(linger_ms: u64) -> Self {
        Self {
            state: State::Held,
            linger_ms,
        }
    }

    /// How long the server is kept from now on, if it comes to that.
    pub fn set_linger(&mut self, ms: u64) {
        self.linger_ms = ms;
    }

    /// Whether no client is attached, and one may come back.
    pub fn away(&self) -> bool {
        matches!(self.state, State::Away(_))
    }

    /// Whether an EOF is waited for that would say that the client wants the end.
    pub fn doubted(&self) -> bool {
        matches!(self.state, State::Doubted { .. })
    }

    /// Whether a client is attached, and nothing is about to change that.
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Held)
    }

    /// Whether a client is there for which the server would be started again.
    pub fn attached(&self) -> bool {
        match &self.state {
            State::Held | State::Doubted { .. } | State::Reopening { .. } => true,
            State::Away(_) | State::Parted => false,
        }
    }

    /// When to be woken.
    pub fn wake_at(&self) -> Option<Moment> {
        match &self.state {
            State::Doubted { until, .. } => Some(*until),
            State::Away(away) => Some(away.wake_at()),
            State::Held | State::Reopening { .. } | State::Parted => None,
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
            // The server is not worth keeping any more.
            State::Doubted { cause, .. } => generation.stop(now, cause, true, ex),
            State::Away(mut away) if now < away.until => {
                // Not in time.
                away.fitness = Fitness::Stale(Renewing::Silent { ms: ANSWERS_MS });
                self.state = State::Away(away);
            }
            State::Away(away) => {
                let cause = away.cause.clone();
                self.state = State::Away(away);
                self.part(now, Parting::TimeOver, ex);
                generation.stop(now, cause, false, ex);
                generation.client_released_before(ex);
            }
            state @ (State::Held | State::Reopening { .. } | State::Parted) => self.state = state,
        }
    }

    /// The end is wanted. A signal to the shim, or its death, need not be the client's wish: then the server is kept.
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

    /// Whether the server is kept although this has happened.
    fn keeps(
        &mut self,
        now: Moment,
        cause: &Cause,
        generation: &mut Generation,
        ex: &mut Exchange<'_>,
    ) -> bool {
        let unasked = matches!(cause, Cause::ShimSignal { .. } | Cause::ShimKilled);
        match &self.state {
            // The shim that was let go.
            State::Away(_) if unasked => true,
            State::Away(_) => {
                self.part(now, parting(cause), ex);
                false
            }
            // A second signal, or the death of the shim: what the client does from now on may be its consequence.
            State::Doubted { cause, .. } if unasked && self.may_linger(generation, ex) => {
                let cause = cause.clone();
                self.linger(now, cause, generation, ex);
                true
            }
            // That is the server's affair, and says nothing of the client.
            State::Doubted { .. } if parting(cause) == Parting::ServerEnded => false,
            State::Doubted { .. } => {
                self.state = State::Held;
                false
            }
            State::Held | State::Reopening { .. } if unasked && self.may_linger(generation, ex) => {
                if *cause == Cause::ShimKilled {
                    self.linger(now, cause.clone(), generation, ex);
                } else {
                    self.state = State::Doubted {
                        cause: cause.clone(),
                        until: now.after_ms(DOUBT_MS),
                    };
                }
                true
            }
            State::Held | State::Reopening { .. } | State::Parted => false,
        }
    }

    /// Only a server that has been opened and that serves can be gone on with.
    fn may_linger(&self, generation: &Generation, ex: &Exchange<'_>) -> bool {
        let session = ex.session();
        let known = session.modern() || session.opening().is_some() && session.greeting().is_some();
        self.linger_ms > 0 && generation.is_serving() && session.opened() && known
    }

    /// The client is gone from here, and the server goes on.
    fn linger(
        &mut self,
        now: Moment,
        cause: Cause,
        generation: &mut Generation,
        ex: &mut Exchange<'_>,
    ) {
        debug_assert!(generation.is_serving(), "only a server that serves is kept");
        let in_flight = ex.in_flight();
        if in_flight > 0 {
            generation.taken_back(now);
        }
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
        let up_since = generation.up_since();
        ex.owed().tell(What::Lingering(Lingering {
            cause,
            ms,
            uptime_ms: up_since.map_or(0, |since| now.ms_since(since)),
            in_flight,
        }));
        generation.busy_or_idle(now, ex);
    }

    /// No client is waited for any more.
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

    /// A killed keeper's successor; whether the server was kept for a client that was away. That server is dead, so there
    /// is nothing to come back to.
    pub fn take_over(&mut self, ex: &mut Exchange<'_>) -> bool {
        match ex.session().attached() {
            Attached::Yes => false,
            Attached::Again => {
                self.state = State::Reopening { stale: None };
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

    /// A newcomer wants the server: one that hangs, or whose code has changed, is not handed over to it.
    pub fn newcomer(&mut self, now: Moment, changed: Option<String>, ex: &mut Exchange<'_>) {
        let State::Away(away) = &mut self.state else {
            return;
        };
        if let Some(path) = changed {
            away.fitness = Fitness::Stale(Renewing::Changed { path });
            return;
        }
        let until = now.after_ms(ANSWERS_MS);
        away.fitness = Fitness::Asked { until };
        ex.probe(Purpose::Fitness);
    }

    /// The server that is kept has answered.
    pub fn fit(&mut self) {
        if let State::Away(away) = &mut self.state
            && let Fitness::Asked { .. } = away.fitness
        {
            away.fitness = Fitness::Answers;
        }
    }

    /// So many answers of the server that is kept reached no client.
    pub fn dropped(&mut self, answers: u32) {
        if let State::Away(away) = &mut self.state {
            away.dropped = away.dropped.saturating_add(answers);
        }
    }

    /// Whether a newcomer may be taken in now: with the server that is kept, or (`false`) with the next generation.
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

    /// A client is there again. In the modern era it just goes on; in the other one it has to open first.
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
        generation.used(now);
        ex.owed().tell(What::Reattached(Reattached {
            after_ms: now.ms_since(away.since),
            dropped: away.dropped,
            replaced: stale.clone(),
        }));
        if !ex.session().modern() {
            self.state = State::Reopening { stale };
            ex.session_mut().set_attached(Attached::Again);
            return;
        }
        ex.session_mut().set_attached(Attached::Yes);
        if let Some(why) = stale {
            generation.replace(now, why, ex);
        }
    }

    /// A request of a client that came back; none if it is to go to the server as any other.
    pub fn reopen(
        &mut self,
        now: Moment,
        frame: &Frame<'_>,
        line: &[u8],
        ex: &mut Exchange<'_>,
    ) -> Option<Reopened> {
        let (State::Reopening { .. }, Id::Token(id)) = (&self.state, frame.id) else {
            return None;
        };
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
        let state = core::mem::replace(&mut self.state, State::Held);
        ex.session_mut().set_attached(Attached::Yes);
        if let State::Reopening { stale: Some(why) } = state {
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
            // It opens in another way than before: that takes a server that has not been opened yet.
            Some(_) | None => Some(Reopened::Anew(Renewing::Reopened)),
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
