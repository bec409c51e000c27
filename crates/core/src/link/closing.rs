//! The link's own end: ending its last tree, answering open requests, and releasing the client.
//!
//! Invariants: the client's pipes are released once; the link is done when the server is gone, the tree is empty, and
//! the reason has been explained to the client.

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Cause, Seen, Teardown};
use mainstay_protocol::limits::{EXPLAIN_MS, Limits};

use super::io::{Exited, Output, Reason};
use super::outbox::Outbox;
use super::state::{Because, Server, earliest};
use super::up::Up;
use crate::server::stop::{Ladder, Standing, Step};
use alloc::vec::Vec;

/// The exit code of a process that SIGKILL ended.
const KILLED: u8 = 128 + 9;

#[derive(Debug)]
pub(super) struct Closing {
    since: Moment,
    tree: TreeState,
    /// Until when requests of the client are answered with the reason for the end.
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
    /// We may write to the client's pipes.
    Reading,
    /// The client's pipes are released.
    Released,
}

/// What is known when a tree is empty.
pub(super) struct TreeEmpty {
    pub teardown: Teardown,
    /// Why the server's requests are answered by us, if not even SIGKILL ended it.
    pub immortal: Option<Because>,
}

impl Closing {
    /// The end of a link whose server has been up since this time and is being ended.
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

    /// The end of a link whose server is up and is ended for this cause. `owing`: the client waits for its answers.
    pub fn begin(
        now: Moment,
        up: &mut Up,
        cause: Cause,
        owing: bool,
        limits: &Limits,
    ) -> (Self, Option<Step>) {
        let because = Because::of(&cause);
        let standing = if owing { Standing::Owing } else { Standing::Up };
        let (ladder, step) = Ladder::begin(cause, standing, limits, now);
        let closing = Self::descending(up.since(), ladder, 0, because, up.take_server());
        (closing, step)
    }

    /// The end of a link whose server has died: the rest of its tree is ended.
    pub fn after_death(
        now: Moment,
        since: Moment,
        code: u8,
        because: Because,
        tree_empty: bool,
        limits: &Limits,
    ) -> (Self, Option<Step>) {
        if tree_empty {
            return (Self::without_tree(now, code, because), None);
        }
        let (ladder, step) = Ladder::begin(Cause::ServerExit, Standing::Left, limits, now);
        let closing = Self::descending(since, ladder, code, because, Server::Gone);
        (closing, step)
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

    /// The end of a link whose keeper was killed and whose guard has ended the tree.
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

    /// The process that we started has exited like this, and others of its tree continue to serve.
    pub fn left(&self) -> Option<&Exited> {
        match &self.server {
            Server::Left(exited) => Some(exited),
            Server::Up | Server::Gone => None,
        }
    }

    /// Whether lines of the server no longer reach the client.
    pub fn is_over(&self) -> bool {
        self.client == Client::Released || matches!(self.server, Server::Gone)
    }

    /// Whether the server has closed its stdout and its exit status is awaited.
    pub fn is_leaving(&self) -> bool {
        matches!(self.because, Because::Leaving)
    }

    /// Why a request that comes now is refused; none if the client is released.
    pub fn refusal(&self) -> Option<&Because> {
        (self.client == Client::Reading).then_some(&self.because)
    }

    /// The order of a user or a lease, if that is the cause.
    pub fn ordered(&self) -> Option<&Because> {
        let ordered = matches!(self.because, Because::Asked | Because::LeaseEnded { .. });
        ordered.then_some(&self.because)
    }

    pub fn set_because(&mut self, because: Because) {
        self.because = because;
    }

    /// The server has ended like this. Returns whether its status was awaited, and the step for the rest of its tree.
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

    /// Whether the link still answers requests with the reason for its end.
    pub fn explains(&self) -> bool {
        self.explain.is_some()
    }

    /// From now on, requests are answered with the reason for the end, until this time.
    pub fn explain(&mut self, now: Moment) {
        self.explain = Some(now.after_ms(EXPLAIN_MS));
    }

    /// The client knows why no server comes, or has closed its end.
    pub fn explained(&mut self) {
        self.explain = None;
    }

    /// Releases the client's pipes once everything queued is written.
    pub fn release_client(&mut self, outbox: &mut Outbox) {
        if self.lets_client_go() {
            outbox.push(Output::ReleaseClient);
        }
    }

    /// The client wants no more: stop explaining and waiting, and release its pipes now.
    pub fn drop_client(&mut self, outbox: &mut Outbox) {
        if self.lets_client_go() {
            outbox.push(Output::DropClient);
        }
    }

    /// The client's pipes were released before the end began.
    pub fn client_released_before(&mut self, outbox: &mut Outbox) {
        self.client = Client::Released;
        outbox.withdraw_release();
    }

    fn lets_client_go(&mut self) -> bool {
        core::mem::replace(&mut self.client, Client::Released) == Client::Reading
    }

    /// Whether the client has closed its stdin and waits for earlier answers.
    pub fn awaits_last_answers(&self) -> bool {
        self.client == Client::Reading && self.ladder().is_some_and(Ladder::drains)
    }

    /// The client has every answer that it waits for, or waits no longer: the server is not waited for.
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

    /// The exit code, if everything is done.
    pub fn done(&self) -> Option<u8> {
        let gone = matches!((&self.tree, &self.server), (TreeState::Empty, Server::Gone));
        (gone && self.explain.is_none()).then_some(self.code)
    }
}
