//! The states of a link, each with its data.

use alloc::string::String;
use alloc::vec::Vec;

use super::io::{About, Exited};
use crate::clock::Moment;
use crate::event::{Cause, Status};
use crate::message::settle::Why;
use crate::server::stop::Ladder;

#[derive(Debug)]
pub(super) enum Life {
    Absent,
    Up(Up),
    Closing(Closing),
    Finished,
}

#[derive(Debug)]
pub(super) struct Up {
    pub since: Moment,
    pub stage: Stage,
    /// The process that we started has left and others serve on.
    pub left: Option<Exited>,
    /// Until when a server that has said nothing at all may leave its first request unanswered.
    pub silence: Silence,
}

#[derive(Debug)]
pub(super) enum Stage {
    Greeting { until: Moment },
    Serving,
}

#[derive(Debug)]
pub(super) enum Silence {
    NothingAsked,
    Since(Moment),
    Broken,
}

#[derive(Debug)]
pub(super) struct Closing {
    pub since: Moment,
    pub tree: TreeState,
    pub explain: Option<Moment>,
    pub code: u8,
    pub because: Because,
    pub client: Client,
    pub server: Server,
}

/// Why requests are answered by us.
#[derive(Debug)]
pub(super) enum Because {
    StartFailed {
        problem: String,
        hint: String,
    },
    ServerExit {
        status: Status,
        stderr_tail: Vec<String>,
    },
    /// The server has closed its end, but how it ends is not known yet: requests wait for that.
    Leaving,
    KeeperLost,
    OpeningSilent {
        ms: u64,
    },
    /// `mainstay stop`.
    Asked,
    Stopping,
}

impl Because {
    /// What a stop for this cause means for the requests that come or wait.
    pub fn of(cause: &Cause) -> Self {
        match cause {
            Cause::ServerExit => Self::Leaving,
            Cause::Asked => Self::Asked,
            Cause::ClientEof
            | Cause::ClientGone
            | Cause::ClientDeaf
            | Cause::ShimSignal { .. }
            | Cause::ShimKilled
            | Cause::KeeperSignal { .. }
            | Cause::StartFailed
            | Cause::KeeperLost => Self::Stopping,
        }
    }

    /// The same, for the answers.
    pub fn why<'b>(&'b self, about: &'b About) -> Why<'b> {
        let About { name, argv, .. } = about;
        match self {
            Self::StartFailed { problem, hint } => Why::StartFailed {
                argv,
                problem,
                hint,
            },
            Self::ServerExit {
                status,
                stderr_tail,
            } => Why::ServerExit {
                name,
                status: *status,
                stderr_tail,
                restarted: false,
            },
            Self::KeeperLost => Why::KeeperLost { name },
            Self::OpeningSilent { ms } => Why::OpeningSilent {
                name,
                ms: *ms,
                argv,
            },
            Self::Asked => Why::Asked { name },
            Self::Leaving | Self::Stopping => Why::ClientStopping { name },
        }
    }
}

#[derive(Debug)]
pub(super) enum TreeState {
    Descending(Ladder),
    Empty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// Its pipes are ours to write to.
    Reading,
    /// They are let go.
    Released,
}

#[derive(Debug)]
pub(super) enum Server {
    Up,
    /// The process that we started has left, others of its tree serve on: its end is told with theirs.
    Left(Exited),
    Gone,
}
