//! How soon after a death the next generation is started, and when it is time to give up.
//!
//! The first death costs no waiting; deaths in a row wait longer each time. A server that has served for a whole window
//! begins anew. It knows nothing of why a server died.

use alloc::collections::VecDeque;

use crate::clock::Moment;
use crate::limits::{BACKOFF_MS, Limits, STEADY_MS};

/// What follows a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next generation, then.
    At(Moment),
    /// Too many deaths.
    GiveUp,
}

/// The deaths of one link's server.
#[derive(Clone, Debug)]
pub struct Budget {
    most: usize,
    window_ms: u64,
    deaths: VecDeque<Moment>,
    in_a_row: usize,
}

impl Budget {
    /// Nobody has died yet.
    pub fn new(limits: &Limits) -> Self {
        Self {
            most: limits.restart_budget as usize,
            window_ms: limits.restart_window_ms,
            deaths: VecDeque::new(),
            in_a_row: 0,
        }
    }

    /// A generation died after it had been up for so long, and had served the client or not.
    pub fn died(&mut self, now: Moment, up_ms: u64, served: bool) -> Next {
        self.deaths
            .retain(|&death| now.ms_since(death) < self.window_ms);
        self.deaths.push_back(now);
        self.in_a_row = if served || up_ms >= STEADY_MS {
            1
        } else {
            self.in_a_row + 1
        };
        if self.deaths.len() >= self.most {
            return Next::GiveUp;
        }
        let step = self.in_a_row.min(BACKOFF_MS.len()) - 1;
        Next::At(now.after_ms(BACKOFF_MS[step]))
    }

    /// Deaths within the window, as far as it was looked at.
    pub fn deaths(&self) -> u32 {
        self.deaths.len() as u32
    }

    /// Somebody has mended it: all is forgiven.
    pub fn forgive(&mut self) {
        self.deaths.clear();
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn old_deaths_are_forgotten() {
        let mut budget = budget(2);
        for minute in 0..10 {
            let now = at(minute * 60_000);
            assert_eq!(budget.died(now, 59_000, false), Next::At(now));
        }
        assert_eq!(budget.deaths(), 1);
    }

    #[test]
    fn no_budget_means_never_again() {
        assert_eq!(budget(0).died(at(0), 0, false), Next::GiveUp);
        assert_eq!(budget(1).died(at(0), 0, false), Next::GiveUp);
    }
}
