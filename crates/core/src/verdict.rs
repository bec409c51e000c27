//! Verdicts: what ended, by whom, how sure that is, and by which rule.
//!
//! The facts are the events of one link, in their order. One rule decides, and it names the facts that it rests on;
//! where no fact names anybody, nobody is named. Nothing here looks at a process: what was not written down when it
//! happened is not known.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;

use crate::event::{Exit, Lingering, Lost, Relation, Seen, Status, Suspect, What};

mod case;
mod exit;
mod rule;
mod shim;
mod traced;
use case::Case;
pub use rule::Rule;

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
        /// The short name of what it ran when it was looked at, a moment after the signal; of a traced signal, when it sent it.
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

/// An event that is a death.
#[derive(Clone, Copy, Debug)]
pub enum Death<'a> {
    /// A server ended.
    Exit(&'a Exit),
    /// One could not be started.
    CannotStart,
    /// The keeper was killed.
    KeeperLost(&'a Lost),
    /// An attempt on the shim, which the server has survived.
    Survived(&'a Lingering),
}

impl<'a> Death<'a> {
    /// The death that an event tells, if it is one.
    pub fn of(what: &'a What) -> Option<Self> {
        if let What::Exit(exit) = what {
            Some(Self::Exit(exit))
        } else if let What::StartFailed(_) = what {
            Some(Self::CannotStart)
        } else if let What::KeeperLost(lost) = what {
            Some(Self::KeeperLost(lost))
        } else if let What::Lingering(lingering) = what {
            Some(Self::Survived(lingering))
        } else {
            None
        }
    }
}

/// The deaths among these facts, by their place.
pub fn deaths(facts: &[Fact<'_>]) -> Vec<usize> {
    let all = facts.iter().enumerate();
    all.filter(|(_, fact)| Death::of(fact.what).is_some())
        .map(|(at, _)| at)
        .collect()
}

/// Judges one death by its place; `None` if there is none.
pub fn judge(facts: &[Fact<'_>], death: usize) -> Option<Verdict> {
    let told = Death::of(facts.get(death)?.what)?;
    let case = Case::around(facts, death);
    Some(match told {
        Death::Exit(exit) => case.exit(exit),
        Death::CannotStart => case.verdict(By::Nobody, Sure::Certain, Rule::CannotStart),
        Death::KeeperLost(lost) => case.keeper_lost(lost),
        Death::Survived(lingering) => case.survived(lingering),
    })
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
