//! One death, and what is found about it among the facts.

use alloc::vec::Vec;

use mainstay_protocol::event::{
    Cause, Exit, Gone, Part, Rung, Seen, Status, Suspect, Suspicion, Teardown, What,
};

use super::{By, Fact, Rule, Sure, Verdict, fault};

/// What a fact tells, if it is of this kind.
macro_rules! told {
    ($what:expr, $kind:ident) => {
        if let mainstay_protocol::event::What::$kind(told) = $what {
            Some(told)
        } else {
            None
        }
    };
}
pub(super) use told;

/// The way down that a server was on when it ended.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) cause: &'a Cause,
    pub(super) rungs: &'a [Rung],
    pub(super) began_ms: u64,
}

impl Way<'_> {
    /// True if it leads to this end: the server had been sent that signal, or no signal ended it.
    pub(super) fn leads_to(&self, status: Status) -> bool {
        match status {
            Status::Code(_) => true,
            Status::Signal { number, .. } => {
                let sent = |rung: &Rung| rung.signal() == Some(number);
                fault(number) || self.rungs.iter().any(sent)
            }
        }
    }

    /// True if the server was sent a signal.
    pub(super) fn signalled(&self) -> bool {
        self.rungs.iter().any(|rung| rung.signal().is_some())
    }
}

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

    /// What mainstay had done to end the server, if it had begun to.
    ///
    /// Events of earlier versions have it only in the teardown behind the death. One that the server's own end began says
    /// nothing about the server.
    pub(super) fn ending(&self, exit: &'a Exit) -> Option<Way<'a>> {
        let died_ms = self.facts.get(self.death)?.at_ms;
        if let Some(ending) = &exit.ending {
            return Some(Way {
                cause: &ending.cause,
                rungs: &ending.rungs,
                began_ms: died_ms.saturating_sub(ending.ms),
            });
        }
        let (at, told) = self.teardown()?;
        (told.cause != Cause::ServerExit).then(|| Way {
            cause: &told.cause,
            rungs: &told.rungs,
            began_ms: self.facts[at].at_ms.saturating_sub(told.ms),
        })
    }

    /// The end of the tree, behind the death.
    pub(super) fn teardown(&self) -> Option<(usize, &'a Teardown)> {
        let facts: &'a [Fact<'a>] = self.facts;
        let mut behind = self.death + 1..self.to;
        behind.find_map(|at| Some((at, told!(facts[at].what, Teardown)?)))
    }

    pub(super) fn gone(&self, part: Part) -> Option<(usize, &'a Gone)> {
        self.last(|what| told!(what, Gone).filter(|gone| gone.part == part))
    }

    /// The processes that were seen at the death, as an event behind it says; else the client alone.
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
