//! Verdicts: what ended, by whom, how sure that is, and by which rule.
//!
//! The facts are the events of one link, in their order. One rule decides, and it names the facts that it rests on;
//! where no fact names anybody, nobody is named. Nothing here looks at a process: what was not written down when it
//! happened is not known.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;

use crate::event::{
    Cause, Exit, Gone, LingerEnded, Lingering, Lost, Origin, OutOfMemory, Part, Relation, Renewal,
    Renewing, Seen, Signal, Status, Suspect, Suspects, Suspicion, Teardown, What,
};
use crate::lease::Over;

mod traced;

/// Deaths of shim and client that are not further apart have one cause.
const TOGETHER_MS: u64 = 1_000;

/// One event of a link.
#[derive(Clone, Copy, Debug)]
pub struct Fact<'a> {
    /// When, in milliseconds since the epoch.
    pub at_ms: u64,
    /// What.
    pub what: &'a What,
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sure {
    /// The kernel or we ourselves say so.
    Certain,
    /// The facts fit nothing else well.
    Probable,
    /// Nobody saw who it was.
    Unknown,
}

impl fmt::Display for Sure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certain => "certain",
            Self::Probable => "probable",
            Self::Unknown => "unknown",
        })
    }
}

/// Who did it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The client, if it was seen with its name.
    Client(Option<Seen>),
    /// This process, which sent a signal.
    Process {
        /// Its pid.
        pid: i32,
        /// Its short name, if it could be seen.
        comm: Option<String>,
        /// Its user.
        uid: u32,
        /// What it is to the client.
        relation: Option<Relation>,
    },
    /// The terminal: a key, or its end.
    Terminal,
    /// A process outside this container.
    Outside,
    /// The kernel, because memory had run out.
    Kernel,
    /// The server itself.
    Server,
    /// The user, by a command of ours.
    User,
    /// We, by a rule that the user chose or left as it is.
    Mainstay,
    /// Nobody knows.
    Nobody,
}

/// The rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The signal's sender is the client, by pid and start time.
    SignalByClient,
    /// The signal's sender is another process.
    SignalByProcess,
    /// The sender had ended before it could be seen.
    SignalBySomebodyGone,
    /// The sender wrote its pid itself.
    SignalByClaim,
    /// The kernel sent the signal for a terminal.
    SignalByTerminal,
    /// The sender has no pid here.
    SignalFromOutside,
    /// Stdin was closed, and the client lived on.
    ClientClosed,
    /// The client process ended.
    ClientEnded,
    /// The client's end of our stdout was closed.
    ClientDeaf,
    /// An exit code or a fault, and nobody sent anything.
    ServerByItself,
    /// The count of kills for want of memory rose with the SIGKILL.
    OutOfMemory,
    /// A signal that we did not send.
    ServerKilled,
    /// Shim and client went within a second.
    ShimKilledWithClient,
    /// The shim was killed, and the client lived on.
    ShimKilled,
    /// A trace of signals shows who sent it.
    TracedSignal,
    /// A trace of signals shows that the kernel sent it by itself.
    TracedKernel,
    /// The keeper was killed.
    KeeperKilled,
    /// `mainstay stop`.
    Asked,
    /// The generation was replaced or put to rest.
    Renewed,
    /// The server could not go on with the session.
    Differs,
    /// The server could not be started.
    CannotStart,
    /// The lease of the server is over.
    LeaseEnded,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SignalByClient => {
                "the kernel names the client as sender of the signal, and pid and start time agree"
            }
            Self::SignalByProcess => {
                "the kernel names the sender of the signal; of several equal ones at once only the first"
            }
            Self::SignalBySomebodyGone => {
                "the kernel names a pid as sender, but that process had ended before it could be seen"
            }
            Self::SignalByClaim => "the signal was queued: its sender wrote that pid itself",
            Self::SignalByTerminal => "the signal came from the kernel, as it does for a terminal",
            Self::SignalFromOutside => "the sender of the signal has no pid in this container",
            Self::ClientClosed => "stdin was at its end while the client lived",
            Self::ClientEnded => "the client process ended",
            Self::ClientDeaf => "the client's end of stdout was closed",
            Self::ServerByItself => "an exit code or a fault, and mainstay had sent nothing",
            Self::OutOfMemory => {
                "SIGKILL that mainstay did not send, and the count of kills for want of memory rose"
            }
            Self::ServerKilled => {
                "a signal that mainstay did not send; only root can see who sends a signal to another process"
            }
            Self::ShimKilledWithClient => {
                "shim and client ended within a second: the client crashed, or its whole tree was killed"
            }
            Self::ShimKilled => {
                "the shim was killed while the client lived; only root can see who sends SIGKILL"
            }
            Self::TracedSignal => {
                "`mainstay trace-signals` saw the signal while it was sent, and the kernel names its sender"
            }
            Self::TracedKernel => {
                "`mainstay trace-signals` saw the kernel itself send the signal: for want of memory, or at the end of a container"
            }
            Self::KeeperKilled => "the keeper ended before its work was done",
            Self::Asked => "`mainstay stop` was called",
            Self::Renewed => "mainstay replaced the server or put it to rest, by its settings",
            Self::Differs => "the new server could not go on with the client's session",
            Self::CannotStart => "the start itself failed",
            Self::LeaseEnded => "the lease that the server was started in is over",
        })
    }
}

/// What was found out about one death.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Who did it.
    pub by: By,
    /// How sure that is.
    pub sure: Sure,
    /// By which rule.
    pub rule: Rule,
    /// The signal, if one began it.
    pub signal: Option<i32>,
    /// The facts that it rests on, by their place in the list, in order.
    #[serde(skip)]
    pub evidence: Vec<usize>,
    /// Who was there and could have done it, where nobody was seen doing it.
    pub suspects: Vec<Suspect>,
}

/// The deaths among these facts, by their place: ends of servers, failed starts, killed keepers, and attempts on the shim
/// that the server has survived.
pub fn deaths(facts: &[Fact<'_>]) -> Vec<usize> {
    let death = |what: &What| {
        matches!(
            what,
            What::Exit(_) | What::StartFailed(_) | What::KeeperLost(_) | What::Lingering(_)
        )
    };
    let all = facts.iter().enumerate();
    all.filter(|(_, fact)| death(fact.what))
        .map(|(at, _)| at)
        .collect()
}

/// Judges one death by its place; `None` if there is none.
pub fn judge(facts: &[Fact<'_>], death: usize) -> Option<Verdict> {
    let case = Case::around(facts, death);
    match facts.get(death)?.what {
        What::Exit(exit) => Some(case.exit(exit)),
        What::StartFailed(_) => Some(case.verdict(By::Nobody, Sure::Certain, Rule::CannotStart)),
        What::KeeperLost(lost) => Some(case.keeper_lost(lost)),
        What::Lingering(lingering) => Some(case.survived(lingering)),
        What::Start(_)
        | What::Teardown(_)
        | What::Sweep(_)
        | What::Signal(_)
        | What::Gone(_)
        | What::GuardLost(_)
        | What::ClientMoved(_)
        | What::Junk(_)
        | What::StderrDropped(_)
        | What::OpeningSilent(_)
        | What::Renewal(_)
        | What::Replayed(_)
        | What::Differs(_)
        | What::Abandoned(_)
        | What::ListChanged(_)
        | What::Instant(_)
        | What::ProbesUnanswered(_)
        | What::CallDeadline(_)
        | What::LeaseOpened(_)
        | What::LeaseEnded(_)
        | What::Suspects(_)
        | What::PipeEnd(_)
        | What::RecordingHurt(_)
        | What::SignalTraced(_)
        | What::ServeStarted(_)
        | What::ServeStopped(_)
        | What::SessionBegan(_)
        | What::SessionOver(_)
        | What::SessionOpened(_)
        | What::SessionClosed(_)
        | What::DebtPaid(_)
        | What::DebtGivenUp(_)
        | What::Reattached(_)
        | What::LingerEnded(_) => None,
    }
}

/// One death among its facts.
struct Case<'a> {
    facts: &'a [Fact<'a>],
    death: usize,
    /// From the start of that generation…
    from: usize,
    /// …to the start of the next, not included.
    to: usize,
    client: Option<Seen>,
}

impl<'a> Case<'a> {
    fn around(facts: &'a [Fact<'a>], death: usize) -> Self {
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

    fn verdict(&self, by: By, sure: Sure, rule: Rule) -> Verdict {
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
    fn last<T>(&self, pick: impl Fn(&'a What) -> Option<&'a T>) -> Option<(usize, &'a T)> {
        let facts: &'a [Fact<'a>] = self.facts;
        (self.from..self.to)
            .rev()
            .find_map(|at| pick(facts[at].what).map(|found| (at, found)))
    }

    /// What began the way down, and the fact that says so.
    fn cause(&self, exit: &Exit) -> (Cause, Option<usize>) {
        let behind = self.death + 1..self.to;
        let told = behind.into_iter().find_map(|at| {
            let teardown = any_teardown(self.facts[at].what)?;
            Some((teardown.cause.clone(), Some(at)))
        });
        let renewal = self
            .last(any_renewal)
            .filter(|(_, renewal)| renewal.generation == exit.generation);
        let renewal = renewal.map(|(at, told)| (Cause::Renewal(told.why.clone()), Some(at)));
        // Without either the way down is not at its end, or its keeper was killed on it.
        let signal = self.last(any_signal).filter(|(at, _)| *at < self.death);
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

    fn exit(&self, exit: &Exit) -> Verdict {
        let (cause, told) = self.cause(exit);
        let mut verdict = match &cause {
            Cause::ShimSignal { number } => self.signal(Part::Shim, *number),
            Cause::KeeperSignal { number } => self.signal(Part::Keeper, *number),
            Cause::ShimKilled => self.shim_killed(),
            Cause::ClientEof => self.client_eof(told),
            Cause::ClientGone => self.client_ended(self.gone(Part::Client)),
            Cause::ClientDeaf => self.verdict(self.by_client(), Sure::Certain, Rule::ClientDeaf),
            Cause::Asked => self.verdict(By::User, Sure::Certain, Rule::Asked),
            Cause::Renewal(Renewing::Asked) => self.verdict(By::User, Sure::Certain, Rule::Renewed),
            Cause::Renewal(_) => self.verdict(By::Mainstay, Sure::Certain, Rule::Renewed),
            Cause::Differs => self.verdict(By::Mainstay, Sure::Certain, Rule::Differs),
            Cause::LeaseEnded(ended) => {
                self.verdict(by_lease(&ended.over), Sure::Certain, Rule::LeaseEnded)
            }
            Cause::KeeperLost => self.verdict(By::Nobody, Sure::Unknown, Rule::KeeperKilled),
            Cause::ServerExit | Cause::StartFailed => self.unasked(exit),
        };
        verdict.evidence.extend(told);
        if verdict.rule == Rule::Renewed {
            verdict
                .evidence
                .extend(self.last(any_renewal).map(|(at, _)| at));
        }
        if let Some((at, _)) = self.last(any_parting) {
            verdict.evidence.push(at);
        }
        verdict.evidence.sort_unstable();
        verdict.evidence.dedup();
        verdict
    }

    /// The shim was signalled or killed, and the server was kept.
    fn survived(mut self, told: &Lingering) -> Verdict {
        // What happened after the client came back is another story.
        let behind = self.facts[self.death..self.to].iter();
        let back = |fact: &Fact<'_>| matches!(fact.what, What::Reattached(_));
        if let Some(place) = behind.clone().position(back) {
            self.to = self.death + place;
        }
        let mut verdict = if let Cause::ShimSignal { number } = told.cause {
            self.signal(Part::Shim, number)
        } else {
            self.shim_killed()
        };
        verdict.evidence.sort_unstable();
        verdict.evidence.dedup();
        verdict
    }

    /// Nobody of us had begun anything.
    fn unasked(&self, exit: &Exit) -> Verdict {
        if let Some(traced) = self.traced_exit(exit) {
            return traced;
        }
        let number = match exit.status {
            Status::Code(_) => {
                return self.verdict(By::Server, Sure::Certain, Rule::ServerByItself);
            }
            Status::Signal { number, .. } if fault(number) => {
                return self.verdict(By::Server, Sure::Certain, Rule::ServerByItself);
            }
            Status::Signal { number, .. } => number,
        };
        let sure = exit.out_of_memory.map(|whose| match whose {
            OutOfMemory::Tree => Sure::Certain,
            OutOfMemory::Machine => Sure::Probable,
        });
        if let Some(sure) = sure {
            return self.verdict(By::Kernel, sure, Rule::OutOfMemory);
        }
        Verdict {
            signal: Some(number),
            suspects: self.suspects(Part::Server, Some(exit.pid)),
            ..self.verdict(By::Nobody, Sure::Unknown, Rule::ServerKilled)
        }
    }

    fn signal(&self, to: Part, number: i32) -> Verdict {
        let found = self.last(|what| {
            any_signal(what).filter(|signal| signal.to == to && signal.number == number)
        });
        let Some((at, signal)) = found else {
            return Verdict {
                signal: Some(number),
                ..self.verdict(By::Nobody, Sure::Unknown, Rule::SignalBySomebodyGone)
            };
        };
        let (by, sure, rule) = self.sender(signal);
        if rule == Rule::SignalBySomebodyGone
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

    fn shim_killed(&self) -> Verdict {
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

    /// A client that ends closes its pipes before it is dead, so its end may follow the EOF.
    fn client_eof(&self, teardown: Option<usize>) -> Verdict {
        let fact = self.facts[teardown.unwrap_or(self.death)];
        let eof_ms =
            any_teardown(fact.what).map_or(fact.at_ms, |told| fact.at_ms.saturating_sub(told.ms));
        let gone = self.gone(Part::Client);
        match gone.filter(|(at, _)| self.facts[*at].at_ms <= eof_ms + TOGETHER_MS) {
            Some(gone) => self.client_ended(Some(gone)),
            None => self.verdict(self.by_client(), Sure::Certain, Rule::ClientClosed),
        }
    }

    fn client_ended(&self, gone: Option<(usize, &Gone)>) -> Verdict {
        let mut verdict = self.verdict(self.by_client(), Sure::Certain, Rule::ClientEnded);
        verdict.evidence.extend(gone.map(|(at, _)| at));
        verdict
    }

    fn keeper_lost(&self, lost: &Lost) -> Verdict {
        let number = match lost.status {
            Some(Status::Signal { number, .. }) => Some(number),
            Some(Status::Code(_)) | None => None,
        };
        if let Some(traced) = self.traced_keeper(lost) {
            return traced;
        }
        // A fault, or an exit code before its time, is a mistake of ours.
        let ours = number.is_some_and(fault) || matches!(lost.status, Some(Status::Code(_)));
        let (by, sure) = if ours {
            (By::Mainstay, Sure::Certain)
        } else {
            (By::Nobody, Sure::Unknown)
        };
        Verdict {
            signal: number,
            ..self.verdict(by, sure, Rule::KeeperKilled)
        }
    }

    fn gone(&self, part: Part) -> Option<(usize, &'a Gone)> {
        self.last(|what| any_gone(what).filter(|gone| gone.part == part))
    }

    /// Who was there: as it was written down behind the death, else the client alone.
    fn suspects(&self, part: Part, pid: Option<i32>) -> Vec<Suspect> {
        let seen = self.facts.iter().skip(self.from).find_map(|fact| {
            any_suspects(fact.what)
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

    fn by_client(&self) -> By {
        By::Client(self.client.clone())
    }
}

fn any_signal(what: &What) -> Option<&Signal> {
    if let What::Signal(signal) = what {
        return Some(signal);
    }
    None
}

fn any_gone(what: &What) -> Option<&Gone> {
    if let What::Gone(gone) = what {
        return Some(gone);
    }
    None
}

fn any_suspects(what: &What) -> Option<&Suspects> {
    if let What::Suspects(suspects) = what {
        return Some(suspects);
    }
    None
}

fn any_teardown(what: &What) -> Option<&Teardown> {
    if let What::Teardown(teardown) = what {
        return Some(teardown);
    }
    None
}

fn any_parting(what: &What) -> Option<&LingerEnded> {
    if let What::LingerEnded(ended) = what {
        return Some(ended);
    }
    None
}

fn any_renewal(what: &What) -> Option<&Renewal> {
    if let What::Renewal(renewal) = what {
        return Some(renewal);
    }
    None
}

/// Whoever closed a lease did it through a command of ours; any other end follows from what was agreed.
fn by_lease(over: &Over) -> By {
    match over {
        Over::Closed { .. } => By::User,
        Over::Expired { .. } | Over::OwnerGone { .. } | Over::Rebooted | Over::Removed => {
            By::Mainstay
        }
    }
}

/// Whether a process that ended so was sent a signal: it is no exit, and no fault of its own.
pub fn sent_by_somebody(status: Status) -> bool {
    matches!(status, Status::Signal { number, .. } if !fault(number))
}

/// Whether a signal is a process's own fault: nobody sends it to end another.
fn fault(number: i32) -> bool {
    // ILL, TRAP, ABRT, BUS, FPE, SEGV, PIPE, XCPU, XFSZ, SYS
    matches!(number, 4..=8 | 11 | 13 | 24 | 25 | 31)
}

#[cfg(test)]
mod tests;
