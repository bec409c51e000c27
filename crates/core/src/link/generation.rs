//! From one server to the next: which one lives, what follows it, and when.
//!
//! It owns the life ([`Life`]) and moves it from state to state. What one state knows and does is the affair of that state:
//! [`Up`], [`Swapping`], [`Closing`](super::closing::Closing). What a state means for messages is the exchange's affair.
//! This file has the way up and the restarts, the file beside it the way down.
//!
//! Invariants: at most one generation is up; the next one is asked for only when the tree of the last one is empty; after
//! the link's own end has begun none is started.

mod end;

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Abandoned, Cause, RestartReason, Restarting, What};
use mainstay_protocol::limits::Limits;

use super::attachment::Attachment;
use super::closing::Closing;
use super::exchange::Exchange;
use super::io::Reason;
use super::junk::JunkCount;
use super::restarts::Restarts;
use super::state::{GivenUp, Life, Settling, Then};
use super::swapping::Swapping;
use super::up::{Opening, Overdue, Up};
use crate::server::health::Knows;

#[derive(Debug)]
pub(super) struct Generation {
    life: Life,
    limits: Limits,
    restarts: Restarts,
    /// How the last generation ended, as an exit code.
    code: u8,
    /// Whether the last generation answered probes.
    knows_probes: Knows,
    junk: JunkCount,
}

impl Generation {
    pub fn new(limits: Limits) -> Self {
        Self {
            life: Life::Absent { trial: None },
            restarts: Restarts::new(&limits),
            code: 0,
            knows_probes: Knows::Unknown,
            junk: JunkCount::default(),
            limits,
        }
    }

    pub fn life(&self) -> &Life {
        &self.life
    }

    pub fn is_finished(&self) -> bool {
        matches!(self.life, Life::Finished)
    }

    /// Whether client and server speak with each other, and nothing is about to change that.
    pub fn is_serving(&self) -> bool {
        matches!(&self.life, Life::Up(up) if up.is_serving())
    }

    /// The server that is up.
    pub fn up(&mut self) -> Option<&mut Up> {
        self.life.up()
    }

    /// The link's own end, once it has begun.
    pub fn closing(&mut self) -> Option<&mut Closing> {
        self.life.closing()
    }

    /// Whether a change of the code waits for a sign that the server starts after it.
    pub fn is_changed(&self) -> bool {
        self.restarts.is_changed()
    }

    /// The server has answered something, good or bad: it is up.
    pub fn answered_anything(&mut self) {
        self.restarts.answered_anything();
    }

    /// A line of the server's was no message. `line` is none if it was too long to be seen.
    pub fn junk(&mut self, line: Option<&[u8]>, ex: &mut Exchange<'_>) {
        if let Some(junk) = self.junk.count(line) {
            ex.owed().tell(What::Junk(junk));
        }
    }

    // The way up.

    /// Asks for the next generation.
    pub fn spawn(&mut self, trial: Option<GivenUp>, ex: &mut Exchange<'_>) {
        debug_assert!(
            !matches!(
                self.life,
                Life::Up(_) | Life::Swapping(_) | Life::Closing(_) | Life::Finished
            ),
            "at most one generation lives, and none follows the end"
        );
        self.life = Life::Absent {
            trial: trial.map(Box::new),
        };
        ex.outbox().spawn();
    }

    /// The link begins at rest: the first request starts the server.
    pub fn rest(&mut self) {
        self.life = Life::Resting;
    }

    /// The generation that was asked for was started; what it was told. None if none was asked for: it does not count.
    pub fn started(&mut self, now: Moment, ex: &mut Exchange<'_>) -> Option<Opening> {
        let Life::Absent { trial } = &mut self.life else {
            return None;
        };
        ex.generation_started();
        let mut up = Up::new(now, &self.limits, self.knows_probes, trial.take());
        let opening = up.open(now, &self.limits, ex);
        self.life = Life::Up(up);
        Some(opening)
    }

    /// The server has taken the replayed opening, and so many requests that follow it have no answer yet.
    pub fn replaying(&mut self, now: Moment, unanswered: u32) {
        if let Some(up) = self.life.up() {
            up.replaying(now, &self.limits, unanswered);
        }
    }

    /// The server knows what its predecessor knew: it serves.
    pub fn serve(&mut self, now: Moment, ex: &mut Exchange<'_>) {
        if let Some(up) = self.life.up()
            && up.serve(now, ex)
        {
            self.restarts.forgive();
        }
    }

    /// A later generation could not even be started.
    fn not_started_again(&mut self, now: Moment, problem: &str, ex: &mut Exchange<'_>) {
        let Life::Absent { trial } = &mut self.life else {
            return;
        };
        let then = self.restarts.after_failed_start(now, problem, trial.take());
        self.proceed(now, then, ex);
    }

    /// The old tree is empty: on to what is wanted.
    fn proceed(&mut self, now: Moment, then: Then, ex: &mut Exchange<'_>) {
        match then {
            Then::Undecided { trial } => {
                let given_up = self.restarts.after_immortal(now, trial);
                self.abandon(given_up, ex);
            }
            Then::Respawn { at } if now >= at => self.spawn(None, ex),
            Then::Respawn { at } => self.life = Life::Waiting { until: at },
            Then::Rest => {
                self.code = 0;
                self.life = Life::Resting;
            }
            Then::Abandon(given_up) => self.abandon(given_up, ex),
        }
    }

    /// No generation follows for now. Not before the tree is empty, because a server on its way down may still answer.
    fn abandon(&mut self, given_up: GivenUp, ex: &mut Exchange<'_>) {
        ex.owed()
            .settle(&Settling::Abandoned(given_up.clone().into()));
        ex.owed().tell(What::Abandoned(Abandoned {
            deaths: given_up.losses.deaths,
            failed_starts: given_up.losses.failed_starts,
            window_ms: given_up.window_ms,
            last: given_up.last.clone(),
            changed: given_up.changed.clone(),
            probe_ms: given_up.probe_ms,
        }));
        self.life = Life::Abandoned(given_up);
    }

    /// The next generation starts without replay: the client opens anew.
    pub fn forget_tries(&mut self) {
        self.restarts.forget_tries();
    }

    // Renewals.

    /// Another generation is wanted, or none for now.
    pub fn renew(
        &mut self,
        now: Moment,
        why: RestartReason,
        at: &mut Attachment,
        ex: &mut Exchange<'_>,
    ) {
        // The others are about the generation that is up.
        let mended = matches!(why, RestartReason::Asked | RestartReason::Changed { .. });
        if at.away() {
            // No client could come back to the next one's memory.
            at.stop(now, Cause::Restart(why), self, ex);
            return;
        }
        match &mut self.life {
            Life::Up(_) => self.renew_up(now, why, ex),
            // The next request starts what is there then.
            Life::Swapping(swapping)
                if matches!(swapping.then(), Then::Rest) && why != RestartReason::Asked => {}
            Life::Resting if why != RestartReason::Asked => {}
            Life::Swapping(swapping) if mended => {
                // The cause of the deaths has been removed.
                if matches!(swapping.then(), Then::Abandon(_) | Then::Rest) {
                    self.restarts.forgive();
                }
                swapping.respawn(now);
                self.restarts.set_changed(why.changed());
            }
            Life::Waiting { .. } | Life::Abandoned(_) | Life::Resting if mended => {
                self.restarts.mended(why.changed());
                self.spawn(None, ex);
            }
            Life::Absent { .. }
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Closing(_)
            | Life::Finished => {}
        }
    }

    /// The server that is up is to be replaced once it has answered what is in flight, or at once.
    fn renew_up(&mut self, now: Moment, why: RestartReason, ex: &mut Exchange<'_>) {
        let Some(up) = self.life.up() else { return };
        let too_early = matches!(why, RestartReason::Memory { .. }) && !ex.session().opened();
        if up.gives_way() || too_early {
            return;
        }
        let until = match why {
            RestartReason::Unresponsive { .. }
            | RestartReason::Opening
            | RestartReason::Idle { .. } => now,
            RestartReason::Asked
            | RestartReason::Changed { .. }
            | RestartReason::Memory { .. }
            | RestartReason::Silent { .. }
            | RestartReason::Reopened => now.after_ms(self.limits.drain_ms),
        };
        up.give_way(why.clone(), until);
        let (generation, in_flight) = (ex.session().generation(), ex.in_flight());
        ex.owed().tell(What::Restarting(Restarting {
            generation,
            why,
            in_flight,
        }));
        self.give_way_if_drained(now, ex);
    }

    /// A generation that is to be replaced goes as soon as it owes nothing, or has had its time.
    #[inline]
    pub fn give_way_if_drained(&mut self, now: Moment, ex: &mut Exchange<'_>) {
        if matches!(&self.life, Life::Up(up) if up.gives_way()) {
            self.give_way(now, ex);
        }
    }

    fn give_way(&mut self, now: Moment, ex: &mut Exchange<'_>) {
        let Life::Up(up) = &self.life else { return };
        let Some(why) = up.goes(now, ex) else { return };
        let why = why.clone();
        let then = match &why {
            RestartReason::Idle { .. } => Then::Rest,
            // A limit that it cannot live with must not have it restarted for ever.
            RestartReason::Unresponsive { .. }
            | RestartReason::Opening
            | RestartReason::Memory { .. } => {
                let up_ms = now.ms_since(up.since());
                self.restarts
                    .after_death(now, up_ms, why.to_string(), Vec::new(), ex.session())
            }
            RestartReason::Asked
            | RestartReason::Changed { .. }
            | RestartReason::Silent { .. }
            | RestartReason::Reopened => {
                self.restarts.mended(why.changed());
                Then::Respawn { at: now }
            }
        };
        self.swap(now, Cause::Restart(why), then, ex);
    }

    /// The generation that is up goes at once, and the next one follows.
    pub fn replace(&mut self, now: Moment, why: RestartReason, ex: &mut Exchange<'_>) {
        let generation = ex.session().generation();
        ex.owed().tell(What::Restarting(Restarting {
            generation,
            why: why.clone(),
            in_flight: 0,
        }));
        self.swap(now, Cause::Restart(why), Then::Respawn { at: now }, ex);
    }

    /// Begins the way down of the generation that is up; the link goes on.
    fn swap(&mut self, now: Moment, cause: Cause, then: Then, ex: &mut Exchange<'_>) {
        let Some(up) = self.life.up() else { return };
        self.knows_probes = up.knows_probes();
        let (swapping, step) = Swapping::begin(now, up, cause, then, &self.limits);
        self.life = Life::Swapping(swapping);
        ex.outbox().step(step);
    }

    // Time.

    /// When to be woken if nothing happens, and why.
    pub fn wake_at(&self, away: bool, ex: &Exchange<'_>) -> Option<(Moment, Reason)> {
        match &self.life {
            Life::Absent { .. } | Life::Resting | Life::Finished => None,
            Life::Up(up) => up.wake_at(&self.limits, away, ex),
            Life::Swapping(swapping) => swapping.wake_at(),
            Life::Waiting { until } => Some((*until, Reason::Respawn)),
            Life::Abandoned(given_up) => given_up.probe_at.map(|at| (at, Reason::Trial)),
            Life::Closing(closing) => closing.wake_at(),
        }
    }

    /// Time has passed; whether the replay was silent for too long, and the client's traffic is to go on without it.
    pub fn tick(&mut self, now: Moment, at: &mut Attachment, ex: &mut Exchange<'_>) -> bool {
        match &mut self.life {
            Life::Up(_) => return self.tick_up(now, at, ex),
            Life::Swapping(swapping) => ex.outbox().step(swapping.tick(now)),
            Life::Waiting { until } => {
                if now >= *until {
                    self.spawn(None, ex);
                }
            }
            Life::Abandoned(given_up) => {
                if given_up.probe_at.is_some_and(|at| now >= at) {
                    let given_up = given_up.clone();
                    self.spawn(Some(given_up), ex);
                }
            }
            Life::Closing(closing) => ex.outbox().step(closing.tick(now)),
            Life::Absent { .. } | Life::Resting | Life::Finished => {}
        }
        false
    }

    fn tick_up(&mut self, now: Moment, at: &mut Attachment, ex: &mut Exchange<'_>) -> bool {
        let Some(up) = self.life.up() else {
            return false;
        };
        match up.overdue(now) {
            Some(Overdue::Opening) => {
                if up.hurry(now) {
                    // The server is to be replaced in any case.
                    self.give_way_if_drained(now, ex);
                } else {
                    self.renew(now, RestartReason::Opening, at, ex);
                }
                return false;
            }
            // The session is open: unanswered replayed requests do not hold it up.
            Some(Overdue::Replay) => return true,
            None => {}
        }
        up.answer_if_due(now, &self.limits, ex);
        self.give_way_if_drained(now, ex);
        if let Some(up) = self.life.up()
            && let Some(why) = up.tick_health(now, &self.limits, ex)
        {
            self.renew(now, why, at, ex);
        }
        if let Some(up) = self.life.up()
            && let Some(ms) = up.idle_ms(now, &self.limits, at.away(), ex)
        {
            self.renew(now, RestartReason::Idle { ms }, at, ex);
        }
        false
    }

    /// A server that serves and is idle is asked whether it is still there.
    pub fn check(&mut self, now: Moment, at: &mut Attachment, ex: &mut Exchange<'_>) {
        if let Some(up) = self.life.up()
            && let Some(why) = up.check(now, &self.limits, ex)
        {
            self.renew(now, why, at, ex);
        }
    }

    /// The processor time that the server's tree has used.
    pub fn measured(
        &mut self,
        now: Moment,
        cpu_ms: u64,
        traced: bool,
        at: &mut Attachment,
        ex: &mut Exchange<'_>,
    ) {
        if let Some(up) = self.life.up()
            && let Some(why) = up.measured(now, cpu_ms, traced, &self.limits, ex)
        {
            self.renew(now, why, at, ex);
        }
    }
}
