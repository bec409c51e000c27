//! The stop ladder: drain → EOF → SIGTERM → kill → confirm, one for every cause.
//!
//! It knows the time and what is left; it does not know how a tree is signalled or killed.

use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Cause, Ending, Rung, Seen, Status, Teardown};
use mainstay_protocol::limits::Limits;

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Close the server's stdin.
    CloseStdin,
    /// SIGTERM to every member.
    Terminate,
    /// Kill the tree in the way of its tier, and confirm that it is empty.
    Kill,
}

/// What there is to stop when the ladder begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The server is up and owes answers to a client that still reads.
    Owing,
    /// The server is up.
    Up,
    /// The server is up, but reads nothing: an EOF would only cost time.
    Hung,
    /// The server process has exited; other processes of its tree may be left.
    Left,
}

/// One descent.
#[derive(Clone, Debug)]
pub struct Ladder {
    cause: Cause,
    began: Moment,
    rungs: Vec<Rung>,
    at: At,
    grace_eof_ms: u64,
    grace_term_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Drain { until: Moment },
    Eof { until: Moment },
    Term { until: Moment },
    Kill,
}

impl Ladder {
    /// Begins; the first step, if one is due.
    pub fn begin(
        cause: Cause,
        standing: Standing,
        limits: &Limits,
        now: Moment,
    ) -> (Self, Option<Step>) {
        let mut ladder = Self {
            cause,
            began: now,
            rungs: Vec::new(),
            at: At::Drain {
                until: now.after_ms(limits.grace_eof_ms),
            },
            grace_eof_ms: limits.grace_eof_ms,
            grace_term_ms: limits.grace_term_ms,
        };
        let step = match standing {
            Standing::Owing => None,
            Standing::Up => Some(ladder.eof(now)),
            Standing::Hung | Standing::Left => Some(ladder.term(now)),
        };
        (ladder, step)
    }

    /// Why the ladder was begun.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// True if a process that ended like this was ended by a signal that this ladder has sent.
    pub fn sent(&self, status: Status) -> bool {
        match status {
            Status::Signal { number, .. } => {
                let rungs = &self.rungs;
                rungs.iter().any(|rung| rung.signal() == Some(number))
            }
            Status::Code(_) => false,
        }
    }

    /// The last step so far.
    pub fn ending(&self, now: Moment) -> Ending {
        Ending {
            cause: self.cause.clone(),
            rungs: self.rungs.clone(),
            ms: now.ms_since(self.began),
        }
    }

    /// Whether the server still has time to answer what it owes.
    pub fn drains(&self) -> bool {
        matches!(self.at, At::Drain { .. })
    }

    /// Nothing is owed, or the client does not want the answers: close stdin next.
    pub fn drained(&mut self, now: Moment) -> Option<Step> {
        match self.at {
            At::Drain { .. } => Some(self.eof(now)),
            At::Eof { .. } | At::Term { .. } | At::Kill => None,
        }
    }

    /// The server has exited and no process holds its stdout: the rest of the tree does not read stdin either.
    pub fn server_left(&mut self, now: Moment) -> Option<Step> {
        match self.at {
            At::Drain { .. } | At::Eof { .. } => Some(self.term(now)),
            At::Term { .. } | At::Kill => None,
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Moment) -> Option<Step> {
        match self.at {
            At::Drain { until } if now >= until => Some(self.eof(now)),
            At::Eof { until } if now >= until => Some(self.term(now)),
            At::Term { until } if now >= until => {
                self.at = At::Kill;
                self.rungs.push(Rung::Kill);
                Some(Step::Kill)
            }
            At::Drain { .. } | At::Eof { .. } | At::Term { .. } | At::Kill => None,
        }
    }

    /// When the next step is due.
    pub fn wake_at(&self) -> Option<Moment> {
        match self.at {
            At::Drain { until } | At::Eof { until } | At::Term { until } => Some(until),
            At::Kill => None,
        }
    }

    /// The tree is empty, or could not be emptied.
    pub fn finish(self, ended: u32, left: Vec<Seen>, now: Moment) -> Teardown {
        Teardown {
            cause: self.cause,
            rungs: self.rungs,
            ms: now.ms_since(self.began),
            ended,
            left,
        }
    }

    fn eof(&mut self, now: Moment) -> Step {
        // However long the drain took, three quarters of the grace are left, for a server that saves its state.
        let latest = self
            .began
            .after_ms(self.grace_eof_ms + self.grace_eof_ms / 4 * 3);
        let until = now.after_ms(self.grace_eof_ms).min(latest);
        self.at = At::Eof { until };
        self.rungs.push(Rung::Eof);
        Step::CloseStdin
    }

    fn term(&mut self, now: Moment) -> Step {
        // What a drain took beyond a quarter of its grace is taken from here, but not more than half of it.
        let latest = self
            .began
            .after_ms(self.grace_eof_ms + self.grace_eof_ms / 4 + self.grace_term_ms)
            .max(now.after_ms(self.grace_term_ms / 2));
        self.at = At::Term {
            until: now.after_ms(self.grace_term_ms).min(latest),
        };
        self.rungs.push(Rung::Term);
        Step::Terminate
    }
}

#[cfg(test)]
mod tests {
    //! guards: A stop ends every server within its limits: EOF, SIGTERM, SIGKILL, each after its time.

    use super::*;

    fn limits() -> Limits {
        Limits {
            grace_eof_ms: 2_000,
            grace_term_ms: 1_000,
            ..Limits::default()
        }
    }

    fn at(ms: u64) -> Moment {
        Moment(0).after_ms(ms)
    }

    #[test]
    fn a_deaf_server_meets_every_rung_in_its_time() {
        let (mut ladder, step) = Ladder::begin(Cause::ClientGone, Standing::Up, &limits(), at(0));
        assert_eq!(step, Some(Step::CloseStdin));
        assert_eq!(ladder.wake_at(), Some(at(2_000)));
        assert_eq!(ladder.tick(at(1_999)), None);
        assert_eq!(ladder.tick(at(2_000)), Some(Step::Terminate));
        assert_eq!(ladder.tick(at(2_999)), None);
        assert_eq!(ladder.tick(at(3_000)), Some(Step::Kill));
        assert_eq!((ladder.wake_at(), ladder.tick(at(9_000))), (None, None));
        let told = ladder.finish(3, Vec::new(), at(3_004));
        assert_eq!(
            (told.ms, told.rungs),
            (3_004, Vec::from([Rung::Eof, Rung::Term, Rung::Kill]))
        );
    }

    #[test]
    fn a_drain_ends_with_the_last_answer_and_leaves_the_whole_grace() {
        let (mut ladder, step) = Ladder::begin(Cause::ClientEof, Standing::Owing, &limits(), at(0));
        assert_eq!(step, None);
        assert_eq!(ladder.drained(at(300)), Some(Step::CloseStdin));
        assert_eq!(ladder.wake_at(), Some(at(2_300)));
        assert_eq!(ladder.drained(at(400)), None);
    }

    #[test]
    fn a_drain_without_end_shortens_the_eof_rung() {
        let (mut ladder, _) = Ladder::begin(Cause::ClientEof, Standing::Owing, &limits(), at(0));
        assert_eq!(ladder.tick(at(2_000)), Some(Step::CloseStdin));
        assert_eq!(ladder.wake_at(), Some(at(3_500)));
    }

    /// A deaf server, whose last answer comes after so many milliseconds: how long it has after EOF, and when it is killed.
    fn paces(standing: Standing, limits: &Limits, answers_at: u64) -> (u64, u64) {
        let (mut ladder, mut step) = Ladder::begin(Cause::ClientEof, standing, limits, at(0));
        let (mut eof, mut term, mut now) = (None, None, at(0));
        loop {
            match step {
                Some(Step::CloseStdin) => eof = Some(now),
                Some(Step::Terminate) => term = Some(now),
                Some(Step::Kill) => {
                    let grace = eof.zip(term).map_or(0, |(eof, term)| term.ms_since(eof));
                    return (grace, now.ms_since(at(0)));
                }
                None => {}
            }
            let due = ladder.wake_at().unwrap();
            let answered = at(answers_at);
            step = if eof.is_none() && term.is_none() && answered < due {
                now = answered;
                ladder.drained(now)
            } else {
                now = due;
                ladder.tick(now)
            };
        }
    }

    #[test]
    fn by_default_all_is_over_within_five_seconds_and_state_can_be_saved() {
        let limits = Limits::default();
        for answers_at in (0..=2_500).step_by(50) {
            let (grace, killed) = paces(Standing::Owing, &limits, answers_at);
            assert!(
                grace >= 1_500,
                "{grace} after EOF, answered at {answers_at}"
            );
            // What is left of the five is for the kill itself.
            assert!(killed <= 4_500, "{killed}, answered at {answers_at}");
        }
        assert_eq!(paces(Standing::Up, &limits, 0), (2_000, 4_000));
        assert_eq!(paces(Standing::Left, &limits, 0), (0, 2_000));
    }

    #[test]
    fn however_long_the_drain_sigterm_has_half_its_grace() {
        let limits = Limits {
            grace_eof_ms: 20_000,
            grace_term_ms: 1_000,
            ..Limits::default()
        };
        let (grace, killed) = paces(Standing::Owing, &limits, u64::MAX / 2_000_000);
        assert_eq!((grace, killed), (15_000, 35_500));
    }

    #[test]
    fn a_server_that_leaves_during_the_drain_is_not_given_the_eof_rung() {
        let (mut ladder, _) = Ladder::begin(Cause::ClientEof, Standing::Owing, &limits(), at(0));
        assert_eq!(ladder.server_left(at(5)), Some(Step::Terminate));
        assert_eq!(ladder.drained(at(6)), None);
        assert_eq!(ladder.tick(at(1_005)), Some(Step::Kill));
        let told = ladder.finish(1, Vec::new(), at(1_006));
        assert_eq!(told.rungs, [Rung::Term, Rung::Kill]);
    }

    #[test]
    fn a_signal_is_ours_from_the_rung_on_that_sends_it() {
        let ended = |number| Status::Signal {
            number,
            core: false,
        };
        let (mut ladder, _) = Ladder::begin(Cause::ClientEof, Standing::Up, &limits(), at(0));
        for (number, from_ms) in [(15, 2_000), (9, 3_000)] {
            assert!(!ladder.sent(ended(number)), "{number}");
            assert!(ladder.tick(at(from_ms)).is_some());
            assert!(ladder.sent(ended(number)), "{number}");
        }
        assert!(!ladder.sent(ended(1)) && !ladder.sent(Status::Code(143)));
        let ending = ladder.ending(at(3_001));
        assert_eq!((ending.cause, ending.ms), (Cause::ClientEof, 3_001));
        assert_eq!(ending.rungs, [Rung::Eof, Rung::Term, Rung::Kill]);
    }

    #[test]
    fn once_the_server_has_left_the_rest_is_terminated_at_once() {
        let (mut ladder, _) = Ladder::begin(Cause::ClientEof, Standing::Up, &limits(), at(0));
        assert_eq!(ladder.server_left(at(5)), Some(Step::Terminate));
        assert_eq!(ladder.server_left(at(6)), None);
        let (_, step) = Ladder::begin(Cause::ServerExit, Standing::Left, &limits(), at(0));
        assert_eq!(step, Some(Step::Terminate));
    }
}
