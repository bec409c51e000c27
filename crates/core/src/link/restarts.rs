//! Whether another generation follows the last one, and when: the budget of deaths, and what spends or restores it.
//!
//! It decides by what it is told; it starts nothing.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::Losses;
use mainstay_protocol::limits::{Limits, OPENING_TRIES, OPENING_WAIT_MS};

use super::session::Session;
use super::state::{GivenUp, Then};
use crate::server::backoff::{Budget, Next};

#[derive(Debug)]
pub(super) struct Restarts {
    budget: Budget,
    /// Whether any death is followed by another generation.
    allowed: bool,
    window_ms: u64,
    probe_ms: u64,
    /// Generations that died before the client had any answer.
    tries: u32,
    /// The change of a watched file that led to a generation which has not answered anything yet.
    changed: Option<String>,
}

impl Restarts {
    pub fn new(limits: &Limits) -> Self {
        Self {
            budget: Budget::new(limits),
            allowed: limits.restart_budget > 0,
            window_ms: limits.restart_window_ms,
            probe_ms: limits.restart_probe_ms,
            tries: 0,
            changed: None,
        }
    }

    /// Whether another generation follows a death now. A server that was never opened gets a few tries; one that the
    /// client uses is kept running.
    pub fn goes_on(&self, attached: bool, opened: bool) -> bool {
        self.allowed && attached && (opened || self.tries + 1 < OPENING_TRIES)
    }

    /// How many generations have died unopened, with the one that has just died.
    pub fn tries_with_this(&self) -> u32 {
        self.tries + 1
    }

    /// Whether a change of the code waits for a sign that the server starts after it.
    pub fn is_changed(&self) -> bool {
        self.changed.is_some()
    }

    /// The server has answered something, good or bad: it starts after the change.
    pub fn answered_anything(&mut self) {
        self.changed = None;
    }

    /// The cause was removed: forgets all deaths. Returns the change that did it, if a change did.
    pub fn mended(&mut self, changed: Option<String>) {
        self.budget.forgive();
        self.changed = changed;
    }

    /// The same without a new start.
    pub fn set_changed(&mut self, changed: Option<String>) {
        self.changed = changed;
    }

    /// Forgets all deaths.
    pub fn forgive(&mut self) {
        self.budget.forgive();
    }

    /// The client opens anew.
    pub fn forget_tries(&mut self) {
        self.tries = 0;
    }

    /// What follows a death while the client lives.
    pub fn after_death(
        &mut self,
        now: Moment,
        up_ms: u64,
        last: String,
        tail: Vec<String>,
        session: &Session<'_>,
    ) -> Then {
        if !session.opened() {
            self.tries += 1;
            let wait = OPENING_WAIT_MS * u64::from(self.tries - 1);
            return Then::Respawn {
                at: now.after_ms(wait),
            };
        }
        if self.changed.is_some() {
            // It would not start the next time either: report the change at once.
            return Then::Abandon(self.given_up(now, Losses::default().with_death(), last, tail));
        }
        match self.budget.died(now, up_ms, session.has_answered()) {
            Next::At(at) => Then::Respawn { at },
            Next::GiveUp => {
                let losses = self.budget.losses();
                Then::Abandon(self.given_up(now, losses, last, tail))
            }
        }
    }

    /// What follows the death of a generation that was on trial.
    pub fn after_trial(
        &self,
        now: Moment,
        trial: &GivenUp,
        last: String,
        tail: Vec<String>,
    ) -> Then {
        Then::Abandon(self.given_up(now, trial.losses.with_death(), last, tail))
    }

    /// What follows if not even SIGKILL ended a server, so that its exit status is not known.
    pub fn after_immortal(&self, now: Moment, trial: Option<Box<GivenUp>>) -> GivenUp {
        let last = "it closed its end and could not be ended".into();
        let losses = trial.map_or(Losses::default(), |trial| trial.losses);
        self.given_up(now, losses.with_death(), last, Vec::new())
    }

    /// What follows if a later generation could not be started.
    pub fn after_failed_start(
        &mut self,
        now: Moment,
        problem: &str,
        trial: Option<Box<GivenUp>>,
    ) -> Then {
        // What is missing for a moment is soon there again, so the wait is shorter than after a death.
        let (losses, last_ms) = match trial {
            Some(trial) => (trial.losses.with_failed_start(), Some(trial.probe_ms)),
            // It would not start the next time either: report the change at once.
            None if self.changed.is_some() => {
                let losses = Losses::default().with_failed_start();
                return Then::Abandon(self.given_up(now, losses, problem.into(), Vec::new()));
            }
            None => match self.budget.not_started(now) {
                Next::At(at) => return Then::Respawn { at },
                Next::GiveUp => (self.budget.losses(), None),
            },
        };
        let mut given_up = self.given_up(now, losses, problem.into(), Vec::new());
        let wait_ms = self.budget.try_again_ms(last_ms, given_up.probe_ms);
        given_up.try_after(now, wait_ms);
        Then::Abandon(given_up)
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
            window_ms: self.window_ms,
            last,
            stderr_tail,
            changed: self.changed.clone(),
            probe_ms: 0,
            probe_at: None,
        };
        given_up.try_after(now, self.probe_ms);
        given_up
    }
}
