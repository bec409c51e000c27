//! What is written down: one [`Event`] per line, versioned, for people and programs to read later.
//!
//! An event is evidence. It says what was seen and by which rule it was judged; it never guesses. Fields are only
//! ever added; a reader ignores what it does not know.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Identity, LinkId};
use crate::tier::{Tier, WhyNot};

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
    /// A signal reached the shim.
    Signal(Signal),
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
}

impl What {
    /// The word in the `event` field.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::StartFailed(_) => "start_failed",
            Self::Exit(_) => "exit",
            Self::Teardown(_) => "teardown",
            Self::Sweep(_) => "sweep",
            Self::Signal(_) => "signal",
            Self::GuardLost(_) => "guard_lost",
            Self::KeeperLost(_) => "keeper_lost",
            Self::ClientMoved(_) => "client_moved",
            Self::Junk(_) => "junk",
            Self::StderrDropped(_) => "stderr_dropped",
            Self::OpeningSilent(_) => "opening_silent",
        }
    }
}

/// A process as it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Pid and start time.
    #[serde(flatten)]
    pub who: Identity,
    /// Its short name.
    pub comm: String,
}

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
                match signal_word(number) {
                    Some(word) => f.write_str(word)?,
                    None => write!(f, "signal {number}")?,
                }
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
    /// Its last words on stderr.
    pub stderr_tail: Vec<String>,
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

/// Why a tree was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The client closed our stdin.
    ClientEof,
    /// The client process is gone and nobody holds its end.
    ClientGone,
    /// The client does not read any more: its end of our stdout is closed.
    ClientDeaf,
    /// The shim got a signal.
    ShimSignal {
        /// Which.
        number: i32,
    },
    /// The shim was killed.
    ShimKilled,
    /// The keeper got a signal.
    KeeperSignal {
        /// Which.
        number: i32,
    },
    /// `mainstay stop`.
    Asked,
    /// The server ended by itself.
    ServerExit,
    /// The server could not be started.
    StartFailed,
    /// The keeper was killed and could not be replaced.
    KeeperLost,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientEof => f.write_str("the client closed stdin"),
            Self::ClientGone => f.write_str("the client is gone"),
            Self::ClientDeaf => f.write_str("the client stopped reading"),
            Self::ShimSignal { number } => match signal_word(*number) {
                Some(word) => write!(f, "the shim got {word}"),
                None => write!(f, "the shim got signal {number}"),
            },
            Self::ShimKilled => f.write_str("the shim was killed"),
            Self::KeeperSignal { number } => match signal_word(*number) {
                Some(word) => write!(f, "the keeper got {word}"),
                None => write!(f, "the keeper got signal {number}"),
            },
            Self::Asked => f.write_str("mainstay stop"),
            Self::ServerExit => f.write_str("the server ended"),
            Self::StartFailed => f.write_str("the server could not be started"),
            Self::KeeperLost => f.write_str("the keeper was killed"),
        }
    }
}

/// A rung of the stop ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// The server's stdin was closed.
    Eof,
    /// The tree got SIGTERM.
    Term,
    /// The tree was killed by its tier.
    Kill,
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Eof => "EOF",
            Self::Term => "SIGTERM",
            Self::Kill => "kill",
        })
    }
}

/// A tree was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Teardown {
    /// Why.
    pub cause: Cause,
    /// The rungs that were needed.
    pub rungs: Vec<Rung>,
    /// From the cause to "empty".
    pub ms: u64,
    /// Processes that we had to end or that ended within the ladder.
    pub ended: u32,
    /// Who is still there; empty means "0 left".
    pub left: Vec<Seen>,
}

/// Something left behind was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// The link that it belonged to.
    pub of: LinkId,
    /// The keeper that owned it, dead.
    pub owner: Identity,
    /// How it was found: `leaf`, `tag` or `card`.
    pub by: Vec<String>,
    /// Who was ended.
    pub ended: Vec<Seen>,
    /// Who could not be ended.
    pub left: Vec<Seen>,
}

/// A signal reached the shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// Which.
    pub number: i32,
    /// `si_code`: 0 by `kill`, 128 by the kernel, below 0 a claim.
    pub code: i32,
    /// The sender's pid as the kernel told it.
    pub sender: i32,
    /// The sender's uid.
    pub uid: u32,
    /// The sender's short name, if it still lived.
    pub comm: Option<String>,
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
