//! Servers that are kept for a client that may come back.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::{Cause, Renewing};

/// A server that is kept while nobody is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lingering {
    /// What was done to the shim.
    pub cause: Cause,
    /// For how long it is kept at most.
    pub ms: u64,
    /// How long this generation had been up.
    pub uptime_ms: u64,
    /// Client requests that are unanswered: their answers reach nobody.
    pub in_flight: u32,
}

/// A client that came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reattached {
    /// How long it was away.
    pub after_ms: u64,
    /// Answers that came meanwhile and were dropped.
    pub dropped: u32,
    /// The client does not go on with the server that was kept, but gets the next generation, because of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Renewing>,
}

/// A server that is kept no longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LingerEnded {
    /// Why.
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
    /// Nobody came back in time.
    TimeOver,
    /// The client has ended.
    ClientGone,
    /// Somebody asked for the end.
    Asked,
    /// Its lease is over.
    LeaseEnded,
    /// The server has ended, or was to be replaced.
    ServerEnded,
    /// The keeper was killed, and the server with it.
    KeeperLost,
}

impl fmt::Display for Parting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimeOver => "nobody came back",
            Self::ClientGone => "the client has ended",
            Self::Asked => "its end was asked for",
            Self::LeaseEnded => "its lease is over",
            Self::ServerEnded => "the server did not go on",
            Self::KeeperLost => "the keeper was killed",
        })
    }
}
