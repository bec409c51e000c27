//! Who ended it: a life with its death, and the rule that decides.
//! guards: No verdict names a process that no event names.

use alloc::string::ToString;
use alloc::vec;

use mainstay_protocol::event::{
    Cause, ClientMoved, Detached, Ending, Exit, Gone, LeaseEnded, Lost, OutOfMemory, Part,
    RestartReason, Restarting, Rung, Signal, Start, StartFailed, Suspicion, Teardown, Usage,
};
use mainstay_protocol::ids::Identity;
use mainstay_protocol::lease::Over;
use mainstay_protocol::tier::Tier;

use super::*;

mod ending;
mod table;
mod traced;

const CLIENT: Identity = Identity { pid: 40, start: 4 };

fn client() -> Seen {
    Seen {
        who: CLIENT,
        comm: "claude".into(),
    }
}

fn start(generation: u32) -> What {
    What::Start(Start {
        generation,
        argv: Vec::new(),
        cwd: String::new(),
        pid: 100,
        tier: Tier::Subreaper,
        why_not: Vec::new(),
        client: Some(client()),
        detached: Detached::Yes,
        recording: None,
    })
}

fn exit(status: Status) -> What {
    exit_by(status, None)
}

fn exit_by(status: Status, out_of_memory: Option<OutOfMemory>) -> What {
    What::Exit(Exit {
        generation: 1,
        pid: 100,
        status,
        uptime_ms: 5,
        usage: Usage::default(),
        in_flight: 0,
        kept: 0,
        ending: None,
        out_of_memory,
        stderr_tail: Vec::new(),
        standing: None,
    })
}

/// The end of a server that was on its way down.
fn exit_on_the_way(status: Status, cause: Cause, rungs: &[Rung]) -> What {
    let What::Exit(exit) = exit(status) else {
        unreachable!("an exit is one")
    };
    What::Exit(Exit {
        ending: Some(Ending {
            cause,
            rungs: rungs.into(),
            ms: 10,
        }),
        ..exit
    })
}

fn killed(number: i32) -> Status {
    Status::Signal {
        number,
        core: false,
    }
}

fn teardown(cause: Cause) -> What {
    What::Teardown(Teardown {
        cause,
        rungs: vec![Rung::Eof, Rung::Term, Rung::Kill],
        ms: 10,
        ended: 1,
        left: Vec::new(),
    })
}

fn gone(part: Part) -> What {
    What::Gone(Gone {
        part,
        who: CLIENT,
        status: Some(killed(9)),
        standing: None,
    })
}

fn signal(code: i32, pid: i32, start: Option<u64>) -> What {
    What::Signal(Signal {
        number: 15,
        code,
        sender: pid,
        start,
        gone: start.is_none(),
        ..Signal::default()
    })
}

fn suspect(seen: Seen, why: Suspicion) -> Suspect {
    Suspect {
        seen,
        cmdline: Vec::new(),
        why,
    }
}

/// The verdict on the first death; each fact is so many milliseconds after the one before it.
fn judged(steps: &[(u64, What)]) -> Verdict {
    let mut now = 1_000_000;
    let facts: Vec<Fact<'_>> = steps
        .iter()
        .map(|(later, what)| {
            now += later;
            Fact { at_ms: now, what }
        })
        .collect();
    judge(&facts, deaths(&facts)[0]).unwrap()
}

/// A life with this in the middle, which ended for this cause.
fn ended(before: Vec<What>, cause: Cause) -> Verdict {
    let mut steps = vec![(0, start(1))];
    steps.extend(before.into_iter().map(|what| (10, what)));
    steps.push((10, exit(killed(15))));
    steps.push((10, teardown(cause)));
    judged(&steps)
}

fn by_signal(code: i32, pid: i32, start: Option<u64>) -> (Sure, Rule) {
    let told = ended(
        vec![signal(code, pid, start)],
        Cause::ShimSignal { number: 15 },
    );
    assert_eq!(told.evidence, [1, 2, 3]);
    assert_eq!(told.signal, Some(15));
    (told.sure, told.rule)
}

#[test]
fn a_signal_to_the_shim() {
    for (code, pid, start, sure, rule) in [
        (0, 40, Some(4), Sure::Certain, Rule::SignalByClient),
        (-6, 40, Some(4), Sure::Certain, Rule::SignalByClient),
        // The client's pid, but another process.
        (0, 40, Some(5), Sure::Certain, Rule::SignalByProcess),
        (0, 41, Some(4), Sure::Certain, Rule::SignalByProcess),
        (0, 40, None, Sure::Probable, Rule::SignalByProcessGone),
        (0, 41, None, Sure::Unknown, Rule::SignalByProcessGone),
        (-1, 1, Some(1), Sure::Probable, Rule::SignalByClaim),
        (-1, 40, Some(4), Sure::Probable, Rule::SignalByClaim),
        (128, 0, None, Sure::Certain, Rule::SignalByTerminal),
        (0, 0, None, Sure::Certain, Rule::SignalFromOutside),
    ] {
        assert_eq!(by_signal(code, pid, start), (sure, rule), "{code} {pid}");
    }
}

/// What was ignored has ended nothing.
#[test]
fn a_strangers_ignored_signal_is_no_cause() {
    let ignored = |sender| {
        What::Signal(Signal {
            number: 15,
            sender,
            start: Some(9),
            ignored: Some(1),
            ..Signal::default()
        })
    };
    let unasked = judged(&[(0, start(1)), (1, ignored(70)), (1, exit(killed(15)))]);
    assert_eq!(
        (unasked.rule, unasked.sure),
        (Rule::ServerKilled, Sure::Unknown)
    );
    let by_client = ended(
        vec![signal(0, 40, Some(4)), ignored(70)],
        Cause::ShimSignal { number: 15 },
    );
    assert_eq!(by_client.rule, Rule::SignalByClient);
}

#[test]
fn the_client_that_counts_is_the_last_one() {
    let successor = Seen {
        who: Identity { pid: 41, start: 9 },
        comm: "node".into(),
    };
    let moved = What::ClientMoved(ClientMoved {
        from: CLIENT,
        to: successor.clone(),
        status: None,
    });
    let told = ended(
        vec![moved, signal(0, 41, Some(9))],
        Cause::ShimSignal { number: 15 },
    );
    assert_eq!(told.rule, Rule::SignalByClient);
    assert_eq!(told.by, By::Client(Some(successor)));
}

#[test]
fn a_signal_to_the_keeper_is_another_one() {
    let to_keeper = What::Signal(Signal {
        number: 15,
        sender: 7,
        start: Some(7),
        to: Part::Keeper,
        ..Signal::default()
    });
    let told = ended(
        vec![signal(0, 40, Some(4)), to_keeper],
        Cause::KeeperSignal { number: 15 },
    );
    assert_eq!(told.rule, Rule::SignalByProcess);
    assert_eq!(told.evidence, [2, 3, 4]);
}

#[test]
fn without_a_teardown_event_the_signal_decides() {
    let told = judged(&[
        (0, start(1)),
        (1, signal(0, 40, Some(4))),
        (
            10,
            exit_on_the_way(
                killed(15),
                Cause::ShimSignal { number: 15 },
                &[Rung::Eof, Rung::Term],
            ),
        ),
    ]);
    assert_eq!(
        (told.rule, told.sure),
        (Rule::SignalByClient, Sure::Certain)
    );
}

#[test]
fn eof_of_a_client_that_lives_and_of_one_that_is_dead() {
    let lives = ended(Vec::new(), Cause::ClientEof);
    assert_eq!(
        (lives.rule, lives.sure),
        (Rule::ClientClosed, Sure::Certain)
    );
    assert_eq!(lives.by, By::Client(Some(client())));
    for (later, rule) in [(20, Rule::ClientEnded), (5_000, Rule::ClientClosed)] {
        let told = judged(&[
            (0, start(1)),
            (10, exit(Status::Code(0))),
            (0, teardown(Cause::ClientEof)),
            (later, gone(Part::Client)),
        ]);
        assert_eq!((told.rule, told.sure), (rule, Sure::Certain), "{later}");
    }
    let gone = ended(vec![gone(Part::Client)], Cause::ClientGone);
    assert_eq!((gone.rule, gone.sure), (Rule::ClientEnded, Sure::Certain));
    assert_eq!(gone.evidence, [1, 2, 3]);
    assert_eq!(ended(Vec::new(), Cause::ClientDeaf).rule, Rule::ClientDeaf);
}

#[test]
fn a_server_that_ends_unasked() {
    use OutOfMemory::{Machine, Tree};
    for (status, memory, sure, rule) in [
        (Status::Code(0), None, Sure::Certain, Rule::ServerByItself),
        (Status::Code(3), None, Sure::Certain, Rule::ServerByItself),
        (
            Status::Code(143),
            None,
            Sure::Probable,
            Rule::ServerByItself,
        ),
        (killed(11), None, Sure::Certain, Rule::ServerByItself),
        (killed(6), None, Sure::Certain, Rule::ServerByItself),
        (killed(9), Some(Tree), Sure::Certain, Rule::OutOfMemory),
        (killed(9), Some(Machine), Sure::Probable, Rule::OutOfMemory),
        (killed(9), None, Sure::Unknown, Rule::ServerKilled),
        (killed(15), None, Sure::Unknown, Rule::ServerKilled),
    ] {
        for rest in [Vec::new(), vec![(9, teardown(Cause::ServerExit))]] {
            let mut steps = vec![(0, start(1)), (5, exit_by(status, memory))];
            steps.extend(rest);
            let told = judged(&steps);
            assert_eq!((told.sure, told.rule), (sure, rule), "{status}");
            let unseen = rule == Rule::ServerKilled;
            assert_eq!(!told.suspects.is_empty(), unseen);
        }
    }
}

#[test]
fn events_of_the_next_generation_do_not_count() {
    let told = judged(&[
        (0, start(1)),
        (5, exit(Status::Code(1))),
        (5, start(2)),
        (5, signal(0, 40, Some(4))),
        (5, teardown(Cause::ShimSignal { number: 15 })),
    ]);
    assert_eq!(told.rule, Rule::ServerByItself);
    assert_eq!(told.evidence, [1]);
}

#[test]
fn a_killed_shim() {
    for (later, sure, rule) in [
        (900, Sure::Probable, Rule::ShimKilledWithClient),
        (1_100, Sure::Unknown, Rule::ShimKilled),
    ] {
        let told = judged(&[
            (0, start(1)),
            (5, gone(Part::Shim)),
            (5, exit(Status::Code(0))),
            (5, teardown(Cause::ShimKilled)),
            (later - 10, gone(Part::Client)),
        ]);
        assert_eq!((told.sure, told.rule), (sure, rule));
        assert_eq!(told.signal, Some(9));
    }
    let alone = ended(vec![gone(Part::Shim)], Cause::ShimKilled);
    assert_eq!((alone.sure, alone.rule), (Sure::Unknown, Rule::ShimKilled));
    assert_eq!(alone.suspects, [suspect(client(), Suspicion::Client)]);
}

#[test]
fn our_own_doing() {
    let asked = ended(Vec::new(), Cause::Asked);
    assert_eq!((asked.by, asked.rule), (By::User, Rule::Asked));
    for (over, by) in [
        (Over::Closed { by: None }, By::User),
        (Over::Expired { ttl_ms: 1 }, By::Mainstay),
    ] {
        let lease = "night".into();
        let told = ended(Vec::new(), Cause::LeaseEnded(LeaseEnded { lease, over }));
        assert_eq!((told.by, told.rule), (by, Rule::LeaseEnded));
    }
    for (why, by) in [
        (RestartReason::Asked, By::User),
        (RestartReason::Idle { ms: 1 }, By::Mainstay),
    ] {
        let restarting = What::Restarting(Restarting {
            generation: 1,
            why: why.clone(),
            in_flight: 0,
        });
        let told = ended(vec![restarting.clone()], Cause::Restart(why.clone()));
        assert_eq!((&told.by, told.rule), (&by, Rule::Renewed));
        // The teardown may not be written yet.
        let end = exit_on_the_way(killed(15), Cause::Restart(why), &[Rung::Eof, Rung::Term]);
        let early = judged(&[(0, start(1)), (1, restarting), (1, end)]);
        assert_eq!((early.by, early.rule), (by, Rule::Renewed));
    }
    assert_eq!(ended(Vec::new(), Cause::Differs).rule, Rule::Differs);
}

#[test]
fn a_start_that_failed_and_a_keeper_that_was_lost() {
    let failed = What::StartFailed(StartFailed {
        argv: Vec::new(),
        cwd: String::new(),
        problem: "x".to_string(),
        hint: String::new(),
    });
    let told = judged(&[(0, failed)]);
    assert_eq!((told.sure, told.rule), (Sure::Certain, Rule::CannotStart));
    for (status, by, sure) in [
        (Some(killed(9)), By::NoneKnown, Sure::Unknown),
        (None, By::NoneKnown, Sure::Unknown),
        (Some(killed(11)), By::Mainstay, Sure::Certain),
        (Some(Status::Code(1)), By::Mainstay, Sure::Certain),
    ] {
        let lost = What::KeeperLost(Lost {
            pid: 1,
            status,
            ended: 1,
            settled: 0,
            successor: None,
        });
        let told = judged(&[(0, start(1)), (1, lost)]);
        assert_eq!((told.by, told.sure), (by, sure));
    }
}

#[test]
fn no_facts_no_verdict() {
    assert_eq!(judge(&[], 0), None);
    let alive = start(1);
    let facts = [Fact {
        at_ms: 0,
        what: &alive,
    }];
    assert_eq!(deaths(&facts), Vec::<usize>::new());
    assert_eq!(judge(&facts, 0), None);
    assert_eq!(judge(&facts, 9), None);
}
