//! What a trace of signals makes certain.
//! guards: A traced signal names its sender only for the process and the life that it was sent to.

use mainstay_protocol::event::{Delivery, Target, Traced};

use super::*;

/// A traced signal to the server, from a process that is not related to it.
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
fn a_traced_signal_names_a_sender_that_was_unknown() {
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
fn a_traced_signal_that_does_not_fit_names_no_process() {
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
    // Another process has had the pid since.
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
