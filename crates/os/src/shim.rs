//! The shim: the process that the client started, and all that the client ever sees of us.
//!
//! It starts the guard, waits, passes signals on with what it can see of their sender, and leaves with the code it is told, or by the
//! signal once the keeper knows what that was. A signal that the keeper calls a stranger's does not end it. It never touches the data and
//! allocates nothing after its start. Anyone may kill it: the guard and the keeper go on.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use mainstay_core::clock::Moment;
use mainstay_core::ids::Identity;
use mainstay_core::limits;
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

/// How the shim is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this exit code.
    Code(u8),
    /// By this signal, which the client (or somebody) sent.
    Signal(i32),
    /// Guard and keeper were killed again and again. Nobody of the tree is left; the record's notes tell of the last loss.
    Lost,
    /// No guard or no keeper could begin, for this reason of the kernel's. Nothing was started, and nothing was read from the client.
    Unmanned(i32),
}

/// Whether the guard leaves our process tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detach {
    /// It does.
    Yes,
    /// It stays our child, because nobody would reap it elsewhere; we outlive it.
    No,
}

/// Starts the guard and keeps the place until all is done.
pub fn run(region: &Region, detach: Detach, roles: &mut dyn Roles) -> io::Result<Ending> {
    let begun = Shim::new(detach, None).and_then(|mut shim| {
        memory::trim();
        shim.light(region, Birth::First, roles)?;
        Ok(shim)
    });
    let mut shim = match begun.map_err(|error| (error.raw_os_error(), error)) {
        Ok(shim) => shim,
        Err((Some(errno), _)) if errno != role::KILLED => return Ok(Ending::Unmanned(errno)),
        Err((_, error)) => return Err(error),
    };
    let ending = shim.keep_the_place(region, roles)?;
    Ok(match (ending, region.notes().unable()) {
        (Ending::Lost, Some(errno)) => Ending::Unmanned(errno),
        (ending, _) => ending,
    })
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

/// Signals that the keeper has not judged yet.
#[derive(Clone, Copy)]
struct Leaving {
    /// By which we leave.
    number: i32,
    /// How many they are.
    unjudged: u32,
    /// When at the latest.
    until: Moment,
}

impl Leaving {
    /// One more signal. The client, which is our parent, may follow it up with a SIGKILL soon; then it must find us gone.
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

    /// One of them was a stranger's; what is left.
    fn without_one(self) -> Option<Self> {
        let unjudged = self.unjudged - 1;
        (unjudged > 0).then_some(Self { unjudged, ..self })
    }
}

enum Wake {
    Ending(Ending),
    /// Guard and keeper are dead; the signal that we were about to leave by.
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

    fn keep_the_place(&mut self, region: &Region, roles: &mut dyn Roles) -> io::Result<Ending> {
        let mut losses = Losses::default();
        loop {
            match self.wait()? {
                Wake::Ending(ending) => {
                    self.outlive_the_guard();
                    return Ok(ending);
                }
                Wake::Lost(None) if self.relight(region, &mut losses, roles) => {}
                Wake::Lost(leaving) => {
                    // Nobody else is left to do it.
                    roles.prepare();
                    region.note_loss(None, roles.end_strays());
                    return Ok(leaving.map_or(Ending::Lost, Ending::Signal));
                }
            }
        }
    }

    /// The next pair, if there may be one. What fails now for want of memory or processes may go well a little later.
    fn relight(&mut self, region: &Region, losses: &mut Losses, roles: &mut dyn Roles) -> bool {
        while losses.bear() {
            if self.light(region, Birth::Relit, roles).is_ok() {
                return true;
            }
            clock::nap(limits::KEEPER_RETRY_MS);
        }
        false
    }

    fn light(&mut self, region: &Region, birth: Birth, roles: &mut dyn Roles) -> io::Result<()> {
        self.outlive_the_guard();
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
        // Until when a pair that is dead may be followed by one whose word is still to come.
        let mut heirs: Option<Moment> = None;
        // When all that a start takes is over.
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
            let mut nobody = self.pair.is_some();
            if let Some((guard, keeper)) = &self.pair {
                for (slot, handle) in fds[2..].iter_mut().zip([guard, keeper]) {
                    if !handle.ended() {
                        *slot = PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN);
                        nobody = false;
                    }
                }
            }
            // A channel that is still open has somebody behind it: a keeper that they had just started, or a side guard.
            if nobody {
                heirs.get_or_insert_with(|| clock::now().after_ms(limits::PAIR_END_MS));
            } else {
                heirs = None;
            }
            let due = leaving.map(|it| it.until).into_iter();
            let due = due.chain(heirs).chain(started);
            let left = due.map(|until| until.0.saturating_sub(clock::now().0));
            let wait = left.min().map(|ns| Timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as i64,
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
                        self.outlast_the_pair();
                        return Ok(Wake::Lost(leaving.map(|it| it.number)));
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
                    leaving = Some(Leaving::after(leaving, received));
                }
            }
            let now = clock::now();
            if started.take_if(|at| now >= *at).is_some() {
                memory::unmap_code();
            }
            if lost && heirs.is_some_and(|until| now >= until) {
                return Ok(Wake::Lost(leaving.map(|it| it.number)));
            }
            if let Some(leaving) = leaving.filter(|leaving| now >= leaving.until) {
                return Ok(Wake::Ending(Ending::Signal(leaving.number)));
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

/// The client, or what it starts its servers with; 0 if that is outside of this container.
fn parent() -> i32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())
}

fn watch(guard: Identity, keeper: Identity) -> Option<(Handle, Handle)> {
    Some((Handle::open(guard).ok()?, Handle::open(keeper).ok()?))
}
