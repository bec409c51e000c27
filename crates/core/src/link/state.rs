//! The states of a link, each with its data.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::io::{About, Exited, Holders};
use crate::clock::Moment;
use crate::event::{Cause, Renewing, Status};
use crate::message::frame::Kind;
use crate::message::settle::Why;
use crate::server::backoff::Losses;
use crate::server::health::Health;
use crate::server::stop::Ladder;

#[derive(Debug)]
pub(super) enum Life {
    /// The next generation is asked for.
    Absent {
        /// It is only a trial: the link had been given up.
        trial: Option<Box<GivenUp>>,
    },
    /// A generation is up.
    Up(Up),
    /// A generation is on its way down; the link goes on.
    Swapping(Swapping),
    /// The next generation is started then.
    Waiting { until: Moment },
    /// Nobody needs it now: the next request starts it.
    Resting,
    /// It died too often.
    Abandoned(GivenUp),
    /// The link itself ends.
    Closing(Closing),
    /// All is done.
    Finished,
}

#[derive(Debug)]
pub(super) struct Up {
    pub since: Moment,
    pub stage: Stage,
    /// The process that we started has left and others serve on.
    pub left: Option<Exited>,
    /// Since when a server that has said nothing in the protocol has left its first request unanswered.
    pub silence: Silence,
    /// It is to be replaced as soon as it has answered what is in flight.
    pub giving_way: Option<GivingWay>,
    /// Whether it is there at all.
    pub health: Health,
    /// When it was last of use.
    pub used: Moment,
    /// Bytes of the messages that it has said; some of them may be missing here, none is too many.
    pub said: u64,
    /// The link had been given up, and this generation has not shown yet that it can serve.
    pub trial: Option<Box<GivenUp>>,
}

impl Up {
    /// It has said a line of so many bytes.
    pub fn says(&mut self, kind: Kind, bytes: usize) {
        self.silence.line(kind);
        match kind {
            // That may be anybody's, a launcher's for one.
            Kind::Blank | Kind::Junk => {}
            Kind::Request | Kind::Notification | Kind::Response | Kind::Error | Kind::Batch => {
                self.said += bytes as u64;
            }
        }
    }

    /// Whether it may be these who serve. Whoever has written less than was said is not who said it.
    pub fn may_serve_on(&self, holders: Holders) -> bool {
        match holders {
            Holders::Nobody => false,
            Holders::Somebody { written } => written.is_none_or(|written| written >= self.said),
        }
    }
}

#[derive(Debug)]
pub(super) enum Stage {
    /// Our replayed opening is unanswered.
    Greeting { until: Moment },
    /// Our replayed requests are unanswered.
    Replaying { unanswered: u32, until: Moment },
    /// The client was answered from the record; the server's own answer to the opening is not there yet.
    Instant,
    /// Client and server speak with each other.
    Serving,
}

#[derive(Debug)]
pub(super) enum Silence {
    NothingAsked,
    Since(Moment),
    Broken,
}

impl Silence {
    /// The server has written something, be it no message, as an installer does: it is at work, and the time begins anew.
    pub fn wrote(&mut self, now: Moment) {
        if let Self::Since(since) = self {
            *since = now;
        }
    }

    /// It was a line: a message breaks the silence for good, junk is a sign of life and no more.
    pub fn line(&mut self, kind: Kind) {
        match kind {
            Kind::Blank | Kind::Junk => {}
            Kind::Request | Kind::Notification | Kind::Response | Kind::Error | Kind::Batch => {
                *self = Self::Broken;
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct GivingWay {
    pub why: Renewing,
    pub until: Moment,
}

/// A generation on its way down, while the link goes on.
#[derive(Debug)]
pub(super) struct Swapping {
    pub since: Moment,
    pub ladder: Ladder,
    pub server: Server,
    /// Nobody but the dead server was in the tree: there is no descent to tell of.
    pub quiet: bool,
    pub then: Then,
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

/// Why a server was given up, for whoever asks.
#[derive(Clone, Debug)]
pub(super) struct GivenUp {
    pub losses: Losses,
    pub window_ms: u64,
    pub last: String,
    pub stderr_tail: Vec<String>,
    /// The change that it does not start after, if it is that.
    pub changed: Option<String>,
    pub probe_ms: u64,
    pub probe_at: Option<Moment>,
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

impl Swapping {
    /// Whether nothing that the generation says reaches the client any more.
    pub fn is_over(&self) -> bool {
        matches!(self.server, Server::Gone)
    }
}

impl Closing {
    /// The same.
    pub fn is_over(&self) -> bool {
        self.client == Client::Released || matches!(self.server, Server::Gone)
    }
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
    Renewed(Renewing),
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
            | Cause::Renewal(_)
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
