//! News from outside the data: signals, the shim's words, deaths.

use std::task::Context;

use mainstay_core::event::{Cause, ClientMoved, Signal, What};
use mainstay_core::link::Input;
use mainstay_os::channel::{Heard, Word};
use mainstay_os::{census, holder};

use super::Keeper;

impl Keeper<'_> {
    pub(super) fn poll_signals(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while self.signals.poll_ready(cx) {
            match self.signals.get().read() {
                Ok(Some(received)) => {
                    any = true;
                    if received.number == libc::SIGCHLD {
                        self.reap();
                    } else {
                        self.handle(Input::Stop(Cause::KeeperSignal {
                            number: received.number,
                        }));
                    }
                }
                Ok(None) | Err(_) => self.signals.clear(),
            }
        }
        any
    }

    pub(super) fn poll_shim(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while self.to_shim.poll_ready(cx) {
            match self.to_shim.get().hear() {
                Heard::Word(Word::Signalled(received)) => {
                    any = true;
                    let comm = census::stat(received.pid).ok().map(|stat| stat.comm);
                    self.tell(What::Signal(Signal {
                        number: received.number,
                        code: received.code,
                        sender: received.pid,
                        uid: received.uid,
                        comm,
                    }));
                    self.handle(Input::Stop(Cause::ShimSignal {
                        number: received.number,
                    }));
                }
                Heard::Word(
                    Word::Here { .. } | Word::Finished { .. } | Word::Release | Word::Spawned,
                ) => {}
                Heard::Nothing => self.to_shim.clear(),
                Heard::Closed => {
                    // The shim's death itself is told by its pidfd.
                    self.to_shim.close();
                    break;
                }
            }
        }
        any
    }

    pub(super) fn poll_watcher(&mut self, cx: &mut Context<'_>) -> bool {
        let dead = self.watcher.poll(cx);
        if dead.shim {
            // Its last word may still be in the channel.
            self.poll_shim(cx);
            self.handle(Input::Stop(Cause::ShimKilled));
        }
        self.unguarded |= dead.guard;
        if dead.client {
            self.client_lost();
        }
        dead.shim || dead.guard || dead.client
    }

    /// Who started us is gone. Is somebody else the client?
    pub(super) fn client_lost(&mut self) {
        let Some(from) = self.client else { return };
        let heir = self
            .client_in
            .as_ref()
            .and_then(|port| holder::heir(port, from, &self.plan.ancestors));
        match heir {
            Some(to) => {
                self.client = Some(to.who);
                self.watcher.watch_client(to.who);
                self.tell(What::ClientMoved(ClientMoved { from, to }));
            }
            None if self.client_in.is_some() => self.handle(Input::Stop(Cause::ClientGone)),
            // EOF was first.
            None => {}
        }
    }
}
