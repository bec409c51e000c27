//! How soon after a death or a failed start the next generation is started, and when it is time to give up.
//!
//! The first death costs no waiting; deaths and failed starts in a row wait longer each time. A server that has served for a
//! whole window begins anew. After giving up because of failed starts the waiting goes on doubling: what is missing for a
//! moment (a file that is being replaced) must not cost a minute. It knows nothing of why a server died.

use alloc::collections::VecDeque;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::Losses;
use mainstay_protocol::limits::{BACKOFF_MS, Limits, STEADY_MS};

/// What follows a death or a failed start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next generation, at this time.
    At(Moment),
    /// Too many deaths.
    GiveUp,
}

/// The deaths and the failed starts of one link's server.
#[derive(Clone, Debug)]
pub struct Budget {
    most: usize,
    window_ms: u64,
    losses: VecDeque<(Moment, Loss)>,
    in_a_row: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Death,
    FailedStart,
}

impl Budget {
    /// No death yet.
    pub fn new(limits: &Limits) -> Self {
        Self {
            most: limits.restart_budget as usize,
            window_ms: limits.restart_window_ms,
            losses: VecDeque::new(),
            in_a_row: 0,
        }
    }

    /// A generation died after this time, and had served the client or not.
    pub fn died(&mut self, now: Moment, up_ms: u64, served: bool) -> Next {
        if served || up_ms >= STEADY_MS {
            self.in_a_row = 0;
        }
        self.lost(now, Loss::Death)
    }

    /// The next generation could not be started.
    pub fn not_started(&mut self, now: Moment) -> Next {
        self.lost(now, Loss::FailedStart)
    }

    fn lost(&mut self, now: Moment, loss: Loss) -> Next {
        self.losses
            .retain(|&(then, _)| now.ms_since(then) < self.window_ms);
        self.losses.push_back((now, loss));
        self.in_a_row += 1;
        if self.losses.len() >= self.most {
            return Next::GiveUp;
        }
        Next::At(now.after_ms(self.wait_ms()))
    }

    /// How long the next start waits.
    fn wait_ms(&self) -> u64 {
        let step = self.in_a_row.clamp(1, BACKOFF_MS.len()) - 1;
        BACKOFF_MS[step]
    }

    /// After giving up because a start failed: when it is tried again, `probe_ms` at the latest. `last_ms` is how long the
    /// last wait was, if there was one.
    pub fn try_again_ms(&self, last_ms: Option<u64>, probe_ms: u64) -> u64 {
        let next = last_ms.map_or(self.wait_ms(), |ms| ms.saturating_mul(2));
        next.max(BACKOFF_MS[1]).min(probe_ms)
    }

    /// The deaths and failed starts within the window.
    pub fn losses(&self) -> Losses {
        let count = |wanted| {
            self.losses
                .iter()
                .filter(|(_, loss)| *loss == wanted)
                .count() as u32
        };
        Losses {
            deaths: count(Loss::Death),
            failed_starts: count(Loss::FailedStart),
        }
    }

    /// A user or a changed file has removed the cause: forgets all deaths.
    pub fn forgive(&mut self) {
        self.losses.clear();
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    //! guards: Restarts stay within their budget.

    use super::*;
    use alloc::vec::Vec;

    fn at(ms: u64) -> Moment {
        Moment(0).after_ms(ms)
    }

    fn budget(most: u64) -> Budget {
        Budget::new(&Limits {
            restart_budget: most,
            restart_window_ms: 60_000,
            ..Limits::default()
        })
    }

    #[test]
    fn deaths_in_a_row_wait_longer_and_end_in_giving_up() {
        let mut budget = budget(5);
        for wait in [0, 250, 500, 1_000] {
            assert_eq!(
                budget.died(at(1_000), 10, false),
                Next::At(at(1_000 + wait))
            );
        }
        assert_eq!(budget.died(at(2_000), 10, false), Next::GiveUp);
        budget.forgive();
        assert_eq!(budget.died(at(3_000), 10, false), Next::At(at(3_000)));
    }

    #[test]
    fn the_waiting_has_an_upper_end() {
        let mut budget = budget(100);
        let mut last = Next::GiveUp;
        for _ in 0..20 {
            last = budget.died(at(7), 0, false);
        }
        assert_eq!(last, Next::At(at(4_007)));
    }

    #[test]
    fn a_steady_generation_waits_for_nothing_but_is_counted() {
        let mut budget = budget(3);
        assert_eq!(budget.died(at(10_000), 9_000, false), Next::At(at(10_000)));
        assert_eq!(budget.died(at(20_000), 9_000, false), Next::At(at(20_000)));
        assert_eq!(budget.died(at(30_000), 9_000, false), Next::GiveUp);
    }

    #[test]
    fn a_generation_that_has_served_is_followed_at_once() {
        let mut budget = budget(9);
        for _ in 0..5 {
            assert_eq!(budget.died(at(10), 3, true), Next::At(at(10)));
        }
    }

    #[test]
    fn failed_starts_wait_longer_each_time_whatever_the_dead_server_had_done() {
        let mut budget = budget(5);
        assert_eq!(budget.died(at(0), 9_000, true), Next::At(at(0)));
        for wait in [250, 500, 1_000] {
            assert_eq!(budget.not_started(at(0)), Next::At(at(wait)));
        }
        assert_eq!(budget.not_started(at(0)), Next::GiveUp);
        let losses = budget.losses();
        assert_eq!((losses.deaths, losses.failed_starts), (1, 4));
    }

    #[test]
    fn after_failed_starts_the_waiting_doubles_up_to_the_probe() {
        let mut budget = budget(5);
        for _ in 0..5 {
            budget.not_started(at(0));
        }
        let mut waits = Vec::new();
        let mut last = None;
        for _ in 0..7 {
            last = Some(budget.try_again_ms(last, 60_000));
            waits.extend(last);
        }
        assert_eq!(waits, [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(budget.try_again_ms(None, 500), 500);
    }

    #[test]
    fn old_deaths_are_forgotten() {
        let mut budget = budget(2);
        for minute in 0..10 {
            let now = at(minute * 60_000);
            assert_eq!(budget.died(now, 59_000, false), Next::At(now));
        }
        assert_eq!(budget.losses().deaths, 1);
    }

    #[test]
    fn no_budget_means_never_again() {
        assert_eq!(budget(0).died(at(0), 0, false), Next::GiveUp);
        assert_eq!(budget(1).died(at(0), 0, false), Next::GiveUp);
    }
}
