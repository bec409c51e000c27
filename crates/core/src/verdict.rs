//! Verdicts: what ended, what ended it, how sure that is, and by which rule.
//!
//! The facts are the events of one link, in their order. One rule decides, and it names the facts that it rests on. It
//! names a process only if a fact names it. This module looks at no process: what was not written when it happened is
//! not known.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use mainstay_protocol::event::{Exit, Lingering, Lost, Relation, Seen, Status, Suspect, What};
use serde::Serialize;

mod case;
mod exit;
mod rule;
mod shim;
mod traced;
use case::Case;
pub use rule::Rule;

/// Deaths of shim and client that are at most this far apart have one cause.
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
    /// The sender was not seen.
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

/// What ended the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The client, if it was seen with its name.
    Client(Option<Seen>),
    /// This process, which sent a signal.
    Process {
        /// The pid of the sender.
        pid: i32,
        /// The short name of the sender's program: just after the signal, or when it sent a traced signal.
        comm: Option<String>,
        /// The user of the sender.
        uid: u32,
        /// How the sender is related to the client.
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
    /// Mainstay, by a rule that the user chose or left at its default.
    Mainstay,
    /// No process is known to have ended it.
    NoneKnown,
}

/// The result about one death.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What ended it.
    pub by: By,
    /// How sure that is.
    pub sure: Sure,
    /// By which rule.
    pub rule: Rule,
    /// The signal, if one began it.
    pub signal: Option<i32>,
    /// The facts that it rests on, as ascending positions in the list.
    #[serde(skip)]
    pub evidence: Vec<usize>,
    /// Processes that ran at that time and could have done it, if the sender was not seen.
    pub suspects: Vec<Suspect>,
}

/// An event that is a death.
#[derive(Clone, Copy, Debug)]
pub enum Death<'a> {
    /// A server ended.
    Exit(&'a Exit),
    /// A server could not be started.
    CannotStart,
    /// The keeper was killed.
    KeeperLost(&'a Lost),
    /// The shim was signalled or killed, and the server was kept.
    Survived(&'a Lingering),
}

impl<'a> Death<'a> {
    /// The death that an event reports, if it is one.
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
        Death::Exit(exit) => exit::exit(&case, exit),
        Death::CannotStart => case.verdict(By::NoneKnown, Sure::Certain, Rule::CannotStart),
        Death::KeeperLost(lost) => exit::keeper_lost(&case, lost),
        Death::Survived(lingering) => shim::survived(case, lingering),
    })
}

/// Whether a signal of another process ended it: neither an exit code nor a fault of its own.
pub fn sent_by_another_process(status: Status) -> bool {
    matches!(status, Status::Signal { number, .. } if !fault(number))
}

/// Whether a signal reports a fault of the process itself; other processes do not send it to end one.
fn fault(number: i32) -> bool {
    // ILL, TRAP, ABRT, BUS, FPE, SEGV, PIPE, XCPU, XFSZ, SYS
    matches!(number, 4..=8 | 11 | 13 | 24 | 25 | 31)
}

#[cfg(test)]
mod tests;
