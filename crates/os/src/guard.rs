//! The guard: parent of the keeper, and nothing else.
//!
//! It holds spare copies of the client's pipes (its own 0, 1 and 2) and the record. When the keeper dies before its
//! work is done, the guard has inherited the whole tree: it ends it and starts a new keeper. It also watches the client: a
//! keeper that makes no progress after the client's end is ended. It knows no message and
//! writes no file; what it saw goes into the record's notes for the next keeper to tell.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use mainstay_core::clock::Moment;
use mainstay_core::event::Status;
use mainstay_core::ids::{Identity, Tag};
use mainstay_core::limits;
use mainstay_core::limits::{KEEPER_BUDGET, KEEPER_BUDGET_MS};
use mainstay_core::record::Phase;
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
    /// The beginning.
    First,
    /// Guard and keeper before it were both killed; their tree is not below us and must be ended first.
    Relit,
}

/// What a keeper is given.
pub struct Keeping<'a> {
    /// Itself.
    pub me: Identity,
    /// The record.
    pub region: &'a Region,
    /// Its parts, lent to this keeper alone.
    pub parts: Parts,
    /// To the shim.
    pub to_shim: Channel,
    /// To the guard.
    pub to_guard: Channel,
    /// The guard.
    pub guard: Identity,
    /// Whether it takes over from a keeper that was killed.
    pub takeover: bool,
}

/// What the application lends to the guard: it runs in the forked processes.
pub trait Roles {
    /// In a guard that follows a pair that was wholly killed: take the link's lock.
    fn prepare(&mut self);
    /// In the guard: the keeper has taken the link's lock and shares it by these descriptors.
    fn adopt(&mut self, lent: Vec<OwnedFd>);
    /// In the keeper's process, from start to end. Returns the exit code: 0 means that its work is done.
    fn keeper(&mut self, keeping: Keeping<'_>) -> u8;
    /// In a process of its own, once: end what earlier pairs, wholly killed, left behind.
    fn sweep(&mut self);
    /// The tag of a keeper's tree.
    fn tag(&self, keeper: Identity) -> Tag;
    /// How long a keeper that works may take to answer.
    fn answer_ms(&self) -> u64;
    /// Ends a tree that is not below us (by leaf, tag and recorded members); how many were ended.
    fn end_strays(&mut self) -> u32;
}

/// The code with which one of ours leaves that could not do its work.
pub const LOST: u8 = 125;

/// When keepers or pairs were lost: so many within a while, and no more are started.
#[derive(Default)]
pub(crate) struct Losses([Option<Moment>; KEEPER_BUDGET as usize]);

impl Losses {
    /// Notes one more; whether the next may be started.
    pub fn bear(&mut self) -> bool {
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
    guard.stand(birth == Birth::Relit)
}

/// Runs a side guard's life: the guard was killed while its keeper lives on, and this process, forked from that keeper,
/// stands beside it. Once the keeper is lost it is a guard like any other.
pub fn run_beside(
    region: &Region,
    to_shim: Channel,
    keeper: Identity,
    words: &Channel,
    roles: &mut dyn Roles,
) -> u8 {
    let Ok(mut guard) = Guard::begin(region, to_shim, roles) else {
        return LOST;
    };
    if guard.beside(keeper, words).is_err() || region.head().phase() == Phase::Finished {
        return 0;
    }
    guard.note_keeper(keeper.pid);
    let ended = guard.roles.end_strays();
    region.note_loss(None, ended);
    guard.stand(true)
}

/// For the shim, should no keeper ever begin. Only while none lives, or in one that could not begin.
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
    /// A sweep is due, after the keeper has been started.
    sweep_aside: bool,
    /// The process that sweeps.
    sweeper: Option<Identity>,
    detach: Detach,
}

impl<'a> Guard<'a> {
    fn begin(region: &'a Region, to_shim: Channel, roles: &'a mut dyn Roles) -> io::Result<Self> {
        role::own_session();
        title::set(c"mcp-guard");
        role::become_subreaper()?;
        let signals = Signals::open(&[libc::SIGCHLD])?;
        let me = identity::me()?;
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

    /// Keeper after keeper, until the work is done or the budget is spent.
    fn stand(&mut self, mut takeover: bool) -> u8 {
        loop {
            let (keeper, words) = match self.light(takeover) {
                Ok(lit) => lit,
                Err(error) => {
                    note_unable(self.region, &error);
                    // What fails now for want of memory, processes or descriptors may go well a little later.
                    if !self.losses.bear() {
                        return self.give_up();
                    }
                    clock::nap(limits::KEEPER_RETRY_MS);
                    continue;
                }
            };
            let status = self.over(keeper.pid, &words);
            // Whatever is below us now was the keeper's: it is ours to end, however the keeper ended.
            let witness = self.region.notes().witness;
            let mut tree = Tree::inherited(&self.roles.tag(keeper), witness);
            let finished = self.region.head().phase() == Phase::Finished;
            // A sweep is no part of it. It outlives a short session, if somebody reaps it then: what it is at, say the end
            // of an HTTP session, would else be begun by every short session and finished by none.
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
            if !self.losses.bear() {
                return self.give_up();
            }
            takeover = true;
        }
    }

    /// Starts a keeper: who it is, and our end of the channel to it.
    fn light(&mut self, takeover: bool) -> io::Result<(Identity, Channel)> {
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
            title::set(c"mcp-keeper");
            let keeper = match identity::me().and_then(|me| role::become_subreaper().map(|()| me)) {
                Ok(keeper) => keeper,
                Err(error) => {
                    note_unable(region, &error);
                    return LOST;
                }
            };
            // Ours to say, and first of all: were the guard killed before it had said it, the shim would take us for dead
            // as well, and start a second pair.
            to_shim.say(Word::Here { guard: me, keeper });
            // SAFETY: this process has just been forked to be the only keeper: the guard starts the next one only after
            // the death of the last, and the shim the next pair only when nobody holds the other end of its channel.
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

    /// Waits for a keeper's end. There is no other way out: whoever left a keeper alone would let two of them live.
    fn over(&mut self, keeper: i32, words: &Channel) -> Status {
        let mut below = Tree::below_us();
        let mut wait = Wait::new(words, self.roles.answer_ms());
        // A child that we have not reaped: the number is its own.
        let signal = |signal| {
            if let Some(pid) = Pid::from_raw(keeper) {
                kill_process(pid, signal).ok();
            }
        };
        loop {
            wait.next(self.signals.as_fd(), &signal);
            self.take(&mut wait.news);
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
                // Its last words may have come after the last look.
                wait.listen();
                self.take(&mut wait.news);
                self.note_keeper(keeper);
                return status;
            }
        }
    }

    /// What the keeper has sent.
    fn take(&mut self, news: &mut News) {
        if let Some(lent) = news.spawned.take() {
            self.roles.adopt(lent);
            self.sweep();
            // From here on the guard waits, for as long as the keeper lives.
            memory::unmap_code();
        }
        if let Some(to_shim) = news.to_shim.take() {
            self.to_shim = to_shim;
        }
    }

    /// Sweeps in a child, so that neither we nor the keeper are kept waiting by a long process table, and after the
    /// server was spawned, so that nothing is taken from its start.
    fn sweep(&mut self) {
        if std::mem::take(&mut self.sweep_aside) {
            let roles = &mut *self.roles;
            let sweeper = role::start_known(|| {
                role::release_stdio();
                // Neither the link's lock nor the shim's channel: they say that guard or keeper lives.
                role::close_all_but(&mut []);
                role::be_patient();
                title::set(c"mcp-sweep");
                roles.sweep();
                0
            });
            // No process for it: then the next start sweeps.
            self.sweeper = sweeper.ok();
            // Not the heap: it was trimmed before we were forked, and as long as we leave it alone it is the shim's, too.
            memory::trim_stack();
        }
    }

    /// Waits until a keeper that is not our child has ended.
    fn beside(&mut self, keeper: Identity, words: &Channel) -> io::Result<()> {
        // First of all, for the same reason as a keeper does.
        self.to_shim.say(Word::Here {
            guard: self.me,
            keeper,
        });
        let handle = match Handle::open(keeper) {
            Ok(handle) => handle,
            // Already gone: then there is nothing to wait for.
            Err(_) if !identity::alive(keeper) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut wait = Wait::new(words, self.roles.answer_ms());
        let signal = |signal| drop(handle.signal(signal));
        while !handle.ended() {
            wait.next(handle.as_fd(), &signal);
            self.take(&mut wait.news);
        }
        wait.listen();
        self.take(&mut wait.news);
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

/// What the keeper has sent beside words.
#[derive(Default)]
struct News {
    /// The server was spawned; the descriptors that hold the link's lock.
    spawned: Option<Vec<OwnedFd>>,
    /// A client has come back, behind this shim.
    to_shim: Option<Channel>,
}

/// Waiting for one keeper's end: its words, and the client's end, on which it has to act.
struct Wait<'w> {
    words: &'w Channel,
    /// The keeper has closed its end.
    deaf: bool,
    news: News,
    client: ClientWatch,
}

impl<'w> Wait<'w> {
    fn new(words: &'w Channel, answer_ms: u64) -> Self {
        Self {
            words,
            deaf: false,
            news: News::default(),
            client: ClientWatch::new(answer_ms),
        }
    }

    /// Waits for this descriptor, a word, the client's end or what is due then; the caller looks at all of them. `signal`
    /// signals the keeper.
    fn next(&mut self, first: BorrowedFd<'_>, signal: &dyn Fn(Signal)) {
        // A closed channel stays readable: once it is known to be closed it is not waited for.
        let words = (!self.deaf).then(|| self.words.as_fd());
        let [stdin, client] = self.client.fds();
        // Of the client's pipe only the hang-up matters: its bytes are the keeper's.
        let fds = [
            Some((first, PollFlags::IN)),
            words.map(|fd| (fd, PollFlags::IN)),
            stdin.map(|fd| (fd, PollFlags::empty())),
            client.map(|fd| (fd, PollFlags::IN)),
        ];
        let mut fds = fds.map(|fd| {
            let (fd, flags) = fd.unwrap_or((first, PollFlags::empty()));
            PollFd::from_borrowed_fd(fd, flags)
        });
        let due = self.client.due();
        let wait = due.map(|at| timespec(at - clock::now()));
        // The only failure is want of memory, which passes.
        if let Err(error) = poll(&mut fds, wait.as_ref())
            && error != rustix::io::Errno::INTR
        {
            clock::nap(limits::KEEPER_RETRY_MS);
        }
        self.listen();
        match self.client.look(clock::now()) {
            None => {}
            Some(Act::Ask) => {
                self.words.say(Word::Ask);
                // One that was stopped can answer then, and end its server politely.
                signal(Signal::CONT);
            }
            Some(Act::Kill) => signal(Signal::KILL),
        }
    }

    /// Hears the keeper.
    fn listen(&mut self) {
        while !self.deaf {
            let mut lent = Vec::new();
            match self.words.hear_with(&mut lent) {
                Heard::Word(Word::Release) => role::release_stdio(),
                Heard::Word(Word::Spawned) => self.news.spawned = Some(lent),
                Heard::Word(Word::Client(who)) => self.client.is(who, clock::now()),
                Heard::Word(Word::Answer) => self.client.answered(clock::now()),
                Heard::Word(Word::Attach) => {
                    if let Ok([stdin, stdout, stderr, shim]) = <[OwnedFd; 4]>::try_from(lent) {
                        // If it fails, the next keeper finds nobody and ends.
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
                Heard::Closed => self.deaf = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_losses_are_borne_at_once_and_one_more_later() {
        let mut losses = Losses::default();
        assert!((0..KEEPER_BUDGET).all(|_| losses.bear()));
        assert!(!losses.bear());
        let long_ago = Moment(
            clock::now()
                .0
                .saturating_sub((KEEPER_BUDGET_MS + 1) * 1_000_000),
        );
        *losses.0.last_mut().unwrap() = Some(long_ago);
        assert!(losses.bear(), "the oldest is forgotten after a while");
    }
}
