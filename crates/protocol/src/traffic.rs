//! What has passed between a client and its server: how many requests were answered, by which side, and how fast.
//!
//! A killed keeper takes its counts with it, so a reader must expect that they start again at zero.

use serde::{Deserialize, Serialize};

use crate::message::slot::Tracked;

/// The upper ends of the buckets, in microseconds. From 10 ms on they are those of OpenTelemetry's conventions for MCP.
pub const BUCKETS_US: [u64; 17] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
];

/// The counts of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Answers of the server to `tools/call`.
    pub calls: Durations,
    /// Answers of the server to all other requests.
    pub others: Durations,
    /// Of both: the answers that were JSON-RPC errors.
    pub errors: u64,
    /// Requests that mainstay answered: from its cache, or because the server could not.
    pub answered_by_mainstay: u64,
}

/// How long answers took, from the client's request to the server's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Durations {
    /// How many there were.
    pub count: u64,
    /// The sum.
    pub total_us: u64,
    /// How many took longer than the bucket before and not longer than this one. Those beyond the last bucket are only in
    /// `count`.
    pub buckets: [u64; BUCKETS_US.len()],
}

impl Traffic {
    /// The server answered a request of this sort after this time.
    #[inline]
    pub fn answered(&mut self, method: Tracked, ns: u64) {
        match method {
            Tracked::ToolsCall => self.calls.add(ns),
            Tracked::Other
            | Tracked::Initialize
            | Tracked::Discover
            | Tracked::Ping
            | Tracked::List
            | Tracked::Read
            | Tracked::SetLevel
            | Tracked::Subscribe
            | Tracked::Listen
            | Tracked::Task => self.others.add(ns),
        }
    }
}

impl Durations {
    #[inline]
    fn add(&mut self, ns: u64) {
        let us = ns / 1_000;
        self.count += 1;
        self.total_us = self.total_us.saturating_add(us);
        if let Some(place) = BUCKETS_US.iter().position(|&most| us <= most) {
            self.buckets[place] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_first_bucket_that_is_not_shorter() {
        let mut traffic = Traffic::default();
        for us in [0, 1_000, 1_001, 300_000_000, 300_000_001] {
            traffic.answered(Tracked::ToolsCall, us * 1_000);
        }
        traffic.answered(Tracked::Ping, 7_000_000);
        let calls = &traffic.calls;
        assert_eq!(calls.count, 5);
        assert_eq!(calls.total_us, 600_002_002);
        assert_eq!((calls.buckets[0], calls.buckets[1]), (2, 1));
        assert_eq!(calls.buckets[16], 1);
        assert_eq!(calls.buckets.iter().sum::<u64>(), 4);
        assert_eq!((traffic.others.count, traffic.others.buckets[3]), (1, 1));
    }
}
