//! Why a session of the HTTP front is over.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEnd {
    /// The client said so.
    Deleted,
    /// No client used it for its whole time.
    Idle,
    /// It was the one unused for longest when all places were taken.
    Evicted,
    /// Its server cannot go on.
    ServerGone,
    /// The opening was not answered with a result.
    OpeningFailed,
    /// We stop.
    Shutdown,
}

impl SessionEnd {
    /// Every cause, in the order of the metrics page.
    pub const ALL: [Self; 6] = [
        Self::Deleted,
        Self::Idle,
        Self::Evicted,
        Self::ServerGone,
        Self::OpeningFailed,
        Self::Shutdown,
    ];

    /// Its word in events and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Idle => "idle",
            Self::Evicted => "evicted",
            Self::ServerGone => "server_gone",
            Self::OpeningFailed => "opening_failed",
            Self::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleted => "the client ended it",
            Self::Idle => "no client used it for its whole idle time",
            Self::Evicted => "it made room: it was unused for longest",
            Self::ServerGone => "its server cannot go on",
            Self::OpeningFailed => "its opening failed",
            Self::Shutdown => "serve stops",
        })
    }
}
