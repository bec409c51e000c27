//! A server on its way down while the link goes on: the descent of its tree, and what follows when the tree is empty.
//!
//! It decides nothing about what follows; it keeps the decision until then.
//!
//! Invariant: what follows is undecided only if the server has closed its end and has not ended yet.

use alloc::boxed::Box;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Cause, RestartReason, Seen, Teardown};
use mainstay_protocol::limits::Limits;

use super::closing::Closing;
use super::io::{Exited, Reason};
use super::state::{Because, GivenUp, Server, Then};
use super::up::Up;
use crate::server::stop::{Ladder, Standing, Step};

#[derive(Debug)]
pub(super) struct Swapping {
    /// Since when the server was up.
    since: Moment,
    ladder: Ladder,
    server: Server,
    /// Only the dead server was in the tree, so there is no descent to tell of.
    quiet: bool,
    then: Then,
}

/// What is known when the tree of a generation is empty, or cannot be emptied.
pub(super) struct SwapOver {
    /// Since when the server was up.
    pub since: Moment,
    /// To be told, if there was a descent.
    pub teardown: Option<Teardown>,
    /// Why the server was to go, if not even the kill ended it.
    pub immortal: Option<Cause>,
    pub then: Then,
}

impl Swapping {
    /// The server that is up is to go for this cause.
    pub fn begin(
        now: Moment,
        up: &mut Up,
        cause: Cause,
        then: Then,
        limits: &Limits,
    ) -> (Self, Option<Step>) {
        let standing = match cause {
            Cause::Restart(RestartReason::Silent { .. }) => Standing::Hung,
            Cause::Restart(_)
            | Cause::ClientEof
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
            | Cause::LeaseEnded(_) => Standing::Up,
        };
        let (ladder, step) = Ladder::begin(cause, standing, limits, now);
        let swapping = Self {
            since: up.since(),
            ladder,
            server: up.take_server(),
            quiet: false,
            then,
        };
        (swapping, step)
    }

    /// The server that was up has died: what is left of its tree is to go.
    pub fn after_death(
        now: Moment,
        since: Moment,
        tree_empty: bool,
        then: Then,
        limits: &Limits,
    ) -> (Self, Option<Step>) {
        let (ladder, step) = Ladder::begin(Cause::ServerExit, Standing::Left, limits, now);
        let swapping = Self {
            since,
            ladder,
            server: Server::Gone,
            quiet: tree_empty,
            then,
        };
        // An empty tree is only to be confirmed.
        (swapping, step.filter(|_| !tree_empty))
    }

    pub fn since(&self) -> Moment {
        self.since
    }

    pub fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// How the process that we started ended, if other processes of its tree serve on.
    pub fn left(&self) -> Option<&Exited> {
        match &self.server {
            Server::Left(exited) => Some(exited),
            Server::Up | Server::Gone => None,
        }
    }

    /// Whether lines of the server no longer reach the client.
    pub fn is_over(&self) -> bool {
        matches!(self.server, Server::Gone)
    }

    pub fn then(&self) -> &Then {
        &self.then
    }

    /// The next generation follows at once, whatever was to follow.
    pub fn respawn(&mut self, now: Moment) {
        self.then = Then::Respawn { at: now };
    }

    /// Whether what follows depends on how the server ends.
    pub fn is_undecided(&self) -> bool {
        matches!(self.then, Then::Undecided { .. })
    }

    /// Why the link had been given up, if this server was on trial and what follows is undecided.
    pub fn take_trial(&mut self) -> Option<Box<GivenUp>> {
        match &mut self.then {
            Then::Undecided { trial } => trial.take(),
            Then::Respawn { .. } | Then::Abandon(_) | Then::Rest => None,
        }
    }

    /// The server is gone, and its death is settled. `then`: what follows, if that was undecided.
    pub fn server_gone(
        &mut self,
        now: Moment,
        tree_empty: bool,
        then: Option<Then>,
    ) -> Option<Step> {
        if let Some(then) = then {
            // The rest of a launcher's tree has been on its way down, too.
            self.quiet = self.left().is_none() && tree_empty;
            self.then = then;
        }
        self.server = Server::Gone;
        debug_assert!(
            !self.is_undecided(),
            "how the server ended decides what follows"
        );
        if tree_empty {
            None
        } else {
            self.ladder.server_left(now)
        }
    }

    /// No process is left of the tree, or the kill is through and these are left.
    pub fn tree_empty(self, now: Moment, ended: u32, left: Vec<Seen>) -> SwapOver {
        let immortal = match self.server {
            Server::Up => Some(self.ladder.cause().clone()),
            Server::Left(_) | Server::Gone => None,
        };
        let told = !self.quiet || !left.is_empty();
        SwapOver {
            since: self.since,
            teardown: told.then(|| self.ladder.finish(ended, left, now)),
            immortal,
            then: self.then,
        }
    }

    /// The link itself is to end: the way down becomes the link's own.
    pub fn into_closing(self, code: u8, because: Because) -> Closing {
        Closing::descending(self.since, self.ladder, code, because, self.server)
    }

    pub fn wake_at(&self) -> Option<(Moment, Reason)> {
        self.ladder.wake_at().map(|at| (at, Reason::Rung))
    }

    pub fn tick(&mut self, now: Moment) -> Option<Step> {
        self.ladder.tick(now)
    }
}
