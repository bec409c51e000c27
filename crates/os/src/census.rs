//! Reads the process table. The cheap question is asked first.
//!
//! A process that vanishes while we look is an expected result, not an error. Nothing here sends a signal.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use mainstay_protocol::ids::Identity;
use memchr::memmem::Finder;

use crate::procfs::{self, ProcPath};

/// The content of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process id.
    pub pid: i32,
    /// The short name.
    pub comm: String,
    /// `R`, `S`, `D`, `Z`, `T`, …
    pub state: u8,
    /// The parent's pid.
    pub ppid: i32,
    /// The process group.
    pub pgrp: i32,
    /// The session.
    pub session: i32,
    /// The kernel's flags (`PF_…`).
    pub flags: u32,
    /// CPU ticks, user and system.
    pub cpu_ticks: u64,
    /// CPU ticks of the children it has waited for.
    pub waited_ticks: u64,
    /// Page faults of the children it has waited for: above 0 once it has reaped a child.
    pub waited_faults: u64,
    /// Start time in ticks since boot.
    pub start: u64,
    /// Resident pages.
    pub rss_pages: u64,
}

impl Stat {
    /// Whether it has ended and waits to be reaped.
    pub fn dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Whether it is ending, or has ended. An ending process has lost its environment and its descriptors before it is dead.
    pub fn exiting(&self) -> bool {
        /// `PF_EXITING` in the kernel's `sched.h`.
        const EXITING: u32 = 0x4;
        self.flags & EXITING != 0 || self.dead()
    }

    /// Pid and start time.
    pub fn who(&self) -> Identity {
        Identity {
            pid: self.pid,
            start: self.start,
        }
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        // The name is in parentheses and may itself contain any byte, so the last parenthesis counts.
        let open = text.iter().position(|&b| b == b'(')?;
        let close = text.iter().rposition(|&b| b == b')')?;
        let pid = std::str::from_utf8(text.get(..open)?)
            .ok()?
            .trim()
            .parse()
            .ok()?;
        let comm = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
        let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
        let mut fields: Vec<&str> = Vec::with_capacity(FIELDS);
        fields.extend(rest.split_ascii_whitespace().take(FIELDS));
        Some(Self {
            pid,
            comm,
            state: *fields.first()?.as_bytes().first()?,
            ppid: at(&fields, 4)?,
            pgrp: at(&fields, 5)?,
            session: at(&fields, 6)?,
            flags: at(&fields, 9)?,
            waited_faults: at::<u64>(&fields, 11)? + at::<u64>(&fields, 13)?,
            cpu_ticks: at::<u64>(&fields, 14)? + at::<u64>(&fields, 15)?,
            waited_ticks: at::<i64>(&fields, 16)?.max(0) as u64
                + at::<i64>(&fields, 17)?.max(0) as u64,
            start: at(&fields, 22)?,
            rss_pages: at::<i64>(&fields, 24)?.max(0) as u64,
        })
    }
}

/// Fields that are read: from field 3 to field 24.
const FIELDS: usize = 22;

/// A field by its number in proc(5); `fields[0]` is field 3.
fn at<T: FromStr>(fields: &[&str], number: usize) -> Option<T> {
    fields.get(number - 3)?.parse().ok()
}

/// Reads one process.
pub fn stat(pid: i32) -> io::Result<Stat> {
    let mut buffer = [0u8; STAT_BYTES];
    let len = read_stat(pid, &mut buffer)?;
    Stat::parse(&buffer[..len]).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What distinguishes one process from the next with the same pid.
pub(crate) struct Brief {
    pub dead: bool,
    pub start: u64,
}

/// Reads only that and allocates no memory, because shim and guard share the pages of one heap as long as neither
/// writes to it.
pub(crate) fn brief(pid: i32) -> io::Result<Brief> {
    fn of(text: &[u8]) -> Option<Brief> {
        let close = text.iter().rposition(|&b| b == b')')?;
        let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
        // As in `at`: the first field is number 3.
        let mut fields = rest.split_ascii_whitespace();
        Some(Brief {
            dead: matches!(fields.next()?, "Z" | "X"),
            start: fields.nth(22 - 4)?.parse().ok()?,
        })
    }
    let mut buffer = [0u8; STAT_BYTES];
    let len = read_stat(pid, &mut buffer)?;
    of(&buffer[..len]).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

const STAT_BYTES: usize = 1024;

fn read_stat(pid: i32, buffer: &mut [u8; STAT_BYTES]) -> io::Result<usize> {
    let mut file = ProcPath::of(pid, "stat").open()?;
    let mut len = 0;
    // The line ends with a newline. One read brings it all; a second read just to see the end would cost as much as
    // the open.
    while len < buffer.len() && !buffer[..len].ends_with(b"\n") {
        match file.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            // A process that ends while we read answers ESRCH.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                return Err(io::ErrorKind::NotFound.into());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Every process that we can see, zombies included.
pub fn all() -> io::Result<Vec<Stat>> {
    Ok(read(&pids()?))
}

/// These processes and all their descendants, as far as they exist, each once. The kernel's own lists lead there, so the rest of the table is not
/// read; if the kernel has none, or if these are many among few, the whole table is cheaper.
pub fn below(roots: &[i32]) -> io::Result<Vec<Stat>> {
    /// Following the lists of one process costs as much as reading this many others.
    const OTHERS: usize = 8;
    let pids = pids()?;
    let listed = Path::new("/proc/thread-self/children").exists();
    if !listed || pids.len() < OTHERS * roots.len() {
        return Ok(read(&pids));
    }
    let mut known: HashSet<i32> = HashSet::new();
    let mut queue: Vec<i32> = roots.to_vec();
    while let Some(pid) = queue.pop() {
        if known.insert(pid) {
            queue.extend(children(pid).unwrap_or_default());
        }
    }
    Ok(read(&known.into_iter().collect::<Vec<_>>()))
}

fn read(pids: &[i32]) -> Vec<Stat> {
    let stats = pids.iter().filter_map(|&pid| stat(pid).ok());
    stats.collect()
}

/// Every pid that we can see.
pub fn pids() -> io::Result<Vec<i32>> {
    let mut pids = Vec::with_capacity(256);
    for entry in fs::read_dir("/proc")? {
        if let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        {
            pids.push(pid);
        }
    }
    Ok(pids)
}

/// The children of a process now, by the kernel's own list (all threads), or else by a walk of the table.
pub fn children(pid: i32) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    let mut listed = false;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(task) = task else { continue };
        if let Ok(children) = listed_children(&task.path()) {
            listed = true;
            found.extend(children);
        }
    }
    if !listed {
        found.extend(walked_children(pid)?);
    }
    Ok(found)
}

/// Those of its children that it may have adopted: the kernel gives orphans to a process's first thread.
pub fn adopted(pid: i32) -> io::Result<Vec<i32>> {
    listed_children(Path::new(&format!("/proc/{pid}/task/{pid}"))).or_else(|_| walked_children(pid))
}

/// The kernel's own list for one thread; not every kernel has it.
pub(crate) fn listed_children(task: &Path) -> io::Result<Vec<i32>> {
    let text = procfs::text(task.join("children"))?;
    let pids = text.split_ascii_whitespace();
    Ok(pids.filter_map(|pid| pid.parse().ok()).collect())
}

fn walked_children(pid: i32) -> io::Result<Vec<i32>> {
    let below = all()?.into_iter().filter(|stat| stat.ppid == pid);
    Ok(below.map(|stat| stat.pid).collect())
}

/// All descendants of a process, nearest first, itself not included. One snapshot: it may miss a process that is
/// forked meanwhile.
pub fn descendants(pid: i32) -> Vec<Stat> {
    let mut found: Vec<Stat> = Vec::new();
    let mut queue = children(pid).unwrap_or_default();
    let mut next = 0;
    while let Some(&pid) = queue.get(next) {
        next += 1;
        if let Ok(stat) = stat(pid) {
            found.push(stat);
            queue.extend(children(pid).unwrap_or_default());
        }
    }
    found
}

/// The parent of a process, that one's parent, and so on, as far as we can see. The process itself may be gone by
/// now.
pub fn ancestors(of: &Stat) -> Vec<Identity> {
    let mut found = Vec::new();
    let mut next = of.ppid;
    // A chain that grows while we climb is cut: a real chain of launchers is much shorter.
    while next > 0 && found.len() < 64 {
        let Ok(stat) = stat(next) else { break };
        found.push(stat.who());
        next = stat.ppid;
    }
    found
}

/// The value of one variable in a process's environment, if we may read it.
pub fn variable(pid: i32, name: &str) -> Option<String> {
    read_variable(pid, name).ok()?
}

/// The same, or why it cannot be read.
pub(crate) fn read_variable(pid: i32, name: &str) -> io::Result<Option<String>> {
    let environ = procfs::bytes(format!("/proc/{pid}/environ"))?;
    Ok(value_in(&environ, name))
}

/// Reads one variable of many processes, with one buffer for all of them.
pub(crate) struct Variables {
    name: &'static str,
    finder: Finder<'static>,
    buffer: Vec<u8>,
}

impl Variables {
    pub(crate) fn named(name: &'static str) -> Self {
        Self {
            name,
            finder: Finder::new(name),
            buffer: vec![0; ENVIRON_BYTES],
        }
    }

    /// The value in a process's environment; an error if it cannot be read.
    pub(crate) fn of(&mut self, pid: i32) -> io::Result<Option<String>> {
        let mut file = ProcPath::of(pid, "environ").open()?;
        let mut len = 0;
        loop {
            len += file.read(&mut self.buffer[len..])?;
            // The kernel fills the buffer as long as there is more, so no second read has to look for the end.
            if len < self.buffer.len() {
                break;
            }
            self.buffer.resize(len * 2, 0);
        }
        let environ = &self.buffer[..len];
        if self.finder.find(environ).is_none() {
            return Ok(None);
        }
        Ok(value_in(environ, self.name))
    }
}

/// Enough for nearly every environment.
const ENVIRON_BYTES: usize = 32 * 1024;

/// The value of exactly this variable.
fn value_in(environ: &[u8], name: &str) -> Option<String> {
    environ.split(|&b| b == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    })
}

/// A process's working directory, if we may read it.
pub fn directory(pid: i32) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// A process's arguments.
pub fn cmdline(pid: i32) -> Vec<String> {
    let bytes = procfs::bytes(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes
        .split(|&b| b == 0)
        .filter(|part| !part.is_empty())
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect()
}

/// Whether a process is a fork of its parent that has not executed a program yet.
pub fn forked_only(pid: i32) -> bool {
    const PF_FORKNOEXEC: u64 = 0x40;
    crate::ended::field(pid, 9).is_some_and(|flags| flags & PF_FORKNOEXEC != 0)
}

/// The process that a thread belongs to; a process's own pid is its first thread's.
pub fn process_of(thread: i32) -> Option<i32> {
    let text = procfs::text(format!("/proc/{thread}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// The uid that owns a process.
pub fn uid(pid: i32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(format!("/proc/{pid}"))
        .ok()
        .map(|meta| meta.uid())
}

/// The user that a process runs as. If the process hides itself, its entry in the table belongs to another user.
pub fn real_uid(pid: i32) -> Option<u32> {
    let text = procfs::text(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Memory of one process in KiB: resident and swapped out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// `VmRSS`.
    pub rss_kib: u64,
    /// `VmSwap`.
    pub swap_kib: u64,
}

/// Reads a process's memory figures.
pub fn memory(pid: i32) -> Memory {
    let text = procfs::text(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    };
    Memory {
        rss_kib: field("VmRSS"),
        swap_kib: field("VmSwap"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_no_trap() {
        let line = b"42 (a) b) (c) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9001 1 77 18446744073709551615";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(
            (stat.pid, stat.comm.as_str(), stat.state),
            (42, "a) b) (c", b'S')
        );
        assert_eq!((stat.ppid, stat.start, stat.rss_pages), (1, 9001, 77));
        assert_eq!(
            (stat.cpu_ticks, stat.waited_ticks, stat.waited_faults),
            (11, 15, 6)
        );
    }

    #[test]
    fn a_process_is_ending_before_it_is_dead() {
        for (state, flags, exiting, dead) in [
            ("S", "4194560", false, false),
            ("R", "4194564", true, false),
            ("Z", "4194564", true, true),
        ] {
            let line =
                format!("42 (x) {state} 1 42 42 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 1 0 9 1 7 0");
            let stat = Stat::parse(line.as_bytes()).unwrap();
            assert_eq!((stat.exiting(), stat.dead()), (exiting, dead), "{line}");
        }
    }

    #[test]
    fn torn_stat_line_is_rejected() {
        for line in [&b""[..], b"42", b"42 (x", b"42 (x) S", b"42 (x) S 1 2 3"] {
            assert_eq!(Stat::parse(line), None);
        }
    }

    #[test]
    fn a_variable_is_known_by_its_whole_name() {
        for (environ, value) in [
            (&b"TAG=1\0"[..], Some("1")),
            (b"TAGS=1\0", None),
            (b"TAG_OLD=1\0TAG=2\0", Some("2")),
            (b"MY_TAG=1\0TAG=\0", Some("")),
            (b"TAG\0", None),
            (b"", None),
        ] {
            assert_eq!(value_in(environ, "TAG").as_deref(), value);
        }
    }

    #[test]
    fn below_finds_descendants_with_and_without_the_lists() {
        let _lock = crate::child_lock::without_children();
        let me = std::process::id() as i32;
        #[expect(clippy::disallowed_methods, reason = "processes to look at")]
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 1000 & echo $!; read line; kill $!"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = io::BufReader::new(shell.stdout.take().unwrap());
        io::BufRead::read_line(&mut { stdout }, &mut line).unwrap();
        let sleep: i32 = line.trim().parse().unwrap();
        // So many roots that reading the whole table is cheaper.
        for roots in [vec![me], vec![me; 100_000]] {
            let found: Vec<i32> = below(&roots).unwrap().iter().map(|one| one.pid).collect();
            for pid in [me, shell.id() as i32, sleep] {
                let times = found.iter().filter(|&&one| one == pid).count();
                assert_eq!(times, 1, "{pid} in {found:?}");
            }
        }
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }

    #[test]
    fn we_see_ourselves() {
        let me = std::process::id() as i32;
        assert_eq!(stat(me).unwrap().pid, me);
        assert!(pids().unwrap().contains(&me));
        assert!(memory(me).rss_kib > 0);
        assert!(!cmdline(me).is_empty());
    }
}
