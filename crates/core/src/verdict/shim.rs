//! The rules of signals to the shim and the keeper, and of a shim that was killed.

use mainstay_protocol::event::{Cause, Lingering, Origin, Part, Relation, Signal, Status, What};
use mainstay_protocol::limits::DOUBT_MS;

use super::case::{Case, told};
use super::{By, Fact, Rule, Sure, TOGETHER_MS, Verdict, traced};

/// Two clocks with milliseconds may be this far apart.
const ROUNDED_MS: u64 = 2;

/// The shim was signalled or killed, and the server was kept.
pub(super) fn survived(mut case: Case<'_>, told: &Lingering) -> Verdict {
    // What happened after the client came back is another story.
    let behind = case.facts[case.death..case.to].iter();
    let back = |fact: &Fact<'_>| matches!(fact.what, What::Reattached(_));
    if let Some(place) = behind.clone().position(back) {
        case.to = case.death + place;
    }
    let mut verdict = if let Cause::ShimSignal { number } = told.cause {
        let until_ms = case.facts.get(case.death).map_or(0, |fact| fact.at_ms);
        signal(&case, Part::Shim, number, until_ms)
    } else {
        killed(&case)
    };
    verdict.evidence.sort_unstable();
    verdict.evidence.dedup();
    verdict
}

/// The signal with this number that began the way down, which began not later than this.
pub(super) fn signal(case: &Case<'_>, to: Part, number: i32, until_ms: u64) -> Verdict {
    let Some((at, signal)) = first_of_the_last(case, to, number, until_ms) else {
        return Verdict {
            signal: Some(number),
            ..case.verdict(By::NoneKnown, Sure::Unknown, Rule::SignalByProcessGone)
        };
    };
    let (by, sure, rule) = sender(case, signal);
    // A trace has seen the sender's name when it sent, and not a moment later.
    if matches!(by, By::Process { .. })
        && rule != Rule::SignalByClaim
        && let Some(mut traced) = traced::sender(case, at, number, signal.sender)
    {
        traced.evidence.push(at);
        return traced;
    }
    let mut verdict = Verdict {
        signal: Some(number),
        ..case.verdict(by, sure, rule)
    };
    if sure == Sure::Unknown {
        verdict.suspects = case.suspects(to, None);
    }
    verdict.evidence.push(at);
    verdict
}

/// The first of the signals that came in time and shortly one after the other: the later ones changed nothing.
fn first_of_the_last<'a>(
    case: &Case<'a>,
    to: Part,
    number: i32,
    until_ms: u64,
) -> Option<(usize, &'a Signal)> {
    let mut found: Option<(usize, &'a Signal)> = None;
    for at in (case.from..case.death).rev() {
        let Fact { at_ms, what } = case.facts[at];
        let Some(signal) = told!(what, Signal) else {
            continue;
        };
        let meant = signal.to == to && signal.number == number && signal.ignored.is_none();
        if !meant || at_ms > until_ms + ROUNDED_MS {
            continue;
        }
        match found {
            Some((next, _)) if case.facts[next].at_ms.saturating_sub(at_ms) > DOUBT_MS => break,
            Some(_) | None => found = Some((at, signal)),
        }
    }
    found
}

fn sender(case: &Case<'_>, signal: &Signal) -> (By, Sure, Rule) {
    let client = case.client.as_ref().map(|seen| seen.who);
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
                (case.by_client(), Sure::Certain, Rule::SignalByClient)
            }
            Some(_) => (process, Sure::Certain, Rule::SignalByProcess),
            // The kernel also signs with a dead parent's pid what that parent wished for its children.
            None if client.is_some_and(|client| client.pid == signal.sender) => {
                (case.by_client(), Sure::Probable, Rule::SignalByProcessGone)
            }
            None => (process, Sure::Unknown, Rule::SignalByProcessGone),
        },
    }
}

pub(super) fn killed(case: &Case<'_>) -> Verdict {
    let shim = case.gone(Part::Shim);
    let client = case.gone(Part::Client);
    let together = match (shim, client) {
        (Some((shim, _)), Some((client, _))) => {
            let at = |place: usize| case.facts[place].at_ms;
            at(shim).abs_diff(at(client)) <= TOGETHER_MS
        }
        (None, _) | (_, None) => false,
    };
    let traced = shim.and_then(|(at, gone)| traced::shim(case, gone, at));
    let mut verdict = if let Some(traced) = traced {
        traced
    } else if together {
        case.verdict(case.by_client(), Sure::Probable, Rule::ShimKilledWithClient)
    } else {
        Verdict {
            suspects: case.suspects(Part::Shim, shim.map(|(_, gone)| gone.who.pid)),
            ..case.verdict(By::NoneKnown, Sure::Unknown, Rule::ShimKilled)
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
