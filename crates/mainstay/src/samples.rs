//! One event of each kind, for tests and for the reference page of events.

use mainstay_core::event::{
    Abandoned, CallDeadline, Cause, ClientMoved, Detached, Differs, Event, Exit, Gone, Instant,
    Junk, LingerEnded, Lingering, ListChanged, Lost, OpeningSilent, Origin, Part, Parting,
    ProbesUnanswered, Reattached, Relation, Renewal, Renewing, Replayed, Rung, Seen, Signal, Start,
    StartFailed, Status, StderrDropped, Sweep, Teardown, Usage, VERSION, What,
};
use mainstay_core::ids::{Identity, LinkId};
use mainstay_core::tier::{Tier, WhyNot};

/// The event around a happening.
pub fn event(what: What) -> Event {
    Event {
        v: VERSION,
        at: "2026-11-15T22:31:07.123Z".into(),
        id: LinkId(0x3f2a_1b0c),
        server: "playwright".into(),
        what,
    }
}

/// A process.
pub fn seen(pid: i32, comm: &str) -> Seen {
    Seen {
        who: identity(pid),
        comm: comm.into(),
    }
}

fn identity(pid: i32) -> Identity {
    Identity {
        pid,
        start: 1_234_567,
    }
}

/// One of each kind, in the order of the events' own list.
pub fn all() -> Vec<What> {
    let argv = |program: &str| vec![program.into(), "-y".into(), "@playwright/mcp".into()];
    let killed = Some(Status::Signal {
        number: 9,
        core: false,
    });
    vec![
        What::Start(Start {
            generation: 1,
            argv: argv("npx"),
            cwd: "/home/ann/work".into(),
            pid: 4711,
            tier: Tier::Cgroup,
            why_not: vec![WhyNot {
                tier: Tier::Scope,
                reason: "no systemd user manager".into(),
            }],
            client: Some(seen(4000, "claude")),
            detached: Detached::Yes,
        }),
        What::StartFailed(StartFailed {
            argv: argv("npxx"),
            cwd: "/home/ann/work".into(),
            problem: "there is no command `npxx`".into(),
            hint: "is it installed, and in PATH?".into(),
        }),
        What::Exit(Exit {
            generation: 1,
            pid: 4711,
            status: Status::Signal {
                number: 11,
                core: true,
            },
            uptime_ms: 3_200,
            usage: Usage {
                user_ms: 700,
                system_ms: 90,
                max_rss_kib: 98_304,
            },
            in_flight: 2,
            kept: 1,
            out_of_memory: None,
            stderr_tail: vec!["oh no".into()],
        }),
        What::Teardown(Teardown {
            cause: Cause::ClientEof,
            rungs: vec![Rung::Eof],
            ms: 12,
            ended: 3,
            left: Vec::new(),
        }),
        What::Sweep(Sweep {
            of: LinkId(0xbeef),
            owner: identity(42),
            by: vec!["leaf".into(), "tag".into()],
            ended: vec![seen(50, "node")],
            left: Vec::new(),
        }),
        What::Signal(Signal {
            number: 15,
            code: 0,
            sender: 4000,
            uid: 1000,
            comm: Some("claude".into()),
            to: Part::Shim,
            origin: Some(Origin::Kill),
            start: Some(1_234_567),
            exe: Some("/usr/bin/node".into()),
            cmdline: vec!["claude".into(), "--resume".into()],
            ancestry: Vec::new(),
            relation: Some(Relation::Client),
            gone: false,
        }),
        What::Gone(Gone {
            part: Part::Client,
            who: identity(4000),
            status: killed,
        }),
        What::GuardLost(Lost {
            pid: 43,
            status: killed,
            ended: 0,
            settled: 0,
            successor: Some(48),
        }),
        What::KeeperLost(Lost {
            pid: 44,
            status: killed,
            ended: 3,
            settled: 1,
            successor: Some(49),
        }),
        What::ClientMoved(ClientMoved {
            from: identity(4000),
            to: seen(4001, "node"),
            status: Some(Status::Code(0)),
        }),
        What::Junk(Junk {
            lines: 3,
            sample: "Listening on stdio".into(),
        }),
        What::StderrDropped(StderrDropped { bytes: 100_663_296 }),
        What::OpeningSilent(OpeningSilent { ms: 55_000 }),
        What::Renewal(Renewal {
            generation: 2,
            why: Renewing::Changed {
                path: "src/server.py".into(),
            },
            in_flight: 1,
        }),
        What::Replayed(Replayed {
            generation: 3,
            ms: 180,
            level: true,
            subscriptions: 2,
            listens: 0,
            resent: 1,
        }),
        What::Differs(Differs {
            generation: 3,
            what: "it has lost prompts".into(),
        }),
        What::Abandoned(Abandoned {
            deaths: 5,
            window_ms: 60_000,
            last: "exit code 1".into(),
            changed: None,
            probe_ms: 60_000,
        }),
        What::ListChanged(ListChanged {
            lists: vec!["tools".into()],
        }),
        What::Instant(Instant {
            method: "initialize".into(),
            ms: 300,
        }),
        What::ProbesUnanswered(ProbesUnanswered { lost: 3 }),
        What::CallDeadline(CallDeadline {
            request: "tools/call".into(),
            ms: 60_000,
        }),
        What::Lingering(Lingering {
            cause: Cause::ShimSignal { number: 15 },
            ms: 60_000,
            uptime_ms: 41_200,
            in_flight: 1,
        }),
        What::Reattached(Reattached {
            after_ms: 4_100,
            dropped: 1,
        }),
        What::LingerEnded(LingerEnded {
            why: Parting::TimeOver,
            after_ms: 60_000,
            dropped: 0,
        }),
    ]
}
