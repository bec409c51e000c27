//! From one generation of the server to the next: starts, renewals, waiting, giving up, resting, waking.
//!
//! It owns the life and decides what follows what; what that means for messages is the exchange's affair. The file beside
//! it has the ends: there a death is settled.
//!
//! Invariants: at most one generation is up; the next one is asked for only when the tree of the last one is empty; after
//! the link's own end has begun none is started.

mod end;

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::attachment::Attachment;
use super::exchange::{Exchange, Recalled, Speaker};
use super::io::{Output, Reason};
use super::junk::JunkCount;
use super::own::Purpose;
use super::restarts::Restarts;
use super::state::{GivenUp, Life, Server, Settling, Swapping, Then};
use super::up::{GivingWay, Silence, Stage, Up};
use crate::clock::Moment;
use crate::event::{Abandoned, Cause, ProbesUnanswered, Renewal, Renewing, Replayed, Status, What};
use crate::limits::Limits;
use crate::message::frame::Kind;
use crate::server::health::{Do, Health, Knows};
use crate::server::stop::{Ladder, Standing};
use crate::verdict::sent_by_somebody;

#[derive(Debug)]
pub(super) struct Generation {
    life: Life,
    limits: Limits,
    restarts: Restarts,
    /// How the last generation ended, as an exit code.
    code: u8,
    knows_probes: Knows,
    junk: JunkCount,
}

/// What a new generation is told before the client's traffic reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// Nothing: it serves.
    Nothing,
    /// It was asked something, and its answer is waited for.
    Asked,
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

    /// The state in one word, for views.
    pub fn word(&self, away: bool, opened: bool) -> &'static str {
        match &self.life {
            Life::Absent { .. } => "starting",
            Life::Up(_) if away => "lingering",
            Life::Up(up) => match up.stage {
                Stage::Greeting { .. } | Stage::Replaying { .. } => "greeting",
                Stage::Instant => "opening",
                Stage::Serving if !opened => "opening",
                Stage::Serving if up.giving_way.is_some() => "draining",
                Stage::Serving if up.health.doubtful() => "doubtful",
                Stage::Serving => "ready",
            },
            Life::Swapping(_) => "restarting",
            Life::Waiting { .. } => "waiting",
            Life::Resting => "resting",
            Life::Abandoned(_) => "abandoned",
            Life::Closing(closing) if closing.explains() => "failed",
            Life::Closing(_) => "stopping",
            Life::Finished => "gone",
        }
    }

    /// The descent that is under way.
    pub fn ladder(&self) -> Option<&Ladder> {
        match &self.life {
            Life::Swapping(swapping) => Some(&swapping.ladder),
            Life::Closing(closing) => closing.ladder(),
            Life::Absent { .. }
            | Life::Up(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => None,
        }
    }

    /// True if a server that ended like this was ended by a signal of ours.
    pub fn sent(&self, status: Status) -> bool {
        self.ladder().is_some_and(|ladder| ladder.sent(status))
    }

    /// How far the server is that speaks now; none if what it says reaches no client any more.
    pub fn speaker(&self) -> Option<Speaker> {
        match &self.life {
            Life::Up(up) => Some(match up.stage {
                Stage::Greeting { .. } | Stage::Replaying { .. } => Speaker::Replaying,
                Stage::Instant | Stage::Serving => Speaker::Serving,
            }),
            // What speaks after the server's end speaks for no client: what the server owed is settled.
            Life::Swapping(swapping) => (!swapping.is_over()).then_some(Speaker::GoingDown),
            Life::Closing(closing) => (!closing.is_over()).then_some(Speaker::Closing),
            Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => None,
        }
    }

    /// Whether client and server speak with each other, and nothing is about to change that.
    pub fn is_serving(&self) -> bool {
        matches!(&self.life, Life::Up(up)
            if matches!(up.stage, Stage::Serving) && up.giving_way.is_none())
    }

    /// Whether a change of the code waits for a sign that the server starts after it.
    pub fn is_changed(&self) -> bool {
        self.restarts.is_changed()
    }

    /// Since when the server is up.
    pub fn up_since(&self) -> Option<Moment> {
        match &self.life {
            Life::Up(up) => Some(up.since),
            Life::Absent { .. }
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Closing(_)
            | Life::Finished => None,
        }
    }

    fn up(&mut self) -> Option<&mut Up> {
        match &mut self.life {
            Life::Up(up) => Some(up),
            Life::Absent { .. }
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Closing(_)
            | Life::Finished => None,
        }
    }

    // What the server and the client do.

    /// The server wrote something, be it a part of a line: it is there.
    pub fn server_wrote(&mut self, now: Moment) {
        if let Life::Up(up) = &mut self.life {
            up.health.heard(now);
            up.silence.wrote(now);
        }
    }

    /// It was a whole line.
    pub fn server_said(&mut self, now: Moment, kind: Kind, bytes: usize, of_use: bool) {
        if let Life::Up(up) = &mut self.life {
            up.says(kind, bytes);
            if of_use {
                up.used = now;
            }
        }
    }

    /// They were results of calls, so many bytes.
    pub fn server_answered_calls(&mut self, bytes: usize) {
        if let Life::Up(up) = &mut self.life {
            up.silence = Silence::Broken;
            up.said += bytes as u64;
        }
    }

    /// The server has answered something: it is up, be it good or bad.
    pub fn answered_anything(&mut self) {
        self.restarts.answered_anything();
    }

    /// A line of the server's was no message. `line` is none if it was too long to be seen.
    pub fn junk(&mut self, line: Option<&[u8]>, ex: &mut Exchange<'_>) {
        if let Some(junk) = self.junk.count(line) {
            ex.owed().tell(What::Junk(junk));
        }
    }

    /// The client uses the server.
    pub fn used(&mut self, now: Moment) {
        if let Life::Up(up) = &mut self.life {
            up.used = now;
        }
    }

    /// The client asks the server something. One that is served already may call something that takes its time.
    pub fn asked(&mut self, now: Moment, opened: bool) {
        if let Life::Up(up) = &mut self.life {
            if let (Silence::NothingAsked, false) = (&up.silence, opened) {
                up.silence = Silence::Since(now);
            }
            up.health.busy(now);
        }
    }

    /// The client waits no more for something that the server was asked, and that it may be at all the same.
    pub fn taken_back(&mut self, now: Moment) {
        if let Life::Up(up) = &mut self.life {
            up.health.taken_back(now);
        }
    }

    /// It has answered this probe.
    pub fn probe_answered(&mut self, now: Moment, n: u64) {
        if let Life::Up(up) = &mut self.life {
            up.health.answered(now, n);
            self.knows_probes = up.health.knows();
        }
    }

    /// Tells the health whether the server has work.
    pub fn busy_or_idle(&mut self, now: Moment, ex: &Exchange<'_>) {
        // A message of ours before the opening would fix the era, and a server that is not open yet may be slow.
        let open = ex.session().opened() && ex.session().era_settled();
        if let Life::Up(up) = &mut self.life {
            let serving = open && matches!(up.stage, Stage::Serving);
            if !serving || ex.is_busy(now) {
                up.health.busy(now);
            } else {
                up.health.idle(now);
            }
        }
    }

    // Starts.

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

    /// The generation that was asked for was started. At most one lives: no other is counted.
    pub fn started(&mut self, now: Moment, ex: &mut Exchange<'_>) -> Option<Opening> {
        let Life::Absent { trial } = &mut self.life else {
            return None;
        };
        let trial = trial.take();
        let on_trial = trial.is_some();
        ex.generation_started();
        self.life = Life::Up(Up {
            since: now,
            stage: Stage::Serving,
            left: None,
            silence: Silence::NothingAsked,
            giving_way: None,
            health: Health::new(&self.limits, now, self.knows_probes),
            used: now,
            said: 0,
            trial,
        });
        let asked = if ex.session().greeted() {
            let known = ex.replay_opening();
            if !known {
                ex.owed()
                    .tell_differs("the client's opening was too long to be replayed".into());
            }
            known
        } else {
            on_trial && ex.ask_on_trial()
        };
        if !asked {
            return Some(Opening::Nothing);
        }
        let until = now.after_ms(self.limits.opening_ms);
        self.set_stage(Stage::Greeting { until });
        Some(Opening::Asked)
    }

    fn set_stage(&mut self, stage: Stage) {
        if let Some(up) = self.up() {
            up.stage = stage;
        }
    }

    /// The server has taken the replayed opening, and so many requests that follow it have no answer yet.
    pub fn replaying(&mut self, now: Moment, unanswered: u32) {
        let until = now.after_ms(self.limits.opening_ms);
        self.set_stage(Stage::Replaying { unanswered, until });
    }

    /// One of these requests has its answer; whether it was the last one.
    pub fn replay_answered(&mut self) -> bool {
        if let Life::Up(up) = &mut self.life
            && let Stage::Replaying { unanswered, .. } = &mut up.stage
        {
            *unanswered = unanswered.saturating_sub(1);
            return *unanswered == 0;
        }
        false
    }

    /// The server knows what its predecessor knew: it is sent what that one has left unanswered.
    pub fn serve(&mut self, now: Moment, ex: &mut Exchange<'_>) {
        let Life::Up(up) = &mut self.life else { return };
        up.stage = Stage::Serving;
        up.used = now;
        let since = up.since;
        if up.trial.take().is_some() {
            self.restarts.forgive();
        }
        let resent = ex.owed().resend();
        let generation = ex.session().generation();
        if generation > 1 {
            let replayed = Replayed {
                generation,
                ms: now.ms_since(since),
                level: ex.session().has_level(),
                subscriptions: ex.session().subscriptions(),
                listens: resent.listens,
                resent: resent.calls,
            };
            ex.owed().tell(What::Replayed(replayed));
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

    // What follows.

    /// Whether this is the death of a server at all. A command that ends before it was asked anything is none, unless
    /// another process has ended it.
    fn is_death(&self, status: Status, spoken: bool) -> bool {
        spoken || (sent_by_somebody(status) && !self.sent(status))
    }

    /// The old tree is empty: on to what is wanted.
    fn proceed(&mut self, now: Moment, then: Then, ex: &mut Exchange<'_>) {
        match then {
            Then::Undecided { trial } => {
                let given_up = self.restarts.after_immortal(now, trial);
                self.proceed(now, Then::Abandon(given_up), ex);
            }
            Then::Respawn { at } if now >= at => self.spawn(None, ex),
            Then::Respawn { at } => self.life = Life::Waiting { until: at },
            Then::Rest => {
                self.code = 0;
                self.life = Life::Resting;
            }
            Then::Abandon(given_up) => {
                // Not before: a server on its way down may still answer.
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
        }
    }

    /// The next generation begins with a clean sheet: the client opens anew.
    pub fn forget_tries(&mut self) {
        self.restarts.forget_tries();
    }

    // Renewals.

    /// Another generation is wanted, or none for now.
    pub fn renew(
        &mut self,
        now: Moment,
        why: Renewing,
        at: &mut Attachment,
        ex: &mut Exchange<'_>,
    ) {
        // The others are about the generation that is up.
        let mended = matches!(why, Renewing::Asked | Renewing::Changed { .. });
        if at.away() {
            // No client could come back to the next one's memory.
            at.stop(now, Cause::Renewal(why), self, ex);
            return;
        }
        match &mut self.life {
            Life::Up(up) => {
                let too_early = matches!(why, Renewing::Memory { .. }) && !ex.session().opened();
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
                let (generation, in_flight) = (ex.session().generation(), ex.in_flight());
                ex.owed().tell(What::Renewal(Renewal {
                    generation,
                    why,
                    in_flight,
                }));
                self.give_way_if_drained(now, ex);
            }
            // The next request starts what is there then.
            Life::Swapping(Swapping {
                then: Then::Rest, ..
            })
            | Life::Resting
                if why != Renewing::Asked => {}
            Life::Swapping(swapping) if mended => {
                // Whatever was broken is mended.
                if matches!(swapping.then, Then::Abandon(_) | Then::Rest) {
                    self.restarts.forgive();
                }
                swapping.then = Then::Respawn { at: now };
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

    /// A generation that is to be replaced goes as soon as it owes nothing, or has had its time.
    #[inline]
    pub fn give_way_if_drained(&mut self, now: Moment, ex: &mut Exchange<'_>) {
        if matches!(&self.life, Life::Up(up) if up.giving_way.is_some()) {
            self.give_way(now, ex);
        }
    }

    fn give_way(&mut self, now: Moment, ex: &mut Exchange<'_>) {
        let Life::Up(up) = &self.life else { return };
        let Some(giving_way) = &up.giving_way else {
            return;
        };
        if now < giving_way.until && ex.requests().owes() {
            return;
        }
        let why = giving_way.why.clone();
        let then = match &why {
            Renewing::Idle { .. } => Then::Rest,
            // A limit that it cannot live with must not have it restarted for ever.
            Renewing::Unresponsive { .. } | Renewing::Opening | Renewing::Memory { .. } => {
                let up_ms = now.ms_since(up.since);
                self.restarts
                    .after_death(now, up_ms, why.to_string(), Vec::new(), ex.session())
            }
            Renewing::Asked
            | Renewing::Changed { .. }
            | Renewing::Silent { .. }
            | Renewing::Reopened => {
                self.restarts.mended(why.changed());
                Then::Respawn { at: now }
            }
        };
        self.swap(now, Cause::Renewal(why), then, ex);
    }

    /// The generation that is up goes at once, and the next one follows.
    pub fn replace(&mut self, now: Moment, why: Renewing, ex: &mut Exchange<'_>) {
        let generation = ex.session().generation();
        ex.owed().tell(What::Renewal(Renewal {
            generation,
            why: why.clone(),
            in_flight: 0,
        }));
        self.swap(now, Cause::Renewal(why), Then::Respawn { at: now }, ex);
    }

    /// Begins the way down of the generation that is up; the link goes on.
    fn swap(&mut self, now: Moment, cause: Cause, then: Then, ex: &mut Exchange<'_>) {
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
        ex.outbox().step(step);
    }

    // Time.

    /// When to be woken if nothing happens, and why.
    pub fn wake_at(&self, away: bool, ex: &Exchange<'_>) -> Option<(Moment, Reason)> {
        match &self.life {
            Life::Absent { .. } | Life::Resting | Life::Finished => None,
            Life::Up(up) => up.wake_at(&self.limits, away, ex),
            Life::Swapping(swapping) => swapping.ladder.wake_at().map(|at| (at, Reason::Rung)),
            Life::Waiting { until } => Some((*until, Reason::Respawn)),
            Life::Abandoned(given_up) => given_up.probe_at.map(|at| (at, Reason::Trial)),
            Life::Closing(closing) => closing.wake_at(),
        }
    }

    /// Time has passed; whether the replay was silent for too long, and the client's traffic is to go on without it.
    pub fn tick(&mut self, now: Moment, at: &mut Attachment, ex: &mut Exchange<'_>) -> bool {
        match &mut self.life {
            Life::Up(_) => return self.tick_up(now, at, ex),
            Life::Swapping(swapping) => ex.outbox().step(swapping.ladder.tick(now)),
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
            Life::Closing(closing) => {
                ex.outbox().step(closing.tick(now));
            }
            Life::Absent { .. } | Life::Resting | Life::Finished => {}
        }
        false
    }

    fn tick_up(&mut self, now: Moment, at: &mut Attachment, ex: &mut Exchange<'_>) -> bool {
        let Life::Up(up) = &mut self.life else {
            return false;
        };
        match up.stage {
            Stage::Greeting { until } if now >= until => {
                self.opening_ignored(now, at, ex);
                return false;
            }
            // It has opened: what it leaves unanswered is its own affair.
            Stage::Replaying { until, .. } if now >= until => return true,
            Stage::Greeting { .. } | Stage::Replaying { .. } | Stage::Instant | Stage::Serving => {}
        }
        // What is on its way to the client may be the very answer that we would give.
        if !ex.session().mid_line_to_client() {
            self.answer_if_due(now, ex);
        }
        self.give_way_if_drained(now, ex);
        self.tick_health(now, at, ex);
        if let Life::Up(up) = &self.life
            && up
                .idle_at(&self.limits, at.away(), ex)
                .is_some_and(|at| now >= at)
        {
            let ms = now.ms_since(up.used);
            self.renew(now, Renewing::Idle { ms }, at, ex);
        }
        false
    }

    /// The replayed opening has been unanswered for too long.
    fn opening_ignored(&mut self, now: Moment, at: &mut Attachment, ex: &mut Exchange<'_>) {
        match self.up().and_then(|up| up.giving_way.as_mut()) {
            // It is to be replaced anyway.
            Some(giving_way) => {
                giving_way.until = now;
                self.give_way_if_drained(now, ex);
            }
            None => self.renew(now, Renewing::Opening, at, ex),
        }
    }

    /// Answers what the server has left unanswered for too long.
    fn answer_if_due(&mut self, now: Moment, ex: &mut Exchange<'_>) {
        let Life::Up(up) = &mut self.life else { return };
        if let Silence::Since(asked) = up.silence
            && now >= asked.after_ms(self.limits.opening_ms)
        {
            up.silence = Silence::Broken;
            ex.owed().opening_silent(now.ms_since(asked));
        }
        if ex.instant_at().is_some_and(|at| now >= at)
            && let Some(recalled) = ex.answer_from_record(now)
        {
            up.silence = Silence::Broken;
            match recalled {
                Recalled::Opening => up.stage = Stage::Instant,
                Recalled::Other => {}
            }
        }
        if let Life::Up(up) = &self.life
            && up.held_at(&self.limits, ex).is_some_and(|at| now >= at)
            && let Some(since) = ex.requests().held_since()
        {
            ex.owed().held_in_vain(now.ms_since(since));
        }
        while let Some(at_it) = ex.call_deadline(now) {
            if at_it {
                self.taken_back(now);
                self.busy_or_idle(now, ex);
            }
        }
    }

    fn tick_health(&mut self, now: Moment, at: &mut Attachment, ex: &mut Exchange<'_>) {
        let Life::Up(up) = &mut self.life else { return };
        let asked = up.health.tick(now);
        self.knows_probes = up.health.knows();
        match asked {
            Some(Do::Probe(n)) => ex.probe(Purpose::Probe { n }),
            Some(Do::Measure) => ex.outbox().push(Output::Measure),
            Some(Do::Restart(verdict)) => {
                let crate::server::health::Verdict::Unresponsive { lost, silent_ms } = verdict;
                self.renew(now, Renewing::Unresponsive { lost, silent_ms }, at, ex);
            }
            Some(Do::LeaveAlone) => ex.owed().tell(What::ProbesUnanswered(ProbesUnanswered {
                lost: self.limits.probe_lost as u32,
            })),
            None => {}
        }
    }

    /// A server that serves and is idle is asked whether it is still there.
    pub fn check(&mut self, now: Moment, at: &mut Attachment, ex: &mut Exchange<'_>) {
        if ex.session().opened()
            && self.is_serving()
            && let Some(up) = self.up()
        {
            up.health.check(now);
            self.tick_health(now, at, ex);
        }
    }

    pub fn measured(
        &mut self,
        now: Moment,
        cpu_ms: u64,
        traced: bool,
        at: &mut Attachment,
        ex: &mut Exchange<'_>,
    ) {
        if let Some(up) = self.up() {
            up.health.measured(now, cpu_ms, traced);
            self.tick_health(now, at, ex);
        }
    }
}
