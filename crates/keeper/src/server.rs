//! One running server: its process, its pipes, its tree, its container.
//!
//! It tells facts and ends processes; what follows from an end is decided by the link.

mod start;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use mainstay_core::link::Holders;
use mainstay_core::server::oom::{self, Kills};
use mainstay_os::cap;
use mainstay_os::census::Stat;
use mainstay_os::measure::oom_kills_of_the_machine;
use mainstay_os::tree::Tree;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{OutOfMemory, Seen, Status, Usage};
use mainstay_protocol::ids::Identity;
use mainstay_protocol::tier::{Tier, WhyNot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

use super::code_changes;
use super::port::Port;
use super::watched::Watched;
use crate::container::running::RunningContainer;

pub use start::{Command, Failure, start};

/// How much of a dead server's stdin is read at a time: as much as a pipe holds unless its size was changed.
const READ_BYTES: usize = 64 * 1024;

/// A server that was started.
pub struct Running {
    who: Identity,
    /// When it was started, by the clock that stamps files.
    started: code_changes::Stamp,
    tree: Tree,
    /// Its pidfd, until it has ended. None if it cannot be watched; then the end of its witness must do.
    life: Option<Watched<OwnedFd>>,
    /// The tier in force.
    tier: Tier,
    /// Why no stronger one.
    why_not: Vec<WhyNot>,
    /// Until it is closed.
    stdin: Option<Port>,
    /// The other end of its stdin once that is closed: bytes that the server left unread are still in it.
    stdin_rest: Option<OwnedFd>,
    /// Until its end.
    stdout: Option<Port>,
    exit: Option<Ended>,
    /// All processes that were seen in the tree since the stop began.
    seen: BTreeSet<i32>,
    /// How often memory had run out when it was started: in its leaf, on the machine.
    oom_kills: (Option<u64>, Option<u64>),
    /// The container that it runs in, if it is a container engine's command.
    container: Option<RunningContainer>,
}

/// How the server process ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub pid: i32,
    pub status: Status,
    /// What it used.
    pub usage: Usage,
}

/// What the kill of a tree brought about.
pub struct Killed {
    /// How many processes were ended since the stop began.
    pub count: u32,
    /// Processes and containers that could not be ended.
    pub left: Vec<Seen>,
}

/// What it is.
impl Running {
    pub fn who(&self) -> Identity {
        self.who
    }

    pub fn tier(&self) -> Tier {
        self.tier
    }

    pub fn why_not(&self) -> &[WhyNot] {
        &self.why_not
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    pub fn in_container(&self) -> bool {
        self.container.is_some()
    }

    /// A process that is not to be taken for one of its tree.
    pub fn exclude(&mut self, who: Identity) {
        self.tree.exclude(who);
    }

    /// A file of its code that has changed since it was started.
    pub fn changed_code(&self) -> Option<String> {
        let members = self.tree.members();
        let pids = members.iter().map(|member| member.pid);
        let changed = code_changes::changed(pids, self.started);
        changed.map(|path| path.display().to_string())
    }
}

/// Its pipes.
impl Running {
    pub fn stdin(&self) -> Option<&Port> {
        self.stdin.as_ref()
    }

    pub fn stdout(&self) -> Option<&Port> {
        self.stdout.as_ref()
    }

    /// Reads stdout at the next turn, even if no event has told of bytes.
    pub fn look_again(&self) {
        if let Some(stdout) = &self.stdout {
            stdout.look_again();
        }
    }

    pub fn close_stdin(&mut self) {
        if let Some(stdin) = self.stdin.take() {
            // Our own read end keeps no reader from seeing the end of the pipe; without it, less is known at a death.
            self.stdin_rest = read_end(&stdin).ok();
        }
    }

    pub fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Takes the bytes that no process has read out of its stdin; none while a process may still read them.
    pub fn take_unread(&mut self) -> Option<Vec<u8>> {
        let rest = match (&self.stdin, self.stdin_rest.take()) {
            (Some(stdin), _) if !self.stdin_has_readers() => read_end(stdin).ok()?,
            (None, Some(rest)) if self.tree.members().is_empty() => rest,
            (Some(_) | None, rest) => {
                self.stdin_rest = rest;
                return None;
            }
        };
        let mut unread = Vec::with_capacity(READ_BYTES);
        // Until its end, or until nothing more is in it.
        while rustix::io::read(&rest, rustix::buffer::spare_capacity(&mut unread))
            .is_ok_and(|len| len > 0)
        {
            unread.reserve(READ_BYTES);
        }
        Some(unread)
    }

    fn stdin_has_readers(&self) -> bool {
        let Some(stdin) = &self.stdin else {
            return false;
        };
        let mut fds = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::OUT)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)).is_ok() && !fds[0].revents().contains(PollFlags::ERR)
    }

    /// Whether processes of the tree still hold both its stdin and its stdout.
    pub fn holders(&self) -> Holders {
        match &self.stdout {
            Some(stdout) if self.stdin_has_readers() => Holders::Others {
                written: self.tree.written_by_writers(stdout),
            },
            Some(_) | None => Holders::None,
        }
    }

    /// The large messages have passed: its pipes need less room.
    pub fn narrow_pipes(&self) {
        for port in self.stdin.iter().chain(&self.stdout) {
            port.narrow();
        }
    }
}

/// Its memory.
impl Running {
    /// The kernel holds the tree to this many bytes, where it can.
    pub fn limit_memory(&self, bytes: u64) {
        // Where the kernel refuses, measuring must do; `doctor` says which it is.
        drop(cap::limit_memory(&self.tree, bytes));
    }

    /// What the tree uses, if it is more than this and the server has not ended.
    pub fn memory_above(&self, bytes: u64) -> Option<u64> {
        if self.exit.is_some() {
            return None;
        }
        self.tree.memory_above(bytes)
    }

    /// Processes that the machine has killed for want of memory before now are not ours.
    pub fn forget_oom_kills_of_the_machine(&mut self) {
        self.oom_kills.1 = oom_kills_of_the_machine();
    }

    /// Whether memory had run out when the server ended, by the counters of its leaf or of the machine. `ours`: the link has
    /// sent the signal itself.
    pub fn out_of_memory(&self, status: Status, ours: bool) -> Option<OutOfMemory> {
        let (leaf, machine) = self.oom_kills;
        let leaf = Kills {
            before: leaf,
            now: self.tree.oom_kills(),
        };
        let machine = Kills {
            before: machine,
            now: oom_kills_of_the_machine(),
        };
        oom::verdict(status, ours, leaf, machine)
    }
}

/// Its end, and the end of its tree.
impl Running {
    /// How the server process has ended, if it has.
    pub fn exit(&self) -> Option<Ended> {
        self.exit
    }

    /// Whether the pidfd says that the server process has ended; told once.
    pub fn poll_end(&mut self) -> bool {
        self.life.take_if(Watched::poll_ready).is_some()
    }

    /// Takes the status of every child of the keeper that has ended; true if the server process has ended by now.
    pub fn reap(&mut self) -> bool {
        let Self {
            who,
            tree,
            exit,
            seen,
            container,
            ..
        } = self;
        if let Some(container) = container {
            container.look();
        }
        tree.reap(&mut |pid, status, usage| {
            // Once it has ended, another process may have its number.
            if pid == who.pid && exit.is_none() {
                if let Some(container) = container {
                    container.command_ended(status);
                }
                *exit = Some(Ended { pid, status, usage });
            }
            if !seen.is_empty() {
                seen.insert(pid);
            }
        });
        exit.is_some()
    }

    pub fn members(&self) -> Vec<Identity> {
        self.tree.members().iter().map(Stat::who).collect()
    }

    /// Notes which processes are in the tree, so that the stop can tell how many it has ended.
    pub fn count_members(&mut self) {
        let members = self.tree.members();
        self.seen.extend(members.iter().map(|stat| stat.pid));
    }

    /// Whether no process of the tree is left, and no container.
    pub fn tree_is_empty(&self) -> bool {
        let container = self.container.as_ref();
        container.is_none_or(RunningContainer::is_over) && self.tree.members().is_empty()
    }

    /// Asks tree and container to end; the container has this number of seconds.
    pub fn terminate(&mut self, seconds: u64, within_ms: u64) {
        self.tree.signal(Signal::TERM);
        if let Some(container) = &mut self.container {
            container.stop(seconds, within_ms);
        }
    }

    /// Begins to kill the container. True if that must be waited for before the tree is killed, because the process that talks
    /// to the engine is a member of the tree.
    pub fn kill_container(&mut self, now: Moment, confirm_ms: u64) -> bool {
        let container = self.container.as_mut();
        container.is_some_and(|container| container.kill(now, confirm_ms))
    }

    /// Whether the kill of the container is through, or has taken too long; told once.
    pub fn container_is_killed(&mut self, now: Moment) -> bool {
        let container = self.container.as_mut();
        container.is_some_and(|container| container.kill_is_through(now))
    }

    /// Until when the kill of the container is waited for.
    pub fn due(&self) -> Option<Moment> {
        self.container.as_ref()?.due()
    }

    /// Kills all processes that are left of the tree, and waits until they are gone, for so long.
    pub fn kill_tree(&mut self, confirm_ms: u64) -> Killed {
        let Self {
            who, tree, exit, ..
        } = self;
        let ended = tree.kill(confirm_ms, &mut |pid, status, usage| {
            if pid == who.pid && exit.is_none() {
                *exit = Some(Ended { pid, status, usage });
            }
        });
        let before = self.seen.len() as u32;
        let mut left = ended.left;
        let count = before.max(ended.count).saturating_sub(left.len() as u32);
        left.extend(self.container.as_mut().and_then(RunningContainer::left));
        Killed { count, left }
    }
}

/// The end that the server reads from; the kernel keeps what is in a pipe as long as one of its ends is open.
fn read_end(stdin: &Port) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", stdin.as_fd().as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty())
}
