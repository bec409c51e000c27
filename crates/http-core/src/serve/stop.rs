//! The stop of the front: nothing new is taken while clients wait for their last answers, then everything ends.

use mainstay_protocol::clock::Moment;

/// How far the stop is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stop {
    #[default]
    NotAsked,
    /// Nothing new is taken; what is in flight has until this time.
    Draining(Moment),
    /// Every session is over.
    Closing,
}

impl Stop {
    /// What is in flight has so many milliseconds from now on.
    pub fn begin(&mut self, now: Moment, wait_ms: u64) {
        if *self == Self::NotAsked {
            *self = Self::Draining(now.after_ms(wait_ms));
        }
    }

    pub fn has_begun(self) -> bool {
        self != Self::NotAsked
    }

    pub fn is_closing(self) -> bool {
        self == Self::Closing
    }

    /// When the time of what is in flight is up.
    pub fn wake_at(self) -> Option<Moment> {
        match self {
            Self::Draining(until) => Some(until),
            Self::NotAsked | Self::Closing => None,
        }
    }

    /// Whether everything is to end now; it says so once. `idle` says whether no client waits for an answer.
    pub fn closes(&mut self, now: Moment, idle: impl FnOnce() -> bool) -> bool {
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
