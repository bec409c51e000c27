//! Which processes are connected to another one by a wire, and whether the other ends of that wire are still held.
//!
//! A wire is an input and an output, each a pipe or a socket: descriptors 0 and 1, or others if descriptor 0 is `/dev/null`, because the Python
//! SDK moves its wire away from handlers and children. Nothing here decides what a process is, and no process is signalled.
//!
//! One pass over `/proc` asks the cheapest question first. The holders of an end are searched among the ancestors; only if they are not there, one
//! pass over all descriptors of the user's processes finds them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::AsFd;

use mainstay_core::reap::FarEnd;
use mainstay_protocol::ids::Identity;
use rustix::fs::{Mode, OFlags, open};

use crate::adopter;
use crate::census::{self, Stat};
use crate::diag::Diag;
use crate::holder::{self, hung_up};
use crate::identity;
use crate::procfs::ProcPath;
use crate::stdio::{self, Descriptor, End, Held};

/// The wire of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Where its requests come from.
    pub input: End,
    /// Where its answers go.
    pub output: End,
    /// The numbers of both descriptors.
    pub fds: (i32, i32),
}

impl Wire {
    /// The wire is not on descriptors 0 and 1.
    pub fn moved(&self) -> bool {
        self.fds != (0, 1)
    }
}

/// The processes that share one wire: launchers, and the server behind them.
#[derive(Clone, Debug)]
pub struct Group {
    /// They, oldest first.
    pub members: Vec<Stat>,
    /// They and all their descendants.
    pub tree: Vec<Stat>,
    /// The wire of the youngest.
    pub wire: Wire,
    /// The client's end of the input.
    pub input: FarEnd,
    /// The client's end of the output.
    pub output: FarEnd,
    /// The process outside of the tree that holds both of the client's ends.
    pub client: Option<Stat>,
}

impl Group {
    /// Adds the descendants to the tree.
    fn grow(&mut self) {
        let mut known: BTreeSet<i32> = self.members.iter().map(|stat| stat.pid).collect();
        for member in &self.members {
            for stat in census::descendants(member.pid) {
                if known.insert(stat.pid) && !stat.dead() {
                    self.tree.push(stat);
                }
            }
        }
    }

    /// The process that the client started, if it still runs; else the oldest.
    pub fn first(&self) -> Identity {
        self.members[0].who()
    }

    /// Whether the wire may be one to a child of its own. It is on other descriptors than 0 and 1, and there is a child, or there was one: its pipes
    /// look the same.
    pub fn may_be_own_pipes(&self) -> bool {
        let childless = self.tree.len() == self.members.len();
        let never = self.members.iter().all(|stat| stat.waited_faults == 0);
        self.wire.moved() && !(childless && never)
    }

    /// The server itself, behind its launchers: the youngest.
    pub fn server(&self) -> &Stat {
        &self.members[self.members.len() - 1]
    }
}

/// The wire of one process, if it has one.
pub fn of(pid: i32) -> Option<Wire> {
    Peers::new().wire(pid, &Any)
}

/// What the caller knows about programs. With it a scan reads the descriptors of few processes only: on a machine with thousands of them, most of
/// those that have a wire are not meant.
pub trait Programs {
    /// Whether a process may run a script. Asked before [`Programs::may_move`], because it costs less.
    fn runs_scripts(&self, pid: i32) -> bool;
    /// Whether a process may have its wire on other descriptors than 0 and 1.
    fn may_move(&self, pid: i32) -> bool;
    /// Whether a group is meant, although its wire is held. `client` is the ancestor that holds both ends; `half_gone` says that one end is gone.
    fn is_meant(&mut self, members: &[Stat], client: Option<&Stat>, half_gone: bool) -> bool;
}

/// Every program may be meant.
struct Any;

impl Programs for Any {
    fn runs_scripts(&self, _pid: i32) -> bool {
        true
    }

    fn may_move(&self, _pid: i32) -> bool {
        true
    }

    fn is_meant(&mut self, _members: &[Stat], _client: Option<&Stat>, _half_gone: bool) -> bool {
        true
    }
}

/// The groups of this user whose wire is gone on both ends, or that are meant.
pub fn scan(programs: &mut dyn Programs) -> io::Result<Vec<Group>> {
    Ok(scan_among(&census::pids()?, programs))
}

/// The same for the processes of this list, which is that of [`census::pids`].
pub fn scan_among(pids: &[i32], programs: &mut dyn Programs) -> Vec<Group> {
    Scan::new().groups(pids, programs)
}

/// The group of this process as it is now: for a proof that is repeated before a signal.
pub fn look_again(group: &Group) -> Option<Group> {
    let mut scan = Scan::new();
    let living: Vec<Stat> = group
        .members
        .iter()
        .filter_map(|old| {
            census::stat(old.pid)
                .ok()
                .filter(|now| now.who() == old.who())
        })
        .filter(|stat| !stat.dead())
        .collect();
    let wire = scan.peers.wire(living.last()?.pid, &Any)?;
    let mut found = scan.begin(living, wire);
    found.group.grow();
    let mut found = vec![found];
    scan.find_holders(&mut found);
    found.pop().map(|unfinished| unfinished.group)
}

/// Asks for the other ends of sockets, over one netlink socket.
struct Peers {
    diag: Option<Diag>,
}

impl Peers {
    fn new() -> Self {
        Self { diag: None }
    }

    /// The socket at the other end; `Ok(None)` if no process holds it.
    fn of(&mut self, inode: u64) -> io::Result<Option<u64>> {
        let diag = match self.diag.take() {
            Some(diag) => diag,
            None => Diag::open()?,
        };
        let peer = holder::peer_by(&diag, inode as u32);
        self.diag = Some(diag);
        Ok(peer?.map(u64::from))
    }

    fn wire(&mut self, pid: i32, programs: &dyn Programs) -> Option<Wire> {
        match stdio::end(pid, 0) {
            input if input.talks() => {
                let output = stdio::end(pid, 1);
                output.talks().then_some(Wire {
                    input,
                    output,
                    fds: (0, 1),
                })
            }
            End::Null
                if programs.runs_scripts(pid)
                    && has_more_than_standard(pid)
                    && programs.may_move(pid) =>
            {
                self.moved_wire(pid)
            }
            End::Null
            | End::Pipe(_)
            | End::Socket(_)
            | End::Terminal
            | End::File
            | End::Other
            | End::Closed
            | End::Hidden => None,
        }
    }

    /// The lowest descriptor that only reads and leads out of the process, and the next one that only writes.
    fn moved_wire(&mut self, pid: i32) -> Option<Wire> {
        let all = stdio::descriptors(pid)?;
        let inside = |end: End, peers: &mut Self| match end {
            // Both ends are here: it wakes the process itself.
            End::Pipe(_) => {
                let same = || all.iter().filter(|other| other.end == end);
                same().any(|other| other.reads) && same().any(|other| other.writes)
            }
            End::Socket(inode) => peers
                .of(inode)
                .ok()
                .flatten()
                .is_some_and(|peer| all.iter().any(|other| other.end == End::Socket(peer))),
            End::Null | End::Terminal | End::File | End::Other | End::Closed | End::Hidden => true,
        };
        let mut outward = Vec::new();
        for descriptor in all.iter().filter(|descriptor| descriptor.fd > 2) {
            if !inside(descriptor.end, self) {
                outward.push(*descriptor);
            }
        }
        let input = outward.iter().find(|descriptor| descriptor.reads)?;
        let writes = |descriptor: &&Descriptor| descriptor.writes && descriptor.fd > input.fd;
        let output = outward.iter().find(writes)?;
        Some(Wire {
            input: input.end,
            output: output.end,
            fds: (input.fd, output.fd),
        })
    }
}

/// Whether a process has two more descriptors than the standard ones. Newer kernels tell their number; older ones say 0.
fn has_more_than_standard(pid: i32) -> bool {
    let path = ProcPath::of(pid, "fd");
    let count = rustix::fs::stat(path.text()).map_or(0, |stat| stat.st_size);
    !(1..5).contains(&count)
}

/// One direction of a wire.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Input,
    Output,
}

/// The descriptor that a holder of the client's end has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Wanted {
    Writer(u64),
    Reader(u64),
    Socket(u64),
}

impl Wanted {
    fn fits(self, descriptor: &Descriptor) -> bool {
        match (self, descriptor.end) {
            (Self::Writer(wanted), End::Pipe(inode)) => descriptor.writes && inode == wanted,
            (Self::Reader(wanted), End::Pipe(inode)) => descriptor.reads && inode == wanted,
            (Self::Socket(wanted), End::Socket(inode)) => inode == wanted,
            _ => false,
        }
    }
}

/// What the kernel says about a client's end.
enum Sight {
    Gone,
    Held(Wanted),
    Untold,
}

/// A group whose holders are not known yet.
struct Unfinished {
    group: Group,
    input: Sight,
    output: Sight,
}

struct Scan {
    uid: u32,
    peers: Peers,
    held: HashMap<i32, Held>,
    stats: HashMap<i32, Option<Stat>>,
}

impl Scan {
    fn new() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            peers: Peers::new(),
            held: HashMap::new(),
            stats: HashMap::new(),
        }
    }

    fn groups(&mut self, pids: &[i32], programs: &mut dyn Programs) -> Vec<Group> {
        let me = std::process::id() as i32;
        let mut by_input: BTreeMap<u64, Vec<(Stat, Wire)>> = BTreeMap::new();
        for &pid in pids {
            if pid == me {
                continue;
            }
            let Some(wire) = self.peers.wire(pid, programs) else {
                continue;
            };
            let (End::Pipe(inode) | End::Socket(inode)) = wire.input else {
                continue;
            };
            // Few processes have a wire, so their user is asked for last.
            if census::uid(pid) == Some(self.uid)
                && let Some(stat) = self.stat(pid).filter(|stat| !stat.dead())
            {
                by_input.entry(inode).or_default().push((stat, wire));
            }
        }
        let mut found = Vec::new();
        for (_, mut members) in by_input {
            members.sort_by_key(|(stat, _)| (stat.start, stat.pid));
            let Some(&(_, wire)) = members.last() else {
                continue;
            };
            let members = members.into_iter().map(|(stat, _)| stat).collect();
            let mut one = self.begin(members, wire);
            let gone = one.gone();
            let client = one.group.client.as_ref();
            if gone == 2 || programs.is_meant(&one.group.members, client, gone == 1) {
                one.group.grow();
                found.push(one);
            }
        }
        self.find_holders(&mut found);
        found
            .into_iter()
            .map(|unfinished| unfinished.group)
            .collect()
    }

    /// Everything but the tree and the holders that are no ancestors.
    fn begin(&mut self, members: Vec<Stat>, wire: Wire) -> Unfinished {
        let pid = members[members.len() - 1].pid;
        let input = self.sight(pid, wire.fds.0, wire.input, Direction::Input);
        let output = self.sight(pid, wire.fds.1, wire.output, Direction::Output);
        let mut group = Group {
            tree: members.clone(),
            members,
            wire,
            input: FarEnd::Gone,
            output: FarEnd::Gone,
            client: None,
        };
        if let (Sight::Held(feeds), Sight::Held(hears)) = (&input, &output)
            && let Some(client) = self.ancestor(&group, *feeds, *hears)
        {
            let holder = vec![client.who()];
            group.input = FarEnd::Held(holder.clone());
            group.output = FarEnd::Held(holder);
            group.client = Some(client);
        }
        Unfinished {
            group,
            input,
            output,
        }
    }

    fn sight(&mut self, pid: i32, fd: i32, end: End, direction: Direction) -> Sight {
        match (end, direction) {
            (End::Socket(inode), _) => match self.peers.of(inode) {
                Ok(Some(peer)) => Sight::Held(Wanted::Socket(peer)),
                Ok(None) => Sight::Gone,
                Err(_) => Sight::Untold,
            },
            (End::Pipe(inode), Direction::Input) => match reopen(pid, fd, OFlags::RDONLY) {
                Ok(file) if hung_up(file.as_fd()) => Sight::Gone,
                Ok(_) => Sight::Held(Wanted::Writer(inode)),
                Err(_) => Sight::Untold,
            },
            (End::Pipe(inode), Direction::Output) => match reopen(pid, fd, OFlags::WRONLY) {
                // The kernel reports an error on the write end of a pipe without a reader.
                Ok(file) if hung_up(file.as_fd()) => Sight::Gone,
                Ok(_) => Sight::Held(Wanted::Reader(inode)),
                Err(_) => Sight::Untold,
            },
            (End::Null | End::Terminal | End::File | End::Other | End::Closed | End::Hidden, _) => {
                Sight::Untold
            }
        }
    }

    fn find_holders(&mut self, found: &mut [Unfinished]) {
        let mut wanted: BTreeSet<Wanted> = BTreeSet::new();
        for unfinished in found.iter() {
            if unfinished.group.client.is_none() {
                wanted.extend(unfinished.wanted());
            }
        }
        let holders = if wanted.is_empty() {
            Holders::default()
        } else {
            Holders::of(&wanted, self.uid)
        };
        for unfinished in found {
            if unfinished.group.client.is_none() {
                self.finish(unfinished, &holders);
            }
        }
    }

    /// The nearest ancestor that holds both ends.
    fn ancestor(&mut self, group: &Group, input: Wanted, output: Wanted) -> Option<Stat> {
        let mut next = group.members[0].ppid;
        for _ in 0..ANCESTORS_MAX {
            let stat = self.stat(next)?;
            let outside = !group.members.iter().any(|member| member.pid == stat.pid);
            let held = self.held.entry(next).or_insert_with(|| Held::by(next));
            if outside && has(held, input) && has(held, output) {
                return Some(stat);
            }
            next = stat.ppid;
        }
        None
    }

    fn finish(&mut self, unfinished: &mut Unfinished, holders: &Holders) {
        let group = &mut unfinished.group;
        let inside: BTreeSet<i32> = group.tree.iter().map(|stat| stat.pid).collect();
        // A process that we may not read, and that may have been given an end: one of our own user, or an ancestor.
        let mut hidden = holders.hidden;
        let mut next = group.members[0].ppid;
        for _ in 0..ANCESTORS_MAX {
            let Some(stat) = self.stat(next) else { break };
            let manager = stat.pid == adopter::INIT || stat.comm == "systemd";
            let held = self.held.entry(next).or_insert_with(|| Held::by(next));
            hidden |= held.hidden() && !manager;
            next = stat.ppid;
        }
        let far = |sight: &Sight| match sight {
            Sight::Gone => FarEnd::Gone,
            Sight::Untold => FarEnd::Hidden,
            Sight::Held(wanted) => {
                let all = holders.by.get(wanted).map_or(&[][..], Vec::as_slice);
                let (own, outside): (Vec<&Holder>, Vec<&Holder>) = all
                    .iter()
                    .partition(|holder| inside.contains(&holder.who.pid));
                let passes_on = own.iter().any(|holder| holder.standard);
                if !outside.is_empty() {
                    FarEnd::Held(outside.iter().map(|holder| holder.who).collect())
                } else if own.is_empty() || hidden || passes_on {
                    FarEnd::Hidden
                } else {
                    FarEnd::OwnTree
                }
            }
        };
        group.input = far(&unfinished.input);
        group.output = far(&unfinished.output);
        if let (FarEnd::Held(feeds), FarEnd::Held(hears)) = (&group.input, &group.output) {
            // Of several, the oldest: descriptors leak into younger processes.
            let both = feeds.iter().filter(|who| hears.contains(who));
            let oldest = both.min_by_key(|who| (who.start, who.pid));
            group.client = oldest.and_then(|who| census::stat(who.pid).ok());
        }
    }

    fn stat(&mut self, pid: i32) -> Option<Stat> {
        if pid <= 0 {
            return None;
        }
        let stat = self.stats.entry(pid);
        stat.or_insert_with(|| census::stat(pid).ok()).clone()
    }
}

impl Unfinished {
    /// How many of the client's two ends are gone.
    fn gone(&self) -> usize {
        let ends = [&self.input, &self.output].into_iter();
        ends.filter(|sight| matches!(sight, Sight::Gone)).count()
    }

    fn wanted(&self) -> impl Iterator<Item = Wanted> {
        [&self.input, &self.output]
            .into_iter()
            .filter_map(|sight| match sight {
                Sight::Held(wanted) => Some(*wanted),
                Sight::Gone | Sight::Untold => None,
            })
    }
}

/// More launchers than any server has.
const ANCESTORS_MAX: usize = 64;

fn has(held: &Held, wanted: Wanted) -> bool {
    match wanted {
        Wanted::Writer(inode) => held.feeds(End::Pipe(inode), None),
        Wanted::Reader(inode) => held.hears(End::Pipe(inode), None),
        Wanted::Socket(peer) => held.feeds(End::Socket(0), Some(peer)),
    }
}

/// Opens the same pipe once more, without waiting for another process.
fn reopen(pid: i32, fd: i32, flags: OFlags) -> rustix::io::Result<std::os::fd::OwnedFd> {
    let path = format!("/proc/{pid}/fd/{fd}");
    open(
        path,
        flags | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// A process that holds an end.
struct Holder {
    who: Identity,
    /// As its stdin, stdout or stderr: it reads or writes there, so the end did not only leak into it.
    standard: bool,
}

/// Which processes of the user hold which ends.
#[derive(Default)]
struct Holders {
    by: HashMap<Wanted, Vec<Holder>>,
    /// A process of the user could not be read.
    hidden: bool,
}

impl Holders {
    fn of(wanted: &BTreeSet<Wanted>, uid: u32) -> Self {
        let mut found = Self::default();
        let Ok(pids) = census::pids() else {
            found.hidden = true;
            return found;
        };
        let mut by_inode: HashMap<u64, Vec<Wanted>> = HashMap::new();
        for &one in wanted {
            let (Wanted::Writer(inode) | Wanted::Reader(inode) | Wanted::Socket(inode)) = one;
            by_inode.entry(inode).or_default().push(one);
        }
        for pid in pids {
            match stdio::descriptors(pid) {
                Some(all) => found.note(pid, &all, &by_inode),
                None => found.hidden |= hides(pid, uid),
            }
        }
        found
    }

    fn note(&mut self, pid: i32, all: &[Descriptor], by_inode: &HashMap<u64, Vec<Wanted>>) {
        for descriptor in all {
            let (End::Pipe(inode) | End::Socket(inode)) = descriptor.end else {
                continue;
            };
            for &wanted in by_inode.get(&inode).into_iter().flatten() {
                if !wanted.fits(descriptor) {
                    continue;
                }
                let standard = descriptor.fd <= 2;
                let holders = self.by.entry(wanted).or_default();
                match holders.last_mut().filter(|last| last.who.pid == pid) {
                    Some(last) => last.standard |= standard,
                    None => {
                        if let Ok(who) = identity::of(pid) {
                            holders.push(Holder { who, standard });
                        }
                    }
                }
            }
        }
    }
}

/// Whether it is a living process of this user. One that hides its descriptors belongs to root in the process table, but runs as its user.
fn hides(pid: i32, uid: u32) -> bool {
    census::real_uid(pid) == Some(uid) && census::stat(pid).is_ok_and(|stat| !stat.dead())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command, Stdio};

    #[expect(clippy::disallowed_methods, reason = "processes to look at")]
    fn deaf(stdin: impl Into<Stdio>, stdout: impl Into<Stdio>) -> Child {
        let mut command = Command::new("sleep");
        command
            .arg("1000")
            .stdin(stdin)
            .stdout(stdout)
            .spawn()
            .unwrap()
    }

    fn group(pid: i32) -> Option<Group> {
        let all = scan(&mut Any).unwrap();
        all.into_iter()
            .find(|group| group.members.iter().any(|stat| stat.pid == pid))
    }

    #[test]
    fn the_holder_of_both_ends_is_the_client_and_closed_ends_are_gone() {
        let _lock = crate::child_lock::without_children();
        let mut child = deaf(Stdio::piped(), Stdio::piped());
        let found = group(child.id() as i32).unwrap();
        let me = std::process::id() as i32;
        assert_eq!(found.client.as_ref().map(|stat| stat.pid), Some(me));
        drop((child.stdin.take(), child.stdout.take()));
        let now = look_again(&found).unwrap();
        assert_eq!((now.input, now.output), (FarEnd::Gone, FarEnd::Gone));
        assert!(now.client.is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn sockets_are_asked_by_their_peers() {
        let _lock = crate::child_lock::without_children();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let input = std::os::fd::OwnedFd::from(theirs);
        let output = input.try_clone().unwrap();
        let mut child = deaf(input, output);
        let found = group(child.id() as i32).unwrap();
        assert_eq!(
            found.client.map(|stat| stat.pid),
            Some(std::process::id() as i32)
        );
        drop(ours);
        let found = group(child.id() as i32).unwrap();
        assert_eq!((found.input, found.output), (FarEnd::Gone, FarEnd::Gone));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "processes to look at")]
    fn a_wire_on_other_descriptors_is_found_if_stdin_is_null() {
        let _lock = crate::child_lock::without_children();
        let script = "exec 6<&0 7>&1 </dev/null 1>&2; echo ready >&7; read -u 6 line";
        let mut command = Command::new("bash");
        let command = command
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut ready = [0; 6];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let wire = of(child.id() as i32).unwrap();
        assert_eq!(wire.fds, (6, 7));
        assert!(wire.moved());
        let found = group(child.id() as i32).unwrap();
        assert_eq!(
            found.client.map(|stat| stat.pid),
            Some(std::process::id() as i32)
        );
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
