//! The rules that need a trace of signals, which shows senders that are otherwise unknown.
//!
//! The tracer writes beside the keeper, so its fact may stand behind the death, even behind the next start: it is found
//! by process and time, not by its place. A pid is believed only within the life of the process that had it.

use mainstay_protocol::event::{Exit, Gone, Lost, Status, Target, Traced, What};
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::TRACE_OBEYS_MS;

use super::case::Case;
use super::{By, Rule, Sure, Verdict, fault};

/// The clocks of tracer and keeper are the same, but an end is written down a little after it happened.
const SLACK_MS: u64 = 1_000;

/// The traced signal that ended this server, if there is one.
pub(super) fn exit(case: &Case<'_>, exit: &Exit) -> Option<Verdict> {
    let (number, code) = match exit.status {
        Status::Signal { number, .. } if fault(number) => return None,
        Status::Signal { number, .. } => (Some(number), None),
        Status::Code(code) => (None, Some(code)),
    };
    let end = case.facts.get(case.death)?.at_ms;
    let born = end.saturating_sub(exit.uptime_ms);
    let (at, traced) = traced(case, born, end, |traced| {
        let it = traced.pid == exit.pid && matches!(traced.to, Target::Server | Target::Tree);
        let same_life = traced.generation.is_none_or(|of| of == exit.generation);
        // One that ends by a code may have taken any of these as a request, shortly before.
        let fits = match number {
            Some(number) => traced.number == number,
            None => matches!(traced.number, 1 | 2 | 3 | 15),
        };
        it && same_life && fits
    })?;
    let told = case.facts.get(at)?.at_ms;
    if number.is_none() && told + TRACE_OBEYS_MS < end {
        return None;
    }
    if exit.out_of_memory.is_some() && traced.by_kernel() {
        let mut verdict = case.verdict(By::Kernel, Sure::Certain, Rule::OutOfMemory);
        verdict.evidence.push(at);
        return Some(verdict);
    }
    // 128 + n is how a program says that signal n ended it.
    let obeyed = code.is_some_and(|code| code != 128 + traced.number);
    Some(by_trace(
        case,
        at,
        traced,
        if obeyed {
            Sure::Probable
        } else {
            Sure::Certain
        },
    ))
}

/// The traced signal that killed the shim.
pub(super) fn shim(case: &Case<'_>, gone: &Gone, place: usize) -> Option<Verdict> {
    let end = case.facts.get(place)?.at_ms;
    let number = ending(gone.status?)?;
    let (at, traced) = traced(case, 0, end, |traced| {
        let start = traced.start.is_none_or(|start| start == gone.who.start);
        traced.to == Target::Shim && traced.pid == gone.who.pid && start && traced.number == number
    })?;
    Some(by_trace(case, at, traced, Sure::Certain))
}

/// The traced signal that killed the keeper.
pub(super) fn keeper(case: &Case<'_>, lost: &Lost) -> Option<Verdict> {
    let end = case.facts.get(case.death)?.at_ms;
    let number = ending(lost.status?)?;
    let (at, traced) = traced(case, 0, end, |traced| {
        traced.to == Target::Keeper && traced.pid == lost.pid && traced.number == number
    })?;
    Some(by_trace(case, at, traced, Sure::Certain))
}

/// The traced signal to the shim behind one whose sender was gone before it could be seen.
pub(super) fn sender(case: &Case<'_>, place: usize, number: i32, sender: i32) -> Option<Verdict> {
    let end = case.facts.get(place)?.at_ms;
    let from = end.saturating_sub(SLACK_MS);
    let (at, traced) = traced(case, from, end, |traced| {
        let us = matches!(traced.to, Target::Shim | Target::Keeper);
        us && traced.number == number && traced.sender == sender
    })?;
    Some(by_trace(case, at, traced, Sure::Certain))
}

/// The last traced signal of this kind that arrived in this time.
fn traced<'a>(
    case: &Case<'a>,
    from_ms: u64,
    to_ms: u64,
    fits: impl Fn(&Traced) -> bool,
) -> Option<(usize, &'a Traced)> {
    let mut found: Option<(usize, &Traced)> = None;
    for (at, fact) in case.facts.iter().enumerate() {
        let What::SignalTraced(traced) = fact.what else {
            continue;
        };
        let in_time = fact.at_ms + SLACK_MS >= from_ms && fact.at_ms <= to_ms + SLACK_MS;
        let later = found.is_none_or(|(at, _)| case.facts[at].at_ms <= fact.at_ms);
        if in_time && later && traced.result.arrived() && fits(traced) {
            found = Some((at, traced));
        }
    }
    found
}

fn by_trace(case: &Case<'_>, at: usize, traced: &Traced, sure: Sure) -> Verdict {
    let who = traced.sender_start.map(|start| Identity {
        pid: traced.sender,
        start,
    });
    let client = case.client.as_ref().map(|seen| seen.who);
    let (by, rule) = if traced.by_kernel() {
        (By::Kernel, Rule::TracedKernel)
    } else if who.is_some() && who == client {
        (case.by_client(), Rule::TracedSignal)
    } else {
        let by = By::Process {
            pid: traced.sender,
            comm: traced.comm.clone(),
            // The kernel's own word for "no user".
            uid: traced.uid.unwrap_or(u32::MAX),
            relation: None,
        };
        (by, Rule::TracedSignal)
    };
    let mut verdict = case.verdict(by, sure, rule);
    verdict.signal = Some(traced.number);
    verdict.evidence.push(at);
    verdict.evidence.sort_unstable();
    verdict
}

/// The signal that ended a process.
fn ending(status: Status) -> Option<i32> {
    match status {
        Status::Signal { number, .. } => Some(number),
        Status::Code(_) => None,
    }
}
