//! A signal that was seen while it was sent, with its target.
//!
//! The kernel's tracepoint names the thread that makes the call, and no process can forge that. A signal of the
//! kernel's own (a code above 0) has the name of the process that ran at that moment, which has nothing to do with it.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

/// A signal to a process of a link was seen while it was sent. The event's own time is the signal's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// Which signal.
    pub number: i32,
    /// `si_code`: 0 by `kill`, above 0 by the kernel itself.
    pub code: i32,
    /// The process that it was sent to: `server`, `tree`, `shim`, `guard`, `keeper` or `client`.
    pub to: Target,
    /// That process.
    pub pid: i32,
    /// Its start time in clock ticks since boot.
    #[serde(default)]
    pub start: Option<u64>,
    /// Which generation, if it was the server.
    #[serde(default)]
    pub generation: Option<u32>,
    /// `delivered`, `ignored`, `pending` (the same one waited there already) or `dropped`.
    pub result: Delivery,
    /// The process that sent it; for a signal of the kernel, the process that ran at that moment.
    pub sender: i32,
    /// The sender's short name.
    pub comm: Option<String>,
    /// The sender's start time, if it still lived.
    #[serde(default)]
    pub sender_start: Option<u64>,
    /// The sender's user, if it still lived.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The file that the sender runs.
    #[serde(default)]
    pub exe: Option<String>,
    /// The sender's arguments, without what looks like a secret.
    #[serde(default)]
    pub cmdline: Vec<String>,
}

impl Traced {
    /// Whether the kernel sent it by itself.
    pub fn by_kernel(&self) -> bool {
        self.code > 0
    }
}

/// The process of a link that a traced signal was sent to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The server process.
    #[default]
    Server,
    /// Another process of its tree.
    Tree,
    /// The process that the client started.
    Shim,
    /// The guard.
    Guard,
    /// The keeper.
    Keeper,
    /// The client.
    Client,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "the server",
            Self::Tree => "a process of its tree",
            Self::Shim => "the shim",
            Self::Guard => "the guard",
            Self::Keeper => "the keeper",
            Self::Client => "the client",
        })
    }
}

/// What became of a signal when it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The process got it.
    #[default]
    Delivered,
    /// The process ignores it.
    Ignored,
    /// The same signal was pending already.
    Pending,
    /// There was no room for it.
    Dropped,
}

impl Delivery {
    /// By the kernel's number.
    pub fn of(number: i32) -> Self {
        match number {
            0 => Self::Delivered,
            1 => Self::Ignored,
            2 => Self::Pending,
            _ => Self::Dropped,
        }
    }

    /// Whether it may have had an effect.
    pub fn arrived(self) -> bool {
        matches!(self, Self::Delivered)
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delivered => "delivered",
            Self::Ignored => "ignored",
            Self::Pending => "already pending",
            Self::Dropped => "dropped",
        })
    }
}
