//! Events: one [`Event`] per line in the event files, versioned, for people and programs to read later.
//!
//! An event is evidence. It says what was seen and by which rule it was judged; it never guesses. Fields are only
//! ever added; a reader ignores what it does not know.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Identity, LinkId};
use crate::tier::{Tier, WhyNot};

mod cause;
mod lease;
mod linger;
mod losses;
mod session;
mod session_end;
mod signal;
mod standing;
mod traced;
pub use cause::{Cause, Ending, RestartReason, Rung, Teardown};
pub use lease::{LeaseEnded, LeaseOpened};
pub use linger::{LingerEnded, Lingering, Parting, Reattached};
pub use losses::Losses;
pub use session::{
    ClientSessionClosed, ClientSessionOpened, ServeStarted, ServeStopped, SessionClosed,
    SessionClosedLate, SessionGivenUp, SessionOpened,
};
pub use session_end::SessionEnd;
pub use signal::{Gone, Origin, Part, Relation, Signal};
pub use standing::{
    Brief, Pipe, PipeEnd, RecordingIncomplete, Standing, Suspect, Suspects, Suspicion, Waiting,
    speaks_of_ending,
};
pub use traced::{Delivery, Target, Traced};

/// The version written into each event.
pub const VERSION: u32 = 1;

/// One line of the event files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Format version.
    pub v: u32,
    /// Wall-clock time, RFC 3339 with milliseconds, UTC.
    pub at: String,
    /// The link it is about.
    pub id: LinkId,
    /// The server's name.
    pub server: String,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened. A kind that was renamed is still read under its old name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A generation was started.
    Start(Start),
    /// A generation could not be started.
    StartFailed(StartFailed),
    /// A mistake in the config file was ignored: the server runs without that setting.
    ConfigMistake(ConfigMistake),
    /// A server process ended.
    Exit(Exit),
    /// A tree was ended.
    Teardown(Teardown),
    /// Something that an earlier keeper left behind was ended.
    #[serde(alias = "sweep")]
    LeftoversEnded(LeftoversEnded),
    /// A signal reached the shim or the keeper.
    Signal(Signal),
    /// The shim (killed without a signal that it could pass on) or the client ended.
    Gone(Gone),
    /// The guard was killed, a side guard took its place.
    GuardLost(Lost),
    /// The keeper was killed, its tree was ended and a new keeper took over.
    KeeperLost(Lost),
    /// The process that started us is gone, but another process holds the client's end.
    ClientMoved(ClientMoved),
    /// Lines on the server's stdout that were no messages were dropped.
    Junk(Junk),
    /// The client does not read the server's stderr.
    StderrDropped(StderrDropped),
    /// The opening request stayed unanswered and was answered with an explanation.
    OpeningSilent(OpeningSilent),
    /// A generation is to be replaced, or put to rest.
    #[serde(alias = "renewal")]
    Restarting(Restarting),
    /// A new generation was told what its predecessor knew; the client's traffic goes on.
    #[serde(alias = "replayed")]
    Ready(ServerReady),
    /// A new generation is not what its predecessor was.
    #[serde(alias = "differs")]
    ServerChanged(ServerChanged),
    /// The server died or could not be started too often. Requests are answered with an explanation, and the server is
    /// tried again from time to time.
    Abandoned(Abandoned),
    /// The client was told that lists have changed.
    ListChanged(ListChanged),
    /// A request was answered from the cache, because the server was not up yet.
    #[serde(alias = "instant")]
    FromCache(FromCache),
    /// The server does not answer probes; no more probes are sent.
    ProbesUnanswered(ProbesUnanswered),
    /// A request took longer than the user allows; it was answered with an error and cancelled at the server.
    CallDeadline(CallDeadline),
    /// A lease was opened; `id` is the lease's own, `server` its name.
    LeaseOpened(LeaseOpened),
    /// A lease is over, and its servers are ended; `id` and `server` as in `lease_opened`.
    LeaseEnded(LeaseEnded),
    /// A process was ended and the sender of the signal is unknown; these processes ran at that time.
    Suspects(Suspects),
    /// A pipe of the client's or of the server's came to its end.
    PipeEnd(PipeEnd),
    /// The file of `--record` is not complete; reported once.
    #[serde(alias = "recording_hurt")]
    RecordingIncomplete(RecordingIncomplete),
    /// `mainstay trace-signals` saw a signal to a process of this link while it was sent; `at` is the time of the signal.
    SignalTraced(Traced),
    /// The HTTP front listens.
    ServeStarted(ServeStarted),
    /// The HTTP front has stopped.
    ServeStopped(ServeStopped),
    /// An HTTP client of `serve` opened a session.
    #[serde(alias = "session_began")]
    ClientSessionOpened(ClientSessionOpened),
    /// A session of an HTTP client of `serve` is over.
    #[serde(alias = "session_over")]
    ClientSessionClosed(ClientSessionClosed),
    /// An HTTP server opened a session, which mainstay must close.
    SessionOpened(SessionOpened),
    /// An HTTP session was closed.
    SessionClosed(SessionClosed),
    /// A session that a dead process of ours had opened was closed.
    #[serde(alias = "debt_paid")]
    SessionClosedLate(SessionClosedLate),
    /// A session that a dead process of ours had opened could not be closed within a day. Its server has surely forgotten it.
    #[serde(alias = "debt_given_up")]
    SessionGivenUp(SessionGivenUp),
    /// The shim was signalled or killed while the client lives and stdin was open; the server is kept for it.
    Lingering(Lingering),
    /// The client came back and goes on with the server that was kept.
    Reattached(Reattached),
    /// The server is kept no longer, and ends.
    LingerEnded(LingerEnded),
}

impl What {
    /// The state of the link at that time, for events that note it.
    pub fn standing(&self) -> Option<&Standing> {
        if let Self::Signal(Signal { standing, .. })
        | Self::Gone(Gone { standing, .. })
        | Self::Exit(Exit { standing, .. }) = self
        {
            standing.as_deref()
        } else {
            None
        }
    }

    /// The name in the `event` field.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::StartFailed(_) => "start_failed",
            Self::ConfigMistake(_) => "config_mistake",
            Self::Exit(_) => "exit",
            Self::Teardown(_) => "teardown",
            Self::LeftoversEnded(_) => "leftovers_ended",
            Self::Signal(_) => "signal",
            Self::Gone(_) => "gone",
            Self::GuardLost(_) => "guard_lost",
            Self::KeeperLost(_) => "keeper_lost",
            Self::ClientMoved(_) => "client_moved",
            Self::Junk(_) => "junk",
            Self::StderrDropped(_) => "stderr_dropped",
            Self::OpeningSilent(_) => "opening_silent",
            Self::Restarting(_) => "restarting",
            Self::Ready(_) => "ready",
            Self::ServerChanged(_) => "server_changed",
            Self::Abandoned(_) => "abandoned",
            Self::ListChanged(_) => "list_changed",
            Self::FromCache(_) => "from_cache",
            Self::ProbesUnanswered(_) => "probes_unanswered",
            Self::CallDeadline(_) => "call_deadline",
            Self::LeaseOpened(_) => "lease_opened",
            Self::LeaseEnded(_) => "lease_ended",
            Self::Suspects(_) => "suspects",
            Self::PipeEnd(_) => "pipe_end",
            Self::RecordingIncomplete(_) => "recording_incomplete",
            Self::SignalTraced(_) => "signal_traced",
            Self::ServeStarted(_) => "serve_started",
            Self::ServeStopped(_) => "serve_stopped",
            Self::ClientSessionOpened(_) => "client_session_opened",
            Self::ClientSessionClosed(_) => "client_session_closed",
            Self::SessionOpened(_) => "session_opened",
            Self::SessionClosed(_) => "session_closed",
            Self::SessionClosedLate(_) => "session_closed_late",
            Self::SessionGivenUp(_) => "session_given_up",
            Self::Lingering(_) => "lingering",
            Self::Reattached(_) => "reattached",
            Self::LingerEnded(_) => "linger_ended",
        }
    }
}

/// A process as it was seen. A container has pid 0, because it has no pid here, and its id as its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Pid and start time.
    #[serde(flatten)]
    pub who: Identity,
    /// Its short name (`comm`).
    pub comm: String,
}

impl Seen {
    /// A container, by the part of its id that engines show.
    pub fn container(id: &str) -> Self {
        let id = id.get(..CONTAINER_ID_CHARS).unwrap_or(id);
        Self {
            who: Identity { pid: 0, start: 0 },
            comm: format!("container {id}"),
        }
    }

    /// Whether this is a container.
    pub fn is_container(&self) -> bool {
        self.who.pid == 0
    }
}

/// How many characters of a container's id engines show and accept.
const CONTAINER_ID_CHARS: usize = 12;

/// A generation was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Counts from 1.
    pub generation: u32,
    /// The command as given.
    pub argv: Vec<String>,
    /// The directory it runs in.
    pub cwd: String,
    /// The server process.
    pub pid: i32,
    /// The tier in use.
    pub tier: Tier,
    /// Why no stronger tier is used: tier and reason.
    pub why_not: Vec<WhyNot>,
    /// The client (pid, start, comm), if it could be seen; comm is the client's own name (`Gemini CLI`) where its process
    /// is only called `node` or the like.
    pub client: Option<Seen>,
    /// `"yes"`, or `{"no":{"why":…}}`: whether the guard left the client's process tree.
    pub detached: Detached,
    /// The file that the frames are recorded in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<String>,
}

/// Whether the guard left the client's process tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detached {
    /// It did.
    Yes,
    /// It did not, because its new parent would not reap it.
    No {
        /// The process that would be the parent, and why it cannot be used.
        why: String,
    },
}

/// A generation could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFailed {
    /// The command as given.
    pub argv: Vec<String>,
    /// The directory it was to run in.
    pub cwd: String,
    /// What went wrong.
    pub problem: String,
    /// How to repair it.
    pub hint: String,
}

/// A mistake in the config file that was ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigMistake {
    /// What is wrong, with file and line.
    pub problem: String,
    /// How to repair it.
    pub hint: String,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal {
        /// The signal's number.
        number: i32,
        /// Whether it dumped core.
        core: bool,
    },
}

impl Status {
    /// The exit code that tells it truthfully: the code itself, or 128 + n.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code as u8,
            Self::Signal { number, .. } => 128u8.wrapping_add(number as u8),
        }
    }

    /// Whether it was a success.
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal { number, core } => {
                f.write_str(&signal_name(number))?;
                f.write_str(if core { " (core dumped)" } else { "" })
            }
        }
    }
}

/// The name of a signal (Linux numbers, x86 and arm).
pub fn signal_word(number: i32) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

/// The name of a signal, or its number if it has no name here.
pub fn signal_name(number: i32) -> String {
    signal_word(number).map_or_else(|| format!("signal {number}"), Into::into)
}

/// A server process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The generation.
    pub generation: u32,
    /// The server process.
    pub pid: i32,
    /// `{"code":n}` or `{"signal":{"number":n,"core":bool}}`.
    pub status: Status,
    /// How long it lived.
    pub uptime_ms: u64,
    /// `user_ms`, `system_ms`, `max_rss_kib` by the kernel's own count.
    pub usage: Usage,
    /// Client requests that it had not answered.
    pub in_flight: u32,
    /// Those of them that are sent to the next generation.
    #[serde(default)]
    pub kept: u32,
    /// What mainstay had done to end it by then: cause and rungs as in teardown, and ms since the first step; null if
    /// mainstay had not begun to end it.
    #[serde(default)]
    pub ending: Option<Ending>,
    /// `tree` or `machine`, if it was killed because memory had run out.
    #[serde(default)]
    pub out_of_memory: Option<OutOfMemory>,
    /// The last lines of its stderr.
    pub stderr_tail: Vec<String>,
    /// The state of the link at that time: `wall_ms` (when that was), `since_handshake_ms`, `stdin_open`,
    /// `last_answer_ms` (its age), `in_flight`, waiting (the oldest requests without an answer) and frames, the last
    /// ones without their bodies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Box<Standing>>,
}

/// Whose memory had run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutOfMemory {
    /// The tree's own limit: the counter of its cgroup rose.
    Tree,
    /// Probably the machine: its counter of such kills rose while the server was killed.
    Machine,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tree => "out of memory: the tree reached its limit",
            Self::Machine => "probably out of memory: the machine had to kill a process",
        })
    }
}

/// What a process used, by the kernel's own count at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU in user mode.
    pub user_ms: u64,
    /// CPU in the kernel.
    pub system_ms: u64,
    /// Largest resident set.
    pub max_rss_kib: u64,
}

/// Something left behind was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftoversEnded {
    /// The link that it belonged to.
    pub of: LinkId,
    /// The keeper that owned it, dead (pid, start).
    pub owner: Identity,
    /// How it was found: `leaf`, `tag`, `card`, or `cid` for a container.
    pub by: Vec<String>,
    /// The processes that were ended; a container has pid 0 and its id in `comm`.
    pub ended: Vec<Seen>,
    /// The processes that could not be ended.
    pub left: Vec<Seen>,
}

/// The guard or the keeper was killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Its pid.
    pub pid: i32,
    /// How it ended (as in `exit`), if that could be seen.
    pub status: Option<Status>,
    /// Processes of the tree that were ended because of it.
    pub ended: u32,
    /// Client requests that were answered with an error because of it.
    pub settled: u32,
    /// The process that took its place.
    pub successor: Option<i32>,
}

/// Another process holds the client's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientMoved {
    /// The process that is gone (pid, start).
    pub from: Identity,
    /// The process that holds the client's end (pid, start, comm).
    pub to: Seen,
    /// How the first process ended (as in `exit`), if the kernel says.
    #[serde(default)]
    pub status: Option<Status>,
}

/// Lines that were no messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Junk {
    /// How many so far.
    pub lines: u64,
    /// The first bytes of the first one.
    pub sample: String,
}

/// Dropped stderr.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StderrDropped {
    /// How many so far.
    pub bytes: u64,
}

/// A server that says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpeningSilent {
    /// How long the server has been silent.
    pub ms: u64,
}

/// A running generation is replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarting {
    /// The generation.
    pub generation: u32,
    /// Asked, changed (path), memory (bytes), unresponsive (lost, `silent_ms`), idle (ms), opening, reopened.
    pub why: RestartReason,
    /// Client requests that it may still answer.
    pub in_flight: u32,
}

/// What a new generation was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerReady {
    /// The generation.
    pub generation: u32,
    /// From its start to the end of the replay.
    pub ms: u64,
    /// Whether the log level was set again.
    pub level: bool,
    /// Resources that were subscribed to again.
    pub subscriptions: u32,
    /// Listening requests that were opened again.
    pub listens: u32,
    /// Requests that its predecessor had not answered.
    pub resent: u32,
}

/// A new generation differs from its predecessor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerChanged {
    /// The generation.
    pub generation: u32,
    /// The difference.
    pub what: String,
}

/// A server that is not started again for now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abandoned {
    /// Deaths within the window.
    pub deaths: u32,
    /// Starts that failed within the window.
    #[serde(default)]
    pub failed_starts: u32,
    /// The window.
    pub window_ms: u64,
    /// How the last death or failed start came about.
    pub last: String,
    /// The watched file whose change stops it from starting, if that is the reason; it is started when a watched file
    /// changes again.
    #[serde(default)]
    pub changed: Option<String>,
    /// After how long it is tried once more; 0: never.
    pub probe_ms: u64,
}

/// The client was told that lists have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListChanged {
    /// Which: tools, prompts, resources.
    pub lists: Vec<String>,
}

/// A request was answered from the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromCache {
    /// The method of the request.
    pub method: String,
    /// How long the request had waited.
    pub ms: u64,
}

/// A server that does not answer probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbesUnanswered {
    /// Probes without an answer.
    pub lost: u32,
}

/// A request that took too long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallDeadline {
    /// The request.
    pub request: String,
    /// How long it took.
    pub ms: u64,
}
