//! The shim: the process that the client started, and all that the client ever sees of us.
//!
//! It starts the guard, waits, and passes signals on with what it can see of their sender. It exits with the code
//! that the keeper sends, or by the signal once the keeper knows what the signal meant. A signal that the keeper
//! calls a stranger's does not end it. It never touches the data and allocates nothing after its start. Any process
//! may kill it: the guard and the keeper go on.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use mainstay_protocol::clock::Moment;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::channel::{Channel, Heard, Word};
use crate::clock;
use crate::guard::{self, Birth, Losses, Roles};
use crate::identity::Handle;
use crate::memory;
use crate::record::Region;
use crate::role;
use crate::sender::{self, LOOK_BYTES};
use crate::signals::{ENDING, Received, Signals};

/// How the shim exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this exit code.
    Code(u8),
    /// By this signal, which the client or another process sent.
    Signal(i32),
    /// Guard and keeper were killed again and again. No process of the tree is left; the record's notes describe the
    /// last loss.
    Lost,
    /// No guard or no keeper could begin, for this reason of the kernel's. Nothing was started, and nothing was read
    /// from the client.
    Unmanned(i32),
}

/// Whether the guard leaves our process tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detach {
    /// It leaves the tree.
    Yes,
    /// It stays our child, because its adopter would not reap it; we outlive it.
    No,
}

/// Starts the guard and waits until all is done.
pub fn run(region: &Region, detach: Detach, roles: &mut dyn Roles) -> io::Result<Ending> {
    let begun = Shim::new(detach, None).and_then(|mut shim| {
        memory::trim();
        shim.start_guard(region, Birth::First, roles)?;
        Ok(shim)
    });
    let mut shim = match begun.map_err(|error| (error.raw_os_error(), error)) {
        Ok(shim) => shim,
        Err((Some(errno), _)) if errno != role::KILLED => return Ok(Ending::Unmanned(errno)),
        Err((_, error)) => return Err(error),
    };
    let ending = shim.supervise(region, roles)?;
    Ok(match (ending, region.notes().unable()) {
        (Ending::Lost, Some(errno)) => Ending::Unmanned(errno),
        (ending, _) => ending,
    })
}

/// Replaces a shim that was killed. Guard, keeper and server exist already and use this channel.
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
    shim.supervise(region, roles)
}

struct Shim {
    signals: Signals,
    detach: Detach,
    channel: Option<Channel>,
    pair: Option<(Handle, Handle)>,
    child: Option<i32>,
}

/// Signals that the keeper has not judged yet.
#[derive(Clone, Copy)]
struct Leaving {
    /// The signal by which we exit.
    number: i32,
    /// How many signals are not judged.
    unjudged: u32,
    /// The latest time of the exit.
    until: Moment,
}

impl Leaving {
    /// One more signal. The client, which is our parent, may soon follow it up with a SIGKILL; by then we must be
    /// gone.
    fn after(before: Option<Self>, received: Received) -> Self {
        let by_parent = received.pid == parent() || received.code > 0;
        let stays = if by_parent {
            limits::SHIM_STAYS_MS
        } else {
            limits::SHIM_WAITS_MS
        };
        let until = clock::now().after_ms(stays);
        match before {
            None => Self {
                number: received.number,
                unjudged: 1,
                until,
            },
            Some(before) => Self {
                unjudged: before.unjudged + 1,
                until: before.until.min(until),
                ..before
            },
        }
    }

    /// One of them was a stranger's. Returns what is left.
    fn without_one(self) -> Option<Self> {
        let unjudged = self.unjudged - 1;
        (unjudged > 0).then_some(Self { unjudged, ..self })
    }
}

enum Wake {
    Ending(Ending),
    /// Guard and keeper are dead. With the signal by which we were about to exit.
    Lost(Option<i32>),
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

    fn supervise(&mut self, region: &Region, roles: &mut dyn Roles) -> io::Result<Ending> {
        let mut losses = Losses::default();
        loop {
            match self.wait()? {
                Wake::Ending(ending) => {
                    self.reap_guard();
                    return Ok(ending);
                }
                Wake::Lost(None) if self.restart_guard(region, &mut losses, roles) => {}
                Wake::Lost(leaving) => {
                    // No other process is left to do it.
                    roles.prepare();
                    region.note_loss(None, roles.end_strays());
                    return Ok(leaving.map_or(Ending::Lost, Ending::Signal));
                }
            }
        }
    }

    /// Starts the next pair, if the budget allows it. A failure for lack of memory or processes may be over a little
    /// later.
    fn restart_guard(
        &mut self,
        region: &Region,
        losses: &mut Losses,
        roles: &mut dyn Roles,
    ) -> bool {
        while losses.record() {
            if self.start_guard(region, Birth::Relit, roles).is_ok() {
                return true;
            }
            clock::nap(limits::KEEPER_RETRY_MS);
        }
        false
    }

    fn start_guard(
        &mut self,
        region: &Region,
        birth: Birth,
        roles: &mut dyn Roles,
    ) -> io::Result<()> {
        self.reap_guard();
        let (mine, theirs) = Channel::pair()?;
        self.pair = None;
        self.channel = None;
        let ours = [self.signals.as_fd().as_raw_fd(), mine.as_raw_fd()];
        let role = || {
            role::close_parents(ours);
            guard::run(region, theirs, birth, self.detach, roles)
        };
        match self.detach {
            Detach::Yes => role::start_detached(role)?,
            Detach::No => self.child = Some(role::start(role)?),
        }
        self.channel = Some(mine);
        Ok(())
    }

    fn wait(&mut self) -> io::Result<Wake> {
        let mut leaving: Option<Leaving> = None;
        // Both processes of the pair are dead. Until this deadline a successor may still report itself.
        let mut successor_until: Option<Moment> = None;
        // When the start is over.
        let mut started = Some(clock::now().after_ms(limits::SHIM_STARTS_MS));
        loop {
            let Some(channel) = &self.channel else {
                return Ok(Wake::Lost(None));
            };
            let mut fds = [
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::empty()),
                PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::empty()),
            ];
            // A pidfd stays readable once its process has ended, so only the living one of a pair is waited for.
            let mut pair_dead = self.pair.is_some();
            if let Some((guard, keeper)) = &self.pair {
                for (slot, handle) in fds[2..].iter_mut().zip([guard, keeper]) {
                    if !handle.ended() {
                        *slot = PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN);
                        pair_dead = false;
                    }
                }
            }
            // While the channel is open, another process has its other end: a keeper that the dead guard had just
            // started, or a side guard.
            if pair_dead {
                successor_until.get_or_insert_with(|| clock::now().after_ms(limits::PAIR_END_MS));
            } else {
                successor_until = None;
            }
            let due = leaving.map(|it| it.until).into_iter();
            let due = due.chain(successor_until).chain(started);
            let left = due.map(|until| until.0.saturating_sub(clock::now().0));
            let wait = left.min().map(|ns| Timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as i64,
            });
            match poll(&mut fds, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            // Before the messages: a process that has ended by now has sent all its messages.
            let mut lost = self
                .pair
                .as_ref()
                .is_some_and(|(guard, keeper)| guard.ended() && keeper.ended());
            // Messages before signals: if `Finished` has already arrived, it is the true end.
            loop {
                match channel.hear() {
                    Heard::Word(Word::Finished { code }) => {
                        return Ok(Wake::Ending(Ending::Code(code)));
                    }
                    Heard::Word(Word::GaveUp) => return Ok(Wake::Ending(Ending::Lost)),
                    Heard::Word(Word::Here { guard, keeper }) => {
                        self.pair = watch(guard, keeper);
                        lost = false;
                    }
                    Heard::Word(Word::Leave) => {
                        if let Some(leaving) = leaving {
                            return Ok(Wake::Ending(Ending::Signal(leaving.number)));
                        }
                    }
                    Heard::Word(Word::Stay) => leaving = leaving.and_then(Leaving::without_one),
                    Heard::Word(
                        Word::Signalled(_)
                        | Word::Release
                        | Word::Spawned
                        | Word::Attach
                        | Word::Client(_)
                        | Word::Ask
                        | Word::Answer,
                    ) => {}
                    Heard::Nothing => break,
                    Heard::Closed => {
                        self.wait_for_pair_to_die();
                        return Ok(Wake::Lost(leaving.map(|it| it.number)));
                    }
                }
            }
            // All that are here, because the sender of the second one must be reported too.
            while let Some(received) = self.signals.read()? {
                let mut seen = [0; LOOK_BYTES];
                // Here and not in the keeper: a sender that ends at once is gone one wake-up later.
                let len = sender::look(received.pid, &mut seen);
                channel.say_signalled(received, &seen[..len]);
                if self.detach == Detach::Yes {
                    // As long as we live, an EOF is an act of the client and not a consequence of our end. The keeper
                    // says when it has seen enough.
                    leaving = Some(Leaving::after(leaving, received));
                }
            }
            let now = clock::now();
            if started.take_if(|at| now >= *at).is_some() {
                memory::unmap_code();
            }
            if lost && successor_until.is_some_and(|until| now >= until) {
                return Ok(Wake::Lost(leaving.map(|it| it.number)));
            }
            if let Some(leaving) = leaving.filter(|leaving| now >= leaving.until) {
                return Ok(Wake::Ending(Ending::Signal(leaving.number)));
            }
        }
    }

    /// A process that was killed closes its descriptors before it is dead. Until it is, it would count as the living
    /// owner of its tree, and the next guard would spare that tree.
    fn wait_for_pair_to_die(&self) {
        if let Some((guard, keeper)) = &self.pair {
            guard.wait_ended(limits::PAIR_END_MS);
            keeper.wait_ended(limits::PAIR_END_MS);
        }
    }

    /// An attached guard is our child. It ends right after its last message, and we reap it.
    fn reap_guard(&mut self) {
        if let Some(child) = self.child.take() {
            drop(role::wait(child));
        }
    }
}

/// The client, or the process with which it starts its servers; 0 if that one is outside of this container.
fn parent() -> i32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())
}

fn watch(guard: Identity, keeper: Identity) -> Option<(Handle, Handle)> {
    Some((Handle::open(guard).ok()?, Handle::open(keeper).ok()?))
}
