//! The rules of an end: of a server, by whatever began its way down, and of a keeper.

use super::case::{Case, Way, told};
use super::{By, Rule, Sure, TOGETHER_MS, Verdict, fault};
use crate::event::{Cause, Exit, Gone, Lost, OutOfMemory, Part, Pipe, Renewing, Status};
use crate::lease::Over;

impl Case<'_> {
    pub(super) fn exit(&self, exit: &Exit) -> Verdict {
        let way = self.ending(exit).filter(|way| way.leads_to(exit.status));
        let mut verdict = way.map_or_else(|| self.unasked(exit), |way| self.ended(exit, way));
        verdict.evidence.extend(self.teardown().map(|(at, _)| at));
        if verdict.rule == Rule::Renewed {
            verdict
                .evidence
                .extend(self.last(|what| told!(what, Renewal)).map(|(at, _)| at));
        }
        if verdict.rule == Rule::ServerClosed {
            // The first one; at its end it closes the others.
            let closed = (self.from..self.death).find(|&at| {
                told!(self.facts[at].what, PipeEnd)
                    .is_some_and(|end| matches!(end.pipe, Pipe::ServerStdin | Pipe::ServerStdout))
            });
            verdict.evidence.extend(closed);
        }
        if let Some((at, _)) = self.last(|what| told!(what, LingerEnded)) {
            verdict.evidence.push(at);
        }
        verdict.evidence.sort_unstable();
        verdict.evidence.dedup();
        verdict
    }

    /// Mainstay was ending it.
    fn ended(&self, exit: &Exit, way: Way<'_>) -> Verdict {
        match way.cause {
            Cause::ShimSignal { number } => self.signal(Part::Shim, *number, way.began_ms),
            Cause::KeeperSignal { number } => self.signal(Part::Keeper, *number, way.began_ms),
            Cause::ShimKilled => self.shim_killed(),
            Cause::ClientEof => self.client_eof(way.began_ms),
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
            // A server that ends closes its pipes first, so a closed pipe alone is its own end.
            Cause::ServerExit if way.signalled() => {
                self.verdict(By::Mainstay, Sure::Certain, Rule::ServerClosed)
            }
            Cause::ServerExit | Cause::StartFailed => self.unasked(exit),
        }
    }

    /// Mainstay had sent nothing that ends a server like this.
    fn unasked(&self, exit: &Exit) -> Verdict {
        if let Some(traced) = self.traced_exit(exit) {
            return traced;
        }
        let number = match exit.status {
            Status::Code(code) => {
                // 128 + n is how a program says that signal n ended it, or a process below it.
                let sure = match code {
                    129..=159 => Sure::Probable,
                    _ => Sure::Certain,
                };
                return self.verdict(By::Server, sure, Rule::ServerByItself);
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

    /// A client that ends closes its pipes before it is dead, so its end may follow the EOF.
    fn client_eof(&self, eof_ms: u64) -> Verdict {
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

    pub(super) fn keeper_lost(&self, lost: &Lost) -> Verdict {
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
