//! Servers that are kept for a client that may come back.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::{Cause, RestartReason};

/// A server that is kept while no client is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lingering {
    /// What was done to the shim: `shim_signal` (number), `shim_killed`.
    pub cause: Cause,
    /// For how long it is kept at most.
    pub ms: u64,
    /// How long this generation had been up.
    pub uptime_ms: u64,
    /// Client requests that are unanswered: their answers will be dropped.
    pub in_flight: u32,
}

/// A client that came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reattached {
    /// How long it was away.
    pub after_ms: u64,
    /// Answers that came meanwhile and were dropped.
    pub dropped: u32,
    /// If the client does not get the kept server but the next generation: the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<RestartReason>,
}

/// A server that is kept no longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LingerEnded {
    /// `time_over`, `client_gone`, asked, `lease_ended`, `server_ended`, `keeper_lost`.
    pub why: Parting,
    /// How long it was kept.
    pub after_ms: u64,
    /// Answers that came meanwhile and were dropped.
    pub dropped: u32,
}

/// Why a server is kept no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parting {
    /// No client came back in time.
    TimeOver,
    /// The client has ended.
    ClientGone,
    /// A user asked for the end.
    Asked,
    /// Its lease is over.
    LeaseEnded,
    /// The server has ended, or had to be replaced.
    ServerEnded,
    /// The keeper was killed, and the server with it.
    KeeperLost,
}

impl fmt::Display for Parting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimeOver => "no client came back",
            Self::ClientGone => "the client has ended",
            Self::Asked => "its end was asked for",
            Self::LeaseEnded => "its lease is over",
            Self::ServerEnded => "the server did not go on",
            Self::KeeperLost => "the keeper was killed",
        })
    }
}
