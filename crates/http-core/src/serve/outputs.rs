//! What the shell is to do, in the order in which it was decided.

use alloc::collections::VecDeque;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::SessionEnd;

/// Something that the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Start a link for this path. [`Front::started`](super::front::Front::started) or
    /// [`Front::start_failed`](super::front::Front::start_failed) reports the result.
    Start {
        /// The link.
        link: u64,
        /// The path whose server is started.
        path: u64,
    },
    /// This link has a line to write, or is to be closed: see [`Front::next_line`](super::front::Front::next_line).
    Write(u64),
    /// Ask or read this exchange again.
    Wake(u64),
    /// A session began.
    Began {
        /// The session.
        session: u64,
        /// Its path.
        path: u64,
    },
    /// A session is over.
    Over(Ended),
    /// A session of a server upstream is over here.
    EndUpstream {
        /// The session.
        session: u64,
        /// Its path.
        path: u64,
        /// Whether its server still has to be told: see [`Upstream::end_attempt`](super::upstream::Upstream::end_attempt).
        must_close: bool,
    },
    /// Count something.
    Count(Count),
    /// End all connections as soon as they have sent what they have.
    CloseConnections,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The session.
    pub session: u64,
    /// Its path.
    pub path: u64,
    /// Why it ended.
    pub why: SessionEnd,
    /// When it began.
    pub since: Moment,
    /// How many requests it had.
    pub requests: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// A request of the legacy era was sent to a server.
    Legacy,
    /// A request of the modern era was sent to a server.
    Modern,
    /// So many requests got an error from us, because their server could not answer.
    Settled(usize),
    /// A message was dropped because a client does not read.
    Dropped,
    /// A line of a server belongs to no request.
    Unexpected,
    /// A request was answered after this time in nanoseconds.
    Answered(u64),
}

/// The outputs that the shell has not performed yet.
#[derive(Debug, Default)]
pub(super) struct Outputs(VecDeque<Output>);

impl Outputs {
    pub fn push(&mut self, output: Output) {
        self.0.push_back(output);
    }

    pub fn count(&mut self, count: Count) {
        self.push(Output::Count(count));
    }

    /// Counts requests that got an error from us, if there were any.
    pub fn count_settled(&mut self, requests: usize) {
        if requests > 0 {
            self.count(Count::Settled(requests));
        }
    }

    pub fn next(&mut self) -> Option<Output> {
        self.0.pop_front()
    }
}
