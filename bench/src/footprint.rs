//! What a process costs: processor time and memory, as the kernel tells it.

use std::fs;
use std::io;

/// Processor time of these processes together, in nanoseconds. They have one thread each.
pub fn cpu_ns(pids: &[i32]) -> io::Result<u64> {
    pids.iter().map(|&pid| cpu_of(pid)).sum()
}

fn cpu_of(pid: i32) -> io::Result<u64> {
    // Not the 10 ms ticks of `stat`: the scheduler's own nanoseconds.
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    text.split_ascii_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok())
        .ok_or_else(|| io::Error::other("/proc/PID/schedstat has no time in it"))
}

/// Whether a process waits for something to happen.
pub fn sleeps(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:\tS"))
}

/// Memory, in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Pages that no other process has.
    pub private: u64,
    /// Heap, stacks, changed data and the record: what exists because of these processes and for no other reason.
    pub own: u64,
    /// Every page, divided by the number of processes that have it.
    pub pss: u64,
    /// Page tables, which are in neither of the others.
    pub tables: u64,
}

impl Memory {
    /// Of one process.
    pub fn of(pid: i32) -> io::Result<Self> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(Self {
            private: field(&rollup, "Private_Clean:") + field(&rollup, "Private_Dirty:"),
            // By shares: what shim, guard and keeper have from each other by fork is counted once in their sum.
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

/// What these processes would hold if they were alone on the machine, in KiB: their own pages, and pages of files as many as the largest of them has.
/// Unlike PSS it does not become less because others run the same program.
pub fn alone(pids: &[i32]) -> u64 {
    let mut own = 0;
    let mut files = 0;
    for pid in pids {
        // Whoever has ended meanwhile holds nothing.
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
