//! A tree: the server process and all its descendants, however they detach, held by this process.
//!
//! The caller is a subreaper with one thread, and every process that ends below it is reaped by it or by the kernel.
//! So a process that loses its parent becomes our child, and a walk from ourselves finds every member. A leaf, if
//! there is one, finds them too.
//!
//! Invariants: SIGKILL first, never SIGSTOP first (stopping is asynchronous, and was measured to be worse). An
//! excluded process is never signalled and never counted, and its descendants are not visited; it is still reaped if
//! it dies. Everything is bounded by a deadline and woken by the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::slice;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Seen, Status, Usage};
use mainstay_protocol::ids::{Identity, Tag};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::census::{self, Stat};
use crate::clock;
use crate::spawn::witness::Witness;
use crate::tier::Leaf;
use crate::tier::cgroup::timespec;
use crate::tier::pidns::Init;

/// Pidfds that are held at once while we wait for members to end; the next walk checks the others.
pub(crate) const HELD_MAX: usize = 256;

/// Walks in a row that find no process and follow each other at once. After that each waits longer than the one
/// before.
const AT_ONCE_MAX: u32 = 8;
const NAP_MS_MAX: u32 = 50;

/// Called for each process that was reaped: its pid, how it ended, what it used.
pub type OnReaped<'a> = &'a mut dyn FnMut(i32, Status, Usage);

/// How a tree is held.
#[derive(Debug)]
pub enum Hold {
    /// Only by being its ancestor.
    Parenthood,
    /// By a cgroup leaf as well.
    Leaf(Leaf),
    /// By a PID namespace, whose init is our child.
    Pidns(Init),
}

impl Hold {
    /// Whether this process is one of ours and no member.
    fn ours(&self, who: Identity) -> bool {
        match self {
            Self::Pidns(init) => init.who == who || init.parent == who,
            Self::Parenthood | Self::Leaf(_) => false,
        }
    }
}

/// One server's tree.
#[derive(Debug)]
pub struct Tree {
    root: Option<Root>,
    /// The parent of the server, or of the init of its namespace.
    witness: Option<Witness>,
    hold: Hold,
    excluded: BTreeSet<Identity>,
    /// The pid of one of our processes that is ended with the members but not counted.
    uncounted: i32,
}

/// The server process.
#[derive(Debug)]
struct Root {
    who: Identity,
    pidfd: OwnedFd,
}

/// The result of ending a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Processes that were ended, or that ended meanwhile.
    pub count: u32,
    /// The processes that are still there when the time is up; empty means "0 left".
    pub left: Vec<Seen>,
}

impl Tree {
    /// The tree of a server that was just spawned.
    pub(crate) fn new(who: Identity, pidfd: OwnedFd, witness: Witness, hold: Hold) -> Self {
        Self {
            root: Some(Root { who, pidfd }),
            witness: Some(witness),
            hold,
            excluded: BTreeSet::new(),
            uncounted: 0,
        }
    }

    /// The processes that a dead keeper's tag names, held by the guard, which has inherited all orphans. The dead
    /// keeper's witness is one of them, but is not counted.
    pub fn inherited(tag: &Tag, witness: i32) -> Self {
        Self {
            uncounted: witness,
            root: None,
            witness: None,
            hold: Leaf::of(tag).map_or(Hold::Parenthood, Hold::Leaf),
            excluded: BTreeSet::new(),
        }
    }

    /// All processes below this one, only to be reaped: no leaf is looked for.
    pub fn below_us() -> Self {
        Self {
            root: None,
            witness: None,
            hold: Hold::Parenthood,
            excluded: BTreeSet::new(),
            uncounted: 0,
        }
    }

    /// The server process; none for an inherited tree.
    pub fn root(&self) -> Option<Identity> {
        self.root.as_ref().map(|root| root.who)
    }

    /// The server's pidfd: readable once it has ended.
    pub fn pidfd(&self) -> Option<&OwnedFd> {
        self.root.as_ref().map(|root| &root.pidfd)
    }

    /// The process that waits for the server; 0 for an inherited tree.
    pub fn witness_pid(&self) -> i32 {
        self.witness.as_ref().map_or(0, Witness::pid)
    }

    /// The leaf's directory, if there is one.
    pub fn leaf(&self) -> Option<&std::path::Path> {
        match &self.hold {
            Hold::Leaf(leaf) => Some(leaf.path()),
            Hold::Parenthood | Hold::Pidns(_) => None,
        }
    }

    /// Declares a child of ours to be no member (a side guard).
    pub fn exclude(&mut self, who: Identity) {
        self.excluded.insert(who);
    }

    /// All living members: descendants of this process, and processes in the leaf.
    pub fn members(&self) -> Vec<Stat> {
        let mut found = Vec::new();
        self.visit(&mut |member| found.push(member.stat));
        found
    }

    /// Sends a signal to every member. After SIGTERM, stopped members are continued, so that they can obey. Returns
    /// how many got the signal.
    pub fn signal(&self, signal: Signal) -> u32 {
        let mut count = 0;
        self.visit(&mut |member| {
            if pidfd_send_signal(&member.pidfd, signal).is_ok() {
                count += 1;
                let stopped = matches!(member.stat.state, b'T' | b't');
                if signal == Signal::TERM && stopped {
                    // If it is gone by now, all the better.
                    pidfd_send_signal(&member.pidfd, Signal::CONT).ok();
                }
            }
        });
        count
    }

    /// Reaps all children that have ended, without waiting; to be called whenever SIGCHLD came. Returns how many were
    /// reported.
    pub fn reap(&mut self, on_reaped: OnReaped<'_>) -> u32 {
        let mut count = 0;
        self.reap_all(&mut |pid, status, usage, _| {
            count += 1;
            on_reaped(pid, status, usage);
        });
        count
    }

    /// Ends every member, reaps the members that become our children, and confirms that none is left. An empty leaf
    /// is removed. Call this at the end of every tree, even if it seems empty: this is the proof.
    pub fn kill(&mut self, confirm_ms: u64, on_reaped: OnReaped<'_>) -> Ended {
        let deadline = clock::now().after_ms(confirm_ms);
        let mut seen: BTreeSet<i32> = BTreeSet::new();
        let mut known: BTreeSet<Identity> = BTreeSet::new();
        let mut quiet: u32 = 0;
        match &self.hold {
            Hold::Parenthood => {}
            Hold::Leaf(leaf) => seen.extend(leaf.members().unwrap_or_default()),
            Hold::Pidns(init) => {
                // Once init is killed, no process knows how the server ended.
                if let Some(root) = &self.root {
                    init.wait_for_report(&root.pidfd);
                }
                seen.extend(self.members().iter().map(|stat| stat.pid));
            }
        }
        loop {
            match &self.hold {
                // Refused only if the leaf is gone, and then it is empty.
                Hold::Leaf(leaf) if leaf.populated() => drop(leaf.kill()),
                Hold::Parenthood | Hold::Leaf(_) => {}
                // If it is gone already, that is just as good.
                Hold::Pidns(init) => drop(pidfd_send_signal(&init.pidfd, Signal::KILL).ok()),
            }
            let pass = self.kill_pass(&mut known);
            let childless = self.reap_members(&mut seen, on_reaped);
            if pass.found == 0 {
                quiet += 1;
                // Having no child is proof. With an excluded child we never reach that, so we look twice: the
                // kernel's list of children may skip one while another ends.
                let proven = childless || (quiet > 1 && !self.excluded.is_empty());
                if proven && self.leaf_empty(deadline) {
                    break;
                }
                if let Hold::Pidns(init) = &self.hold {
                    wait_ended(slice::from_ref(&init.pidfd), deadline);
                }
                if let Some(witness) = &self.witness {
                    witness.dismiss();
                }
                // A dead child that cannot be reaped yet: its tracer has to detach, and the kernel does not tell us
                // when.
                if let Some(again @ 1..) = u32::checked_sub(quiet, AT_ONCE_MAX) {
                    clock::nap(again.min(NAP_MS_MAX));
                }
            } else {
                quiet = 0;
                if pass.found == pass.refused {
                    break;
                }
                // While new members turn up we go on at once, because waiting would give them time to fork.
                if !pass.fresh {
                    wait_ended(&pass.held, deadline);
                }
            }
            if clock::now() >= deadline {
                break;
            }
        }
        let mut left = self.members();
        if left.is_empty()
            && let Some(witness) = &self.witness
        {
            witness.dismiss();
        }
        let childless = self.reap_members(&mut seen, on_reaped);
        if left.is_empty() && !childless && self.excluded.is_empty() {
            left = unreaped();
            // The witness was killed and does not count as left.
            left.retain(|stat| !self.is_witness(stat.pid));
        }
        seen.extend(known.iter().map(|who| who.pid));
        seen.remove(&self.uncounted);
        if left.is_empty()
            && let Hold::Leaf(leaf) = &self.hold
        {
            // Fails only while a process is in it.
            drop(leaf.remove());
        }
        Ended {
            count: seen.len().saturating_sub(left.len()) as u32,
            left: left.into_iter().map(to_seen).collect(),
        }
    }

    /// One walk that sends SIGKILL to every member.
    fn kill_pass(&self, known: &mut BTreeSet<Identity>) -> Pass {
        let mut pass = Pass::default();
        self.visit(&mut |member| {
            pass.found += 1;
            pass.fresh |= known.insert(member.stat.who());
            match pidfd_send_signal(&member.pidfd, Signal::KILL) {
                Err(rustix::io::Errno::PERM) => pass.refused += 1,
                Ok(()) | Err(_) => {
                    if pass.held.len() < HELD_MAX {
                        pass.held.push(member.pidfd);
                    }
                }
            }
        });
        pass
    }

    /// Reaps and remembers the members among the reaped. True if we have no child left.
    fn reap_members(&mut self, seen: &mut BTreeSet<i32>, on_reaped: OnReaped<'_>) -> bool {
        self.reap_all(&mut |pid, status, usage, member| {
            if member {
                seen.insert(pid);
            }
            on_reaped(pid, status, usage);
        })
    }

    /// Reaps, and calls `tell` for each with whether it was a member. True if we have no child left.
    fn reap_all(&mut self, tell: &mut dyn FnMut(i32, Status, Usage, bool)) -> bool {
        if let (Some(root), Some((status, usage))) = (self.root(), self.server_end()) {
            tell(root.pid, status, usage, true);
        }
        loop {
            match wait(ANY_CHILD) {
                Waited::Reaped(pid, status, usage) => {
                    let before = self.excluded.len();
                    self.excluded.retain(|who| who.pid != pid);
                    if !self.is_witness(pid) {
                        tell(pid, status, usage, self.excluded.len() == before);
                    }
                }
                Waited::NoneYet => return false,
                Waited::Childless => return true,
            }
        }
    }

    /// How the server ended. Returned once, if it has.
    fn server_end(&mut self) -> Option<(Status, Usage)> {
        let root = self.root.as_ref()?;
        match &mut self.hold {
            Hold::Pidns(init) => init.end_of(&root.pidfd, root.who),
            Hold::Parenthood | Hold::Leaf(_) => {
                self.witness.as_mut()?.end_of(&root.pidfd, root.who)
            }
        }
    }

    /// Whether a child that was just reaped is the witness: if the kernel does not reap it, we do.
    fn is_witness(&self, pid: i32) -> bool {
        let witness = self.witness.as_ref();
        witness.is_some_and(|witness| witness.pid() == pid)
    }

    fn leaf_empty(&self, deadline: Moment) -> bool {
        match &self.hold {
            // Without a child there is no init, and so no namespace.
            Hold::Parenthood | Hold::Pidns(_) => true,
            // No living process was seen in it a moment ago: a process that is left is exiting.
            Hold::Leaf(leaf) => leaf.wait_empty(deadline),
        }
    }

    /// Walks over all living members, parents first.
    fn visit(&self, each: &mut dyn FnMut(Member)) {
        let me = std::process::id() as i32;
        let index = ChildIndex::now();
        let ours = |member: &Member| {
            let witness = self.witness.as_ref();
            self.hold.ours(member.stat.who())
                || witness.is_some_and(|it| it.is(member.stat.pid, &member.pidfd))
        };
        let mut walked = BTreeSet::from([me]);
        let mut queue = Vec::new();
        index.children(me, &mut queue);
        let own = queue.len();
        let mut next = 0;
        while let Some(&pid) = queue.get(next) {
            next += 1;
            if walked.contains(&pid) {
                continue;
            }
            let hidden = || (next <= own).then(|| Member::hidden(pid, me)).flatten();
            let Some(member) = Member::look(pid).or_else(hidden) else {
                continue;
            };
            // It has another parent: the pid was reused since we read the list. If it is ours, the next walk finds
            // it.
            if !walked.contains(&member.stat.ppid) || self.excluded.contains(&member.stat.who()) {
                continue;
            }
            walked.insert(pid);
            index.children(pid, &mut queue);
            if !ours(&member) && member.alive() {
                each(member);
            }
        }
        if let Hold::Leaf(leaf) = &self.hold {
            for pid in leaf.members().unwrap_or_default() {
                if !walked.contains(&pid)
                    && let Some(member) = Member::look(pid)
                    && !self.excluded.contains(&member.stat.who())
                    && member.alive()
                    // Read after its pidfd was opened, so it is about the same process.
                    && leaf.holds(pid)
                {
                    each(member);
                }
            }
        }
    }
}

/// The result of one killing walk.
#[derive(Default)]
struct Pass {
    found: u32,
    refused: u32,
    /// Whether any member was met for the first time.
    fresh: bool,
    held: Vec<OwnedFd>,
}

/// A process met on a walk.
struct Member {
    stat: Stat,
    pidfd: OwnedFd,
}

impl Member {
    /// The pidfd is opened before the table is read: the entry is about that process, or the pidfd is dead.
    fn look(pid: i32) -> Option<Self> {
        let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let stat = census::stat(pid).ok()?;
        Some(Self { stat, pidfd })
    }

    /// A child of ours whose entry we may not read (another user's, with /proc mounted `hidepid`). It exists, and is
    /// reported as left.
    fn hidden(pid: i32, parent: i32) -> Option<Self> {
        let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let stat = unknown(pid, parent);
        (!has_ended(&pidfd, 0)).then_some(Self { stat, pidfd })
    }

    /// A process whose first thread has ended looks like a zombie while its other threads go on; the pidfd is right.
    fn alive(&self) -> bool {
        !self.stat.dead() || !has_ended(&self.pidfd, 0)
    }
}

/// Our children that the kernel still counts, though no living one was seen: dead ones that we may not reap yet. At
/// least one entry: a table that shows none of them is not for our pid namespace.
fn unreaped() -> Vec<Stat> {
    let me = std::process::id() as i32;
    let children = census::children(me).unwrap_or_default();
    let mut found: Vec<Stat> = children
        .into_iter()
        .filter_map(|pid| census::stat(pid).ok())
        .filter(|stat| stat.ppid == me)
        .collect();
    if found.is_empty() {
        found.push(unknown(0, me));
    }
    found
}

/// A process about which the table says nothing.
fn unknown(pid: i32, parent: i32) -> Stat {
    Stat {
        pid,
        comm: "?".into(),
        state: b'?',
        ppid: parent,
        pgrp: 0,
        session: 0,
        flags: 0,
        cpu_ticks: 0,
        waited_ticks: 0,
        waited_faults: 0,
        start: 0,
        rss_pages: 0,
    }
}

fn to_seen(stat: Stat) -> Seen {
    Seen {
        who: stat.who(),
        comm: stat.comm,
    }
}

/// Whether a process has ended, waiting at most this many nanoseconds for it.
pub(crate) fn has_ended(pidfd: &OwnedFd, ns: u64) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&timespec(ns))).is_ok_and(|n| n > 0)
}

/// Waits until all of them have ended. One after another, because that is one wake-up each, not one per pair.
fn wait_ended(held: &[OwnedFd], deadline: Moment) {
    for pidfd in held {
        loop {
            let left = deadline - clock::now();
            if has_ended(pidfd, left) || left == 0 {
                break;
            }
        }
    }
}

/// The parent of each process: by the kernel's own lists, or by one reading of the whole table if it has none.
enum ChildIndex {
    Lists,
    Table(Vec<(i32, i32)>),
}

impl ChildIndex {
    fn now() -> Self {
        if std::path::Path::new("/proc/thread-self/children").exists() {
            return Self::Lists;
        }
        let table = census::all().unwrap_or_default();
        Self::Table(table.iter().map(|stat| (stat.ppid, stat.pid)).collect())
    }

    fn children(&self, pid: i32, into: &mut Vec<i32>) {
        match self {
            Self::Table(table) => into.extend(
                table
                    .iter()
                    .filter_map(|&(parent, child)| (parent == pid).then_some(child)),
            ),
            Self::Lists => {
                let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
                    return;
                };
                for task in tasks.filter_map(Result::ok) {
                    into.extend(census::listed_children(&task.path()).unwrap_or_default());
                }
            }
        }
    }
}

/// For [`wait`].
const ANY_CHILD: i32 = -1;

enum Waited {
    Reaped(i32, Status, Usage),
    NoneYet,
    Childless,
}

/// How a child of ours ended, if it has and can be reaped.
pub(crate) fn wait_for(pid: i32) -> Option<(Status, Usage)> {
    match wait(pid) {
        Waited::Reaped(_, status, usage) => Some((status, usage)),
        Waited::NoneYet | Waited::Childless => None,
    }
}

/// One `wait4` for a child of ours, or for any, without blocking.
fn wait(child: i32) -> Waited {
    let mut status = 0;
    // SAFETY: a zeroed rusage is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both places are valid for the answer.
        let pid = unsafe {
            libc::wait4(
                child,
                &raw mut status,
                libc::WNOHANG | libc::__WALL,
                &raw mut usage,
            )
        };
        match pid {
            0 => return Waited::NoneYet,
            1.. => return Waited::Reaped(pid, status_of(status), usage_of(&usage)),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return Waited::Childless,
        }
    }
}

/// Converts a wait status.
pub(crate) fn status_of(status: i32) -> Status {
    if libc::WIFSIGNALED(status) {
        Status::Signal {
            number: libc::WTERMSIG(status),
            core: libc::WCOREDUMP(status),
        }
    } else {
        Status::Code(libc::WEXITSTATUS(status))
    }
}

pub(crate) fn usage_of(usage: &libc::rusage) -> Usage {
    let ms = |time: libc::timeval| time.tv_sec as u64 * 1_000 + time.tv_usec as u64 / 1_000;
    Usage {
        user_ms: ms(usage.ru_utime),
        system_ms: ms(usage.ru_stime),
        max_rss_kib: usage.ru_maxrss as u64,
    }
}
