//! The guard's watch over the client, and over a keeper that does not act on the client's end.
//!
//! The keeper decides whether the client is really gone: a launcher exits early, and a killed shim may be followed by
//! the next. So the guard only asks a keeper that still runs some time after the client's end. If the keeper answers,
//! it goes on. If it was stopped, the guard continues it, because then it can end the server politely. If it does not
//! answer, the guard kills it, and the next keeper decides.
//!
//! While the client lives, the guard needs no wake-up. This module allocates nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use mainstay_protocol::clock::Moment;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::CLIENT_GONE_ASK_MS;

use crate::holder::hung_up;
use crate::identity::Handle;
use crate::role;

/// The guard's view of the client during the life of one keeper.
pub(crate) struct ClientWatch {
    /// The process that the keeper has named as the client.
    client: Option<Handle>,
    stage: Stage,
    answer_ms: u64,
}

#[derive(Clone, Copy)]
enum Stage {
    /// As far as we can see, the client lives.
    Present,
    /// The client has ended. At `ask_at` the keeper is asked, if it still runs.
    Gone { ask_at: Moment },
    /// The keeper was asked and must answer before `until`.
    Asked { until: Moment },
}

/// What the guard does to the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Continue it and ask it.
    Ask,
    /// Kill it, because it does not answer.
    Kill,
}

impl ClientWatch {
    /// For a keeper that may take this long to answer.
    pub fn new(answer_ms: u64) -> Self {
        Self {
            client: None,
            stage: Stage::Present,
            answer_ms,
        }
    }

    /// The keeper has named its client.
    pub fn is(&mut self, who: Identity, now: Moment) {
        self.stage = Stage::Present;
        self.client = match Handle::open(who) {
            Ok(handle) => Some(handle),
            Err(error) => {
                if error.kind() == io::ErrorKind::NotFound {
                    self.gone(now);
                }
                // Otherwise the process cannot be watched; the hang-up of the pipe must do.
                None
            }
        };
    }

    /// The standard descriptors are now those of a client that came back.
    pub fn attached(&mut self) {
        self.stage = Stage::Present;
    }

    /// The keeper has answered.
    pub fn answered(&mut self, now: Moment) {
        if let Stage::Asked { .. } = self.stage {
            self.gone(now);
        }
    }

    /// The descriptors to wait for besides the keeper's. None once the client has ended, because both would stay
    /// ready.
    pub fn fds(&self) -> [Option<BorrowedFd<'_>>; 2] {
        match self.stage {
            Stage::Present => [
                Some(role::standard(0)),
                self.client.as_ref().map(AsFd::as_fd),
            ],
            Stage::Gone { .. } | Stage::Asked { .. } => [None, None],
        }
    }

    /// When the next call of `look` is needed.
    pub fn due(&self) -> Option<Moment> {
        match self.stage {
            Stage::Present => None,
            Stage::Gone { ask_at: at } | Stage::Asked { until: at } => Some(at),
        }
    }

    /// Checks the client and the clock.
    pub fn look(&mut self, now: Moment) -> Option<Act> {
        match self.stage {
            Stage::Present => {
                let ended = self.client.as_ref().is_some_and(Handle::ended);
                if ended || hung_up(role::standard(0)) {
                    self.gone(now);
                }
                None
            }
            Stage::Gone { ask_at } if now >= ask_at => {
                let until = now.after_ms(self.answer_ms);
                self.stage = Stage::Asked { until };
                Some(Act::Ask)
            }
            Stage::Asked { until } if now >= until => {
                self.gone(now);
                Some(Act::Kill)
            }
            Stage::Gone { .. } | Stage::Asked { .. } => None,
        }
    }

    fn gone(&mut self, now: Moment) {
        let ask_at = now.after_ms(CLIENT_GONE_ASK_MS);
        self.stage = Stage::Gone { ask_at };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment(0).after_ms(ms)
    }

    fn gone() -> ClientWatch {
        let mut watch = ClientWatch::new(700);
        let me = crate::identity::me().unwrap();
        let dead = Identity {
            start: me.start + 1,
            ..me
        };
        watch.is(dead, at(0));
        watch
    }

    #[test]
    fn living_client_needs_no_wake_up() {
        let mut watch = ClientWatch::new(700);
        watch.is(crate::identity::me().unwrap(), at(0));
        assert_eq!(watch.due(), None);
        assert!(watch.fds()[1].is_some());
    }

    #[test]
    fn a_keeper_that_answers_is_asked_again_and_never_killed() {
        let mut watch = gone();
        let mut now = at(0);
        for _ in 0..5 {
            assert_eq!(watch.look(now), None);
            now = watch.due().unwrap();
            assert_eq!(watch.look(now), Some(Act::Ask));
            watch.answered(now);
        }
    }

    #[test]
    fn a_keeper_that_does_not_answer_is_killed() {
        let mut watch = gone();
        let asked = at(CLIENT_GONE_ASK_MS);
        assert_eq!(watch.look(asked), Some(Act::Ask));
        assert_eq!(watch.look(asked.after_ms(699)), None);
        assert_eq!(watch.look(asked.after_ms(700)), Some(Act::Kill));
    }

    #[test]
    fn new_client_replaces_the_dead_one() {
        let mut watch = gone();
        watch.is(crate::identity::me().unwrap(), at(5));
        assert_eq!(watch.due(), None);
    }
}
