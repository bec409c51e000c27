//! The stop ladder: drain → EOF → SIGTERM → kill → confirm, one for every cause.
//!
//! It knows the time and what is left; it does not know how a tree is signalled or killed.

use alloc::vec::Vec;

use crate::clock::Moment;
use crate::event::{Cause, Rung, Seen, Teardown};
use crate::limits::Limits;

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Close the server's stdin.
    CloseStdin,
    /// SIGTERM to every member.
    Terminate,
    /// Kill by tier and confirm.
    Kill,
}

/// What is there to be stopped when the ladder begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The server is up and owes answers to a client that still reads.
    Owing,
    /// The server is up.
    Up,
    /// The server process has left; something of its tree may be there.
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
    /// Begins; the first step, if there is one yet.
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
            Standing::Left => Some(ladder.term(now)),
        };
        (ladder, step)
    }

    /// Why it was begun.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Whether the tree was sent a signal.
    pub fn signalled(&self) -> bool {
        self.rungs.iter().any(|rung| *rung > Rung::Eof)
    }

    /// Whether the server still has the time to answer what it owes.
    pub fn drains(&self) -> bool {
        matches!(self.at, At::Drain { .. })
    }

    /// Nothing is owed any more, or nobody wants the answers: on to EOF.
    pub fn drained(&mut self, now: Moment) -> Option<Step> {
        match self.at {
            At::Drain { .. } => Some(self.eof(now)),
            At::Eof { .. } | At::Term { .. } | At::Kill => None,
        }
    }

    /// The server has left and nobody holds its stdout: the rest does not read stdin either.
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

    /// When the next rung is due.
    pub fn wake_at(&self) -> Option<Moment> {
        match self.at {
            At::Drain { until } | At::Eof { until } | At::Term { until } => Some(until),
            At::Kill => None,
        }
    }

    /// The descent is over.
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
        // However long the drain took, drain and EOF together stay within one and a half graces.
        let latest = self
            .began
            .after_ms(self.grace_eof_ms + self.grace_eof_ms / 2);
        let until = now.after_ms(self.grace_eof_ms).min(latest);
        self.at = At::Eof { until };
        self.rungs.push(Rung::Eof);
        Step::CloseStdin
    }

    fn term(&mut self, now: Moment) -> Step {
        self.at = At::Term {
            until: now.after_ms(self.grace_term_ms),
        };
        self.rungs.push(Rung::Term);
        Step::Terminate
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(ladder.wake_at(), Some(at(3_000)));
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
