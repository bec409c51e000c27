//! Why a server is ended or replaced, and how its tree ended.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::{LeaseEnded, Seen, signal_name};

/// Why a tree was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The client closed our stdin.
    ClientEof,
    /// The client process is gone, and no process holds its end of the pipes.
    ClientGone,
    /// The client reads no more: its end of our stdout is closed.
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
    /// The generation is replaced or put to rest.
    #[serde(rename = "renewal")]
    Restart(RestartReason),
    /// The server cannot continue the client's session.
    Differs,
    /// The lease that it was started in is over.
    LeaseEnded(LeaseEnded),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientEof => f.write_str("the client closed stdin"),
            Self::ClientGone => f.write_str("the client is gone"),
            Self::ClientDeaf => f.write_str("the client stopped reading"),
            Self::ShimSignal { number } => write!(f, "the shim got {}", signal_name(*number)),
            Self::ShimKilled => f.write_str("the shim was killed"),
            Self::KeeperSignal { number } => write!(f, "the keeper got {}", signal_name(*number)),
            Self::Asked => f.write_str("mainstay stop"),
            Self::ServerExit => f.write_str("the server ended"),
            Self::StartFailed => f.write_str("the server could not be started"),
            Self::KeeperLost => f.write_str("the keeper was killed"),
            Self::Restart(why) => write!(f, "{why}"),
            Self::Differs => f.write_str("the server cannot go on with the session"),
            Self::LeaseEnded(ended) => write!(f, "{ended}"),
        }
    }
}

/// Why a generation that is up is replaced or put to rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartReason {
    /// `mainstay restart`.
    Asked,
    /// A watched file has changed.
    Changed {
        /// The file, the first one if several have changed.
        path: String,
    },
    /// The tree uses more memory than its limit.
    Memory {
        /// How much memory it uses.
        bytes: u64,
    },
    /// It was idle and silent, used no processor time and left every probe unanswered.
    Unresponsive {
        /// Unanswered probes in a row.
        lost: u32,
        /// Time since its last output.
        silent_ms: u64,
    },
    /// No request has needed it for a while.
    Idle {
        /// For how long.
        ms: u64,
    },
    /// It did not accept the replayed opening.
    Opening,
    /// The client came back and opens the session in another way.
    Reopened,
    /// The client came back, and the server that was kept for it did not answer.
    Silent {
        /// How long mainstay waited for an answer.
        ms: u64,
    },
}

impl RestartReason {
    /// The watched file that has changed, if that is the reason.
    pub fn changed(&self) -> Option<String> {
        match self {
            Self::Changed { path } => Some(path.clone()),
            Self::Asked
            | Self::Memory { .. }
            | Self::Unresponsive { .. }
            | Self::Idle { .. }
            | Self::Opening
            | Self::Reopened
            | Self::Silent { .. } => None,
        }
    }
}

impl fmt::Display for RestartReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("mainstay restart"),
            Self::Changed { path } => write!(f, "{path} has changed"),
            Self::Memory { bytes } => write!(f, "its memory reached {} MiB", bytes >> 20),
            Self::Unresponsive { lost, silent_ms } => write!(
                f,
                "unresponsive: idle, silent for {} s, {lost} questions unanswered",
                silent_ms / 1_000
            ),
            Self::Idle { ms: ms @ ..1_000 } => write!(f, "idle for {ms} ms"),
            Self::Idle { ms } => write!(f, "idle for {} s", ms / 1_000),
            Self::Opening => f.write_str("it did not take the opening again"),
            Self::Reopened => f.write_str("the client came back with another opening"),
            Self::Silent { ms } => write!(
                f,
                "the client came back, and the server did not answer within {ms} ms"
            ),
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

impl Rung {
    /// The signal that the tree gets on this rung.
    pub fn signal(self) -> Option<i32> {
        match self {
            Self::Eof => None,
            Self::Term => Some(15),
            Self::Kill => Some(9),
        }
    }
}

/// What mainstay had done to end a server by the time the server ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// The cause.
    pub cause: Cause,
    /// The rungs that were reached.
    pub rungs: Vec<Rung>,
    /// Time since the first step.
    pub ms: u64,
}

/// A tree was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Teardown {
    /// Why: `client_eof`, `client_gone`, `client_deaf`, `{"shim_signal":{"number":n}}`, `shim_killed`,
    /// `{"keeper_signal":{"number":n}}`, `asked`, `server_exit`, `start_failed`, `keeper_lost`,
    /// `{"lease_ended":{"lease":…,"over":…}}`.
    pub cause: Cause,
    /// The rungs of the stop ladder that were needed: `eof`, `term`, `kill`.
    pub rungs: Vec<Rung>,
    /// From the cause to "empty".
    pub ms: u64,
    /// Processes that were ended, or that ended while the ladder ran.
    pub ended: u32,
    /// Processes that are left (pid, start, comm); empty means "0 left". A container has pid 0 and its id in `comm`.
    pub left: Vec<Seen>,
}
