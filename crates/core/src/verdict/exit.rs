//! The rules of an end: of a server, by whatever began its way down, and of a keeper.

use mainstay_protocol::event::{
    Cause, Exit, Gone, Lost, OutOfMemory, Part, Pipe, RestartReason, Status,
};
use mainstay_protocol::lease::Over;

use super::case::{Case, Way, told};
use super::{By, Rule, Sure, TOGETHER_MS, Verdict, fault, shim, traced};

pub(super) fn exit(case: &Case<'_>, exit: &Exit) -> Verdict {
    let way = case.ending(exit).filter(|way| way.leads_to(exit.status));
    let mut verdict = way.map_or_else(|| unasked(case, exit), |way| ended(case, exit, way));
    verdict.evidence.extend(case.teardown().map(|(at, _)| at));
    if verdict.rule == Rule::Renewed {
        verdict
            .evidence
            .extend(case.last(|what| told!(what, Restarting)).map(|(at, _)| at));
    }
    if verdict.rule == Rule::ServerClosed {
        // The first one; at its end it closes the others.
        let closed = (case.from..case.death).find(|&at| {
            told!(case.facts[at].what, PipeEnd)
                .is_some_and(|end| matches!(end.pipe, Pipe::ServerStdin | Pipe::ServerStdout))
        });
        verdict.evidence.extend(closed);
    }
    if let Some((at, _)) = case.last(|what| told!(what, LingerEnded)) {
        verdict.evidence.push(at);
    }
    verdict.evidence.sort_unstable();
    verdict.evidence.dedup();
    verdict
}

/// Mainstay was ending it.
fn ended(case: &Case<'_>, exit: &Exit, way: Way<'_>) -> Verdict {
    match way.cause {
        Cause::ShimSignal { number } => shim::signal(case, Part::Shim, *number, way.began_ms),
        Cause::KeeperSignal { number } => shim::signal(case, Part::Keeper, *number, way.began_ms),
        Cause::ShimKilled => shim::killed(case),
        Cause::ClientEof => client_eof(case, way.began_ms),
        Cause::ClientGone => client_ended(case, case.gone(Part::Client)),
        Cause::ClientDeaf => case.verdict(case.by_client(), Sure::Certain, Rule::ClientDeaf),
        Cause::Asked => case.verdict(By::User, Sure::Certain, Rule::Asked),
        Cause::Restart(RestartReason::Asked) => {
            case.verdict(By::User, Sure::Certain, Rule::Renewed)
        }
        Cause::Restart(_) => case.verdict(By::Mainstay, Sure::Certain, Rule::Renewed),
        Cause::Differs => case.verdict(By::Mainstay, Sure::Certain, Rule::Differs),
        Cause::LeaseEnded(ended) => {
            case.verdict(by_lease(&ended.over), Sure::Certain, Rule::LeaseEnded)
        }
        Cause::KeeperLost => case.verdict(By::NoneKnown, Sure::Unknown, Rule::KeeperKilled),
        // A server that ends closes its pipes first, so a closed pipe alone is its own end.
        Cause::ServerExit if way.signalled() => {
            case.verdict(By::Mainstay, Sure::Certain, Rule::ServerClosed)
        }
        Cause::ServerExit | Cause::StartFailed => unasked(case, exit),
    }
}

/// Mainstay had sent nothing that ends a server like this.
fn unasked(case: &Case<'_>, exit: &Exit) -> Verdict {
    if let Some(traced) = traced::exit(case, exit) {
        return traced;
    }
    let number = match exit.status {
        Status::Code(code) => {
            // 128 + n is how a program says that signal n ended it, or a process below it.
            let sure = match code {
                129..=159 => Sure::Probable,
                _ => Sure::Certain,
            };
            return case.verdict(By::Server, sure, Rule::ServerByItself);
        }
        Status::Signal { number, .. } if fault(number) => {
            return case.verdict(By::Server, Sure::Certain, Rule::ServerByItself);
        }
        Status::Signal { number, .. } => number,
    };
    let sure = exit.out_of_memory.map(|whose| match whose {
        OutOfMemory::Tree => Sure::Certain,
        OutOfMemory::Machine => Sure::Probable,
    });
    if let Some(sure) = sure {
        return case.verdict(By::Kernel, sure, Rule::OutOfMemory);
    }
    Verdict {
        signal: Some(number),
        suspects: case.suspects(Part::Server, Some(exit.pid)),
        ..case.verdict(By::NoneKnown, Sure::Unknown, Rule::ServerKilled)
    }
}

/// A client that ends closes its pipes before it is dead, so its end may follow the EOF.
fn client_eof(case: &Case<'_>, eof_ms: u64) -> Verdict {
    let gone = case.gone(Part::Client);
    match gone.filter(|(at, _)| case.facts[*at].at_ms <= eof_ms + TOGETHER_MS) {
        Some(gone) => client_ended(case, Some(gone)),
        None => case.verdict(case.by_client(), Sure::Certain, Rule::ClientClosed),
    }
}

fn client_ended(case: &Case<'_>, gone: Option<(usize, &Gone)>) -> Verdict {
    let mut verdict = case.verdict(case.by_client(), Sure::Certain, Rule::ClientEnded);
    verdict.evidence.extend(gone.map(|(at, _)| at));
    verdict
}

pub(super) fn keeper_lost(case: &Case<'_>, lost: &Lost) -> Verdict {
    let number = match lost.status {
        Some(Status::Signal { number, .. }) => Some(number),
        Some(Status::Code(_)) | None => None,
    };
    if let Some(traced) = traced::keeper(case, lost) {
        return traced;
    }
    // A fault, or an exit code before its time, is a mistake of ours.
    let ours = number.is_some_and(fault) || matches!(lost.status, Some(Status::Code(_)));
    let (by, sure) = if ours {
        (By::Mainstay, Sure::Certain)
    } else {
        (By::NoneKnown, Sure::Unknown)
    };
    Verdict {
        signal: number,
        ..case.verdict(by, sure, Rule::KeeperKilled)
    }
}

/// A lease that was closed was closed by a user's command; any other end follows from the lease's terms.
fn by_lease(over: &Over) -> By {
    match over {
        Over::Closed { .. } => By::User,
        Over::Expired { .. } | Over::OwnerGone { .. } | Over::Rebooted | Over::Removed => {
            By::Mainstay
        }
    }
}
