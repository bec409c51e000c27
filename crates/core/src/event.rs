//! What is written down: one [`Event`] per line, versioned, for people and programs to read later.
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
mod session;
mod signal;
mod standing;
mod traced;
pub use cause::{Cause, Ending, Renewing, Rung, Teardown};
pub use lease::{LeaseEnded, LeaseOpened};
pub use linger::{LingerEnded, Lingering, Parting, Reattached};
pub use session::{
    DebtGivenUp, DebtPaid, ServeStarted, ServeStopped, SessionBegan, SessionClosed, SessionOpened,
    SessionOver,
};
pub use signal::{Gone, Origin, Part, Relation, Signal};
pub use standing::{
    Brief, Pipe, PipeEnd, RecordingHurt, Standing, Suspect, Suspects, Suspicion, Waiting,
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

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A generation was started.
    Start(Start),
    /// A generation could not be started.
    StartFailed(StartFailed),
    /// A server process ended.
    Exit(Exit),
    /// A tree was ended, and this is how.
    Teardown(Teardown),
    /// Something that an earlier pair left behind was found and ended.
    Sweep(Sweep),
    /// A signal reached the shim or the keeper.
    Signal(Signal),
    /// The shim or the client ended.
    Gone(Gone),
    /// The guard was killed; a side guard took its place.
    GuardLost(Lost),
    /// The keeper was killed; its tree was ended and a new keeper took over.
    KeeperLost(Lost),
    /// The process that started us is gone, but somebody else holds the client's end.
    ClientMoved(ClientMoved),
    /// Lines on the server's stdout that were no messages were dropped.
    Junk(Junk),
    /// Lines of the server's stderr were dropped because the client does not read them.
    StderrDropped(StderrDropped),
    /// The opening request stayed unanswered; it was answered with an explanation.
    OpeningSilent(OpeningSilent),
    /// A generation is about to be replaced, or put to rest, for this reason.
    Renewal(Renewal),
    /// A new generation was told what its predecessor knew.
    Replayed(Replayed),
    /// A new generation is not what its predecessor was.
    Differs(Differs),
    /// The server died too often and is not started again for now.
    Abandoned(Abandoned),
    /// The client was told that lists have changed.
    ListChanged(ListChanged),
    /// A request was answered from the record, because the server was not up yet.
    Instant(Instant),
    /// The server does not answer when it is asked whether it is there; it is not asked any more.
    ProbesUnanswered(ProbesUnanswered),
    /// A request took longer than the user allows; it was answered with an error and cancelled at the server.
    CallDeadline(CallDeadline),
    /// A lease was opened.
    LeaseOpened(LeaseOpened),
    /// A lease is over; its servers are ended.
    LeaseEnded(LeaseEnded),
    /// Somebody was ended by nobody knows whom; this is who was there.
    Suspects(Suspects),
    /// A pipe of the client's or of the server's came to its end.
    PipeEnd(PipeEnd),
    /// A recording of frames is not whole.
    RecordingHurt(RecordingHurt),
    /// `mainstay trace-signals` saw a signal to a process of this link while it was sent.
    SignalTraced(Traced),
    /// The HTTP front listens.
    ServeStarted(ServeStarted),
    /// The HTTP front has stopped.
    ServeStopped(ServeStopped),
    /// An HTTP client opened a session.
    SessionBegan(SessionBegan),
    /// A session of an HTTP client is over.
    SessionOver(SessionOver),
    /// An HTTP server opened a session, which is now written down as a debt.
    SessionOpened(SessionOpened),
    /// An HTTP session was closed.
    SessionClosed(SessionClosed),
    /// A session that a dead process of ours had opened was closed.
    DebtPaid(DebtPaid),
    /// A session that a dead process of ours had opened could not be closed for so long that its server has surely
    /// forgotten it.
    DebtGivenUp(DebtGivenUp),
    /// The shim was killed while the client lives: the server is kept for it.
    Lingering(Lingering),
    /// The client came back and goes on with the server that was kept.
    Reattached(Reattached),
    /// The server is kept no longer.
    LingerEnded(LingerEnded),
}

impl What {
    /// How the link stood then, for events that note it.
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

    /// The word in the `event` field.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::StartFailed(_) => "start_failed",
            Self::Exit(_) => "exit",
            Self::Teardown(_) => "teardown",
            Self::Sweep(_) => "sweep",
            Self::Signal(_) => "signal",
            Self::Gone(_) => "gone",
            Self::GuardLost(_) => "guard_lost",
            Self::KeeperLost(_) => "keeper_lost",
            Self::ClientMoved(_) => "client_moved",
            Self::Junk(_) => "junk",
            Self::StderrDropped(_) => "stderr_dropped",
            Self::OpeningSilent(_) => "opening_silent",
            Self::Renewal(_) => "renewal",
            Self::Replayed(_) => "replayed",
            Self::Differs(_) => "differs",
            Self::Abandoned(_) => "abandoned",
            Self::ListChanged(_) => "list_changed",
            Self::Instant(_) => "instant",
            Self::ProbesUnanswered(_) => "probes_unanswered",
            Self::CallDeadline(_) => "call_deadline",
            Self::LeaseOpened(_) => "lease_opened",
            Self::LeaseEnded(_) => "lease_ended",
            Self::Suspects(_) => "suspects",
            Self::PipeEnd(_) => "pipe_end",
            Self::RecordingHurt(_) => "recording_hurt",
            Self::SignalTraced(_) => "signal_traced",
            Self::ServeStarted(_) => "serve_started",
            Self::ServeStopped(_) => "serve_stopped",
            Self::SessionBegan(_) => "session_began",
            Self::SessionOver(_) => "session_over",
            Self::SessionOpened(_) => "session_opened",
            Self::SessionClosed(_) => "session_closed",
            Self::DebtPaid(_) => "debt_paid",
            Self::DebtGivenUp(_) => "debt_given_up",
            Self::Lingering(_) => "lingering",
            Self::Reattached(_) => "reattached",
            Self::LingerEnded(_) => "linger_ended",
        }
    }
}

/// A process as it was seen; or a container, which has no pid here (0) and its id in its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Pid and start time.
    #[serde(flatten)]
    pub who: Identity,
    /// Its short name.
    pub comm: String,
}

impl Seen {
    /// A container, by as much of its id as engines show.
    pub fn container(id: &str) -> Self {
        let id = id.get(..CONTAINER_ID_CHARS).unwrap_or(id);
        Self {
            who: Identity { pid: 0, start: 0 },
            comm: format!("container {id}"),
        }
    }

    /// Whether it is one.
    pub fn is_container(&self) -> bool {
        self.who.pid == 0
    }
}

/// How much of a container's id engines show, and take for the whole.
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
    /// The tier in force.
    pub tier: Tier,
    /// Why no stronger one is.
    pub why_not: Vec<WhyNot>,
    /// The client, if it could be seen.
    pub client: Option<Seen>,
    /// Whether the guard left the client's process tree, or why not.
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
    /// It did not, because nobody would reap it there.
    No {
        /// Who was asked and why it would not do.
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
    /// How to mend it.
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

/// The name of a signal, or its number where it has none here.
pub fn signal_name(number: i32) -> String {
    signal_word(number).map_or_else(|| format!("signal {number}"), Into::into)
}

/// A server process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Which generation.
    pub generation: u32,
    /// The server process.
    pub pid: i32,
    /// How it ended.
    pub status: Status,
    /// How long it lived.
    pub uptime_ms: u64,
    /// What it used.
    pub usage: Usage,
    /// Client requests that it had not answered.
    pub in_flight: u32,
    /// Those of them that are sent to the next generation instead of being answered by us.
    #[serde(default)]
    pub kept: u32,
    /// What mainstay had done to end it by then, if it had begun to.
    #[serde(default)]
    pub ending: Option<Ending>,
    /// The kernel killed it because memory had run out.
    #[serde(default)]
    pub out_of_memory: Option<OutOfMemory>,
    /// Its last words on stderr.
    pub stderr_tail: Vec<String>,
    /// How the link stood then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Box<Standing>>,
}

/// Whose memory had run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutOfMemory {
    /// The tree's own, by the limit that it was given: its leaf's counter of such kills rose.
    Tree,
    /// The machine's, probably: its counter of such kills rose while the server was killed.
    Machine,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tree => "out of memory: the tree reached its limit",
            Self::Machine => "probably out of memory: the machine had to kill somebody",
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
pub struct Sweep {
    /// The link that it belonged to.
    pub of: LinkId,
    /// The keeper that owned it, dead.
    pub owner: Identity,
    /// How it was found: `leaf`, `tag`, `card`, or `cid` for a container.
    pub by: Vec<String>,
    /// Who was ended.
    pub ended: Vec<Seen>,
    /// Who could not be ended.
    pub left: Vec<Seen>,
}

/// The guard or the keeper was killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Its pid.
    pub pid: i32,
    /// How it ended, if that could be seen.
    pub status: Option<Status>,
    /// Processes of the tree that were ended because of it.
    pub ended: u32,
    /// Client requests that were answered with an error because of it.
    pub settled: u32,
    /// Who took its place.
    pub successor: Option<i32>,
}

/// The client's end has another holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientMoved {
    /// Who started us and is gone.
    pub from: Identity,
    /// Who holds the client's end.
    pub to: Seen,
    /// How the one that is gone ended, if that could be seen.
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
    /// How many bytes so far.
    pub bytes: u64,
}

/// A server that says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpeningSilent {
    /// How long it has been silent.
    pub ms: u64,
}

/// A generation that is up gives way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// Which generation.
    pub generation: u32,
    /// Why.
    pub why: Renewing,
    /// Client requests that it may still answer.
    pub in_flight: u32,
}

/// What a new generation was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// Which generation.
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

/// A new generation is not what its predecessor was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differs {
    /// Which generation.
    pub generation: u32,
    /// In what.
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
    /// How the last one came about.
    pub last: String,
    /// The watched file whose change it does not start after, if it is that.
    #[serde(default)]
    pub changed: Option<String>,
    /// After how long it is tried once more; 0: never.
    pub probe_ms: u64,
}

/// The client was told that lists have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListChanged {
    /// Which: `tools`, `prompts`, `resources`.
    pub lists: Vec<String>,
}

/// A request was answered from the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instant {
    /// Its method.
    pub method: String,
    /// How long it had waited.
    pub ms: u64,
}

/// A server that does not answer questions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbesUnanswered {
    /// Questions that it left unanswered.
    pub lost: u32,
}

/// A request that took too long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallDeadline {
    /// What it was.
    pub request: String,
    /// How long it took.
    pub ms: u64,
}
