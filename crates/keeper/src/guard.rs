//! The guard above the keeper, or the side guard that replaces it, and the messages to it.
//!
//! Invariants: a side guard is started only while fewer than [`SIDE_GUARDS`] were; it is no member of a server's tree, and is
//! ended by its handle, because another process may have its number once it is reaped.

use std::io;
use std::os::fd::BorrowedFd;

use mainstay_os::channel::{Channel, Heard, Word};
use mainstay_os::identity::Handle;
use mainstay_os::record::{Notes, Region};
use mainstay_os::role;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::Lost;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::{KEEPER_RETRY_MS, SIDE_GUARDS};
use mainstay_store::registry::entry::Entry;

use super::plan::Plan;
use super::session;
use super::watched::{DeathWatch, Watched};

/// The guard of one keeper.
pub struct Guard<'p> {
    /// The keeper's parent.
    parent: Identity,
    death: DeathWatch,
    channel: Watched<Channel>,
    /// The side guard, once the keeper's parent is gone.
    beside: Option<Handle>,
    /// Side guards that were started so far.
    side_guards: u32,
    /// The guard, or the side guard, is gone.
    lost: bool,
    /// When the next side guard is started, if the last one could not be.
    retry_at: Option<Moment>,
    /// It knows that a server runs.
    told_of_server: bool,
    /// The record that keepers and guards share.
    region: &'p Region,
    /// The part of the record that the next guard or keeper reads.
    notes: &'static mut Notes,
}

impl<'p> Guard<'p> {
    pub fn new(
        parent: Identity,
        channel: Channel,
        region: &'p Region,
        notes: &'static mut Notes,
    ) -> io::Result<Self> {
        Ok(Self {
            parent,
            death: DeathWatch::Later(parent),
            channel: Watched::new(channel)?,
            beside: None,
            side_guards: 0,
            lost: false,
            retry_at: None,
            told_of_server: false,
            region,
            notes,
        })
    }

    /// The process that guards the keeper now.
    pub fn who(&self) -> Identity {
        self.side_guard().unwrap_or(self.parent)
    }

    /// The guard that started the keeper.
    pub fn parent(&self) -> Identity {
        self.parent
    }

    pub fn side_guard(&self) -> Option<Identity> {
        self.beside.as_ref().map(|handle| handle.who)
    }

    /// The shared record as a file, if it is one.
    pub fn record(&self) -> Option<BorrowedFd<'p>> {
        self.region.file()
    }

    /// Answers a guard that saw the client end and asks whether the keeper makes progress.
    pub fn poll(&mut self) {
        while self.channel.poll_ready() {
            match self.channel.get().hear() {
                Heard::Word(Word::Ask) => self.channel.get().say(Word::Answer),
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
                Heard::Nothing => self.channel.clear(),
                // Its pidfd reports the death of the guard.
                Heard::Closed => self.channel.close(),
            }
        }
    }

    /// Looks whether the guard has ended; true if it has.
    pub fn poll_death(&mut self) -> bool {
        let dead = self.death.poll().is_some();
        self.lost |= dead;
        dead
    }

    /// A child of the keeper has ended: was it the side guard?
    pub fn look_at_side_guard(&mut self) {
        self.lost |= self.beside.as_ref().is_some_and(Handle::ended);
    }

    /// Whether another guard must be started.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// As [`Self::is_lost`], once.
    pub fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }

    /// True if it is time to try again to start a side guard.
    pub fn poll_retry(&mut self, now: Moment) -> bool {
        let due = self.retry_at.take_if(|at| now >= *at).is_some();
        self.lost |= due;
        due
    }

    pub fn due(&self) -> Option<Moment> {
        self.retry_at
    }

    /// Starts a side guard in the place of a guard that is gone.
    pub fn replace(
        &mut self,
        plan: &Plan,
        entry: Option<&Entry>,
        to_shim: &Channel,
        keeper: Identity,
        now: Moment,
    ) -> Lost {
        let pid = self.who().pid;
        self.beside = None;
        // A side guard that cannot run (no memory, no descriptors) must not be started for ever.
        self.side_guards += 1;
        if self.side_guards <= SIDE_GUARDS {
            match self.start_side_guard(plan, entry, to_shim, keeper) {
                Some((side_guard, channel)) => {
                    self.channel = channel;
                    self.beside = Some(side_guard);
                }
                None => self.retry_at = Some(now.after_ms(KEEPER_RETRY_MS.into())),
            }
        }
        Lost {
            pid,
            status: None,
            ended: 0,
            settled: 0,
            successor: self.side_guard().map(|who| who.pid),
        }
    }

    fn start_side_guard(
        &self,
        plan: &Plan,
        entry: Option<&Entry>,
        to_shim: &Channel,
        keeper: Identity,
    ) -> Option<(Handle, Watched<Channel>)> {
        let (side_guard, channel) =
            session::start_side_guard(plan, entry, self.region, to_shim, keeper)?;
        let watched = Watched::new(channel).ok();
        if watched.is_none() {
            role::dismiss(&side_guard);
        }
        Some((side_guard, watched?))
    }

    /// A server runs, so the guard may go on to what could wait, and holds the link's lock too. Told once.
    pub fn tell_of_server(&mut self, entry: Option<&Entry>, client: Option<Identity>) {
        if std::mem::replace(&mut self.told_of_server, true) {
            return;
        }
        let lock = entry.map(Entry::lent);
        self.channel
            .get()
            .say_with(Word::Spawned, lock.as_ref().map_or(&[], |fds| fds));
        self.name_client(client);
    }

    /// The guard watches the client too.
    pub fn name_client(&self, client: Option<Identity>) {
        if let Some(client) = client {
            self.channel.get().say(Word::Client(client));
        }
    }

    /// It lets go of the client's pipes.
    pub fn release_client(&self) {
        self.channel.get().say(Word::Release);
    }

    /// The client has come back: the record names its shim, and the guard gets the pipes and the channel to that shim. In this
    /// order, so that the next keeper finds both or neither.
    pub fn attach_client(
        &mut self,
        shim: Identity,
        client: Option<Identity>,
        lent: &[BorrowedFd<'_>; 4],
    ) {
        self.notes.reattach(shim, client);
        self.channel.get().say_with(Word::Attach, lent);
    }

    /// The keeper has begun: it counts as one that could.
    pub fn note_begun(&mut self) {
        self.notes.begin();
    }

    /// The witness of the server that runs now.
    pub fn note_witness(&mut self, pid: i32) {
        self.notes.witness = pid;
    }

    /// All is done: a side guard ends.
    pub fn dismiss(&mut self) {
        if let Some(side_guard) = self.beside.take() {
            role::dismiss(&side_guard);
        }
    }
}
