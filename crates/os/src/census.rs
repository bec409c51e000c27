//! Reading the process table: in stages, so that the cheap question is asked first.
//!
//! A process that vanishes while we look is an expected result, not an error. Nothing here signals anybody.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use mainstay_core::ids::Identity;

use crate::made_up;

/// What `/proc/PID/stat` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process.
    pub pid: i32,
    /// Its short name.
    pub comm: String,
    /// `R`, `S`, `D`, `Z`, `T`, …
    pub state: u8,
    /// Its parent now.
    pub ppid: i32,
    /// Its process group.
    pub pgrp: i32,
    /// Its session.
    pub session: i32,
    /// CPU ticks, user and system.
    pub cpu_ticks: u64,
    /// CPU ticks of the children it has waited for.
    pub waited_ticks: u64,
    /// Page faults of the children it has waited for: above 0 once it has reaped anybody.
    pub waited_faults: u64,
    /// Start time in ticks since boot.
    pub start: u64,
    /// Resident pages.
    pub rss_pages: u64,
}

impl Stat {
    /// Whether it has ended and only waits to be reaped.
    pub fn dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Pid and start time.
    pub fn who(&self) -> Identity {
        Identity {
            pid: self.pid,
            start: self.start,
        }
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        // The name is in parentheses and may itself hold any byte, so the last one counts.
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
            waited_faults: at::<u64>(&fields, 11)? + at::<u64>(&fields, 13)?,
            cpu_ticks: at::<u64>(&fields, 14)? + at::<u64>(&fields, 15)?,
            waited_ticks: at::<i64>(&fields, 16)?.max(0) as u64
                + at::<i64>(&fields, 17)?.max(0) as u64,
            start: at(&fields, 22)?,
            rss_pages: at::<i64>(&fields, 24)?.max(0) as u64,
        })
    }
}

/// Fields that are looked at: from field 3 to field 24.
const FIELDS: usize = 22;

/// A field by its number in proc(5); `fields[0]` is field 3.
fn at<T: FromStr>(fields: &[&str], number: usize) -> Option<T> {
    fields.get(number - 3)?.parse().ok()
}

/// One process.
pub fn stat(pid: i32) -> io::Result<Stat> {
    let mut buffer = [0u8; STAT_BYTES];
    let len = read_stat(pid, &mut buffer)?;
    Stat::parse(&buffer[..len]).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What tells one owner of a pid from the next.
pub(crate) struct Brief {
    pub dead: bool,
    pub start: u64,
}

/// The same, and nothing else: no memory is allocated. Shim and guard share the pages of one heap for as long as neither
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
    let mut name = [0u8; 32];
    let room = name.len();
    let mut rest = &mut name[..];
    write!(rest, "/proc/{pid}/stat")?;
    let len = room - rest.len();
    let mut file = File::open(OsStr::from_bytes(&name[..len]))?;
    let mut len = 0;
    // The newline is the end: one read brings it all, and another one only to hear so would cost as much as the open.
    while len < buffer.len() && !buffer[..len].ends_with(b"\n") {
        match file.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            // A process that ends under our hands answers ESRCH.
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
    Ok(pids()?
        .into_iter()
        .filter_map(|pid| stat(pid).ok())
        .collect())
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

/// The children of a process now, by the kernel's own list (all threads), else by a walk of the table.
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

/// By the kernel's own list, for one thread; not every kernel has it.
pub(crate) fn listed_children(task: &Path) -> io::Result<Vec<i32>> {
    let text = made_up::text(task.join("children"))?;
    let pids = text.split_ascii_whitespace();
    Ok(pids.filter_map(|pid| pid.parse().ok()).collect())
}

fn walked_children(pid: i32) -> io::Result<Vec<i32>> {
    let below = all()?.into_iter().filter(|stat| stat.ppid == pid);
    Ok(below.map(|stat| stat.pid).collect())
}

/// All descendants of a process, nearest first, itself not included. One snapshot: whoever forks meanwhile is seen
/// by the next.
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

/// The parent of a process, its parent, and so on, as far as they can be seen; the process itself may be gone by now.
pub fn ancestors(of: &Stat) -> Vec<Identity> {
    let mut found = Vec::new();
    let mut next = of.ppid;
    // A chain that grows while we climb is cut: nobody has that many launchers.
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
    let environ = made_up::bytes(format!("/proc/{pid}/environ"))?;
    Ok(value_in(&environ, name))
}

/// The value of exactly this variable.
fn value_in(environ: &[u8], name: &str) -> Option<String> {
    environ.split(|&b| b == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    })
}

/// A process's arguments.
pub fn cmdline(pid: i32) -> Vec<String> {
    let bytes = made_up::bytes(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes
        .split(|&b| b == 0)
        .filter(|part| !part.is_empty())
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect()
}

/// Whether a process is a fork of its parent that has not run a program of its own yet.
pub fn forked_only(pid: i32) -> bool {
    const PF_FORKNOEXEC: u64 = 0x40;
    crate::ended::field(pid, 9).is_some_and(|flags| flags & PF_FORKNOEXEC != 0)
}

/// The process that a thread belongs to; a process's own pid is its first thread's.
pub fn process_of(thread: i32) -> Option<i32> {
    let text = made_up::text(format!("/proc/{thread}/status")).ok()?;
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

/// The user that a process runs as; who owns its entry in the table is another one, if it does not let itself be looked at.
pub fn real_uid(pid: i32) -> Option<u32> {
    let text = made_up::text(format!("/proc/{pid}/status")).ok()?;
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
    let text = made_up::text(format!("/proc/{pid}/status")).unwrap_or_default();
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
    fn a_torn_line_is_no_process() {
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
    fn we_see_ourselves() {
        let me = std::process::id() as i32;
        assert_eq!(stat(me).unwrap().pid, me);
        assert!(pids().unwrap().contains(&me));
        assert!(memory(me).rss_kib > 0);
        assert!(!cmdline(me).is_empty());
    }
}
