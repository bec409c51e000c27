//! The link's own end: the way down of its last tree, the answers to what is still asked, and the client's release.
//!
//! Invariants: the client's pipes are let go once; the link is done when the server is gone, the tree is empty, and the end
//! has been explained.

use super::io::{Exited, Output, Reason};
use super::outbox::Outbox;
use super::state::{Because, Server, earliest};
use crate::clock::Moment;
use crate::event::{Seen, Teardown};
use crate::limits::EXPLAIN_MS;
use crate::server::stop::{Ladder, Step};
use alloc::vec::Vec;

/// The exit code that tells of a SIGKILL.
const KILLED: u8 = 128 + 9;

#[derive(Debug)]
pub(super) struct Closing {
    since: Moment,
    tree: TreeState,
    /// Until when the end is explained to a client that asks in vain.
    explain: Option<Moment>,
    code: u8,
    because: Because,
    client: Client,
    server: Server,
}

#[derive(Debug)]
enum TreeState {
    Descending(Ladder),
    Empty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// Its pipes are ours to write to.
    Reading,
    /// They are let go.
    Released,
}

/// What is known when a tree is empty.
pub(super) struct TreeEmpty {
    pub teardown: Teardown,
    /// Why what the server owes is answered, if not even the kill ended it.
    pub immortal: Option<Because>,
}

impl Closing {
    /// The end of a link whose server was up since then, and is on its way down.
    pub fn descending(
        since: Moment,
        ladder: Ladder,
        code: u8,
        because: Because,
        server: Server,
    ) -> Self {
        Self {
            since,
            tree: TreeState::Descending(ladder),
            explain: None,
            code,
            because,
            client: Client::Reading,
            server,
        }
    }

    /// The end of a link without a tree.
    pub fn without_tree(now: Moment, code: u8, because: Because) -> Self {
        Self {
            since: now,
            tree: TreeState::Empty,
            explain: None,
            code,
            because,
            client: Client::Reading,
            server: Server::Gone,
        }
    }

    /// The end of a link whose keeper was killed: its guard has ended the tree.
    pub fn after_keeper(now: Moment) -> Self {
        Self::without_tree(now, KILLED, Because::Stopping)
    }

    pub fn since(&self) -> Moment {
        self.since
    }

    pub fn ladder(&self) -> Option<&Ladder> {
        match &self.tree {
            TreeState::Descending(ladder) => Some(ladder),
            TreeState::Empty => None,
        }
    }

    fn ladder_mut(&mut self) -> Option<&mut Ladder> {
        match &mut self.tree {
            TreeState::Descending(ladder) => Some(ladder),
            TreeState::Empty => None,
        }
    }

    /// The process that we started has left, and others of its tree serve on: how it ended.
    pub fn left(&self) -> Option<&Exited> {
        match &self.server {
            Server::Left(exited) => Some(exited),
            Server::Up | Server::Gone => None,
        }
    }

    /// Whether nothing that the server says reaches the client any more.
    pub fn is_over(&self) -> bool {
        self.client == Client::Released || matches!(self.server, Server::Gone)
    }

    /// Whether the server has closed its end, and how it ends is waited for.
    pub fn is_leaving(&self) -> bool {
        matches!(self.because, Because::Leaving)
    }

    /// Why a request that comes now is refused; none if the client is let go.
    pub fn refusal(&self) -> Option<&Because> {
        (self.client == Client::Reading).then_some(&self.because)
    }

    /// What a user or a lease ordered, if that is why.
    pub fn ordered(&self) -> Option<&Because> {
        let ordered = matches!(self.because, Because::Asked | Because::LeaseEnded { .. });
        ordered.then_some(&self.because)
    }

    pub fn set_because(&mut self, because: Because) {
        self.because = because;
    }

    /// The server is gone, and ended like this. Whether how it ended was waited for, and the step for the rest of its tree.
    pub fn server_gone(
        &mut self,
        now: Moment,
        code: u8,
        because: Because,
        tree_empty: bool,
    ) -> (bool, Option<Step>) {
        self.code = code;
        self.server = Server::Gone;
        let awaited = self.is_leaving();
        if awaited {
            self.because = because;
        }
        let step = match self.ladder_mut() {
            Some(ladder) if !tree_empty => ladder.server_left(now),
            Some(_) | None => None,
        };
        (awaited, step)
    }

    /// No process is left of the tree, or these could not be ended; none if that was known.
    pub fn tree_empty(&mut self, now: Moment, ended: u32, left: Vec<Seen>) -> Option<TreeEmpty> {
        let tree = core::mem::replace(&mut self.tree, TreeState::Empty);
        let TreeState::Descending(ladder) = tree else {
            return None;
        };
        let immortal = matches!(self.server, Server::Up).then(|| {
            self.server = Server::Gone;
            self.code = KILLED;
            core::mem::replace(&mut self.because, Because::Stopping)
        });
        Some(TreeEmpty {
            teardown: ladder.finish(ended, left, now),
            immortal,
        })
    }

    /// Whether the end is being explained.
    pub fn explains(&self) -> bool {
        self.explain.is_some()
    }

    /// The end is explained to a client that asks in vain, for a while.
    pub fn explain(&mut self, now: Moment) {
        self.explain = Some(now.after_ms(EXPLAIN_MS));
    }

    /// The client has heard why the server does not come, or listens no more.
    pub fn explained(&mut self) {
        self.explain = None;
    }

    /// Lets the client's pipes go once what is queued has been written.
    pub fn release_client(&mut self, outbox: &mut Outbox) {
        if self.lets_client_go() {
            outbox.push(Output::ReleaseClient);
        }
    }

    /// The client wants no more: what is being explained or waited for is void, and its pipes are let go now.
    pub fn drop_client(&mut self, outbox: &mut Outbox) {
        if self.lets_client_go() {
            outbox.push(Output::DropClient);
        }
    }

    /// The client's pipes were let go before the end began.
    pub fn client_released_before(&mut self, outbox: &mut Outbox) {
        self.client = Client::Released;
        outbox.withdraw_release();
    }

    fn lets_client_go(&mut self) -> bool {
        core::mem::replace(&mut self.client, Client::Released) == Client::Reading
    }

    /// Whether the client has closed its end and waits for what it had asked before.
    pub fn awaits_last_answers(&self) -> bool {
        self.client == Client::Reading && self.ladder().is_some_and(Ladder::drains)
    }

    /// The client has all that it waits for, or waits no more: the server need not be waited for.
    pub fn drained(&mut self, now: Moment) -> Option<Step> {
        self.ladder_mut()?.drained(now)
    }

    pub fn wake_at(&self) -> Option<(Moment, Reason)> {
        let rung = self.ladder().and_then(Ladder::wake_at);
        earliest([
            rung.map(|at| (at, Reason::Rung)),
            self.explain.map(|until| (until, Reason::Explained)),
        ])
    }

    pub fn tick(&mut self, now: Moment) -> Option<Step> {
        if self.explain.is_some_and(|until| now >= until) {
            self.explain = None;
        }
        self.ladder_mut()?.tick(now)
    }

    /// The code to leave with, if all is done.
    pub fn done(&self) -> Option<u8> {
        let gone = matches!((&self.tree, &self.server), (TreeState::Empty, Server::Gone));
        (gone && self.explain.is_none()).then_some(self.code)
    }
}
