//! The shim: the process that the client started, and all that the client ever sees of us.
//!
//! It starts the guard, waits, passes signals on with what it can see of their sender, and leaves with the code it is told, or by the
//! signal once the keeper knows what that was. It never touches the data and allocates nothing after its start. Anyone may kill it: the guard and the keeper go on.

use std::io;
use std::os::fd::AsFd;

use mainstay_core::clock::Moment;
use mainstay_core::ids::Identity;
use mainstay_core::limits;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::channel::{Channel, Heard, Word};
use crate::clock;
use crate::guard::{self, Birth, Roles};
use crate::identity::Handle;
use crate::memory;
use crate::record::Region;
use crate::role;
use crate::sender::{self, LOOK_BYTES};
use crate::signals::{ENDING, Signals};

/// How the shim is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this exit code.
    Code(u8),
    /// By this signal, which the client (or somebody) sent.
    Signal(i32),
    /// Guard and keeper were killed again and again.
    Lost,
}

/// Whether the guard leaves our process tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detach {
    /// It does.
    Yes,
    /// It stays our child, because nobody would reap it elsewhere; we outlive it.
    No,
}

/// How often a lost pair is replaced.
const RELIGHTS: u32 = 3;

/// Starts the guard and keeps the place until all is done.
pub fn run(region: &Region, detach: Detach, roles: &mut dyn Roles) -> io::Result<Ending> {
    let mut shim = Shim::new(detach, None)?;
    memory::trim();
    shim.light(region, Birth::First, roles)?;
    shim.keep_the_place(region, roles)
}

/// Takes the place of a shim that was killed: guard, keeper and server are there, and look after us by this channel.
pub fn go_on(
    region: &Region,
    detach: Detach,
    channel: Channel,
    pair: (Identity, Identity),
    roles: &mut dyn Roles,
) -> io::Result<Ending> {
    let mut shim = Shim::new(detach, Some(channel))?;
    let (guard, keeper) = pair;
    shim.pair = watch(guard, keeper);
    memory::trim();
    shim.keep_the_place(region, roles)
}

struct Shim {
    signals: Signals,
    detach: Detach,
    channel: Option<Channel>,
    pair: Option<(Handle, Handle)>,
    child: Option<i32>,
}

enum Wake {
    Ending(Ending),
    Lost,
}

impl Shim {
    fn new(detach: Detach, channel: Option<Channel>) -> io::Result<Self> {
        Ok(Self {
            signals: Signals::open(&ENDING)?,
            detach,
            pair: None,
            child: None,
            channel,
        })
    }

    fn keep_the_place(&mut self, region: &Region, roles: &mut dyn Roles) -> io::Result<Ending> {
        let mut relights = 0;
        loop {
            match self.wait()? {
                Wake::Ending(ending) => {
                    self.outlive_the_guard();
                    return Ok(ending);
                }
                Wake::Lost if relights < RELIGHTS => {
                    relights += 1;
                    self.light(region, Birth::Relit, roles)?;
                }
                Wake::Lost => return Ok(Ending::Lost),
            }
        }
    }

    fn light(&mut self, region: &Region, birth: Birth, roles: &mut dyn Roles) -> io::Result<()> {
        self.outlive_the_guard();
        let (mine, theirs) = Channel::pair()?;
        self.pair = None;
        self.channel = None;
        let role = || guard::run(region, theirs, birth, self.detach, roles);
        match self.detach {
            Detach::Yes => role::start_detached(role)?,
            Detach::No => self.child = Some(role::start(role)?),
        }
        self.channel = Some(mine);
        Ok(())
    }

    fn wait(&mut self) -> io::Result<Wake> {
        // The signal that we leave by, and when at the latest.
        let mut leaving: Option<(i32, Moment)> = None;
        loop {
            let Some(channel) = &self.channel else {
                return Ok(Wake::Lost);
            };
            let mut fds = [
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::empty()),
                PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::empty()),
            ];
            // A pidfd stays readable once its process has ended, so only the living one of a pair is waited for.
            let mut nobody = self.pair.is_some();
            if let Some((guard, keeper)) = &self.pair {
                for (slot, handle) in fds[2..].iter_mut().zip([guard, keeper]) {
                    if !handle.ended() {
                        *slot = PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN);
                        nobody = false;
                    }
                }
            }
            // With both gone there is nobody to wait for; what they said last is heard all the same.
            let left = leaving.map(|(_, until)| until.0.saturating_sub(clock::now().0));
            let wait = if nobody { Some(0) } else { left };
            let wait = wait.map(|ns| Timespec {
                tv_sec: 0,
                tv_nsec: ns.min(999_999_999) as i64,
            });
            match poll(&mut fds, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            // Before the words: whoever had ended by now has said all that it had to say.
            let mut lost = self
                .pair
                .as_ref()
                .is_some_and(|(guard, keeper)| guard.ended() && keeper.ended());
            // Words before signals: a "finished" that is already here is the truer end.
            loop {
                match channel.hear() {
                    Heard::Word(Word::Finished { code }) => {
                        return Ok(Wake::Ending(Ending::Code(code)));
                    }
                    Heard::Word(Word::Here { guard, keeper }) => {
                        self.pair = watch(guard, keeper);
                        lost = false;
                    }
                    Heard::Word(Word::Leave) => {
                        if let Some((number, _)) = leaving {
                            return Ok(Wake::Ending(Ending::Signal(number)));
                        }
                    }
                    Heard::Word(
                        Word::Signalled(_) | Word::Release | Word::Spawned | Word::Attach,
                    ) => {}
                    Heard::Nothing => break,
                    Heard::Closed => {
                        if let Some((number, _)) = leaving {
                            return Ok(Wake::Ending(Ending::Signal(number)));
                        }
                        self.outlast_the_pair();
                        return Ok(Wake::Lost);
                    }
                }
            }
            // All that are here: whoever sent the second one wants to be known, too.
            while let Some(received) = self.signals.read()? {
                let mut seen = [0; LOOK_BYTES];
                // Here and not in the keeper: a sender that ends at once is gone one wake-up later.
                let len = sender::look(received.pid, &mut seen);
                channel.say_signalled(received, &seen[..len]);
                if self.detach == Detach::Yes {
                    // As long as we are there, an EOF is an act of the client's and not the consequence of our end. The
                    // keeper says when it has seen enough.
                    let until = || clock::now().after_ms(limits::SHIM_STAYS_MS);
                    leaving.get_or_insert_with(|| (received.number, until()));
                }
            }
            match leaving {
                Some((number, until)) if lost || clock::now() >= until => {
                    return Ok(Wake::Ending(Ending::Signal(number)));
                }
                None if lost => return Ok(Wake::Lost),
                Some(_) | None => {}
            }
        }
    }

    /// A process that was killed closes its descriptors before it is dead. Until it is, it would count as the living
    /// owner of its tree, and the next guard would spare that tree.
    fn outlast_the_pair(&self) {
        if let Some((guard, keeper)) = &self.pair {
            guard.wait_ended(limits::PAIR_END_MS);
            keeper.wait_ended(limits::PAIR_END_MS);
        }
    }

    /// An attached guard is our child: it ends right after it has told us, and we reap it.
    fn outlive_the_guard(&mut self) {
        if let Some(child) = self.child.take() {
            drop(role::wait(child));
        }
    }
}

fn watch(guard: Identity, keeper: Identity) -> Option<(Handle, Handle)> {
    Some((Handle::open(guard).ok()?, Handle::open(keeper).ok()?))
}
