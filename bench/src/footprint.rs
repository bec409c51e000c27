//! What a process costs in processor time and memory, as the kernel reports it.

use std::fs;
use std::io;

/// Processor time of these processes together, in nanoseconds. They have one thread each.
pub fn cpu_ns(pids: &[i32]) -> io::Result<u64> {
    pids.iter().map(|&pid| cpu_of(pid)).sum()
}

fn cpu_of(pid: i32) -> io::Result<u64> {
    // The scheduler's own nanoseconds, because `stat` has only ticks of 10 ms.
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    text.split_ascii_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok())
        .ok_or_else(|| io::Error::other("/proc/PID/schedstat has no time in it"))
}

pub fn sleeps(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:\tS"))
}

/// Memory, in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Pages that no other process has.
    pub private: u64,
    /// Heap, stacks, changed data and the record: memory that exists only because of these processes.
    pub own: u64,
    /// Every page, divided by the number of processes that have it.
    pub pss: u64,
    /// Page tables, which the other two do not include.
    pub tables: u64,
}

impl Memory {
    pub fn of(pid: i32) -> io::Result<Self> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(Self {
            private: field(&rollup, "Private_Clean:") + field(&rollup, "Private_Dirty:"),
            // By shares: memory that shim, guard and keeper share by fork counts once in their sum.
            own: field(&rollup, "Pss_Anon:") + field(&rollup, "Pss_Shmem:"),
            pss: field(&rollup, "Pss:"),
            tables: field(&status, "VmPTE:"),
        })
    }
}

impl std::iter::Sum for Memory {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            private: sum.private + one.private,
            own: sum.own + one.own,
            pss: sum.pss + one.pss,
            tables: sum.tables + one.tables,
        })
    }
}

/// The memory of these processes if they were alone on the machine, in KiB: their own pages, and the file pages of the largest of
/// them. Unlike PSS, it does not shrink when other processes run the same program.
pub fn alone(pids: &[i32]) -> u64 {
    let mut own = 0;
    let mut files = 0;
    for pid in pids {
        // A process that has ended meanwhile holds nothing.
        own += Memory::of(*pid).unwrap_or_default().own;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        files = files.max(field(&status, "RssFile:"));
    }
    own + files
}

fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_cost_something() {
        let me = std::process::id() as i32;
        let memory = Memory::of(me).unwrap();
        assert!(memory.private > 0 && memory.pss >= memory.private && memory.tables > 0);
        assert!(alone(&[me]) > memory.own && alone(&[]) == 0);
        assert!(cpu_ns(&[me, me]).unwrap() > 0);
    }
}
