//! The state of a link when something happened to it, and the processes that could have done it.
//!
//! It is what was seen at that moment, without a judgement.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::{Part, Seen};
use crate::frames::{Kind, Side};

/// How a link stood.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// When, in milliseconds since the epoch: the event may have been written a little later.
    #[serde(default)]
    pub wall_ms: u64,
    /// Time since the handshake of server and client; none if there was none yet.
    #[serde(default)]
    pub since_handshake_ms: Option<u64>,
    /// Whether the client's end of our stdin was open.
    pub stdin_open: bool,
    /// How old the server's last answer to the client was.
    #[serde(default)]
    pub last_answer_ms: Option<u64>,
    /// Client requests without an answer.
    pub in_flight: u32,
    /// The oldest of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
    /// The last frames, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Brief>,
}

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// What it is.
    pub request: String,
    /// Its id, the JSON token as written.
    pub id: String,
    /// How long it has waited.
    pub ms: u64,
}

/// A frame without its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brief {
    /// How long ago, rounded up: a frame is never shown later than it was.
    pub ago_ms: u64,
    /// The writer.
    pub from: Side,
    /// The receiver.
    pub to: Side,
    /// The kind of frame.
    pub kind: Kind,
    /// Its method; of an answer, its request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Its id, the JSON token as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its length.
    pub bytes: u64,
    /// Of an answer: since its request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
}

/// A process was ended, and the sender of the signal was not seen: the processes that ran then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspects {
    /// Which process was ended: `server`, `shim` or `keeper`.
    pub part: Part,
    /// Its pid.
    pub pid: i32,
    /// Processes of the same user that might have done it: pid, start, comm, cmdline (without secrets) and why: `client`,
    /// `name`, `mainstay`, `below_client`.
    pub who: Vec<Suspect>,
    /// How many processes were looked at.
    pub looked_at: u32,
    /// Whether that was all of them.
    pub all: bool,
}

/// A process that might have done it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    /// The process.
    #[serde(flatten)]
    pub seen: Seen,
    /// Its arguments, without what looks like a secret.
    pub cmdline: Vec<String>,
    /// Why it is a suspect.
    pub why: Suspicion,
}

/// Why a process is a suspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suspicion {
    /// It is the client.
    Client,
    /// Its name or its command line speaks of ending processes.
    Name,
    /// It is a part of another link of mainstay's. Only in events of earlier versions: later ones do not suspect it.
    Mainstay,
    /// It is a young descendant of the client.
    BelowClient,
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "the client",
            Self::Name => "its command line speaks of ending processes",
            Self::Mainstay => "a process of mainstay's for another server",
            Self::BelowClient => "started by the client shortly before",
        })
    }
}

/// Programs that end processes.
const PROGRAMS: [&str; 5] = ["skill", "timeout", "earlyoom", "nohang", "xkill"];
/// How the names of programs and scripts that end processes begin.
const WORDS: [&str; 8] = [
    "kill", "pkill", "cleanup", "cleaner", "reap", "watchdog", "prune", "sweep",
];

/// Whether a process is made to end others, by its short name and its arguments. A process without arguments is the
/// kernel's own (`watchdogd`).
pub fn speaks_of_ending(comm: &str, cmdline: &[String]) -> bool {
    let speaks = |word: &str| {
        let parts = word.split(|c: char| !c.is_ascii_alphanumeric());
        parts
            .map(str::to_ascii_lowercase)
            .any(|part| WORDS.iter().any(|start| part.starts_with(start)))
    };
    !cmdline.is_empty()
        && (PROGRAMS.contains(&comm) || speaks(comm) || cmdline.iter().any(|word| speaks(word)))
}

/// A pipe of a link came to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeEnd {
    /// Which: `client_stdin`, `client_stdout`, `server_stdin`, `server_stdout`.
    pub pipe: Pipe,
    /// The generation that was up.
    pub generation: u32,
}

/// The pipes of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pipe {
    /// From the client to us: it writes no more.
    ClientStdin,
    /// From us to the client: it reads no more.
    ClientStdout,
    /// From us to the server: it reads no more.
    ServerStdin,
    /// From the server to us: it writes no more.
    ServerStdout,
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClientStdin => "the client closed its end of stdin",
            Self::ClientStdout => "the client closed its end of stdout",
            Self::ServerStdin => "the server reads its stdin no more",
            Self::ServerStdout => "the server closed its stdout",
        })
    }
}

/// A recording has holes, or has ended before its link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingIncomplete {
    /// The file.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
    /// Frames that are not in it so far.
    pub lost: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_that_end_processes_are_suspect() {
        for (comm, line, speaks) in [
            ("pkill", "pkill -f mcp", true),
            ("timeout", "timeout 60 npx", true),
            ("bash", "bash /home/ann/mcp-cleanup.sh", true),
            ("node", "node /srv/orphan-reaper/index.js", true),
            ("python3", "python3 mcp-watchdog.py", true),
            ("bash", "bash", false),
            ("vim", "vim /srv/skills/readme.md", false),
            ("node", "node server.js", false),
        ] {
            let words: Vec<String> = line.split(' ').map(Into::into).collect();
            assert_eq!(speaks_of_ending(comm, &words), speaks, "{line}");
        }
        for kernels_own in ["watchdogd", "oom_reaper"] {
            assert!(!speaks_of_ending(kernels_own, &[]), "{kernels_own}");
        }
    }
}
