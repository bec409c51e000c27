//! One case per row of the rule table, and the suspects where the sender was not seen.
//! guards: Every row of the rule table has a case with its verdict.

use alloc::vec;

use mainstay_protocol::event::Suspects;

use super::*;

/// `reference/containment.md` §4c, row by row and in its order.
#[test]
fn every_row_of_the_rule_table() {
    use Sure::{Certain, Probable, Unknown};
    let shim_signal = Cause::ShimSignal { number: 15 };
    let rows = [
        // The shim read a signal of the client's, by pid and start time.
        (
            vec![signal(0, 40, Some(4))],
            exit(killed(15)),
            vec![teardown(shim_signal.clone())],
            Rule::SignalByClient,
            Certain,
        ),
        // The same pid with another start time is another process.
        (
            vec![signal(0, 40, Some(5))],
            exit(killed(15)),
            vec![teardown(shim_signal.clone())],
            Rule::SignalByProcess,
            Certain,
        ),
        // The shim read a signal of the kernel's.
        (
            vec![signal(128, 0, None)],
            exit(killed(15)),
            vec![teardown(shim_signal)],
            Rule::SignalByTerminal,
            Certain,
        ),
        // End of stdin, client alive.
        (
            Vec::new(),
            exit(Status::Code(0)),
            vec![teardown(Cause::ClientEof)],
            Rule::ClientClosed,
            Certain,
        ),
        // End of stdin, client dead.
        (
            Vec::new(),
            exit(Status::Code(0)),
            vec![gone(Part::Client), teardown(Cause::ClientEof)],
            Rule::ClientEnded,
            Certain,
        ),
        // An exit code, a core signal: by itself.
        (
            Vec::new(),
            exit(Status::Code(1)),
            Vec::new(),
            Rule::ServerByItself,
            Certain,
        ),
        (
            Vec::new(),
            exit(killed(11)),
            Vec::new(),
            Rule::ServerByItself,
            Certain,
        ),
        // SIGKILL because memory had run out: that of its cgroup, that of the machine.
        (
            Vec::new(),
            exit_by(killed(9), Some(OutOfMemory::Tree)),
            Vec::new(),
            Rule::OutOfMemory,
            Certain,
        ),
        (
            Vec::new(),
            exit_by(killed(9), Some(OutOfMemory::Machine)),
            Vec::new(),
            Rule::OutOfMemory,
            Probable,
        ),
        // A signal that mainstay did not send.
        (
            Vec::new(),
            exit(killed(15)),
            Vec::new(),
            Rule::ServerKilled,
            Unknown,
        ),
        // The shim was killed, with and without the client.
        (
            vec![gone(Part::Shim), gone(Part::Client)],
            exit(Status::Code(0)),
            vec![teardown(Cause::ShimKilled)],
            Rule::ShimKilledWithClient,
            Probable,
        ),
        (
            vec![gone(Part::Shim)],
            exit(Status::Code(0)),
            vec![teardown(Cause::ShimKilled)],
            Rule::ShimKilled,
            Unknown,
        ),
    ];
    for (before, death, behind, rule, sure) in rows {
        let mut steps = vec![(0, start(1))];
        steps.extend(before.into_iter().map(|what| (10, what)));
        steps.push((10, death));
        steps.extend(behind.into_iter().map(|what| (10, what)));
        let told = judged(&steps);
        assert_eq!((told.rule, told.sure), (rule, sure));
        assert_eq!(told.suspects.is_empty(), sure != Unknown, "{rule:?}");
    }
}

#[test]
fn suspects_are_those_that_were_seen_then() {
    let seen = |part, pid| {
        let script = Seen {
            who: Identity { pid: 77, start: 7 },
            comm: "pkill".into(),
        };
        What::Suspects(Suspects {
            part,
            pid,
            who: vec![
                suspect(client(), Suspicion::Client),
                suspect(script, Suspicion::Name),
            ],
            looked_at: 200,
            all: true,
        })
    };
    // They are written behind the next start, which they must not delay.
    let told = judged(&[
        (0, start(1)),
        (5, exit(killed(9))),
        (1, start(2)),
        (1, seen(Part::Server, 100)),
    ]);
    let names: Vec<&str> = told
        .suspects
        .iter()
        .map(|one| one.seen.comm.as_str())
        .collect();
    assert_eq!(names, ["claude", "pkill"]);
    for other in [seen(Part::Server, 101), seen(Part::Shim, 100)] {
        let told = judged(&[
            (0, start(1)),
            (5, exit(killed(9))),
            (1, start(2)),
            (1, other),
        ]);
        assert_eq!(told.suspects, [suspect(client(), Suspicion::Client)]);
    }
}
