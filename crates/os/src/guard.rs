//! The guard: the parent of the keeper, and nothing else.
//!
//! It holds spare copies of the client's pipes (its own 0, 1 and 2) and the record. If the keeper dies before its
//! work is done, the guard has inherited the whole tree: it ends the tree and starts a new keeper. It also watches
//! the client, and ends a keeper that makes no progress after the client's end. It reads no message and writes no
//! file. What it saw goes into the record's notes; the next keeper reports it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use mainstay_core::record::Phase;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::Status;
use mainstay_protocol::ids::{Identity, Tag};
use mainstay_protocol::limits;
use mainstay_protocol::limits::{KEEPER_BUDGET, KEEPER_BUDGET_MS};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::channel::{Channel, Heard, Word};
use crate::client_watch::{Act, ClientWatch};
use crate::identity::{self, Handle};
use crate::record::{Parts, Region};
use crate::shim::Detach;
use crate::signals::Signals;
use crate::tier::cgroup::timespec;
use crate::tree::Tree;
use crate::{clock, memory, role, title};

/// Why a guard is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birth {
    /// The first guard of a link.
    First,
    /// The guard and the keeper before it were both killed. Their tree is not below us and must be ended first.
    Relit,
}

/// What a keeper gets from the guard.
pub struct Keeping<'a> {
    /// The keeper itself.
    pub me: Identity,
    /// The record.
    pub region: &'a Region,
    /// The parts of the record, for this keeper alone.
    pub parts: Parts,
    /// The channel to the shim.
    pub to_shim: Channel,
    /// The channel to the guard.
    pub to_guard: Channel,
    /// The guard.
    pub guard: Identity,
    /// Whether it takes over from a keeper that was killed.
    pub takeover: bool,
}

/// The application's part of the roles. It runs in the forked processes.
pub trait Roles {
    /// In a guard whose predecessors, guard and keeper, were both killed: take the link's lock.
    fn prepare(&mut self);
    /// In the guard: the keeper has taken the link's lock and shares it by these descriptors.
    fn adopt(&mut self, lent: Vec<OwnedFd>);
    /// In the keeper's process, from start to end. Returns the exit code: 0 means that its work is done.
    fn keeper(&mut self, keeping: Keeping<'_>) -> u8;
    /// In a process of its own, once: end what earlier guards and keepers, killed together, left behind.
    fn sweep(&mut self);
    /// The tag of a keeper's tree.
    fn tag(&self, keeper: Identity) -> Tag;
    /// How long a working keeper may take to answer.
    fn answer_ms(&self) -> u64;
    /// Ends a tree that is not below us (by leaf, tag and recorded members). Returns how many processes were ended.
    fn end_strays(&mut self) -> u32;
}

/// The exit code of a role of ours that could not do its work.
pub const LOST: u8 = 125;

/// When keepers or pairs were lost. After too many losses in a short time no more are started.
#[derive(Default)]
pub(crate) struct Losses([Option<Moment>; KEEPER_BUDGET as usize]);

impl Losses {
    /// Records one more loss. Returns whether the next one may be started.
    pub fn record(&mut self) -> bool {
        let now = clock::now();
        self.0.rotate_right(1);
        let oldest = self.0[0].replace(now);
        oldest.is_none_or(|oldest| now.ms_since(oldest) > KEEPER_BUDGET_MS)
    }
}

/// Runs the guard's life in this process.
pub fn run(
    region: &Region,
    to_shim: Channel,
    birth: Birth,
    detach: Detach,
    roles: &mut dyn Roles,
) -> u8 {
    let mut guard = match Guard::begin(region, to_shim, roles) {
        Ok(guard) => guard,
        Err(error) => {
            note_unable(region, &error);
            return LOST;
        }
    };
    guard.detach = detach;
    if birth == Birth::Relit {
        guard.roles.prepare();
        let ended = guard.roles.end_strays();
        region.note_loss(None, ended);
    }
    guard.sweep_aside = birth == Birth::First;
    guard.run_keepers(birth == Birth::Relit)
}

/// Runs a side guard's life: the guard was killed while its keeper lives on, and this process is forked from that
/// keeper. Once the keeper is dead it works like any other guard.
pub fn run_beside(
    region: &Region,
    to_shim: Channel,
    keeper: Identity,
    to_keeper: &Channel,
    roles: &mut dyn Roles,
) -> u8 {
    let Ok(mut guard) = Guard::begin(region, to_shim, roles) else {
        return LOST;
    };
    if guard.wait_beside(keeper, to_keeper).is_err() || region.head().phase() == Phase::Finished {
        return 0;
    }
    guard.note_keeper(keeper.pid);
    let ended = guard.roles.end_strays();
    region.note_loss(None, ended);
    guard.run_keepers(true)
}

/// Writes for the shim why no keeper could begin. Only while no keeper lives, or in a keeper that could not begin.
pub fn note_unable(region: &Region, error: &io::Error) {
    let mut notes = region.notes();
    notes.set_unable(error.raw_os_error().unwrap_or(libc::EIO));
    region.write_notes(notes);
}

struct Guard<'a> {
    region: &'a Region,
    to_shim: Channel,
    roles: &'a mut dyn Roles,
    signals: Signals,
    me: Identity,
    losses: Losses,
    /// A sweep is due after the keeper has been started.
    sweep_aside: bool,
    /// The process that sweeps.
    sweeper: Option<Identity>,
    detach: Detach,
}

impl<'a> Guard<'a> {
    fn begin(region: &'a Region, to_shim: Channel, roles: &'a mut dyn Roles) -> io::Result<Self> {
        role::own_session();
        role::become_subreaper()?;
        let signals = Signals::open(&[libc::SIGCHLD])?;
        let me = identity::me()?;
        title::set_for(c"mcp-guard", &roles.tag(me).link.short());
        Ok(Self {
            region,
            to_shim,
            roles,
            signals,
            me,
            losses: Losses::default(),
            sweep_aside: false,
            sweeper: None,
            detach: Detach::No,
        })
    }

    /// Runs keeper after keeper, until the work is done or the budget is spent.
    fn run_keepers(&mut self, mut takeover: bool) -> u8 {
        loop {
            let (keeper, to_keeper) = match self.start_keeper(takeover) {
                Ok(started) => started,
                Err(error) => {
                    note_unable(self.region, &error);
                    // A failure for lack of memory, processes or descriptors may be over a little later.
                    if !self.losses.record() {
                        return self.give_up();
                    }
                    clock::nap(limits::KEEPER_RETRY_MS);
                    continue;
                }
            };
            let status = self.wait_for_keeper(keeper.pid, &to_keeper);
            // What is below us now belonged to the keeper. We end it, however the keeper ended.
            let witness = self.region.notes().witness;
            let mut tree = Tree::inherited(&self.roles.tag(keeper), witness);
            let finished = self.region.head().phase() == Phase::Finished;
            // The sweeper does not belong to it. It outlives a short session, if another process reaps it then.
            // Otherwise work like closing an HTTP session would be begun by every short session and finished by none.
            if finished
                && self.detach == Detach::Yes
                && let Some(sweeper) = self.sweeper
            {
                tree.exclude(sweeper);
            }
            let ended = tree.kill(limits::GUARD_KILL_MS, &mut |_, _, _| {});
            if finished {
                return 0;
            }
            self.region.note_loss(Some(status), ended.count);
            if !self.losses.record() {
                return self.give_up();
            }
            takeover = true;
        }
    }

    /// Starts a keeper. Returns its identity and our end of the channel to it.
    fn start_keeper(&mut self, takeover: bool) -> io::Result<(Identity, Channel)> {
        let (mine, theirs) = Channel::pair()?;
        let (region, me) = (self.region, self.me);
        let to_shim = self.to_shim.try_clone()?;
        let ours = [
            self.signals.as_fd().as_raw_fd(),
            self.to_shim.as_raw_fd(),
            mine.as_raw_fd(),
        ];
        let roles = &mut *self.roles;
        let who = role::start_known(|| {
            role::close_parents(ours);
            role::own_session();
            title::set_for(c"mcp-keeper", &roles.tag(me).link.short());
            let keeper = match identity::me().and_then(|me| role::become_subreaper().map(|()| me)) {
                Ok(keeper) => keeper,
                Err(error) => {
                    note_unable(region, &error);
                    return LOST;
                }
            };
            // The keeper says this itself, and first: if the guard were killed before saying it, the shim would take
            // the keeper for dead as well and start a second pair.
            to_shim.say(Word::Here { guard: me, keeper });
            // SAFETY: this process has just been forked to be the only keeper. The guard starts the next one only
            // after the death of the last, and the shim starts the next pair only when no process holds the other end
            // of its channel.
            let parts = unsafe { region.lend() };
            roles.keeper(Keeping {
                me: keeper,
                region,
                parts,
                to_shim,
                to_guard: theirs,
                guard: me,
                takeover,
            })
        })?;
        Ok((who, mine))
    }

    /// Waits for a keeper's end. There is no other way out, because a guard that returned earlier would let two
    /// keepers live.
    fn wait_for_keeper(&mut self, keeper: i32, to_keeper: &Channel) -> Status {
        let mut below = Tree::below_us();
        let mut wait = Wait::new(to_keeper, self.roles.answer_ms());
        // A child that we have not reaped: the pid is its own.
        let signal = |signal| {
            if let Some(pid) = Pid::from_raw(keeper) {
                kill_process(pid, signal).ok();
            }
        };
        loop {
            wait.next(self.signals.as_fd(), &signal);
            self.handle_news(&mut wait.news);
            while let Ok(Some(_)) = self.signals.read() {}
            let mut found = None;
            below.reap(&mut |pid, status, _| {
                if pid == keeper {
                    found = Some(status);
                }
                if self.sweeper.is_some_and(|sweeper| sweeper.pid == pid) {
                    self.sweeper = None;
                }
            });
            if let Some(status) = found {
                // Its last messages may have come after the last look.
                wait.listen();
                self.handle_news(&mut wait.news);
                self.note_keeper(keeper);
                return status;
            }
        }
    }

    /// Handles what the keeper has sent.
    fn handle_news(&mut self, news: &mut News) {
        if let Some(lent) = news.spawned.take() {
            self.roles.adopt(lent);
            self.sweep();
            // From here on the guard waits as long as the keeper lives.
            memory::unmap_code();
        }
        if let Some(to_shim) = news.to_shim.take() {
            self.to_shim = to_shim;
        }
    }

    /// Sweeps in a child, so that a long process table delays neither us nor the keeper; and after the server was
    /// spawned, so that its start is not slowed down.
    fn sweep(&mut self) {
        if std::mem::take(&mut self.sweep_aside) {
            let roles = &mut *self.roles;
            let sweeper = role::start_known(|| {
                role::release_stdio();
                // The child keeps neither the link's lock nor the shim's channel: they say that guard or keeper
                // lives.
                role::close_all_but(&mut []);
                role::be_patient();
                title::set(c"mcp-sweep");
                roles.sweep();
                0
            });
            // If the process cannot be started, the next start sweeps.
            self.sweeper = sweeper.ok();
            // Not the heap: it was trimmed before we were forked, and as long as we do not write to it we share it
            // with the shim.
            memory::trim_stack();
        }
    }

    /// Waits until a keeper that is not our child has ended.
    fn wait_beside(&mut self, keeper: Identity, to_keeper: &Channel) -> io::Result<()> {
        // First, for the same reason as a keeper does.
        self.to_shim.say(Word::Here {
            guard: self.me,
            keeper,
        });
        let handle = match Handle::open(keeper) {
            Ok(handle) => handle,
            // Already gone: there is nothing to wait for.
            Err(_) if !identity::alive(keeper) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut wait = Wait::new(to_keeper, self.roles.answer_ms());
        let signal = |signal| drop(handle.signal(signal));
        while !handle.ended() {
            wait.next(handle.as_fd(), &signal);
            self.handle_news(&mut wait.news);
        }
        wait.listen();
        self.handle_news(&mut wait.news);
        Ok(())
    }

    fn note_keeper(&self, keeper: i32) {
        let mut notes = self.region.notes();
        notes.set_lost_pid(keeper);
        self.region.write_notes(notes);
    }

    fn give_up(&self) -> u8 {
        self.to_shim.say(Word::GaveUp);
        LOST
    }
}

/// What the keeper has sent and `Guard::handle_news` handles.
#[derive(Default)]
struct News {
    /// The server was spawned; the descriptors that hold the link's lock.
    spawned: Option<Vec<OwnedFd>>,
    /// A client has come back, behind this shim.
    to_shim: Option<Channel>,
}

/// Waits for one keeper's end. Meanwhile it reads the keeper's messages and watches for the client's end, on which
/// the keeper has to act.
struct Wait<'w> {
    to_keeper: &'w Channel,
    /// The keeper has closed its end.
    closed: bool,
    news: News,
    client: ClientWatch,
}

impl<'w> Wait<'w> {
    fn new(to_keeper: &'w Channel, answer_ms: u64) -> Self {
        Self {
            to_keeper,
            closed: false,
            news: News::default(),
            client: ClientWatch::new(answer_ms),
        }
    }

    /// Waits for this descriptor, a message, the client's end or the next deadline; the caller checks all of them.
    /// `signal` signals the keeper.
    fn next(&mut self, first: BorrowedFd<'_>, signal: &dyn Fn(Signal)) {
        // A closed channel stays readable, so we stop waiting for it.
        let to_keeper = (!self.closed).then(|| self.to_keeper.as_fd());
        let [stdin, client] = self.client.fds();
        // Of the client's pipe only the hang-up matters: its bytes are for the keeper.
        let fds = [
            Some((first, PollFlags::IN)),
            to_keeper.map(|fd| (fd, PollFlags::IN)),
            stdin.map(|fd| (fd, PollFlags::empty())),
            client.map(|fd| (fd, PollFlags::IN)),
        ];
        let mut fds = fds.map(|fd| {
            let (fd, flags) = fd.unwrap_or((first, PollFlags::empty()));
            PollFd::from_borrowed_fd(fd, flags)
        });
        let due = self.client.due();
        let wait = due.map(|at| timespec(at - clock::now()));
        // The only possible failure is a lack of memory, which passes.
        if let Err(error) = poll(&mut fds, wait.as_ref())
            && error != rustix::io::Errno::INTR
        {
            clock::nap(limits::KEEPER_RETRY_MS);
        }
        self.listen();
        match self.client.look(clock::now()) {
            None => {}
            Some(Act::Ask) => {
                self.to_keeper.say(Word::Ask);
                // A stopped keeper can answer then, and end its server politely.
                signal(Signal::CONT);
            }
            Some(Act::Kill) => signal(Signal::KILL),
        }
    }

    /// Reads the keeper's messages.
    fn listen(&mut self) {
        while !self.closed {
            let mut lent = Vec::new();
            match self.to_keeper.hear_with(&mut lent) {
                Heard::Word(Word::Release) => role::release_stdio(),
                Heard::Word(Word::Spawned) => self.news.spawned = Some(lent),
                Heard::Word(Word::Client(who)) => self.client.is(who, clock::now()),
                Heard::Word(Word::Answer) => self.client.answered(clock::now()),
                Heard::Word(Word::Attach) => {
                    if let Ok([stdin, stdout, stderr, shim]) = <[OwnedFd; 4]>::try_from(lent) {
                        // If it fails, the next keeper finds no client and ends.
                        role::take_stdio([stdin.as_fd(), stdout.as_fd(), stderr.as_fd()]).ok();
                        self.news.to_shim = Some(Channel::of(shim));
                        self.client.attached();
                    }
                }
                Heard::Word(
                    Word::Here { .. }
                    | Word::Finished { .. }
                    | Word::GaveUp
                    | Word::Signalled(_)
                    | Word::Ask
                    | Word::Leave
                    | Word::Stay,
                ) => {}
                Heard::Nothing => return,
                Heard::Closed => self.closed = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_budget_refills_after_a_while() {
        let mut losses = Losses::default();
        assert!((0..KEEPER_BUDGET).all(|_| losses.record()));
        assert!(!losses.record());
        let long_ago = Moment(
            clock::now()
                .0
                .saturating_sub((KEEPER_BUDGET_MS + 1) * 1_000_000),
        );
        *losses.0.last_mut().unwrap() = Some(long_ago);
        assert!(losses.record(), "the oldest is forgotten after a while");
    }
}
