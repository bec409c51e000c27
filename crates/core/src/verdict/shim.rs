//! The rules of signals to the shim and the keeper, and of a shim that was killed.

use super::case::{Case, told};
use super::{By, Fact, Rule, Sure, TOGETHER_MS, Verdict};
use crate::event::{Cause, Lingering, Origin, Part, Relation, Signal, Status, What};
use crate::limits::DOUBT_MS;

/// Two clocks with milliseconds may be this far apart.
const ROUNDED_MS: u64 = 2;

impl Case<'_> {
    /// The shim was signalled or killed, and the server was kept.
    pub(super) fn survived(mut self, told: &Lingering) -> Verdict {
        // What happened after the client came back is another story.
        let behind = self.facts[self.death..self.to].iter();
        let back = |fact: &Fact<'_>| matches!(fact.what, What::Reattached(_));
        if let Some(place) = behind.clone().position(back) {
            self.to = self.death + place;
        }
        let mut verdict = if let Cause::ShimSignal { number } = told.cause {
            let until_ms = self.facts.get(self.death).map_or(0, |fact| fact.at_ms);
            self.signal(Part::Shim, number, until_ms)
        } else {
            self.shim_killed()
        };
        verdict.evidence.sort_unstable();
        verdict.evidence.dedup();
        verdict
    }

    /// The signal with this number that began the way down, which began not later than this.
    pub(super) fn signal(&self, to: Part, number: i32, until_ms: u64) -> Verdict {
        let Some((at, signal)) = self.first_of_the_last(to, number, until_ms) else {
            return Verdict {
                signal: Some(number),
                ..self.verdict(By::Nobody, Sure::Unknown, Rule::SignalBySomebodyGone)
            };
        };
        let (by, sure, rule) = self.sender(signal);
        // A trace has seen the sender's name when it sent, and not a moment later.
        if matches!(by, By::Process { .. })
            && rule != Rule::SignalByClaim
            && let Some(mut traced) = self.traced_sender(at, number, signal.sender)
        {
            traced.evidence.push(at);
            return traced;
        }
        let mut verdict = Verdict {
            signal: Some(number),
            ..self.verdict(by, sure, rule)
        };
        if sure == Sure::Unknown {
            verdict.suspects = self.suspects(to, None);
        }
        verdict.evidence.push(at);
        verdict
    }

    /// Of the signals that came in time and shortly one after the other the first: the others changed nothing any more.
    fn first_of_the_last(&self, to: Part, number: i32, until_ms: u64) -> Option<(usize, &Signal)> {
        let mut found: Option<(usize, &Signal)> = None;
        for at in (self.from..self.death).rev() {
            let Fact { at_ms, what } = self.facts[at];
            let Some(signal) = told!(what, Signal) else {
                continue;
            };
            let meant = signal.to == to && signal.number == number && signal.ignored.is_none();
            if !meant || at_ms > until_ms + ROUNDED_MS {
                continue;
            }
            match found {
                Some((next, _)) if self.facts[next].at_ms.saturating_sub(at_ms) > DOUBT_MS => break,
                Some(_) | None => found = Some((at, signal)),
            }
        }
        found
    }

    fn sender(&self, signal: &Signal) -> (By, Sure, Rule) {
        let client = self.client.as_ref().map(|seen| seen.who);
        let process = By::Process {
            pid: signal.sender,
            comm: signal.comm.clone(),
            uid: signal.uid,
            relation: signal.relation,
        };
        match signal.origin() {
            Origin::Kernel => (By::Terminal, Sure::Certain, Rule::SignalByTerminal),
            Origin::Outside => (By::Outside, Sure::Certain, Rule::SignalFromOutside),
            Origin::Claim => (process, Sure::Probable, Rule::SignalByClaim),
            Origin::Kill | Origin::Thread => match signal.who() {
                Some(who) if Some(who) == client || signal.relation == Some(Relation::Client) => {
                    (self.by_client(), Sure::Certain, Rule::SignalByClient)
                }
                Some(_) => (process, Sure::Certain, Rule::SignalByProcess),
                // The kernel also signs with a dead parent's pid what that parent wished for its children.
                None if client.is_some_and(|client| client.pid == signal.sender) => {
                    (self.by_client(), Sure::Probable, Rule::SignalBySomebodyGone)
                }
                None => (process, Sure::Unknown, Rule::SignalBySomebodyGone),
            },
        }
    }

    pub(super) fn shim_killed(&self) -> Verdict {
        let shim = self.gone(Part::Shim);
        let client = self.gone(Part::Client);
        let together = match (shim, client) {
            (Some((shim, _)), Some((client, _))) => {
                let at = |place: usize| self.facts[place].at_ms;
                at(shim).abs_diff(at(client)) <= TOGETHER_MS
            }
            (None, _) | (_, None) => false,
        };
        let traced = shim.and_then(|(at, gone)| self.traced_shim(gone, at));
        let mut verdict = if let Some(traced) = traced {
            traced
        } else if together {
            self.verdict(self.by_client(), Sure::Probable, Rule::ShimKilledWithClient)
        } else {
            Verdict {
                suspects: self.suspects(Part::Shim, shim.map(|(_, gone)| gone.who.pid)),
                ..self.verdict(By::Nobody, Sure::Unknown, Rule::ShimKilled)
            }
        };
        verdict.signal = shim.and_then(|(_, gone)| match gone.status? {
            Status::Signal { number, .. } => Some(number),
            Status::Code(_) => None,
        });
        verdict.evidence.extend(shim.map(|(at, _)| at));
        if together {
            verdict.evidence.extend(client.map(|(at, _)| at));
        }
        verdict
    }
}
