//! A server that is up: its opening, what it owes by when, whether it is still there, and whether it is to go.
//!
//! It knows this one server. Whether another one follows is [`Generation`](super::generation::Generation)'s decision: where
//! time, or the server's health, asks for that, a verb says so and changes nothing else.
//!
//! Invariant: the client's traffic reaches the server only in the stages [`Stage::Instant`] and [`Stage::Serving`].

use alloc::boxed::Box;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{ProbesUnanswered, RestartReason, ServerReady, What};
use mainstay_protocol::limits::Limits;
use mainstay_protocol::message::frame::Kind;

use super::exchange::{Exchange, Recalled, Speaker};
use super::io::{Exited, Holders, Output, Reason};
use super::own::Purpose;
use super::state::{GivenUp, Server, earliest};
use crate::server::health::{Do, Health, Knows, Verdict};

#[derive(Debug)]
pub(super) struct Up {
    since: Moment,
    stage: Stage,
    /// How the process that we started ended, if other processes of its tree continue to serve.
    left: Option<Exited>,
    silence: Silence,
    /// It is to be replaced as soon as it has answered what is in flight.
    giving_way: Option<GivingWay>,
    health: Health,
    /// When the client last used it.
    used: Moment,
    /// Bytes of its messages so far. The count may be too low, but never too high.
    said: u64,
    /// The link had been given up, and this server has not shown yet that it can serve.
    trial: Option<Box<GivenUp>>,
}

/// How far a server is.
#[derive(Debug)]
pub(super) enum Stage {
    /// The replayed opening is unanswered.
    Greeting { until: Moment },
    /// Requests that were replayed after the opening are unanswered.
    Replaying { unanswered: u32, until: Moment },
    /// The client was answered from the cache. The server has not answered the opening yet.
    Instant,
    /// Client and server speak with each other.
    Serving,
}

/// Whether a server that has said nothing in the protocol has left its first request unanswered.
#[derive(Debug)]
enum Silence {
    NothingAsked,
    Since(Moment),
    Broken,
}

#[derive(Debug)]
struct GivingWay {
    why: RestartReason,
    until: Moment,
}

/// What a new server is told before the client's traffic reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// Nothing: it serves.
    Nothing,
    /// It was asked something, and its answer is awaited.
    Asked,
}

/// The opening has taken too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// The replayed opening is unanswered.
    Opening,
    /// The opening is answered, but a request that was replayed after it is not.
    Replay,
}

impl Up {
    /// A server was started just now. `trial`: the link had been given up.
    pub fn new(now: Moment, limits: &Limits, knows: Knows, trial: Option<Box<GivenUp>>) -> Self {
        Self {
            since: now,
            stage: Stage::Serving,
            left: None,
            silence: Silence::NothingAsked,
            giving_way: None,
            health: Health::new(limits, now, knows),
            used: now,
            said: 0,
            trial,
        }
    }

    pub fn since(&self) -> Moment {
        self.since
    }

    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Whether client and server speak with each other, and nothing is about to change that.
    pub fn is_serving(&self) -> bool {
        matches!(self.stage, Stage::Serving) && self.giving_way.is_none()
    }

    pub fn gives_way(&self) -> bool {
        self.giving_way.is_some()
    }

    /// Why the link had given up, until this server has shown that it can serve.
    pub fn trial(&self) -> Option<&GivenUp> {
        self.trial.as_deref()
    }

    /// How far it is, for the exchange.
    pub fn speaker(&self) -> Speaker {
        match self.stage {
            Stage::Greeting { .. } | Stage::Replaying { .. } => Speaker::Replaying,
            Stage::Instant | Stage::Serving => Speaker::Serving,
        }
    }

    /// The state in one word, for views.
    pub fn word(&self, opened: bool) -> &'static str {
        match self.stage {
            Stage::Greeting { .. } | Stage::Replaying { .. } => "greeting",
            Stage::Instant => "opening",
            Stage::Serving if !opened => "opening",
            Stage::Serving if self.gives_way() => "draining",
            Stage::Serving if self.health.doubtful() => "doubtful",
            Stage::Serving => "ready",
        }
    }

    // Its opening: it is told what its predecessor knew.

    /// Replays the client's opening, if there was one. A server on trial is always asked something, if possible.
    pub fn open(&mut self, now: Moment, limits: &Limits, ex: &mut Exchange<'_>) -> Opening {
        let asked = if ex.session().greeted() {
            let known = ex.replay_opening();
            if !known {
                ex.owed()
                    .tell_differs("the client's opening was too long to be replayed".into());
            }
            known
        } else {
            self.trial.is_some() && ex.ask_on_trial()
        };
        if !asked {
            return Opening::Nothing;
        }
        let until = now.after_ms(limits.opening_ms);
        self.stage = Stage::Greeting { until };
        Opening::Asked
    }

    /// The server has accepted the replayed opening; this many of the requests that follow it are unanswered.
    pub fn replaying(&mut self, now: Moment, limits: &Limits, unanswered: u32) {
        let until = now.after_ms(limits.opening_ms);
        self.stage = Stage::Replaying { unanswered, until };
    }

    /// One of these requests has its answer; whether it was the last one.
    pub fn replay_answered(&mut self) -> bool {
        if let Stage::Replaying { unanswered, .. } = &mut self.stage {
            *unanswered = unanswered.saturating_sub(1);
            return *unanswered == 0;
        }
        false
    }

    /// The server knows what its predecessor knew, and is sent what the predecessor left unanswered. Returns whether it
    /// was on trial.
    pub fn serve(&mut self, now: Moment, ex: &mut Exchange<'_>) -> bool {
        self.stage = Stage::Serving;
        self.used = now;
        let resent = ex.owed().resend();
        let generation = ex.session().generation();
        if generation > 1 {
            let replayed = ServerReady {
                generation,
                ms: now.ms_since(self.since),
                level: ex.session().has_level(),
                subscriptions: ex.session().subscriptions(),
                listens: resent.listens,
                resent: resent.calls,
            };
            ex.owed().tell(What::Ready(replayed));
        }
        self.trial.take().is_some()
    }

    // What it says, and what it is asked.

    /// The server wrote something, even if only part of a line: it is alive.
    pub fn wrote(&mut self, now: Moment) {
        self.health.heard(now);
        self.silence.wrote(now);
    }

    /// The server has sent a line of this length.
    pub fn says(&mut self, now: Moment, kind: Kind, bytes: usize, of_use: bool) {
        match kind {
            // Any process may have written that line, for example a launcher.
            Kind::Blank | Kind::Junk => {}
            Kind::Request | Kind::Notification | Kind::Response | Kind::Error | Kind::Batch => {
                self.silence = Silence::Broken;
                self.said += bytes as u64;
            }
        }
        if of_use {
            self.used = now;
        }
    }

    /// The server has sent results of calls, with this many bytes.
    pub fn answers_calls(&mut self, now: Moment, bytes: usize) {
        self.silence = Silence::Broken;
        self.said += bytes as u64;
        self.used = now;
    }

    /// The client uses it.
    pub fn used(&mut self, now: Moment) {
        self.used = now;
    }

    /// The client sends it a request. Silence counts only before the session is open: a later call may take its time.
    pub fn asked(&mut self, now: Moment, opened: bool) {
        if let (Silence::NothingAsked, false) = (&self.silence, opened) {
            self.silence = Silence::Since(now);
        }
        self.health.busy(now);
    }

    /// The client has taken back a request that the server may still work on.
    pub fn taken_back(&mut self, now: Moment) {
        self.health.taken_back(now);
    }

    /// Tells the health whether there is work.
    pub fn busy_or_idle(&mut self, now: Moment, ex: &Exchange<'_>) {
        // A message of ours before the opening would fix the era, and a server that is not open yet may be slow.
        let open = ex.session().opened() && ex.session().era_settled();
        let serving = open && matches!(self.stage, Stage::Serving);
        if !serving || ex.is_busy(now) {
            self.health.busy(now);
        } else {
            self.health.idle(now);
        }
    }

    // Its health. What these verbs return is why the server must be replaced, if it must.

    /// It has answered this probe.
    pub fn probe_answered(&mut self, now: Moment, n: u64) {
        self.health.answered(now, n);
    }

    /// Whether it answers probes, for the next server of the same program.
    pub fn knows_probes(&self) -> Knows {
        self.health.knows()
    }

    /// Asks an idle server now whether it is there.
    pub fn check(
        &mut self,
        now: Moment,
        limits: &Limits,
        ex: &mut Exchange<'_>,
    ) -> Option<RestartReason> {
        if !self.is_serving() || !ex.session().opened() {
            return None;
        }
        self.health.check(now);
        self.tick_health(now, limits, ex)
    }

    /// The processor time that the tree has used.
    pub fn measured(
        &mut self,
        now: Moment,
        cpu_ms: u64,
        traced: bool,
        limits: &Limits,
        ex: &mut Exchange<'_>,
    ) -> Option<RestartReason> {
        self.health.measured(now, cpu_ms, traced);
        self.tick_health(now, limits, ex)
    }

    /// Time has passed for its health.
    pub fn tick_health(
        &mut self,
        now: Moment,
        limits: &Limits,
        ex: &mut Exchange<'_>,
    ) -> Option<RestartReason> {
        match self.health.tick(now)? {
            Do::Probe(n) => ex.probe(Purpose::Probe { n }),
            Do::Measure => ex.outbox().push(Output::Measure),
            Do::Restart(Verdict::Unresponsive { lost, silent_ms }) => {
                return Some(RestartReason::Unresponsive { lost, silent_ms });
            }
            Do::LeaveAlone => ex.owed().tell(What::ProbesUnanswered(ProbesUnanswered {
                lost: limits.probe_lost as u32,
            })),
        }
        None
    }

    // Time.

    /// When there is something to do if nothing happens, and why.
    pub fn wake_at(
        &self,
        limits: &Limits,
        away: bool,
        ex: &Exchange<'_>,
    ) -> Option<(Moment, Reason)> {
        let stage = match self.stage {
            Stage::Greeting { until } | Stage::Replaying { until, .. } => {
                Some((until, Reason::ReplaySilent))
            }
            Stage::Instant | Stage::Serving => None,
        };
        let giving_way = self.giving_way.as_ref();
        // What is on its way to the client may be the very answer that we would give.
        let answers = if ex.session().mid_line_to_client() {
            None
        } else {
            self.answer_at(limits, ex)
        };
        earliest([
            stage,
            answers,
            giving_way.map(|giving_way| (giving_way.until, Reason::Drained)),
            self.health.wake_at().map(|at| (at, Reason::Health)),
            self.idle_at(limits, away, ex).map(|at| (at, Reason::Idle)),
        ])
    }

    /// When a request is answered by us if the server does not.
    fn answer_at(&self, limits: &Limits, ex: &Exchange<'_>) -> Option<(Moment, Reason)> {
        let silence = match self.silence {
            Silence::Since(asked) => Some(asked.after_ms(limits.opening_ms)),
            Silence::NothingAsked | Silence::Broken => None,
        };
        let instant = match self.stage {
            Stage::Serving => ex.instant_at(),
            Stage::Greeting { .. } | Stage::Replaying { .. } | Stage::Instant => None,
        };
        earliest([
            silence.map(|at| (at, Reason::OpeningSilent)),
            instant.map(|at| (at, Reason::Instant)),
            self.held_at(limits, ex)
                .map(|at| (at, Reason::OpeningSilent)),
            ex.deadline_at().map(|at| (at, Reason::Deadline)),
        ])
    }

    /// When a message that waits for the server's own answer to the opening has waited for too long.
    fn held_at(&self, limits: &Limits, ex: &Exchange<'_>) -> Option<Moment> {
        match self.stage {
            Stage::Instant => {
                let since = ex.requests().held_since()?;
                Some(since.after_ms(limits.opening_ms))
            }
            Stage::Greeting { .. } | Stage::Replaying { .. } | Stage::Serving => None,
        }
    }

    /// When the server may be put to rest, unless there is a reason to keep it awake.
    fn idle_at(&self, limits: &Limits, away: bool, ex: &Exchange<'_>) -> Option<Moment> {
        if limits.hibernate_ms == 0 || away || !self.is_serving() {
            return None;
        }
        ex.idle_from(self.used.after_ms(limits.hibernate_ms))
    }

    /// Which part of the opening is overdue.
    pub fn overdue(&self, now: Moment) -> Option<Overdue> {
        match self.stage {
            Stage::Greeting { until } if now >= until => Some(Overdue::Opening),
            Stage::Replaying { until, .. } if now >= until => Some(Overdue::Replay),
            Stage::Greeting { .. } | Stage::Replaying { .. } | Stage::Instant | Stage::Serving => {
                None
            }
        }
    }

    /// Answers what the server has left unanswered for too long.
    pub fn answer_if_due(&mut self, now: Moment, limits: &Limits, ex: &mut Exchange<'_>) {
        // What is on its way to the client may be the very answer that we would give.
        if ex.session().mid_line_to_client() {
            return;
        }
        if let Silence::Since(asked) = self.silence
            && now >= asked.after_ms(limits.opening_ms)
        {
            self.silence = Silence::Broken;
            ex.owed().opening_silent(now.ms_since(asked));
        }
        if ex.instant_at().is_some_and(|at| now >= at)
            && let Some(recalled) = ex.answer_from_record(now)
        {
            self.silence = Silence::Broken;
            match recalled {
                Recalled::Opening => self.stage = Stage::Instant,
                Recalled::Other => {}
            }
        }
        if self.held_at(limits, ex).is_some_and(|at| now >= at)
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

    /// How long it has been idle, if it may be put to rest for that.
    pub fn idle_ms(
        &self,
        now: Moment,
        limits: &Limits,
        away: bool,
        ex: &Exchange<'_>,
    ) -> Option<u64> {
        let at = self.idle_at(limits, away, ex)?;
        (now >= at).then(|| now.ms_since(self.used))
    }

    // It is to go.

    /// Replaces the server when it owes nothing, or at this time.
    pub fn give_way(&mut self, why: RestartReason, until: Moment) {
        debug_assert!(self.giving_way.is_none(), "it is replaced once");
        self.giving_way = Some(GivingWay { why, until });
    }

    /// Ends the time that the server has to answer, if it is to be replaced; whether it is.
    pub fn hurry(&mut self, now: Moment) -> bool {
        if let Some(giving_way) = &mut self.giving_way {
            giving_way.until = now;
        }
        self.gives_way()
    }

    /// Why the server is ended now: it is to be replaced, and owes nothing or has had its time.
    pub fn goes(&self, now: Moment, ex: &Exchange<'_>) -> Option<&RestartReason> {
        let giving_way = self.giving_way.as_ref()?;
        let may_stay = now < giving_way.until && ex.requests().owes();
        (!may_stay).then_some(&giving_way.why)
    }

    // It is gone, or a part of it.

    /// If a launcher exits and other processes hold its pipes, it has only done its part. Those processes are not the
    /// server if they have written less than the client was sent.
    pub fn is_launcher(&self, exited: &Exited) -> bool {
        let serve_on = match exited.holders {
            Holders::None => false,
            Holders::Others { written } => written.is_none_or(|written| written >= self.said),
        };
        exited.status.success() && serve_on
    }

    /// The launcher has left.
    pub fn launcher_left(&mut self, exited: Exited) {
        self.left = Some(exited);
    }

    /// How the launcher ended, if it has left: the server's own end is not known.
    pub fn take_left(&mut self) -> Option<Exited> {
        self.left.take()
    }

    /// The server, for its way down.
    pub fn take_server(&mut self) -> Server {
        self.left.take().map_or(Server::Up, Server::Left)
    }

    pub fn take_trial(&mut self) -> Option<Box<GivenUp>> {
        self.trial.take()
    }
}

impl Silence {
    /// The server has written something, even if it is no message, as an installer does: it is at work, so its time
    /// starts again.
    fn wrote(&mut self, now: Moment) {
        if let Self::Since(since) = self {
            *since = now;
        }
    }
}
