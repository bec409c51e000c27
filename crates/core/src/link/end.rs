//! The way down: from whatever wants the end to the last output.

use alloc::vec::Vec;

use super::io::Exited;
use super::state::{Because, Client, Closing, Life, Server, TreeState, Up};
use super::{EXPLAIN_MS, Link, Output};
use crate::clock::Moment;
use crate::event::{Cause, Exit, Seen, What};
use crate::record::Phase;
use crate::server::stop::{Ladder, Standing};

impl Link<'_> {
    pub(super) fn exited(&mut self, now: Moment, exited: Exited) {
        match &mut self.life {
            // A launcher that ends well while somebody else serves on has only done its part.
            Life::Up(up) if exited.served_on && exited.status.success() => up.left = Some(exited),
            Life::Up(_) | Life::Closing(_) => self.server_gone(now, exited),
            Life::Absent | Life::Finished => {}
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
            Life::Closing(_) => self.followers_gone(now, tree_empty),
            Life::Absent | Life::Finished => {}
        }
    }

    /// Whoever served on after the process that we started had left is gone, too.
    fn followers_gone(&mut self, now: Moment, tree_empty: bool) {
        if let Life::Closing(closing) = &mut self.life
            && let Server::Left(exited) = &closing.server
        {
            let exited = Exited {
                tree_empty,
                ..exited.clone()
            };
            self.server_gone(now, exited);
        }
    }

    pub(super) fn server_gone(&mut self, now: Moment, exited: Exited) {
        let Exited {
            pid,
            status,
            usage,
            stderr_tail,
            tree_empty,
            ..
        } = exited;
        let since = match &self.life {
            Life::Up(Up { since, .. }) | Life::Closing(Closing { since, .. }) => *since,
            Life::Absent | Life::Finished => now,
        };
        self.tell(What::Exit(Exit {
            generation: self.head.generation,
            pid,
            status,
            uptime_ms: now.ms_since(since),
            usage,
            in_flight: self.in_flight(),
            stderr_tail: stderr_tail.clone(),
        }));
        let because = Because::ServerExit {
            status,
            stderr_tail,
        };
        let opened = self.head.greeted != 0 || self.head.modern != 0;
        let stopped = matches!(&self.life, Life::Closing(closing) if matches!(closing.because, Because::Asked));
        let told = if stopped { &Because::Asked } else { &because };
        let asked = self.settle(told, false) > 0;
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
            Life::Absent | Life::Up(_) | Life::Finished => {
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
                // Not even the kill ended it: the teardown names it.
                closing.server = Server::Gone;
                closing.code = 128 + 9;
            }
            let told = ladder.finish(ended, left, now);
            self.tell(What::Teardown(told));
        }
    }

    pub(super) fn client_eof(&mut self, now: Moment) {
        if let Life::Closing(closing) = &mut self.life {
            closing.explain = None;
        }
        self.stop(now, Cause::ClientEof);
    }

    pub(super) fn stop(&mut self, now: Moment, cause: Cause) {
        let client_wants_more = match &cause {
            Cause::ClientEof | Cause::Asked | Cause::ServerExit => true,
            Cause::ClientGone
            | Cause::ClientDeaf
            | Cause::ShimSignal { .. }
            | Cause::ShimKilled
            | Cause::KeeperSignal { .. }
            | Cause::StartFailed
            | Cause::KeeperLost => false,
        };
        match &mut self.life {
            Life::Up(up) => {
                let server = up.left.take().map_or(Server::Up, Server::Left);
                let because = Because::of(&cause);
                let owing = cause == Cause::ClientEof && !self.inflight.is_empty();
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
            Life::Absent => {
                let because = Because::of(&cause);
                self.close(now, TreeState::Empty, 0, because, Server::Gone);
            }
            Life::Finished => {}
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
        self.head.set_phase(Phase::Stopping);
        let since = match &self.life {
            Life::Up(up) => up.since,
            Life::Absent | Life::Closing(_) | Life::Finished => now,
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

    pub(super) fn drop_client(&mut self) {
        if let Life::Closing(closing) = &mut self.life
            && closing.client == Client::Reading
        {
            closing.client = Client::Released;
            self.push(Output::DropClient);
        }
    }

    pub(super) fn drained_if_answered(&mut self, now: Moment) {
        if self.inflight.is_empty()
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
