//! What mainstay had done by the time of the death: the exit itself says it, whenever the question is asked.
//! guards: The verdict on a death is the same before and after the teardown.

use alloc::vec;

use mainstay_protocol::event::{Lingering, Pipe, PipeEnd, Reattached};

use super::*;

const EOF: &[Rung] = &[Rung::Eof];
const TERM: &[Rung] = &[Rung::Eof, Rung::Term];
const KILL: &[Rung] = &[Rung::Eof, Rung::Term, Rung::Kill];

/// Every cause with what is written before it, and the rule that decides.
fn causes() -> Vec<(Cause, Vec<What>, Rule)> {
    let lease = LeaseEnded {
        lease: "night".into(),
        over: Over::Expired { ttl_ms: 1 },
    };
    vec![
        (Cause::ClientEof, Vec::new(), Rule::ClientClosed),
        (
            Cause::ClientEof,
            vec![gone(Part::Client)],
            Rule::ClientEnded,
        ),
        (
            Cause::ClientGone,
            vec![gone(Part::Client)],
            Rule::ClientEnded,
        ),
        (Cause::ClientDeaf, Vec::new(), Rule::ClientDeaf),
        (
            Cause::ShimSignal { number: 15 },
            vec![signal(0, 40, Some(4))],
            Rule::SignalByClient,
        ),
        (
            Cause::ShimSignal { number: 15 },
            vec![signal(0, 77, Some(7))],
            Rule::SignalByProcess,
        ),
        (Cause::ShimKilled, vec![gone(Part::Shim)], Rule::ShimKilled),
        (Cause::Asked, Vec::new(), Rule::Asked),
        (
            Cause::Restart(RestartReason::Asked),
            Vec::new(),
            Rule::Renewed,
        ),
        (
            Cause::Restart(RestartReason::Idle { ms: 1 }),
            Vec::new(),
            Rule::Renewed,
        ),
        (Cause::Differs, Vec::new(), Rule::Differs),
        (Cause::LeaseEnded(lease), Vec::new(), Rule::LeaseEnded),
    ]
}

/// A life that ended on its way down; asked before the tree was empty, and after that and the next start.
fn at_any_time(before: Vec<What>, exit: &What, cause: &Cause) -> Verdict {
    let mut steps = vec![(0, start(1))];
    steps.extend(before.into_iter().map(|what| (5, what)));
    steps.push((20, exit.clone()));
    let early = judged(&steps);
    steps.push((700, teardown(cause.clone())));
    let then = judged(&steps);
    steps.push((9, start(2)));
    let later = judged(&steps);
    assert_eq!(then, later);
    let said = |told: &Verdict| (told.by.clone(), told.sure, told.rule, told.signal);
    assert_eq!(said(&early), said(&then), "{cause:?}");
    early
}

#[test]
fn the_verdict_is_the_same_before_and_after_the_teardown() {
    for (cause, before, rule) in causes() {
        for (status, rungs) in [
            (Status::Code(0), EOF),
            (Status::Code(1), EOF),
            (killed(13), EOF),
            (Status::Code(143), TERM),
            (killed(15), TERM),
            (killed(9), KILL),
        ] {
            let exit = exit_on_the_way(status, cause.clone(), rungs);
            let told = at_any_time(before.clone(), &exit, &cause);
            assert_eq!(told.rule, rule, "{cause:?} {status}");
        }
    }
}

#[test]
fn a_signal_that_was_not_sent_is_another_process_s() {
    for (cause, before, _) in causes() {
        for (number, rungs) in [(9, EOF), (15, EOF), (9, TERM), (1, KILL), (2, TERM)] {
            let exit = exit_on_the_way(killed(number), cause.clone(), rungs);
            let told = at_any_time(before.clone(), &exit, &cause);
            assert_eq!(
                (told.by, told.sure, told.rule, told.signal),
                (
                    By::NoneKnown,
                    Sure::Unknown,
                    Rule::ServerKilled,
                    Some(number)
                ),
                "{cause:?}"
            );
        }
    }
}

#[test]
fn a_server_that_closed_its_end() {
    use Sure::{Certain, Unknown};
    let end = |pipe| {
        What::PipeEnd(PipeEnd {
            pipe,
            generation: 1,
        })
    };
    let closed = || vec![end(Pipe::ServerStdin), end(Pipe::ServerStdout)];
    for (status, rungs, by, sure, rule) in [
        // It was on its way out: a process that ends closes its pipes first.
        (
            Status::Code(0),
            EOF,
            By::Server,
            Certain,
            Rule::ServerByItself,
        ),
        (killed(11), EOF, By::Server, Certain, Rule::ServerByItself),
        (killed(9), EOF, By::NoneKnown, Unknown, Rule::ServerKilled),
        // It lived on.
        (
            Status::Code(0),
            TERM,
            By::Mainstay,
            Certain,
            Rule::ServerClosed,
        ),
        (killed(15), TERM, By::Mainstay, Certain, Rule::ServerClosed),
        (killed(9), KILL, By::Mainstay, Certain, Rule::ServerClosed),
        (killed(9), TERM, By::NoneKnown, Unknown, Rule::ServerKilled),
    ] {
        let exit = exit_on_the_way(status, Cause::ServerExit, rungs);
        let told = at_any_time(closed(), &exit, &Cause::ServerExit);
        assert_eq!(
            (told.by, told.sure, told.rule),
            (by, sure, rule),
            "{status}"
        );
        let pipe = told.evidence.contains(&1) && !told.evidence.contains(&2);
        assert_eq!(pipe, rule == Rule::ServerClosed, "{status}");
        assert_eq!(told.suspects.is_empty(), sure != Unknown, "{status}");
    }
}

#[test]
fn a_signal_that_the_server_survived_did_not_end_it() {
    let lingering = What::Lingering(Lingering {
        cause: Cause::ShimSignal { number: 15 },
        ms: 5_000,
        uptime_ms: 1,
        in_flight: 0,
    });
    let back = What::Reattached(Reattached {
        after_ms: 10,
        dropped: 0,
        replaced: None,
    });
    let restarting = What::Restarting(Restarting {
        generation: 1,
        why: RestartReason::Asked,
        in_flight: 1,
    });
    for before in [
        vec![signal(0, 40, Some(4))],
        vec![signal(0, 40, Some(4)), lingering, back],
        // It was still answering what was in flight.
        vec![restarting],
    ] {
        for (status, rule) in [
            (Status::Code(1), Rule::ServerByItself),
            (killed(11), Rule::ServerByItself),
            (killed(9), Rule::ServerKilled),
        ] {
            let mut steps = vec![(0, start(1))];
            steps.extend(before.iter().map(|what| (500, what.clone())));
            steps.push((500, exit(status)));
            let facts: Vec<Fact<'_>> = steps
                .iter()
                .map(|(at_ms, what)| Fact {
                    at_ms: *at_ms,
                    what,
                })
                .collect();
            let last = *deaths(&facts).last().unwrap();
            assert_eq!(judge(&facts, last).unwrap().rule, rule, "{before:?}");
        }
    }
}

#[test]
fn of_several_signals_the_first_that_led_to_the_end_counts() {
    let to_keeper = What::Signal(Signal {
        number: 15,
        sender: 7,
        start: Some(7),
        to: Part::Keeper,
        ..Signal::default()
    });
    let by_client = signal(0, 40, Some(4));
    let by_other = signal(0, 77, Some(7));
    let end = exit_on_the_way(Status::Code(0), Cause::ShimSignal { number: 15 }, EOF);
    for (gap, signals, began_by) in [
        // The keeper's is another one, before and after.
        (20, vec![by_client.clone(), to_keeper.clone()], Some(1)),
        (20, vec![to_keeper, by_client.clone()], Some(2)),
        // The second of two changed nothing.
        (20, vec![by_client.clone(), by_other.clone()], Some(1)),
        (20, vec![by_other.clone(), by_client.clone()], Some(1)),
        // One that was survived long before.
        (5_000, vec![by_other.clone(), by_client.clone()], Some(2)),
        (20, Vec::new(), None),
    ] {
        let mut steps = vec![(0, start(1))];
        steps.extend(signals.into_iter().map(|what| (gap, what)));
        steps.push((20, end.clone()));
        // One that came behind the death.
        steps.push((1, by_other.clone()));
        let told = judged(&steps);
        let death = steps.len() - 2;
        let expected: Vec<usize> = began_by.into_iter().chain([death]).collect();
        assert_eq!(told.evidence, expected, "{steps:?}");
        let sure = began_by.map_or(Sure::Unknown, |_| Sure::Certain);
        assert_eq!(told.sure, sure);
    }
}

#[test]
fn a_client_that_ends_with_its_eof_and_one_that_ends_later() {
    for (later, rule) in [(900, Rule::ClientEnded), (1_100, Rule::ClientClosed)] {
        let told = judged(&[
            (0, start(1)),
            (20, exit_on_the_way(Status::Code(0), Cause::ClientEof, EOF)),
            // The EOF was 10 ms before the exit.
            (later - 10, gone(Part::Client)),
        ]);
        assert_eq!((told.rule, told.sure), (rule, Sure::Certain), "{later}");
    }
}
