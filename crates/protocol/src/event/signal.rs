//! A signal that reached us, and what could be seen of its sender in the same wake-up.
//!
//! What the kernel says (number, code, pid, uid) and what we saw of that pid are kept apart: the first is always there,
//! the second only if the sender still lived. If several equal signals come before one is read, the kernel reports the
//! first sender only, and this event looks like a single signal.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::{Seen, Standing, Status};
use crate::ids::Identity;

/// A signal reached the shim or the keeper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// Which.
    pub number: i32,
    /// `si_code`: 0 `kill()`, 128 the kernel, below 0 only a claim.
    pub code: i32,
    /// The sender's pid as the kernel told it; 0 is outside this pid namespace.
    pub sender: i32,
    /// The sender's uid.
    pub uid: u32,
    /// The sender's short name, if it still lived.
    pub comm: Option<String>,
    /// The process that got it: `shim` or `keeper`.
    #[serde(default)]
    pub to: Part,
    /// What the code means: `kill`, `thread` (tgkill), `kernel` (a terminal's key or end), `outside` this container,
    /// `claim` (the sender wrote its pid itself and may lie).
    #[serde(default)]
    pub origin: Option<Origin>,
    /// The sender's start time in ticks since boot.
    #[serde(default)]
    pub start: Option<u64>,
    /// The file that the sender runs.
    #[serde(default)]
    pub exe: Option<String>,
    /// The sender's arguments, without what looks like a secret.
    #[serde(default)]
    pub cmdline: Vec<String>,
    /// The sender's parent, its parent and so on (pid, start, comm), up to the client if it is among them.
    #[serde(default)]
    pub ancestry: Vec<Seen>,
    /// What the sender is to the client: `client`, `below_client`, `session_leader`, `above_client`, `ours`, `other`.
    #[serde(default)]
    pub relation: Option<Relation>,
    /// The sender had ended before it could be looked at. Of several equal signals at once the kernel reports the first
    /// sender only.
    #[serde(default)]
    pub gone: bool,
    /// A stranger sent it, and the process that it reached continues: how many signals of that stranger it has ignored
    /// by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<u32>,
    /// How the link stood then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Box<Standing>>,
}

impl Signal {
    /// What the code and the pid say about the way it came.
    pub fn origin(&self) -> Origin {
        Origin::of(self.code, self.sender)
    }

    /// The sender as pid and start time, if it could be seen.
    pub fn who(&self) -> Option<Identity> {
        self.start.map(|start| Identity {
            pid: self.sender,
            start,
        })
    }
}

/// Which of the processes around a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The process that the client started.
    #[default]
    Shim,
    /// The keeper.
    Keeper,
    /// The client.
    Client,
    /// The server.
    Server,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shim => "shim",
            Self::Keeper => "keeper",
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// The way in which a signal came, by its `si_code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `kill`, to a process or a group: the pid is the sender's.
    Kill,
    /// `tgkill`, to one thread: the pid is the sender's, and cannot be forged either.
    Thread,
    /// The kernel itself: a key of the terminal, or its end.
    Kernel,
    /// A process outside this container, whose pid has no meaning here.
    Outside,
    /// `sigqueue` and the like: the pid is what the sender wrote there.
    Claim,
}

impl Origin {
    /// By code and sender, as `signalfd` tells them.
    pub fn of(code: i32, sender: i32) -> Self {
        match (code, sender) {
            // The kernel lets no process write this code, or one of 0 and above, into another process's signal.
            (-6, _) => Self::Thread,
            (..0, _) => Self::Claim,
            (0, 0) => Self::Outside,
            (0, _) => Self::Kill,
            (1.., _) => Self::Kernel,
        }
    }
}

/// What a sender is to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// The client itself.
    Client,
    /// A descendant of the client.
    BelowClient,
    /// The leader of the client's session: a login shell, a terminal's shell.
    SessionLeader,
    /// An ancestor of the client.
    AboveClient,
    /// A process of ours for this link.
    Ours,
    /// None of these.
    Other,
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "the client",
            Self::BelowClient => "a descendant of the client",
            Self::SessionLeader => "the leader of the client's session",
            Self::AboveClient => "an ancestor of the client",
            Self::Ours => "a process of mainstay's own",
            Self::Other => "no relative of the client",
        })
    }
}

/// The shim or the client ended, and no process of mainstay is its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// The process: `shim` or `client`.
    pub part: Part,
    /// Pid and start time.
    #[serde(flatten)]
    pub who: Identity,
    /// How it ended (as in `exit`), if the kernel tells: Linux 6.15, or while its parent has not reaped it.
    pub status: Option<Status>,
    /// How the link stood then, if it is the shim that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Box<Standing>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_is_told_by_code_and_pid() {
        for (code, sender, origin) in [
            (0, 42, Origin::Kill),
            (0, 0, Origin::Outside),
            (128, 0, Origin::Kernel),
            (-1, 1, Origin::Claim),
            (-2, 7, Origin::Claim),
            (-6, 42, Origin::Thread),
        ] {
            assert_eq!(Origin::of(code, sender), origin, "{code} {sender}");
        }
    }
}
