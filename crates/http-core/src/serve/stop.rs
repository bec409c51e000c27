//! The stop of the front, in three steps: no session is opened, then no request is taken, then everything ends.
//!
//! The first step is for balancers in front of several hosts. They still send requests here for some seconds after the host was told to stop,
//! and a closed socket would be an error for a client that has done nothing wrong.

use mainstay_protocol::clock::Moment;

/// How far the stop is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stop {
    #[default]
    NotAsked,
    /// No session is opened until `until`. All other requests are taken. Then what is in flight has `wait_ms`.
    Leaving { until: Moment, wait_ms: u64 },
    /// Nothing new is taken; what is in flight has until this time.
    Draining(Moment),
    /// Every session is over.
    Closing,
}

impl Stop {
    /// Requests are taken for `delay_ms` from now on; then what is in flight has `wait_ms`.
    pub fn begin(&mut self, now: Moment, delay_ms: u64, wait_ms: u64) {
        if *self == Self::NotAsked {
            let until = now.after_ms(delay_ms);
            *self = Self::Leaving { until, wait_ms };
            self.advance(now);
        }
    }

    fn advance(&mut self, now: Moment) {
        if let Self::Leaving { until, wait_ms } = *self
            && until <= now
        {
            *self = Self::Draining(now.after_ms(wait_ms));
        }
    }

    /// Whether no session is opened any more.
    pub fn has_begun(self) -> bool {
        self != Self::NotAsked
    }

    /// Whether no request is taken any more.
    pub fn refuses(self) -> bool {
        match self {
            Self::NotAsked | Self::Leaving { .. } => false,
            Self::Draining(_) | Self::Closing => true,
        }
    }

    pub fn is_closing(self) -> bool {
        self == Self::Closing
    }

    /// When the next step is due.
    pub fn wake_at(self) -> Option<Moment> {
        match self {
            Self::Leaving { until, .. } | Self::Draining(until) => Some(until),
            Self::NotAsked | Self::Closing => None,
        }
    }

    /// Whether everything is to end now; it says so once. `idle` says whether no client waits for an answer.
    pub fn closes(&mut self, now: Moment, idle: impl FnOnce() -> bool) -> bool {
        self.advance(now);
        let Self::Draining(until) = *self else {
            return false;
        };
        let closes = until <= now || idle();
        if closes {
            *self = Self::Closing;
        }
        closes
    }
}
