//! What can wait until a server runs: its start is told, its link is listed, can be asked, and is known to the guard.
//!
//! To make a directory and three files takes longer than a small server takes to start, open and list its tools; on a busy
//! disk, several times as long. So at a link's beginning all that writes waits until the client has had time for its opening
//! exchange ([`INTRODUCE_MS`]). Then it is done a step at a time, and the messages that are ready pass between two steps.
//!
//! Invariants: what is remembered is read before the client's first line, because it may answer that line; no event of a
//! generation is written before its start; the card comes last, so a link that is listed by its name can be asked, and its guard
//! holds its lock; a keeper that is done, or whose guard is gone, has taken all steps.

use mainstay_core::clock::Moment;
use mainstay_core::event::{Start, What};
use mainstay_core::limits::INTRODUCE_MS;
use mainstay_os::channel::Word;
use mainstay_os::clock;

use super::{Keeper, session};
use crate::registry::entry::Entry;

/// What is still to be done for a server that was started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Introduction {
    next: Step,
    /// By the wall clock.
    started_ms: u64,
    /// When the steps that write are due.
    writes_at: Moment,
}

/// In their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// What earlier sessions saw is read.
    Recollection,
    /// The event is written.
    Event,
    /// The link's directory is made.
    Place,
    /// The control socket is opened in it.
    Control,
    /// The guard is told.
    Guard,
    /// The card is written.
    Card,
}

impl Introduction {
    /// Whether what is remembered has been read.
    pub(super) fn has_recalled(&self) -> bool {
        self.next > Step::Recollection
    }

    /// When the next step is due.
    pub(super) fn due(&self) -> Moment {
        match self.next {
            Step::Recollection => Moment(0),
            Step::Event | Step::Place | Step::Control | Step::Guard | Step::Card => self.writes_at,
        }
    }
}

impl Keeper<'_> {
    /// A server was started. A link that is listed already shows the next generation from its beginning.
    pub(super) fn begin_introduction(&mut self) {
        self.introduction = Some(Introduction {
            next: Step::Recollection,
            started_ms: clock::wall_ms(),
            writes_at: self.now.after_ms(INTRODUCE_MS),
        });
        if self.entry.is_some() {
            self.introduce_now();
        }
        // Its first line usually waits already: it goes to the server before the keeper asks the kernel what is ready.
        if let Some(client) = &self.client_in {
            client.look_again();
        }
    }

    /// Takes the next step if it is due; all of them if the keeper cannot go on without.
    pub(super) fn introduce(&mut self) {
        let Some(introduction) = self.introduction else {
            return;
        };
        if self.unguarded {
            self.introduce_now();
        } else if self.now >= introduction.due() {
            self.take_step(introduction);
        }
    }

    /// Takes all steps that are left.
    pub(super) fn introduce_now(&mut self) {
        while let Some(introduction) = self.introduction {
            self.take_step(introduction);
        }
    }

    /// No other event of a generation comes before its start.
    pub(super) fn introduce_before_telling(&mut self) {
        while let Some(introduction) = self.introduction
            && introduction.next <= Step::Event
        {
            self.take_step(introduction);
        }
    }

    fn take_step(&mut self, introduction: Introduction) {
        let next = match introduction.next {
            Step::Recollection => Some(Step::Event),
            Step::Event => Some(Step::Place),
            Step::Place => Some(Step::Control),
            Step::Control => Some(Step::Guard),
            Step::Guard => Some(Step::Card),
            Step::Card => None,
        };
        // Before the step: an event of its own must not take it again.
        self.introduction = next.map(|next| Introduction {
            next,
            ..introduction
        });
        match introduction.next {
            Step::Recollection => self.recall(),
            Step::Event => self.tell_start(introduction.started_ms),
            Step::Place => self.take_entry(),
            Step::Control => self.listen(),
            Step::Guard => self.tell_guard(),
            Step::Card => self.write_card(),
        }
    }

    fn tell_start(&mut self, started_ms: u64) {
        let Some(server) = &self.server else { return };
        let recording = self.plan.frames.as_ref();
        let start = What::Start(Start {
            generation: self.relay.link().generation(),
            argv: self.plan.words(),
            cwd: self.plan.directory(),
            pid: server.who.pid,
            tier: server.tier,
            why_not: server.why_not.clone(),
            client: self.plan.client.clone(),
            detached: self.plan.detached.clone(),
            recording: recording.map(|path| path.to_string_lossy().into_owned()),
        });
        self.ledger
            .record_at(started_ms, self.plan.id, &self.plan.name, start);
    }

    /// A link that waits to be needed is listed all the same.
    pub(super) fn show_resting(&mut self) {
        self.take_entry();
        self.listen();
        self.tell_guard();
        self.write_card();
    }

    /// A link whose directory could not be had in time (a sweep was at it) is listed from now on.
    pub(super) fn show_late(&mut self) {
        if self.server.is_some() && self.entry.is_none() {
            self.entry = Entry::try_take(&self.plan.paths, self.plan.id).ok();
            if self.entry.is_some() {
                self.listen();
                self.write_card();
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
