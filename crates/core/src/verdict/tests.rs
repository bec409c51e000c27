//! One case per row of the rule table.

use alloc::string::ToString;
use alloc::vec;

use super::*;
use crate::event::{
    ClientMoved, Delivery, Detached, LeaseEnded, Start, StartFailed, Suspect, Suspects, Suspicion,
    Target, Traced, Usage,
};
use crate::ids::Identity;
use crate::tier::Tier;

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
        out_of_memory,
        stderr_tail: Vec::new(),
        standing: None,
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
        rungs: Vec::new(),
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
        (0, 40, None, Sure::Probable, Rule::SignalBySomebodyGone),
        (0, 41, None, Sure::Unknown, Rule::SignalBySomebodyGone),
        (-1, 1, Some(1), Sure::Probable, Rule::SignalByClaim),
        (-1, 40, Some(4), Sure::Probable, Rule::SignalByClaim),
        (128, 0, None, Sure::Certain, Rule::SignalByTerminal),
        (0, 0, None, Sure::Certain, Rule::SignalFromOutside),
    ] {
        assert_eq!(by_signal(code, pid, start), (sure, rule), "{code} {pid}");
    }
}

#[test]
fn the_client_that_counts_is_the_last_one() {
    let heir = Seen {
        who: Identity { pid: 41, start: 9 },
        comm: "node".into(),
    };
    let moved = What::ClientMoved(ClientMoved {
        from: CLIENT,
        to: heir.clone(),
        status: None,
    });
    let told = ended(
        vec![moved, signal(0, 41, Some(9))],
        Cause::ShimSignal { number: 15 },
    );
    assert_eq!(told.rule, Rule::SignalByClient);
    assert_eq!(told.by, By::Client(Some(heir)));
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
fn before_the_teardown_is_told_the_signal_speaks() {
    let told = judged(&[
        (0, start(1)),
        (1, signal(0, 40, Some(4))),
        (1, exit(killed(15))),
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
            let nobody = rule == Rule::ServerKilled;
            assert_eq!(!told.suspects.is_empty(), nobody);
        }
    }
}

#[test]
fn what_happens_to_the_next_generation_is_another_story() {
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
        (Renewing::Asked, By::User),
        (Renewing::Idle { ms: 1 }, By::Mainstay),
    ] {
        let renewal = What::Renewal(Renewal {
            generation: 1,
            why: why.clone(),
            in_flight: 0,
        });
        let told = ended(vec![renewal.clone()], Cause::Renewal(why));
        assert_eq!((&told.by, told.rule), (&by, Rule::Renewed));
        // The teardown may not be written yet.
        let early = judged(&[(0, start(1)), (1, renewal), (1, exit(killed(15)))]);
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
        (Some(killed(9)), By::Nobody, Sure::Unknown),
        (None, By::Nobody, Sure::Unknown),
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

fn suspect(seen: Seen, why: Suspicion) -> Suspect {
    Suspect {
        seen,
        cmdline: Vec::new(),
        why,
    }
}

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
        // The same pid with another start time is somebody else.
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
        // SIGKILL and a kill for want of memory: of its leaf, of the machine.
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
        // A signal that nobody of us sent.
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

/// A traced signal to the server, from somebody.
fn traced(number: i32) -> Traced {
    Traced {
        number,
        pid: 100,
        generation: Some(1),
        sender: 77,
        sender_start: Some(7),
        comm: Some("pkill".into()),
        ..Traced::default()
    }
}

/// A server that ended so, with this traced so many milliseconds before it was told, and once more behind its successor.
fn with_trace(status: Status, traced: &Traced, before_ms: u64) -> Verdict {
    let told = What::SignalTraced(traced.clone());
    let life = What::Exit(Exit {
        uptime_ms: 60_000,
        ..any_exit(exit(status))
    });
    let first = start(1);
    let next = start(2);
    let (born, end) = (1_000_000, 1_060_000);
    let fact = |at_ms, what| Fact { at_ms, what };
    let early = [
        fact(born, &first),
        fact(end - before_ms, &told),
        fact(end, &life),
    ];
    // The tracer writes beside the keeper: its line may come last, with its true time.
    let late = [
        fact(born, &first),
        fact(end, &life),
        fact(end + 5, &next),
        fact(end - before_ms, &told),
    ];
    let verdict = judge(&early, 2).unwrap();
    let other = judge(&late, 1).unwrap();
    assert_eq!(
        (&verdict.by, verdict.sure, verdict.rule),
        (&other.by, other.sure, other.rule)
    );
    verdict
}

fn any_exit(what: What) -> Exit {
    let What::Exit(exit) = what else {
        panic!("an exit")
    };
    exit
}

#[test]
fn a_traced_signal_names_whom_nobody_knew() {
    for number in [9, 15, 2, 1, 10] {
        let told = with_trace(killed(number), &traced(number), 3);
        assert_eq!((told.sure, told.rule), (Sure::Certain, Rule::TracedSignal));
        assert_eq!(told.signal, Some(number));
        assert_eq!(told.evidence, [1, 2]);
        assert_eq!(told.suspects, []);
        let By::Process { pid, comm, .. } = told.by else {
            panic!("a process")
        };
        assert_eq!((pid, comm.as_deref()), (77, Some("pkill")));
    }
    let by_client = Traced {
        sender: CLIENT.pid,
        sender_start: Some(CLIENT.start),
        ..traced(15)
    };
    let told = with_trace(killed(15), &by_client, 3);
    assert_eq!(told.by, By::Client(Some(client())));
    // A server that takes SIGTERM as a request: its code says so, or it is only probable.
    for (code, sure) in [(143, Sure::Certain), (0, Sure::Probable)] {
        let told = with_trace(Status::Code(code), &traced(15), 300);
        assert_eq!((told.sure, told.rule), (sure, Rule::TracedSignal), "{code}");
    }
    let kernel = Traced {
        code: 128,
        ..traced(9)
    };
    let told = with_trace(killed(9), &kernel, 0);
    assert_eq!((told.by, told.rule), (By::Kernel, Rule::TracedKernel));
}

#[test]
fn a_traced_signal_that_does_not_fit_names_nobody() {
    let fits = traced(9);
    for (why, traced, before_ms) in [
        (
            "another process",
            Traced {
                pid: 101,
                ..fits.clone()
            },
            3,
        ),
        ("another signal", traced(15), 3),
        ("before its life", fits.clone(), 70_000),
        (
            "another generation",
            Traced {
                generation: Some(2),
                ..fits.clone()
            },
            3,
        ),
        (
            "ignored",
            Traced {
                result: Delivery::Ignored,
                ..fits.clone()
            },
            3,
        ),
        (
            "to the shim, whose pid it had once",
            Traced {
                to: Target::Shim,
                ..fits.clone()
            },
            3,
        ),
    ] {
        let told = with_trace(killed(9), &traced, before_ms);
        assert_eq!(
            (told.sure, told.rule),
            (Sure::Unknown, Rule::ServerKilled),
            "{why}"
        );
    }
    // Long before a clean end, it was no request to end.
    let told = with_trace(Status::Code(0), &traced(15), 30_000);
    assert_eq!(told.rule, Rule::ServerByItself);
    // A crash is a crash.
    assert_eq!(
        with_trace(killed(11), &traced(11), 3).rule,
        Rule::ServerByItself
    );
}

#[test]
fn a_traced_kill_of_shim_or_keeper() {
    let to_shim = What::SignalTraced(Traced {
        to: Target::Shim,
        pid: CLIENT.pid,
        start: Some(CLIENT.start),
        generation: None,
        ..traced(9)
    });
    let told = ended(vec![to_shim.clone(), gone(Part::Shim)], Cause::ShimKilled);
    assert_eq!((told.sure, told.rule), (Sure::Certain, Rule::TracedSignal));
    assert_eq!(told.evidence, [1, 2, 3, 4]);
    // The pid has been somebody else's since.
    let reused = What::SignalTraced(Traced {
        to: Target::Shim,
        pid: CLIENT.pid,
        start: Some(CLIENT.start + 1),
        ..traced(9)
    });
    let told = ended(vec![reused, gone(Part::Shim)], Cause::ShimKilled);
    assert_eq!(told.rule, Rule::ShimKilled);
    let lost = What::KeeperLost(Lost {
        pid: 50,
        status: Some(killed(9)),
        ended: 1,
        settled: 0,
        successor: None,
    });
    let to_keeper = What::SignalTraced(Traced {
        to: Target::Keeper,
        pid: 50,
        ..traced(9)
    });
    let told = judged(&[(0, start(1)), (5, lost), (0, to_keeper)]);
    assert_eq!((told.sure, told.rule), (Sure::Certain, Rule::TracedSignal));
    assert_eq!(told.evidence, [1, 2]);
    // A sender that was gone before the shim could look: the trace has its name.
    let shim = What::SignalTraced(Traced {
        to: Target::Shim,
        sender_start: None,
        ..traced(15)
    });
    let told = ended(
        vec![signal(0, 77, None), shim],
        Cause::ShimSignal { number: 15 },
    );
    assert_eq!((told.sure, told.rule), (Sure::Certain, Rule::TracedSignal));
}
