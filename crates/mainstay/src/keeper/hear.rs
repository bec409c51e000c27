//! News from outside the data: signals, the shim's words, deaths.

use mainstay_core::event::{Cause, ClientMoved, Gone, Part, What};
use mainstay_core::ids::Identity;
use mainstay_core::link::Input;
use mainstay_core::senders::Meaning;
use mainstay_os::channel::{Heard, Word};
use mainstay_os::sender::{self, LOOK_BYTES, Look};
use mainstay_os::signals::Received;
use mainstay_os::{holder, notice};

use super::attribute::{self, Around};
use super::server::Running;
use super::watch::Death;
use super::{Keeper, STEPS};
use crate::profile;

impl Keeper<'_> {
    pub(super) fn poll_signals(&mut self) -> bool {
        let mut any = false;
        while self.signals.poll_ready() {
            match self.signals.get().read() {
                Ok(Some(received)) => {
                    any = true;
                    if received.number == libc::SIGCHLD {
                        self.reap();
                    } else if received.number == notice::SIGNAL {
                        self.look_at_lease();
                    } else {
                        let mut seen = [0; LOOK_BYTES];
                        let len = sender::look(received.pid, &mut seen);
                        let number = received.number;
                        match self.judge_signal(Part::Keeper, received, &seen[..len]) {
                            Meaning::Ignore { .. } => {}
                            Meaning::MaybeEnd | Meaning::End => {
                                self.handle(Input::Stop(Cause::KeeperSignal { number }));
                            }
                        }
                    }
                }
                Ok(None) | Err(_) => self.signals.clear(),
            }
        }
        any
    }

    /// The server's end by its own pidfd: whatever became of who would tell of it.
    pub(super) fn poll_server(&mut self) -> bool {
        let ended = self.server.as_mut().is_some_and(Running::has_ended);
        if ended {
            self.reap();
        }
        ended
    }

    pub(super) fn poll_shim(&mut self) -> bool {
        let mut any = false;
        let mut seen = Vec::new();
        while self.to_shim.poll_ready() {
            match self.to_shim.get().hear_behind(&mut seen) {
                Heard::Word(Word::Signalled(received)) => {
                    any = true;
                    self.shim_signalled(received, &seen);
                }
                Heard::Word(
                    Word::Here { .. }
                    | Word::Finished { .. }
                    | Word::GaveUp
                    | Word::Leave
                    | Word::Stay
                    | Word::Release
                    | Word::Attach
                    | Word::Client(_)
                    | Word::Ask
                    | Word::Answer
                    | Word::Spawned,
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

    /// A guard that saw the client end asks whether we make progress.
    pub(super) fn poll_guard(&mut self) {
        while self.to_guard.poll_ready() {
            match self.to_guard.get().hear() {
                Heard::Word(Word::Ask) => self.to_guard.get().say(Word::Answer),
                Heard::Word(
                    Word::Here { .. }
                    | Word::Finished { .. }
                    | Word::GaveUp
                    | Word::Signalled(_)
                    | Word::Leave
                    | Word::Stay
                    | Word::Release
                    | Word::Attach
                    | Word::Client(_)
                    | Word::Answer
                    | Word::Spawned,
                ) => {}
                Heard::Nothing => self.to_guard.clear(),
                // The guard's death itself is told by its pidfd.
                Heard::Closed => self.to_guard.close(),
            }
        }
    }

    /// Another process is the client now.
    pub(super) fn watch_client(&mut self, who: Identity) {
        self.client = Some(who);
        self.watcher.watch_client(who);
        self.name_client();
    }

    /// The guard watches the client, too.
    pub(super) fn name_client(&self) {
        if let Some(client) = self.client {
            self.to_guard.get().say(Word::Client(client));
        }
    }

    /// The shim was signalled: it stays for a stranger, and for the client until it is known what the client wants.
    fn shim_signalled(&mut self, received: Received, seen: &[u8]) {
        let number = received.number;
        match self.judge_signal(Part::Shim, received, seen) {
            Meaning::Ignore { .. } => {
                self.to_shim.get().say(Word::Stay);
                self.handle(Input::Check);
                return;
            }
            Meaning::MaybeEnd => self.set_linger(),
            Meaning::End => self.relay.set_linger(0),
        }
        if std::mem::replace(&mut self.watcher.shim_signalled, true) {
            self.look_for_eof();
        }
        self.handle(Input::Stop(Cause::ShimSignal { number }));
    }

    /// Judges a signal by its sender, and writes it down with all that can be said about that.
    fn judge_signal(&mut self, to: Part, received: Received, seen: &[u8]) -> Meaning {
        let around = Around {
            client: self.client,
            above: &self.ancestors,
            ours: [self.me, self.shim, self.watcher.guard()],
        };
        let mut signal = attribute::signal(to, received, Look::of(seen), &around);
        signal.standing = Some(self.standing().into());
        let near = |pid: i32| {
            let mut all = self.client.iter().chain(&self.ancestors);
            all.any(|who| who.pid == pid)
        };
        let senders = match to {
            Part::Keeper => &mut self.senders.1,
            Part::Shim | Part::Client | Part::Server => &mut self.senders.0,
        };
        let meaning = senders.judge(self.now, &signal, near);
        if let Meaning::Ignore { count } = meaning {
            signal.ignored = Some(count);
        }
        if signal.gone && signal.ignored.is_none() {
            let pid = match to {
                Part::Keeper => self.me.pid,
                Part::Shim | Part::Client | Part::Server => self.shim.pid,
            };
            self.unexplained(to, pid);
        }
        self.tell(What::Signal(signal));
        meaning
    }

    pub(super) fn poll_watcher(&mut self) -> bool {
        let dead = self.watcher.poll();
        if let Some(death) = dead.shim {
            // Its last word may still be in the channel.
            self.poll_shim();
            if !self.watcher.shim_signalled {
                self.tell_gone(Part::Shim, self.shim, death);
                if dead.client.is_none() {
                    self.unexplained(Part::Shim, self.shim.pid);
                }
                self.set_linger();
            }
            self.look_for_eof();
            self.handle(Input::Stop(Cause::ShimKilled));
            // What that means for the client's pipes, before anything else is told of the client.
            self.perform();
        }
        self.unguarded |= dead.guard.is_some();
        if let Some((who, death)) = dead.client
            && self.client == Some(who)
        {
            self.client_lost(death);
        }
        dead.shim.is_some() || dead.guard.is_some() || dead.client.is_some()
    }

    /// From now on an EOF may be the consequence of the shim's end; what is there already is the client's own act.
    fn look_for_eof(&mut self) {
        self.introduce_now();
        if let Some(client) = &self.client_in {
            client.look_again();
            for _ in 0..STEPS {
                let more = self.move_bytes();
                if !(self.perform() || more) {
                    break;
                }
            }
        }
    }

    /// Who started us is gone. Is somebody else the client?
    fn client_lost(&mut self, death: Death) {
        let Some(from) = self.client else { return };
        let heir = self
            .client_in
            .as_ref()
            .and_then(|port| holder::heir(port, from, &self.ancestors));
        if let Some(to) = heir {
            self.watch_client(to.who);
            let (to, status) = (profile::called(to), death.status);
            self.tell(What::ClientMoved(ClientMoved { from, to, status }));
            return;
        }
        self.tell_gone(Part::Client, from, death);
        if self.client_in.is_some() || self.relay.link().away() {
            self.handle(Input::Stop(Cause::ClientGone));
        }
        // Else EOF was first.
    }

    /// At the end: a client whose EOF came first may have ended since, and then it did not just close.
    pub(super) fn tell_client_gone(&mut self) {
        if let (Some(who), Some(death)) = (self.client, self.watcher.last_look_at_client()) {
            self.tell_gone(Part::Client, who, death);
        }
    }

    fn tell_gone(&mut self, part: Part, who: Identity, death: Death) {
        let status = death.status;
        let standing = (part == Part::Shim).then(|| self.standing().into());
        self.tell(What::Gone(Gone {
            part,
            who,
            status,
            standing,
        }));
    }
}
