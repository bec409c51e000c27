//! The death of a server, and how it is settled: one value and one function, for every kind of death.
//!
//! What follows the death is decided before, because the answers say it. The next state is decided by
//! [`Generation`](super::generation::Generation).
//!
//! Invariant: after a death each request that was in flight has its answer, or is kept for the next generation.

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Cause, Ending, Exit, What};

use super::exchange::Exchange;
use super::io::Exited;
use super::junk::JunkCount;
use super::state::{Because, Settling, Then};

/// A server that is dead, or that not even SIGKILL has ended.
pub(super) struct Death {
    /// Since when the server was up.
    since: Moment,
    /// How its process ended; none if not even SIGKILL ended it.
    exited: Option<Exited>,
    /// Which step of the stop ladder it had reached.
    ending: Option<Ending>,
    way: Way,
}

/// How a server came to its end.
enum Way {
    /// By itself, while the client lives. A request may be the reason.
    OfItself(Settling),
    /// While it was being ended, and the link continues.
    Swapped(Settling),
    /// It closed its stdout, was being ended, and cannot be ended: we give it up, and its requests.
    GivenUp,
    /// With the link.
    LinkEnds(Because),
}

impl Death {
    /// The server has died by itself while the client lives; `follows` says what comes next.
    pub fn of_itself(since: Moment, exited: Exited, ending: Option<Ending>, then: &Then) -> Self {
        let settling = match then {
            Then::Abandon(given_up) => Settling::Abandoned(given_up.clone().into()),
            Then::Undecided { .. } | Then::Respawn { .. } | Then::Rest => Settling::Keep {
                because: restarted(&exited),
                poisoned: Some(Because::Poisoned {
                    status: exited.status,
                    stderr_tail: exited.stderr_tail.clone(),
                }),
            },
        };
        Self {
            since,
            exited: Some(exited),
            ending,
            way: Way::OfItself(settling),
        }
    }

    /// The server has ended while it was being ended for this cause.
    pub fn swapped(since: Moment, exited: Exited, ending: Option<Ending>, cause: &Cause) -> Self {
        let because = renewed(cause).unwrap_or_else(|| restarted(&exited));
        Self {
            since,
            exited: Some(exited),
            ending,
            way: Way::Swapped(keep(because)),
        }
    }

    /// Not even SIGKILL has ended a server that was being ended for this cause.
    pub fn immortal_in_swap(since: Moment, cause: &Cause) -> Self {
        let way = renewed(cause).map_or(Way::GivenUp, |because| Way::Swapped(keep(because)));
        Self {
            since,
            exited: None,
            ending: None,
            way,
        }
    }

    /// The server has ended, and the link ends with it. `because`: the reason given to the requests in flight.
    pub fn with_link(
        since: Moment,
        exited: Exited,
        ending: Option<Ending>,
        because: Because,
    ) -> Self {
        Self {
            since,
            exited: Some(exited),
            ending,
            way: Way::LinkEnds(because),
        }
    }

    /// Not even SIGKILL has ended the server of a link that ends.
    pub fn immortal_with_link(since: Moment, because: Because) -> Self {
        Self {
            since,
            exited: None,
            ending: None,
            way: Way::LinkEnds(because),
        }
    }

    /// How its process ended, as an exit code.
    pub fn exit_code(&self) -> Option<u8> {
        self.exited.as_ref().map(|exited| exited.status.exit_code())
    }

    /// Settles the death; the only place that does. Returns how many requests were in flight.
    pub fn settle(self, now: Moment, junk: &mut JunkCount, ex: &mut Exchange<'_>) -> u32 {
        let in_flight = ex.in_flight();

        // 1. If a legacy server has died of `server/discover`, we answer that request for it.
        if let Way::OfItself(_) = &self.way {
            ex.answer_discover();
        }

        // 2. Each request in flight is answered, or kept for the next generation.
        let (settling, link_goes_on) = match self.way {
            Way::OfItself(settling) | Way::Swapped(settling) => (Some(settling), true),
            // They are answered together with the waiting requests when the link gives the server up.
            Way::GivenUp => (None, true),
            Way::LinkEnds(because) => (Some(Settling::All(because)), false),
        };
        let kept = settling.map_or(0, |settling| ex.owed().settle(&settling));

        // 3. The event `exit` is written.
        if let Some(exited) = self.exited {
            // Junk lines since the last event are reported, so that the sum is right.
            if let Some(junk) = junk.rest() {
                ex.owed().tell(What::Junk(junk));
            }
            let generation = ex.session().generation();
            ex.owed().tell(What::Exit(Exit {
                generation,
                pid: exited.pid,
                status: exited.status,
                uptime_ms: now.ms_since(self.since),
                usage: exited.usage,
                in_flight,
                kept,
                ending: self.ending,
                out_of_memory: exited.out_of_memory,
                stderr_tail: exited.stderr_tail,
                standing: None,
            }));
        }

        // 4. Questions of the dead server to the client are cancelled, and our own requests to it are void.
        if link_goes_on {
            ex.server_gone();
        }
        in_flight
    }
}

/// Keeps the requests that may be sent twice for the next generation.
fn keep(because: Because) -> Settling {
    Settling::Keep {
        because,
        poisoned: None,
    }
}

/// The event about a server that is followed by another one.
fn restarted(exited: &Exited) -> Because {
    Because::ServerExit {
        status: exited.status,
        stderr_tail: exited.stderr_tail.clone(),
        restarted: true,
        tries: 0,
    }
}

/// The event about a server that was to be replaced; none if that was not why it ended.
fn renewed(cause: &Cause) -> Option<Because> {
    match cause {
        Cause::Restart(why) => Some(Because::Renewed(why.clone())),
        Cause::ClientEof
        | Cause::ClientGone
        | Cause::ClientDeaf
        | Cause::ShimSignal { .. }
        | Cause::ShimKilled
        | Cause::KeeperSignal { .. }
        | Cause::Asked
        | Cause::ServerExit
        | Cause::StartFailed
        | Cause::KeeperLost
        | Cause::Differs
        | Cause::LeaseEnded(_) => None,
    }
}
