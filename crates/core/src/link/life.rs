//! From one generation to the next: deaths, renewals, waiting, giving up, resting, waking.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::io::Exited;
use super::own::Purpose;
use super::state::{Because, GivenUp, GivingWay, Life, Server, Silence, Stage, Swapping, Then, Up};
use super::{Link, Output};
use crate::clock::Moment;
use crate::event::{
    Abandoned, CallDeadline, Cause, Exit, ProbesUnanswered, Renewal, Renewing, Status, What,
};
use crate::limits::{OPENING_TRIES, OPENING_WAIT_MS};
use crate::message::inflight::{Entry, Tracked};
use crate::message::settle;
use crate::server::backoff::{Losses, Next};
use crate::server::health::Do;
use crate::server::stop::{Ladder, Standing, Step};
use crate::verdict::sent_by_somebody;

impl Link<'_> {
    /// Asks for the next generation.
    pub(super) fn spawn(&mut self, trial: Option<GivenUp>) {
        self.life = Life::Absent {
            trial: trial.map(Box::new),
        };
        self.push(Output::Spawn);
    }

    /// Whether a death now is followed by another generation: one that cannot be opened gets a few chances; what the client
    /// builds on is kept up.
    pub(super) fn goes_on(&self) -> bool {
        self.limits.restart_budget > 0
            && self.attached()
            && (self.opened() || self.tries + 1 < OPENING_TRIES)
    }

    /// Whether this is the death of a server at all. A command that ends before it was asked anything is none, unless
    /// somebody has ended it.
    pub(super) fn is_death(&self, status: Status) -> bool {
        self.head.spoken != 0 || (sent_by_somebody(status) && !self.sent(status))
    }

    /// The generation has died while the client lives.
    pub(super) fn died(&mut self, now: Moment, exited: Exited) {
        let Life::Up(up) = &mut self.life else { return };
        let (since, trial) = (up.since, up.trial.take());
        let tree_empty = exited.tree_empty;
        let then = self.mourn(now, since, trial.map(|trial| *trial), exited);
        let (ladder, step) = Ladder::begin(Cause::ServerExit, Standing::Left, &self.limits, now);
        self.life = Life::Swapping(Swapping {
            since,
            ladder,
            server: Server::Gone,
            quiet: tree_empty,
            then,
        });
        // An empty tree is only to be confirmed.
        self.step(step.filter(|_| !tree_empty));
    }

    /// Answers what cannot be sent again, tells of the death, and decides what follows.
    fn mourn(
        &mut self,
        now: Moment,
        since: Moment,
        trial: Option<GivenUp>,
        exited: Exited,
    ) -> Then {
        let (status, tail) = (exited.status, exited.stderr_tail.clone());
        let last = match exited.out_of_memory {
            Some(whose) => alloc::format!("{status} ({whose})"),
            None => status.to_string(),
        };
        let then = match trial {
            Some(trial) => {
                let losses = trial.losses.with_death();
                Then::Abandon(self.given_up(now, losses, last, tail.clone()))
            }
            None => self.after_death(now, now.ms_since(since), last, tail.clone()),
        };
        let in_flight = self.in_flight();
        self.answer_discover();
        let kept = self.settle_at_death(&then, status, &tail);
        self.tell_exit(now, since, exited, in_flight, kept);
        self.cancel_asked();
        self.own.forget();
        then
    }

    fn after_death(&mut self, now: Moment, up_ms: u64, last: String, tail: Vec<String>) -> Then {
        if !self.opened() {
            self.tries += 1;
            let wait = OPENING_WAIT_MS * u64::from(self.tries - 1);
            return Then::Respawn {
                at: now.after_ms(wait),
            };
        }
        if self.changed.is_some() {
            // It would not start the next time either: whoever has changed it is told at once.
            return Then::Abandon(self.given_up(now, Losses::default().with_death(), last, tail));
        }
        let served = self.served_by == self.head.generation;
        match self.budget.died(now, up_ms, served) {
            Next::At(at) => Then::Respawn { at },
            Next::GiveUp => {
                let losses = self.budget.losses();
                Then::Abandon(self.given_up(now, losses, last, tail))
            }
        }
    }

    /// A later generation could not even be started.
    pub(super) fn not_started_again(&mut self, now: Moment, problem: &str) {
        let trial = match &mut self.life {
            Life::Absent { trial } => trial.take(),
            Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Closing(_)
            | Life::Finished => return,
        };
        // What was missing for a moment is there again soon: then it is not waited for as long as for a server that dies.
        let (losses, last_ms) = match trial {
            Some(trial) => (trial.losses.with_failed_start(), Some(trial.probe_ms)),
            // It would not start the next time either: the change is told at once.
            None if self.changed.is_some() => {
                let losses = Losses::default().with_failed_start();
                let given_up = self.given_up(now, losses, problem.into(), Vec::new());
                return self.proceed(now, Then::Abandon(given_up));
            }
            None => match self.budget.not_started(now) {
                Next::At(at) => return self.proceed(now, Then::Respawn { at }),
                Next::GiveUp => (self.budget.losses(), None),
            },
        };
        let mut given_up = self.given_up(now, losses, problem.into(), Vec::new());
        let wait_ms = self.budget.try_again_ms(last_ms, given_up.probe_ms);
        given_up.try_after(now, wait_ms);
        self.proceed(now, Then::Abandon(given_up));
    }

    fn given_up(
        &self,
        now: Moment,
        losses: Losses,
        last: String,
        stderr_tail: Vec<String>,
    ) -> GivenUp {
        let mut given_up = GivenUp {
            losses,
            window_ms: self.limits.restart_window_ms,
            last,
            stderr_tail,
            changed: self.changed.clone(),
            probe_ms: 0,
            probe_at: None,
        };
        given_up.try_after(now, self.limits.restart_probe_ms);
        given_up
    }

    /// The process that a swap waits for is gone.
    pub(super) fn gone_in_swap(&mut self, now: Moment, exited: Exited) {
        let Life::Swapping(swapping) = &mut self.life else {
            return;
        };
        let since = swapping.since;
        // Others of the tree have been on their way down with it.
        let alone = !matches!(swapping.server, Server::Left(_));
        swapping.server = Server::Gone;
        let tree_empty = exited.tree_empty;
        let cause = swapping.ladder.cause().clone();
        if let Then::Mourn { trial } = &mut swapping.then {
            let trial = trial.take().map(|trial| *trial);
            swapping.quiet = alone && tree_empty;
            let then = self.mourn(now, since, trial, exited);
            if let Life::Swapping(swapping) = &mut self.life {
                swapping.then = then;
            }
        } else {
            let because = match cause {
                Cause::Renewal(why) => Because::Renewed(why),
                Cause::ClientEof
                | Cause::ClientGone
                | Cause::ClientDeaf
                | Cause::ShimSignal { .. }
                | Cause::ShimKilled
                | Cause::KeeperSignal { .. }
                | Cause::Asked
                | Cause::ServerExit
                | Cause::StartFailed
                | Cause::KeeperLost
                | Cause::Differs
                | Cause::LeaseEnded(_) => Because::ServerExit {
                    status: exited.status,
                    stderr_tail: exited.stderr_tail.clone(),
                    restarted: true,
                    tries: 0,
                },
            };
            let in_flight = self.in_flight();
            let kept = self.settle_or_keep(&because, None);
            self.tell_exit(now, since, exited, in_flight, kept);
            self.cancel_asked();
            self.own.forget();
        }
        // Behind the end that was told: what the rest of the tree is sent did not reach the server.
        if let (false, Life::Swapping(swapping)) = (tree_empty, &mut self.life) {
            let step = swapping.ladder.server_left(now);
            self.step(step);
        }
    }

    pub(super) fn tell_exit(
        &mut self,
        now: Moment,
        since: Moment,
        exited: Exited,
        in_flight: u32,
        kept: u32,
    ) {
        self.code = exited.status.exit_code();
        self.tell_rest_of_junk();
        let ending = self.ladder().map(|ladder| ladder.ending(now));
        self.tell(What::Exit(Exit {
            generation: self.head.generation,
            pid: exited.pid,
            status: exited.status,
            uptime_ms: now.ms_since(since),
            usage: exited.usage,
            in_flight,
            kept,
            ending,
            out_of_memory: exited.out_of_memory,
            stderr_tail: exited.stderr_tail,
            standing: None,
        }));
    }

    /// The old tree is empty: on to what is wanted.
    pub(super) fn proceed(&mut self, now: Moment, then: Then) {
        match then {
            // Not even the kill ended it, so how it ended is not known.
            Then::Mourn { trial } => {
                let last = "it closed its end and could not be ended".to_string();
                let losses = trial.map_or(Losses::default(), |trial| trial.losses);
                let given_up = self.given_up(now, losses.with_death(), last, Vec::new());
                self.proceed(now, Then::Abandon(given_up));
            }
            Then::Respawn { at } if now >= at => self.spawn(None),
            Then::Respawn { at } => self.life = Life::Waiting { until: at },
            Then::Rest => {
                self.code = 0;
                self.life = Life::Resting;
            }
            Then::Abandon(given_up) => {
                // Not before: a server on its way down may still answer.
                self.settle_abandoned(&given_up);
                self.tell(What::Abandoned(Abandoned {
                    deaths: given_up.losses.deaths,
                    failed_starts: given_up.losses.failed_starts,
                    window_ms: given_up.window_ms,
                    last: given_up.last.clone(),
                    changed: given_up.changed.clone(),
                    probe_ms: given_up.probe_ms,
                }));
                self.life = Life::Abandoned(given_up);
            }
        }
    }

    /// Somebody or something wants another generation, or none for now.
    pub(super) fn renew(&mut self, now: Moment, why: Renewing) {
        // The others are about the generation that is up.
        let mended = matches!(why, Renewing::Asked | Renewing::Changed { .. });
        if self.away() {
            // Nobody could come back to the next one's memory.
            self.stop(now, Cause::Renewal(why));
            return;
        }
        let opened = self.opened();
        match &mut self.life {
            Life::Up(up) => {
                let too_early = matches!(why, Renewing::Memory { .. }) && !opened;
                if up.giving_way.is_some() || too_early {
                    return;
                }
                let at_once = match why {
                    Renewing::Unresponsive { .. } | Renewing::Opening | Renewing::Idle { .. } => {
                        true
                    }
                    Renewing::Asked
                    | Renewing::Changed { .. }
                    | Renewing::Memory { .. }
                    | Renewing::Silent { .. }
                    | Renewing::Reopened => false,
                };
                let until = now.after_ms(self.limits.drain_ms);
                up.giving_way = Some(GivingWay {
                    why: why.clone(),
                    until: if at_once { now } else { until },
                });
                let (generation, in_flight) = (self.head.generation, self.in_flight());
                self.tell(What::Renewal(Renewal {
                    generation,
                    why,
                    in_flight,
                }));
                self.give_way_if_drained(now);
            }
            // The next request starts what is there then.
            Life::Swapping(Swapping {
                then: Then::Rest, ..
            })
            | Life::Resting
                if why != Renewing::Asked => {}
            Life::Swapping(swapping) if mended => {
                // Whoever asked has mended it.
                if matches!(swapping.then, Then::Abandon(_) | Then::Rest) {
                    self.budget.forgive();
                }
                swapping.then = Then::Respawn { at: now };
                self.changed = why.changed();
            }
            Life::Waiting { .. } | Life::Abandoned(_) | Life::Resting if mended => {
                self.budget.forgive();
                self.changed = why.changed();
                self.spawn(None);
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

    /// A generation that is to be replaced goes as soon as it owes nothing, or has had its time.
    #[inline]
    pub(super) fn give_way_if_drained(&mut self, now: Moment) {
        if matches!(&self.life, Life::Up(up) if up.giving_way.is_some()) {
            self.give_way(now);
        }
    }

    fn give_way(&mut self, now: Moment) {
        let Life::Up(up) = &self.life else { return };
        let Some(giving_way) = &up.giving_way else {
            return;
        };
        if now < giving_way.until && self.owes() {
            return;
        }
        let why = giving_way.why.clone();
        let then = match &why {
            Renewing::Idle { .. } => Then::Rest,
            // A limit that it cannot live with must not have it restarted for ever.
            Renewing::Unresponsive { .. } | Renewing::Opening | Renewing::Memory { .. } => {
                let up_ms = now.ms_since(up.since);
                self.after_death(now, up_ms, why.to_string(), Vec::new())
            }
            Renewing::Asked
            | Renewing::Changed { .. }
            | Renewing::Silent { .. }
            | Renewing::Reopened => {
                self.budget.forgive();
                self.changed = why.changed();
                Then::Respawn { at: now }
            }
        };
        self.swap(now, Cause::Renewal(why), then);
    }

    /// Begins the way down of the generation that is up; the link goes on.
    pub(super) fn swap(&mut self, now: Moment, cause: Cause, then: Then) {
        let Life::Up(up) = &mut self.life else { return };
        let server = up.left.take().map_or(Server::Up, Server::Left);
        let since = up.since;
        let standing = if matches!(cause, Cause::Renewal(Renewing::Silent { .. })) {
            Standing::Hung
        } else {
            Standing::Up
        };
        let (ladder, step) = Ladder::begin(cause, standing, &self.limits, now);
        self.life = Life::Swapping(Swapping {
            since,
            ladder,
            server,
            quiet: false,
            then,
        });
        self.step(step);
    }

    fn step(&mut self, step: Option<Step>) {
        if let Some(step) = step {
            self.push(Output::Stop(step));
        }
    }

    /// Whether the server owes an answer that ends by itself: listening does not.
    pub(super) fn owes(&self) -> bool {
        self.inflight
            .iter()
            .any(|(_, entry)| !entry.is_held() && !entry.method.listens())
    }

    pub(super) fn tick_up(&mut self, now: Moment) {
        let Life::Up(up) = &mut self.life else { return };
        match up.stage {
            Stage::Greeting { until } | Stage::Replaying { until, .. } if now >= until => {
                self.replay_silent(now);
                return;
            }
            Stage::Greeting { .. } | Stage::Replaying { .. } | Stage::Instant | Stage::Serving => {}
        }
        // What is on its way to the client may be the very answer that we would give.
        if self.head.server_mid_line == 0 {
            if let Silence::Since(asked) = up.silence
                && now >= asked.after_ms(self.limits.opening_ms)
            {
                up.silence = Silence::Broken;
                self.opening_silent(now.ms_since(asked));
            }
            if self.instant_at().is_some_and(|at| now >= at) {
                self.open_from_record(now);
            }
            if self.held_at().is_some_and(|at| now >= at) {
                self.held_in_vain(now);
            }
            self.call_deadline(now);
        }
        self.give_way_if_drained(now);
        self.tick_health(now);
        let Life::Up(up) = &self.life else { return };
        if let Some(at) = self.idle_at(up)
            && now >= at
        {
            let ms = now.ms_since(up.used);
            self.renew(now, Renewing::Idle { ms });
        }
    }

    fn tick_health(&mut self, now: Moment) {
        let Life::Up(up) = &mut self.life else { return };
        let asked = up.health.tick(now);
        self.knows_probes = up.health.knows();
        match asked {
            Some(Do::Probe(n)) => self.probe(Purpose::Probe { n }),
            Some(Do::Measure) => self.push(Output::Measure),
            Some(Do::Restart(verdict)) => {
                let crate::server::health::Verdict::Unresponsive { lost, silent_ms } = verdict;
                self.renew(now, Renewing::Unresponsive { lost, silent_ms });
            }
            Some(Do::LeaveAlone) => self.tell(What::ProbesUnanswered(ProbesUnanswered {
                lost: self.limits.probe_lost as u32,
            })),
            None => {}
        }
    }

    /// A server that serves and is idle is asked whether it is still there.
    pub(super) fn check(&mut self, now: Moment) {
        let opened = self.opened();
        if let Life::Up(up) = &mut self.life
            && matches!(up.stage, Stage::Serving)
            && up.giving_way.is_none()
            && opened
        {
            up.health.check(now);
            self.tick_health(now);
        }
    }

    pub(super) fn measured(&mut self, now: Moment, cpu_ms: u64, traced: bool) {
        if let Life::Up(up) = &mut self.life {
            up.health.measured(now, cpu_ms, traced);
            self.tick_health(now);
        }
    }

    /// When the server may be put to rest, unless something keeps it awake.
    pub(super) fn idle_at(&self, up: &Up) -> Option<Moment> {
        let awake = self.limits.hibernate_ms == 0
            || self.away()
            || !matches!(up.stage, Stage::Serving)
            || up.giving_way.is_some()
            || !self.opened()
            || !self.inflight.is_empty()
            || self.asked.pending() > 0
            || self.own.wants_more()
            || self.subscribed();
        let idle = up.used.after_ms(self.limits.hibernate_ms);
        (!awake).then(|| idle.max(self.tasks.until().unwrap_or(idle)))
    }

    /// When the oldest request has taken too long.
    pub(super) fn deadline_at(&self) -> Option<Moment> {
        if self.limits.call_deadline_ms == 0 {
            return None;
        }
        let (_, entry) = self.oldest_call()?;
        Some(entry.opened.after_ms(self.limits.call_deadline_ms))
    }

    /// The oldest request that a deadline holds for: listening has none, and an opening has its own and is never cancelled.
    fn oldest_call(&self) -> Option<(&[u8], Entry)> {
        let mut all = self.inflight.iter();
        all.find(|(_, entry)| !entry.method.listens() && entry.method != Tracked::Initialize)
    }

    fn call_deadline(&mut self, now: Moment) {
        while self.deadline_at().is_some_and(|at| now >= at) {
            let oldest = self.oldest_call();
            let Some((id, entry)) = oldest.map(|(id, entry)| (id.to_vec(), entry)) else {
                return;
            };
            let ms = now.ms_since(entry.opened);
            let because = Because::Deadline { ms };
            if entry.is_held() {
                // No server has seen it.
                self.let_go(&id);
                self.answer(&id, entry.method, &because);
                continue;
            }
            let request = entry.method.word().into();
            self.answer_ahead(&id, entry.method, &because);
            self.taken_back(now);
            self.busy_or_idle(now);
            let label = self.orphans.unlabel(&id);
            let known = label.as_deref().unwrap_or(&id);
            // Before the era is settled, a word of ours would settle it.
            if entry.method != Tracked::Discover || self.era_settled() {
                self.push(Output::ToServer(settle::cancel(
                    known,
                    "the call deadline has passed",
                )));
            }
            self.tell(What::CallDeadline(CallDeadline { request, ms }));
        }
    }
}
