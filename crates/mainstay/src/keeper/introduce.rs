//! What can wait until a server runs: its start is told, its link is listed, can be asked, and is known to the guard.
//!
//! All of it takes about as long as a small server needs to say its first word. So at a link's beginning it is done a step
//! at a time, and whatever the server says meanwhile goes on before the next one.
//!
//! Invariants: nothing is told of a generation before its start; the client's lines come after all of it, because what is
//! remembered may answer them; a keeper that is done has done it.

use mainstay_core::event::{Start, What};
use mainstay_os::channel::Word;

use super::{Keeper, session};
use crate::registry::entry::Entry;

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Introduction {
    /// The event.
    Event,
    /// The link's directory.
    Place,
    /// The card in it.
    Card,
    /// The control socket beside that.
    Control,
    /// What earlier sessions saw.
    Recollection,
    /// A word to the guard.
    Guard,
}

impl Keeper<'_> {
    /// A server was started. Whoever looks at the link already sees the next generation from its beginning.
    pub(super) fn begin_introduction(&mut self) {
        self.introduction = Some(Introduction::Event);
        if self.entry.is_some() {
            while self.introduce() {}
        }
        self.look_at_server();
    }

    /// Takes one step, if any is left; whether it did.
    pub(super) fn introduce(&mut self) -> bool {
        let Some(step) = self.introduction.take() else {
            return false;
        };
        self.introduction = match step {
            Introduction::Event => {
                self.tell_start();
                Some(Introduction::Place)
            }
            Introduction::Place => {
                self.take_entry();
                Some(Introduction::Card)
            }
            Introduction::Card => {
                self.write_card();
                Some(Introduction::Control)
            }
            Introduction::Control => {
                self.listen();
                Some(Introduction::Recollection)
            }
            Introduction::Recollection => {
                self.recall();
                Some(Introduction::Guard)
            }
            Introduction::Guard => {
                self.tell_guard();
                None
            }
        };
        self.look_at_server();
        true
    }

    /// The server may have spoken: the kernel is not asked who is ready before all of this is done.
    fn look_at_server(&self) {
        let server = self.server.as_ref();
        if let Some(stdout) = server.and_then(|server| server.stdout.as_ref()) {
            stdout.look_again();
        }
    }

    fn tell_start(&mut self) {
        let Some(server) = &self.server else { return };
        let recording = self.plan.frames.as_ref();
        self.tell(What::Start(Start {
            generation: self.relay.link().generation(),
            argv: self.plan.words(),
            cwd: self.plan.directory(),
            pid: server.who.pid,
            tier: server.tier,
            why_not: server.why_not.clone(),
            client: self.plan.client.clone(),
            detached: self.plan.detached.clone(),
            recording: recording.map(|path| path.to_string_lossy().into_owned()),
        }));
    }

    /// A link that waits to be needed is listed all the same.
    pub(super) fn show_resting(&mut self) {
        self.take_entry();
        self.write_card();
        self.listen();
        self.tell_guard();
    }

    /// A link whose directory could not be had in time (a sweep was at it) is listed from now on.
    pub(super) fn show_late(&mut self) {
        if self.server.is_some() && self.entry.is_none() {
            self.entry = Entry::try_take(&self.plan.paths, self.plan.id).ok();
            if self.entry.is_some() {
                self.write_card();
                self.listen();
            }
        }
    }

    /// The guard may go on to what can wait until a server runs, and holds the link's lock, too.
    pub(super) fn tell_guard(&mut self) {
        if std::mem::replace(&mut self.upkeep.guard_told, true) {
            return;
        }
        let lock = self.entry.as_ref().map(Entry::lent);
        self.to_guard
            .get()
            .say_with(Word::Spawned, lock.as_ref().map_or(&[], |fds| fds));
        self.name_client();
    }

    pub(super) fn take_entry(&mut self) {
        if self.entry.is_none() {
            self.entry = session::take_entry(self.plan);
        }
    }

    fn listen(&mut self) {
        if let (Some(entry), false) = (&self.entry, self.control.listens()) {
            self.control.listen(entry);
        }
    }
}
