//! One event of each kind, for tests and for the reference page of events.

use mainstay_protocol::event::SessionEnd;
use mainstay_protocol::event::{
    Abandoned, Brief, CallDeadline, Cause, ClientMoved, ClientSessionClosed, ClientSessionOpened,
    ConfigMistake, Delivery, Detached, Event, Exit, FromCache, Gone, Junk, LeaseEnded, LeaseOpened,
    LeftoversEnded, LingerEnded, Lingering, ListChanged, Lost, OpeningSilent, Origin, Part,
    Parting, Pipe, PipeEnd, ProbesUnanswered, Reattached, RecordingIncomplete, Relation,
    RestartReason, Restarting, Rung, Seen, ServeStarted, ServeStopped, ServerChanged, ServerReady,
    SessionClosed, SessionClosedLate, SessionGivenUp, SessionOpened, Signal, Standing, Start,
    StartFailed, Status, StderrDropped, Suspect, Suspects, Suspicion, Target, Teardown, Traced,
    Usage, VERSION, Waiting, What,
};
use mainstay_protocol::frames::{Kind, Side};
use mainstay_protocol::ids::{Identity, LinkId};
use mainstay_protocol::lease::Over;
use mainstay_protocol::tier::{Tier, WhyNot};

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

fn suspect(seen: Seen, line: &str, why: Suspicion) -> Suspect {
    Suspect {
        seen,
        cmdline: line.split(' ').map(Into::into).collect(),
        why,
    }
}

/// How a link stood.
pub fn standing() -> Standing {
    let brief = |ago_ms, from, to, kind, latency_ms| Brief {
        ago_ms,
        from,
        to,
        kind,
        method: Some("tools/call".into()),
        id: Some("7".into()),
        bytes: 120,
        latency_ms,
    };
    Standing {
        wall_ms: 0,
        since_handshake_ms: Some(3_000),
        stdin_open: true,
        last_answer_ms: Some(800),
        in_flight: 2,
        waiting: vec![Waiting {
            request: "tools/call".into(),
            id: "8".into(),
            ms: 400,
        }],
        frames: vec![
            brief(841, Side::Client, Side::Server, Kind::Request, None),
            brief(800, Side::Server, Side::Client, Kind::Response, Some(41)),
        ],
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
            recording: None,
        }),
        What::StartFailed(StartFailed {
            argv: argv("npxx"),
            cwd: "/home/ann/work".into(),
            problem: "there is no command `npxx`".into(),
            hint: "is it installed, and in PATH?".into(),
        }),
        What::ConfigMistake(ConfigMistake {
            problem:
                "/home/ann/.config/mainstay/config.toml:2: unknown key `grace_trem` in [defaults]"
                    .into(),
            hint: "did you mean `grace_term`?".into(),
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
            ending: None,
            out_of_memory: None,
            stderr_tail: vec!["oh no".into()],
            standing: Some(standing().into()),
        }),
        What::Teardown(Teardown {
            cause: Cause::ClientEof,
            rungs: vec![Rung::Eof],
            ms: 12,
            ended: 3,
            left: Vec::new(),
        }),
        What::LeftoversEnded(LeftoversEnded {
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
            ignored: None,
            standing: None,
        }),
        What::Gone(Gone {
            part: Part::Client,
            who: identity(4000),
            status: killed,
            standing: None,
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
        What::Restarting(Restarting {
            generation: 2,
            why: RestartReason::Changed {
                path: "src/server.py".into(),
            },
            in_flight: 1,
        }),
        What::Ready(ServerReady {
            generation: 3,
            ms: 180,
            level: true,
            subscriptions: 2,
            listens: 0,
            resent: 1,
        }),
        What::ServerChanged(ServerChanged {
            generation: 3,
            what: "it has lost prompts".into(),
        }),
        What::Abandoned(Abandoned {
            deaths: 5,
            failed_starts: 0,
            window_ms: 60_000,
            last: "exit code 1".into(),
            changed: None,
            probe_ms: 60_000,
        }),
        What::ListChanged(ListChanged {
            lists: vec!["tools".into()],
        }),
        What::FromCache(FromCache {
            method: "initialize".into(),
            ms: 300,
        }),
        What::ProbesUnanswered(ProbesUnanswered { lost: 3 }),
        What::CallDeadline(CallDeadline {
            request: "tools/call".into(),
            ms: 60_000,
        }),
        What::LeaseOpened(LeaseOpened {
            lease: "job-17".into(),
            owner: Some(seen(4000, "node")),
            ttl_ms: Some(600_000),
            by: Some(seen(4000, "node")),
        }),
        What::LeaseEnded(LeaseEnded {
            lease: "job-17".into(),
            over: Over::Closed {
                by: Some(seen(4000, "node")),
            },
        }),
        What::Suspects(Suspects {
            part: Part::Server,
            pid: 4711,
            who: vec![
                suspect(seen(4000, "claude"), "claude", Suspicion::Client),
                suspect(seen(4100, "bash"), "bash mcp-cleanup.sh", Suspicion::Name),
            ],
            looked_at: 312,
            all: true,
        }),
        What::PipeEnd(PipeEnd {
            pipe: Pipe::ClientStdin,
            generation: 1,
        }),
        What::RecordingIncomplete(RecordingIncomplete {
            path: "/home/ann/frames.jsonl".into(),
            why: "No space left on device".into(),
            lost: 12,
        }),
        What::SignalTraced(Traced {
            number: 9,
            code: 0,
            to: Target::Server,
            pid: 4711,
            start: Some(1_234_567),
            generation: Some(1),
            result: Delivery::Delivered,
            sender: 5000,
            comm: Some("pkill".into()),
            sender_start: Some(1_234_999),
            uid: Some(1000),
            exe: Some("/usr/bin/pkill".into()),
            cmdline: vec!["pkill".into(), "-9".into(), "node".into()],
        }),
        What::ServeStarted(ServeStarted {
            listen: "127.0.0.1:8808".into(),
            servers: vec!["files".into(), "time".into()],
        }),
        What::ServeStopped(ServeStopped {
            number: 15,
            sessions: 12,
            left: 0,
        }),
        What::ClientSessionOpened(ClientSessionOpened { session: 7 }),
        What::ClientSessionClosed(ClientSessionClosed {
            session: 7,
            why: SessionEnd::Idle,
            ms: 1_800_000,
            requests: 31,
        }),
        What::SessionOpened(SessionOpened {
            url: "https://mcp.example/mcp".into(),
            version: Some("2025-11-25".into()),
        }),
        What::SessionClosed(SessionClosed {
            url: "https://mcp.example/mcp".into(),
            by: "delete".into(),
            status: Some(200),
        }),
        What::SessionClosedLate(SessionClosedLate {
            url: "https://mcp.example/mcp".into(),
            since: "2026-11-15T12:00:00.000Z".into(),
            status: 404,
            attempts: 2,
        }),
        What::SessionGivenUp(SessionGivenUp {
            url: "https://mcp.example/mcp".into(),
            since: "2026-11-14T12:00:00.000Z".into(),
            why: "mcp.example: connection refused".into(),
            attempts: 9,
        }),
        What::Lingering(Lingering {
            cause: Cause::ShimSignal { number: 15 },
            ms: 60_000,
            uptime_ms: 41_200,
            in_flight: 1,
        }),
        What::Reattached(Reattached {
            replaced: None,
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

/// Compares a text with the file at this path of a crate. `MAINSTAY_BLESS=1` writes the file instead.
///
/// # Panics
///
/// If they differ.
pub fn assert_snapshot(crate_directory: &str, path: &str, text: &str) {
    let file = std::path::Path::new(crate_directory).join(path);
    if std::env::var_os("MAINSTAY_BLESS").is_some() {
        std::fs::write(&file, text).ok();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == text,
        "{path} is\n{kept}\nbut should be\n{text}\nif it is right: MAINSTAY_BLESS=1"
    );
}
