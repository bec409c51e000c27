//! A generation that is up: how far it is, what it owes by when, and whether it is there at all.

use alloc::boxed::Box;

use super::exchange::Exchange;
use super::io::{Exited, Holders, Reason};
use super::state::{GivenUp, earliest};
use crate::clock::Moment;
use crate::event::Renewing;
use crate::limits::Limits;
use crate::message::frame::Kind;
use crate::server::health::Health;

#[derive(Debug)]
pub(super) struct Up {
    pub since: Moment,
    pub stage: Stage,
    /// The process that we started has left and others serve on.
    pub left: Option<Exited>,
    /// Since when a server that has said nothing in the protocol has left its first request unanswered.
    pub silence: Silence,
    /// It is to be replaced as soon as it has answered what is in flight.
    pub giving_way: Option<GivingWay>,
    /// Whether it is there at all.
    pub health: Health,
    /// When it was last of use.
    pub used: Moment,
    /// Bytes of the messages that it has said; some of them may be missing here, none is too many.
    pub said: u64,
    /// The link had been given up, and this generation has not shown yet that it can serve.
    pub trial: Option<Box<GivenUp>>,
}

impl Up {
    /// It has said a line of so many bytes.
    pub fn says(&mut self, kind: Kind, bytes: usize) {
        self.silence.line(kind);
        match kind {
            // That may be anybody's, a launcher's for one.
            Kind::Blank | Kind::Junk => {}
            Kind::Request | Kind::Notification | Kind::Response | Kind::Error | Kind::Batch => {
                self.said += bytes as u64;
            }
        }
    }

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
    pub fn held_at(&self, limits: &Limits, ex: &Exchange<'_>) -> Option<Moment> {
        match self.stage {
            Stage::Instant => {
                let since = ex.requests().held_since()?;
                Some(since.after_ms(limits.opening_ms))
            }
            Stage::Greeting { .. } | Stage::Replaying { .. } | Stage::Serving => None,
        }
    }

    /// When the server may be put to rest, unless something keeps it awake.
    pub fn idle_at(&self, limits: &Limits, away: bool, ex: &Exchange<'_>) -> Option<Moment> {
        let awake = limits.hibernate_ms == 0
            || away
            || !matches!(self.stage, Stage::Serving)
            || self.giving_way.is_some();
        if awake {
            return None;
        }
        ex.idle_from(self.used.after_ms(limits.hibernate_ms))
    }

    /// Whether it may be these who serve. Whoever has written less than was said is not who said it.
    pub fn may_serve_on(&self, holders: Holders) -> bool {
        match holders {
            Holders::Nobody => false,
            Holders::Somebody { written } => written.is_none_or(|written| written >= self.said),
        }
    }
}

#[derive(Debug)]
pub(super) enum Stage {
    /// Our replayed opening is unanswered.
    Greeting { until: Moment },
    /// Our replayed requests are unanswered.
    Replaying { unanswered: u32, until: Moment },
    /// The client was answered from the record; the server's own answer to the opening is not there yet.
    Instant,
    /// Client and server speak with each other.
    Serving,
}

#[derive(Debug)]
pub(super) enum Silence {
    NothingAsked,
    Since(Moment),
    Broken,
}

impl Silence {
    /// The server has written something, be it no message, as an installer does: it is at work, and the time begins anew.
    pub fn wrote(&mut self, now: Moment) {
        if let Self::Since(since) = self {
            *since = now;
        }
    }

    /// It was a line: a message breaks the silence for good, junk is a sign of life and no more.
    pub fn line(&mut self, kind: Kind) {
        match kind {
            Kind::Blank | Kind::Junk => {}
            Kind::Request | Kind::Notification | Kind::Response | Kind::Error | Kind::Batch => {
                *self = Self::Broken;
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct GivingWay {
    pub why: Renewing,
    pub until: Moment,
}
