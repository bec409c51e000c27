//! One death, and what is found about it among the facts.

use alloc::vec::Vec;

use super::{By, Fact, Rule, Sure, Verdict};
use crate::event::{Cause, Exit, Gone, Part, Seen, Suspect, Suspicion, What};

/// What a fact tells, if it is of this kind.
macro_rules! told {
    ($what:expr, $kind:ident) => {
        if let $crate::event::What::$kind(told) = $what {
            Some(told)
        } else {
            None
        }
    };
}
pub(super) use told;

/// One death among its facts.
pub(super) struct Case<'a> {
    pub(super) facts: &'a [Fact<'a>],
    pub(super) death: usize,
    /// From the start of that generation…
    pub(super) from: usize,
    /// …to the start of the next, not included.
    pub(super) to: usize,
    pub(super) client: Option<Seen>,
}

impl<'a> Case<'a> {
    pub(super) fn around(facts: &'a [Fact<'a>], death: usize) -> Self {
        let death = death.min(facts.len());
        let start = |fact: &Fact<'_>| matches!(fact.what, What::Start(_));
        let from = facts[..death].iter().rposition(start).unwrap_or(0);
        let behind = facts.iter().skip(death + 1).position(start);
        let to = behind.map_or(facts.len(), |place| death + 1 + place);
        let mut client = None;
        for fact in &facts[..death] {
            if let What::Start(start) = fact.what {
                client = start.client.clone().or(client);
            } else if let What::ClientMoved(moved) = fact.what {
                client = Some(moved.to.clone());
            }
        }
        Self {
            facts,
            death,
            from,
            to,
            client,
        }
    }

    pub(super) fn verdict(&self, by: By, sure: Sure, rule: Rule) -> Verdict {
        Verdict {
            by,
            sure,
            rule,
            signal: None,
            evidence: [self.death].into(),
            suspects: Vec::new(),
        }
    }

    /// The last fact of this life that is one of these.
    pub(super) fn last<T>(
        &self,
        pick: impl Fn(&'a What) -> Option<&'a T>,
    ) -> Option<(usize, &'a T)> {
        let facts: &'a [Fact<'a>] = self.facts;
        (self.from..self.to)
            .rev()
            .find_map(|at| pick(facts[at].what).map(|found| (at, found)))
    }

    /// What began the way down, and the fact that says so.
    pub(super) fn cause(&self, exit: &Exit) -> (Cause, Option<usize>) {
        let behind = self.death + 1..self.to;
        let told = behind.into_iter().find_map(|at| {
            let teardown = told!(self.facts[at].what, Teardown)?;
            Some((teardown.cause.clone(), Some(at)))
        });
        let renewal = self
            .last(|what| told!(what, Renewal))
            .filter(|(_, renewal)| renewal.generation == exit.generation);
        let renewal = renewal.map(|(at, told)| (Cause::Renewal(told.why.clone()), Some(at)));
        // Without either the way down is not at its end, or its keeper was killed on it.
        let signal = self
            .last(|what| told!(what, Signal).filter(|signal| signal.ignored.is_none()))
            .filter(|(at, _)| *at < self.death);
        let signal = signal.map(|(at, signal)| {
            let number = signal.number;
            let cause = match signal.to {
                Part::Keeper => Cause::KeeperSignal { number },
                Part::Shim | Part::Client | Part::Server => Cause::ShimSignal { number },
            };
            (cause, Some(at))
        });
        told.or(renewal)
            .or(signal)
            .unwrap_or((Cause::ServerExit, None))
    }

    pub(super) fn gone(&self, part: Part) -> Option<(usize, &'a Gone)> {
        self.last(|what| told!(what, Gone).filter(|gone| gone.part == part))
    }

    /// Who was there: as it was written down behind the death, else the client alone.
    pub(super) fn suspects(&self, part: Part, pid: Option<i32>) -> Vec<Suspect> {
        let seen = self.facts.iter().skip(self.from).find_map(|fact| {
            told!(fact.what, Suspects)
                .filter(|found| found.part == part && pid.is_none_or(|pid| found.pid == pid))
                .map(|found| found.who.clone())
        });
        seen.unwrap_or_else(|| {
            let client = self.client.clone();
            let alone = client.map(|seen| Suspect {
                seen,
                cmdline: Vec::new(),
                why: Suspicion::Client,
            });
            alone.into_iter().collect()
        })
    }

    pub(super) fn by_client(&self) -> By {
        By::Client(self.client.clone())
    }
}
