//! What a tree uses and has written: processor time, memory, bytes, and whether a debugger is attached.
//!
//! If the tree has a leaf, the kernel has computed the sum, including members that are gone. Otherwise one walk over
//! the members computes it. Then a figure may also fall, because a member ended that we reaped ourselves. So compare
//! two readings, but never subtract one from the other unchecked.
//!
//! It does not decide how much is too much.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::holder::{self, Holds};
use crate::tree::Tree;
use crate::{census, clock, procfs};

impl Tree {
    /// Processor time of all members and of the children that they have waited for, in milliseconds.
    pub fn cpu_ms(&self) -> u64 {
        // `cpu.stat` is in every cgroup2 but the oldest, also if the cpu controller is not enabled there.
        let counted = self
            .leaf()
            .and_then(|leaf| keyed(&leaf.join("cpu.stat"), "usage_usec"));
        if let Some(us) = counted {
            return us / 1_000;
        }
        let ticks: u64 = self
            .members()
            .iter()
            .map(|stat| stat.cpu_ticks + stat.waited_ticks)
            .sum();
        clock::ticks_ms(ticks)
    }

    /// Memory that the tree holds, in bytes: what would be free without it. Shared pages count once. Caches that the
    /// kernel may drop at any time do not count.
    ///
    /// Without a memory controller this walks each member's pages. That takes about 10 ms per GiB, and the member
    /// cannot change its mappings meanwhile. To watch a limit, [`Tree::memory_above`] is cheaper.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_of_leaf().unwrap_or_else(|| {
            self.members()
                .iter()
                .map(|stat| proportional(stat.pid).unwrap_or_else(|| resident(stat.pid)))
                .sum()
        })
    }

    /// The same, but only if it is above a limit. Members' pages are walked only if the sum of their resident sizes
    /// is above the limit too; that sum counts shared pages once per process.
    pub fn memory_above(&self, limit_bytes: u64) -> Option<u64> {
        if self.memory_of_leaf().is_none() {
            let rough: u64 = self.members().iter().map(|stat| resident(stat.pid)).sum();
            if rough <= limit_bytes {
                return None;
            }
        }
        Some(self.memory_bytes()).filter(|&bytes| bytes > limit_bytes)
    }

    /// How many members the kernel has killed for lack of memory, by the leaf's own count. Read it before the leaf is
    /// removed with the last member. None without a leaf that counts.
    pub fn oom_kills(&self) -> Option<u64> {
        keyed(&self.leaf()?.join("memory.events"), "oom_kill")
    }

    /// Whether a debugger is attached to any member: then its silence means nothing.
    pub fn traced(&self) -> bool {
        self.members().iter().any(|stat| traced(stat.pid))
    }

    /// How many bytes those members have written so far, to any file, that can still write into the pipe behind this
    /// end. None if the kernel does not tell.
    pub fn written_by_writers(&self, pipe: &impl AsFd) -> Option<u64> {
        // A kernel that does not count reports zero for every process. We ourselves have written, so zero for us
        // means that it does not count.
        let counts = |&bytes: &u64| bytes > 0;
        written(std::process::id() as i32).ok().filter(counts)?;
        let wanted = holder::other_end(pipe)?;
        let mut all = 0;
        for stat in self.members() {
            match (holder::holds(stat.pid, &wanted), written(stat.pid)) {
                (Holds::No, _) => {}
                (Holds::Yes, Ok(bytes)) => all += bytes,
                (Holds::Yes | Holds::Unknown, _) if census::stat(stat.pid).is_err() => {}
                (Holds::Yes, Err(_)) | (Holds::Unknown, _) => return None,
            }
        }
        Some(all)
    }

    fn memory_of_leaf(&self) -> Option<u64> {
        held_by(self.leaf()?)
    }
}

/// How many processes the kernel has killed on this machine because memory ran out. Only a hint, for trees without a
/// leaf: the kernel does not say which processes they were.
pub fn oom_kills_of_the_machine() -> Option<u64> {
    keyed(Path::new("/proc/vmstat"), "oom_kill")
}

/// The number behind a word, in the kernel's files with one `word number` per line.
fn keyed(file: &Path, word: &str) -> Option<u64> {
    let text = procfs::text(file).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(word)?.strip_prefix(' '))?
        .trim()
        .parse()
        .ok()
}

/// What a cgroup with a memory controller holds, without file pages that were not used for long.
fn held_by(leaf: &Path) -> Option<u64> {
    let text = procfs::text(leaf.join("memory.current")).ok()?;
    let all: u64 = text.trim().parse().ok()?;
    let idle = keyed(&leaf.join("memory.stat"), "inactive_file").unwrap_or(0);
    Some(all.saturating_sub(idle))
}

/// The proportional set size, including its part in swap; none if we may not look or the process is gone.
fn proportional(pid: i32) -> Option<u64> {
    let text = procfs::text(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kib = |word: &str| -> Option<u64> {
        text.lines()
            .find_map(|line| line.strip_prefix(word)?.strip_prefix(':'))?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    };
    Some((kib("Pss")? + kib("SwapPss").unwrap_or(0)) * 1_024)
}

fn resident(pid: i32) -> u64 {
    let memory = census::memory(pid);
    (memory.rss_kib + memory.swap_kib) * 1_024
}

/// How many bytes a process has written since its fork, to any file.
fn written(pid: i32) -> io::Result<u64> {
    let text = procfs::text(format!("/proc/{pid}/io"))?;
    let mut lines = text.lines();
    let bytes = lines.find_map(|line| line.strip_prefix("wchar:")?.trim().parse().ok());
    bytes.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn traced(pid: i32) -> bool {
    let text = procfs::text(format!("/proc/{pid}/status")).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("TracerPid:"))
        .is_some_and(|tracer| tracer.trim() != "0")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn key_is_not_mistaken_for_a_longer_one() {
        let dir = std::env::temp_dir().join(format!("mainstay-measure-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("memory.current"), "5000\n").unwrap();
        assert_eq!(held_by(&dir), Some(5_000), "without a memory.stat");
        fs::write(
            dir.join("memory.stat"),
            "anon 1\ninactive_file_old 7\ninactive_file 1200\n",
        )
        .unwrap();
        assert_eq!(held_by(&dir), Some(3_800));
        assert_eq!(keyed(&dir.join("memory.stat"), "file"), None);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(held_by(&dir), None);
    }

    #[test]
    fn the_machine_counts_its_oom_kills() {
        assert!(oom_kills_of_the_machine().is_some());
    }

    #[test]
    fn what_goes_into_a_pipe_counts_as_written() {
        let me = std::process::id() as i32;
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let before = written(me).unwrap();
        rustix::io::write(&writer, &[b'x'; 1_000]).unwrap();
        assert!(written(me).unwrap() >= before + 1_000);
        drop(reader);
        assert!(written(i32::MAX).is_err());
    }

    #[test]
    fn our_own_memory_is_read_and_no_debugger_is_seen() {
        let me = std::process::id() as i32;
        let proportional = proportional(me).unwrap();
        assert!(proportional > 0);
        assert!(!traced(me), "no test runs under a debugger");
    }
}
