//! The way down: from whatever wants the end to the last output.

use alloc::vec::Vec;

use super::io::Exited;
use super::state::{Because, Client, Closing, Life, Server, Swapping, Then, TreeState, Up};
use super::{EXPLAIN_MS, Link, Output};
use crate::clock::Moment;
use crate::event::{Cause, Parting, Seen, What};
use crate::record::Phase;
use crate::server::stop::{Ladder, Standing};

impl Link<'_> {
    pub(super) fn exited(&mut self, now: Moment, exited: Exited) {
        match &mut self.life {
            // A launcher that ends well while somebody else serves on has only done its part.
            Life::Up(up) if exited.status.success() && up.may_serve_on(exited.holders) => {
                up.left = Some(exited);
            }
            Life::Up(_) | Life::Swapping(_) | Life::Closing(_) => self.server_gone(now, exited),
            Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => {}
        }
    }

    pub(super) fn stdout_closed(&mut self, now: Moment, tree_empty: bool) {
        match &mut self.life {
            Life::Up(up) => match up.left.take() {
                Some(exited) => self.server_gone(
                    now,
                    Exited {
                        tree_empty,
                        ..exited
                    },
                ),
                // It can answer nobody any more: help it to end.
                None => self.stop(now, Cause::ServerExit),
            },
            Life::Swapping(_) | Life::Closing(_) => self.followers_gone(now, tree_empty),
            Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => {}
        }
    }

    /// Whoever served on after the process that we started had left is gone, too.
    fn followers_gone(&mut self, now: Moment, tree_empty: bool) {
        let server = match &self.life {
            Life::Swapping(swapping) => &swapping.server,
            Life::Closing(closing) => &closing.server,
            Life::Absent { .. }
            | Life::Up(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => return,
        };
        if let Server::Left(exited) = server {
            let exited = Exited {
                tree_empty,
                ..exited.clone()
            };
            self.server_gone(now, exited);
        }
    }

    fn server_gone(&mut self, now: Moment, exited: Exited) {
        if self.away() {
            self.part(now, Parting::ServerEnded);
            self.gone_for_good(now, exited);
            self.let_go_already();
            return;
        }
        match &self.life {
            Life::Up(_) if self.goes_on() && self.is_death(exited.status) => self.died(now, exited),
            Life::Swapping(Swapping {
                then: Then::Mourn { .. },
                ..
            }) if !self.is_death(exited.status) => {
                self.close_swapping(now, &Cause::ServerExit, true);
                self.gone_for_good(now, exited);
            }
            Life::Swapping(_) => self.gone_in_swap(now, exited),
            Life::Up(_)
            | Life::Closing(_)
            | Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => self.gone_for_good(now, exited),
        }
    }

    /// The server is gone, and no other follows.
    fn gone_for_good(&mut self, now: Moment, exited: Exited) {
        let since = match &self.life {
            Life::Up(Up { since, .. }) | Life::Closing(Closing { since, .. }) => *since,
            Life::Absent { .. }
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => now,
        };
        let Exited {
            status, tree_empty, ..
        } = exited;
        let because = Because::ServerExit {
            status,
            stderr_tail: exited.stderr_tail.clone(),
            restarted: false,
            tries: if self.opened() { 0 } else { self.tries + 1 },
        };
        let in_flight = self.in_flight();
        self.tell_exit(now, since, exited, in_flight, 0);
        let opened = self.opened();
        let ordered = match &self.life {
            Life::Closing(Closing {
                because: ordered @ (Because::Asked | Because::LeaseEnded { .. }),
                ..
            }) => Some(ordered.clone()),
            Life::Closing(_)
            | Life::Absent { .. }
            | Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => None,
        };
        let asked = self.settle_all(ordered.as_ref().unwrap_or(&because)) > 0;
        // A client whose probe just failed may ask again in the other era; one that never asked is about to.
        let mut explain = !opened && (asked || !status.success());
        match &mut self.life {
            Life::Closing(closing) => {
                closing.code = status.exit_code();
                closing.server = Server::Gone;
                explain &= matches!(closing.because, Because::Leaving);
                if let Because::Leaving = closing.because {
                    closing.because = because;
                }
                if let (TreeState::Descending(ladder), false) = (&mut closing.tree, tree_empty)
                    && let Some(step) = ladder.server_left(now)
                {
                    self.push(Output::Stop(step));
                }
            }
            Life::Absent { .. }
            | Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => {
                let (ladder, step) =
                    Ladder::begin(Cause::ServerExit, Standing::Left, &self.limits, now);
                let tree = if tree_empty {
                    TreeState::Empty
                } else {
                    TreeState::Descending(ladder)
                };
                self.close(now, tree, status.exit_code(), because, Server::Gone);
                if let (false, Some(step)) = (tree_empty, step) {
                    self.push(Output::Stop(step));
                }
            }
        }
        if explain {
            self.explain(now);
        } else {
            self.release();
        }
    }

    pub(super) fn tree_empty(&mut self, now: Moment, ended: u32, left: Vec<Seen>) {
        self.followers_gone(now, true);
        if let Life::Closing(closing) = &mut self.life
            && let TreeState::Descending(ladder) =
                core::mem::replace(&mut closing.tree, TreeState::Empty)
        {
            if let Server::Up = closing.server {
                // Not even the kill ended it: the teardown names it, and what it owes will not come.
                closing.server = Server::Gone;
                closing.code = 128 + 9;
                let because = core::mem::replace(&mut closing.because, Because::Stopping);
                self.settle_all(&because);
            }
            let told = ladder.finish(ended, left, now);
            self.tell(What::Teardown(told));
            return;
        }
        let life = core::mem::replace(&mut self.life, Life::Resting);
        let Life::Swapping(swapping) = life else {
            self.life = life;
            return;
        };
        let cause = swapping.ladder.cause().clone();
        if !swapping.quiet || !left.is_empty() {
            self.tell(What::Teardown(swapping.ladder.finish(ended, left, now)));
        }
        if let (Server::Up, Cause::Renewal(why)) = (&swapping.server, &cause) {
            // Not even the kill ended it: what it owed will not come.
            self.settle_or_keep(&Because::Renewed(why.clone()), None);
        }
        if let Server::Up = &swapping.server {
            self.cancel_asked();
            self.own.forget();
        }
        self.proceed(now, swapping.then);
    }

    pub(super) fn client_eof(&mut self, now: Moment) {
        if let Life::Closing(closing) = &mut self.life {
            closing.explain = None;
        }
        self.stop(now, Cause::ClientEof);
    }

    pub(super) fn stop(&mut self, now: Moment, cause: Cause) {
        let released = self.away();
        if self.keeps(now, &cause) {
            return;
        }
        self.stop_for(now, cause);
        if released {
            self.let_go_already();
        }
    }

    /// The same, and nothing is kept.
    pub(super) fn stop_for(&mut self, now: Moment, cause: Cause) {
        let client_wants_more = match &cause {
            Cause::ClientEof
            | Cause::Asked
            | Cause::ServerExit
            | Cause::Renewal(_)
            | Cause::Differs
            | Cause::LeaseEnded(_) => true,
            Cause::ClientGone
            | Cause::ClientDeaf
            | Cause::ShimSignal { .. }
            | Cause::ShimKilled
            | Cause::KeeperSignal { .. }
            | Cause::StartFailed
            | Cause::KeeperLost => false,
        };
        let goes_on = self.goes_on();
        match &mut self.life {
            // It can serve nobody any more, but the client lives.
            Life::Up(up) if cause == Cause::ServerExit && goes_on => {
                let trial = up.trial.take();
                self.swap(now, cause, Then::Mourn { trial });
            }
            Life::Up(up) => {
                let server = up.left.take().map_or(Server::Up, Server::Left);
                let because = Because::of(&cause);
                let owing = cause == Cause::ClientEof && self.answers_due();
                let standing = if owing { Standing::Owing } else { Standing::Up };
                let (ladder, step) = Ladder::begin(cause, standing, &self.limits, now);
                self.close(now, TreeState::Descending(ladder), 0, because, server);
                if let Some(step) = step {
                    self.push(Output::Stop(step));
                }
                if !client_wants_more {
                    self.drop_client();
                }
            }
            Life::Closing(closing) => {
                if !client_wants_more {
                    closing.explain = None;
                    if let TreeState::Descending(ladder) = &mut closing.tree
                        && let Some(step) = ladder.drained(now)
                    {
                        self.outputs.push_back(Output::Stop(step));
                    }
                    self.drop_client();
                }
            }
            // It concerns a generation that is on its way down, or gone.
            Life::Swapping(_)
            | Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
                if cause == Cause::ServerExit => {}
            Life::Swapping(_) => self.close_swapping(now, &cause, client_wants_more),
            Life::Absent { .. } | Life::Waiting { .. } | Life::Resting | Life::Abandoned(_) => {
                // What was asked for is not wanted any more.
                self.outputs.retain(|output| *output != Output::Spawn);
                let because = Because::of(&cause);
                self.settle_all(&because);
                let code = self.code;
                self.close(now, TreeState::Empty, code, because, Server::Gone);
                if !client_wants_more {
                    self.drop_client();
                }
            }
            Life::Finished => {}
        }
    }

    /// The link ends while a generation is on its way down: that way becomes the link's own.
    fn close_swapping(&mut self, now: Moment, cause: &Cause, client_wants_more: bool) {
        let life = core::mem::replace(&mut self.life, Life::Resting);
        let Life::Swapping(swapping) = life else {
            self.life = life;
            return;
        };
        let Swapping {
            since,
            ladder,
            server,
            ..
        } = swapping;
        let because = Because::of(cause);
        if let Server::Gone = server {
            // Nobody is left to answer what was kept.
            self.settle_all(&because);
        }
        let code = self.code;
        self.close(now, TreeState::Descending(ladder), code, because, server);
        if let Life::Closing(closing) = &mut self.life {
            closing.since = since;
        }
        if !client_wants_more {
            self.drop_client();
        }
    }

    pub(super) fn close(
        &mut self,
        now: Moment,
        tree: TreeState,
        code: u8,
        because: Because,
        server: Server,
    ) {
        // A keeper that was killed when all was done leaves nothing to go back to.
        self.head.set_phase(self.head.phase().max(Phase::Stopping));
        let since = match &self.life {
            Life::Up(up) => up.since,
            Life::Swapping(swapping) => swapping.since,
            Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Closing(_)
            | Life::Finished => now,
        };
        self.life = Life::Closing(Closing {
            since,
            tree,
            explain: None,
            code,
            because,
            client: Client::Reading,
            server,
        });
    }

    pub(super) fn explain(&mut self, now: Moment) {
        if let Life::Closing(closing) = &mut self.life {
            closing.explain = Some(now.after_ms(EXPLAIN_MS));
        }
    }

    pub(super) fn release(&mut self) {
        if let Life::Closing(closing) = &mut self.life
            && closing.client == Client::Reading
        {
            closing.client = Client::Released;
            self.push(Output::ReleaseClient);
        }
    }

    /// The client's pipes were let go before the end began.
    pub(super) fn let_go_already(&mut self) {
        if let Life::Closing(closing) = &mut self.life {
            closing.client = Client::Released;
        }
        let gone = |output: &Output| matches!(output, Output::DropClient | Output::ReleaseClient);
        self.outputs.retain(|output| !gone(output));
    }

    pub(super) fn drop_client(&mut self) {
        if let Life::Closing(closing) = &mut self.life
            && closing.client == Client::Reading
        {
            closing.client = Client::Released;
            self.push(Output::DropClient);
        }
    }

    /// Whether an answer is due that the client waits for; listening has none.
    fn answers_due(&self) -> bool {
        self.inflight
            .iter()
            .any(|(_, entry)| !entry.method.listens())
    }

    pub(super) fn drained_if_answered(&mut self, now: Moment) {
        if let Life::Closing(_) = &self.life
            && !self.answers_due()
            && let Life::Closing(closing) = &mut self.life
            && let TreeState::Descending(ladder) = &mut closing.tree
            && let Some(step) = ladder.drained(now)
        {
            self.push(Output::Stop(step));
        }
    }

    pub(super) fn finish_if_done(&mut self) {
        if let Life::Closing(Closing {
            tree: TreeState::Empty,
            explain: None,
            code,
            server: Server::Gone,
            ..
        }) = &self.life
        {
            let code = *code;
            self.release();
            self.head.set_phase(Phase::Finished);
            self.push(Output::Finish(code));
            self.life = Life::Finished;
        }
    }
}
