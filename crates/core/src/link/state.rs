//! The states of a link, each with its data.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::Losses;
use mainstay_protocol::event::{Cause, RestartReason, Status};
use mainstay_protocol::message::settle::Why;

use super::closing::Closing;
use super::exchange::Speaker;
use super::io::{About, Exited, Reason};
use super::swapping::Swapping;
use super::up::Up;
use crate::server::stop::Ladder;

#[derive(Debug)]
pub(super) enum Life {
    /// The next generation is asked for.
    Absent {
        /// Whether the generation is a trial, because the link had given up.
        trial: Option<Box<GivenUp>>,
    },
    /// A generation is up.
    Up(Up),
    /// A generation is on its way down; the link goes on.
    Swapping(Swapping),
    /// The next generation is started then.
    Waiting { until: Moment },
    /// No server is needed now: the next request starts one.
    Resting,
    /// It died too often.
    Abandoned(GivenUp),
    /// The link itself ends.
    Closing(Closing),
    /// All is done.
    Finished,
}

impl Life {
    /// The server that is up.
    pub fn up(&mut self) -> Option<&mut Up> {
        match self {
            Self::Up(up) => Some(up),
            Self::Absent { .. }
            | Self::Swapping(_)
            | Self::Waiting { .. }
            | Self::Resting
            | Self::Abandoned(_)
            | Self::Closing(_)
            | Self::Finished => None,
        }
    }

    /// The link's own end.
    pub fn closing(&mut self) -> Option<&mut Closing> {
        match self {
            Self::Closing(closing) => Some(closing),
            Self::Absent { .. }
            | Self::Up(_)
            | Self::Swapping(_)
            | Self::Waiting { .. }
            | Self::Resting
            | Self::Abandoned(_)
            | Self::Finished => None,
        }
    }

    /// The descent that is under way.
    pub fn ladder(&self) -> Option<&Ladder> {
        match self {
            Self::Swapping(swapping) => Some(swapping.ladder()),
            Self::Closing(closing) => closing.ladder(),
            Self::Absent { .. }
            | Self::Up(_)
            | Self::Waiting { .. }
            | Self::Resting
            | Self::Abandoned(_)
            | Self::Finished => None,
        }
    }

    /// How the launcher of a server that is on its way down ended, if it left before.
    pub fn left(&self) -> Option<&Exited> {
        match self {
            Self::Swapping(swapping) => swapping.left(),
            Self::Closing(closing) => closing.left(),
            Self::Absent { .. }
            | Self::Up(_)
            | Self::Waiting { .. }
            | Self::Resting
            | Self::Abandoned(_)
            | Self::Finished => None,
        }
    }

    /// How far the server is that speaks now; none if its lines no longer reach a client.
    pub fn speaker(&self) -> Option<Speaker> {
        match self {
            Self::Up(up) => Some(up.speaker()),
            // What is said after the server's end reaches no client: what the server owed is settled.
            Self::Swapping(swapping) => (!swapping.is_over()).then_some(Speaker::GoingDown),
            Self::Closing(closing) => (!closing.is_over()).then_some(Speaker::Closing),
            Self::Absent { .. }
            | Self::Waiting { .. }
            | Self::Resting
            | Self::Abandoned(_)
            | Self::Finished => None,
        }
    }

    /// The state in one word, for views.
    pub fn word(&self, away: bool, opened: bool) -> &'static str {
        match self {
            Self::Absent { .. } => "starting",
            Self::Up(_) if away => "lingering",
            Self::Up(up) => up.word(opened),
            Self::Swapping(_) => "restarting",
            Self::Waiting { .. } => "waiting",
            Self::Resting => "resting",
            Self::Abandoned(_) => "abandoned",
            Self::Closing(closing) if closing.explains() => "failed",
            Self::Closing(_) => "stopping",
            Self::Finished => "gone",
        }
    }
}

/// What follows when the tree is empty.
#[derive(Debug)]
pub(super) enum Then {
    /// It has closed its end; what follows depends on how it ends.
    Undecided {
        trial: Option<Box<GivenUp>>,
    },
    Respawn {
        at: Moment,
    },
    Abandon(GivenUp),
    Rest,
}

/// Why the server was given up, for answers and views.
#[derive(Clone, Debug)]
pub(super) struct GivenUp {
    pub losses: Losses,
    pub window_ms: u64,
    pub last: String,
    pub stderr_tail: Vec<String>,
    /// The change of code after which the server does not start, if that is the reason.
    pub changed: Option<String>,
    pub probe_ms: u64,
    pub probe_at: Option<Moment>,
}

/// What becomes of the requests in flight when a server is gone.
#[derive(Debug)]
pub(super) enum Settling {
    /// Another generation follows: it is asked what can be asked twice, and the rest is answered.
    Keep {
        because: Because,
        /// Why a request is answered that two generations have died with, if that is told.
        poisoned: Option<Because>,
    },
    /// No generation follows for now, because too many have died.
    Abandoned(Box<GivenUp>),
    /// No generation follows.
    All(Because),
}

/// Why requests are answered by us.
#[derive(Clone, Debug)]
pub(super) enum Because {
    StartFailed {
        problem: String,
        hint: String,
    },
    ServerExit {
        status: Status,
        stderr_tail: Vec<String>,
        restarted: bool,
        tries: u32,
    },
    /// An earlier generation died with the same request.
    Poisoned {
        status: Status,
        stderr_tail: Vec<String>,
    },
    Abandoned {
        given_up: Box<GivenUp>,
        /// Whether a server may have begun with the request before.
        sent: bool,
    },
    Renewed(RestartReason),
    Deadline {
        ms: u64,
    },
    Differs {
        what: String,
    },
    /// The server ended while the request was on its way.
    Lost,
    /// The answer is longer than we can hold.
    TooLong,
    /// The server has closed its end, but how it ends is not known yet: requests wait for that.
    Leaving,
    KeeperLost,
    OpeningSilent {
        ms: u64,
    },
    /// `mainstay stop`.
    Asked,
    LeaseEnded {
        what: String,
    },
    Stopping,
}

impl Because {
    /// What a stop for this cause means for the requests that come or wait.
    pub fn of(cause: &Cause) -> Self {
        match cause {
            Cause::ServerExit => Self::Leaving,
            Cause::Asked => Self::Asked,
            Cause::LeaseEnded(ended) => Self::LeaseEnded {
                what: ended.to_string(),
            },
            Cause::Differs => Self::Differs {
                what: cause.to_string(),
            },
            Cause::ClientEof
            | Cause::ClientGone
            | Cause::ClientDeaf
            | Cause::ShimSignal { .. }
            | Cause::ShimKilled
            | Cause::KeeperSignal { .. }
            | Cause::StartFailed
            | Cause::Restart(_)
            | Cause::KeeperLost => Self::Stopping,
        }
    }

    /// The same, for the answers.
    pub fn why<'b>(&'b self, about: &'b About) -> Why<'b> {
        let About {
            name, argv, listed, ..
        } = about;
        match self {
            Self::StartFailed { problem, hint } => Why::StartFailed {
                argv,
                problem,
                hint,
            },
            Self::ServerExit {
                status,
                stderr_tail,
                restarted,
                tries,
            } => Why::ServerExit {
                name,
                status: *status,
                stderr_tail,
                restarted: *restarted,
                poisoned: false,
                tries: *tries,
                listed: *listed,
            },
            Self::Poisoned {
                status,
                stderr_tail,
            } => Why::ServerExit {
                name,
                status: *status,
                stderr_tail,
                restarted: true,
                poisoned: true,
                tries: 0,
                listed: *listed,
            },
            Self::Abandoned { given_up, sent } => given_up.why(about, *sent),
            Self::Renewed(why) => Why::Renewed { name, why },
            Self::Deadline { ms } => Why::Deadline { name, ms: *ms },
            Self::Differs { what } => Why::Differs { name, what },
            Self::Lost => Why::Lost { name },
            Self::TooLong => Why::TooLong { name },
            Self::KeeperLost => Why::KeeperLost { name },
            Self::OpeningSilent { ms } => Why::OpeningSilent {
                name,
                ms: *ms,
                argv,
            },
            Self::Asked => Why::Asked { name },
            Self::LeaseEnded { what } => Why::LeaseEnded { name, what },
            Self::Leaving | Self::Stopping => Why::ClientStopping { name },
        }
    }
}

impl GivenUp {
    /// It is tried again after so long; 0: never.
    pub fn try_after(&mut self, now: Moment, ms: u64) {
        self.probe_ms = ms;
        self.probe_at = (ms > 0).then(|| now.after_ms(ms));
    }

    /// The same, for the answer to a request that a server may have begun with, or to one that none has seen.
    pub fn why<'b>(&'b self, about: &'b About, sent: bool) -> Why<'b> {
        Why::Abandoned {
            name: &about.name,
            losses: self.losses,
            window_ms: self.window_ms,
            last: &self.last,
            stderr_tail: &self.stderr_tail,
            changed: self.changed.as_deref(),
            probe_ms: self.probe_ms,
            sent,
            listed: about.listed,
        }
    }
}

#[derive(Debug)]
pub(super) enum Server {
    Up,
    /// The process that we started has left, others of its tree serve on: its end is told with theirs.
    Left(Exited),
    Gone,
}

pub(super) fn earliest<const N: usize>(
    all: [Option<(Moment, Reason)>; N],
) -> Option<(Moment, Reason)> {
    all.into_iter().flatten().min_by_key(|(at, _)| *at)
}
