//! Finds out whether the process that adopts our orphans reaps them.
//!
//! A detached guard becomes the child of the nearest subreaper or of PID 1. If that process never waits, every
//! session leaves a zombie. No system call tells whether it waits; this module uses what can be seen from outside.

use crate::census::{self, Stat};
use crate::{clock, procfs};

/// Whether an adopter reaps, and how we know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether a guard may detach.
    pub reaps: bool,
    /// The reason, as a fragment.
    pub why: String,
}

/// The process that adopts orphans where no nearer subreaper does.
pub const INIT: i32 = 1;

const REAPERS: [&str; 18] = [
    "systemd",
    "init",
    "tini",
    "tini-static",
    "dumb-init",
    "docker-init",
    "podman-init",
    "catatonit",
    "s6-svscan",
    "runit",
    "runsvdir",
    "openrc-init",
    "launchd",
    "bash",
    "sh",
    "dash",
    "busybox",
    "conmon",
];
const NON_REAPERS: [&str; 8] = [
    "node", "bun", "deno", "python", "python3", "sleep", "tail", "java",
];
/// Zombies of this age have been waiting for longer than any reaper takes.
const OLD_ZOMBIE_MS: u64 = 300_000;
const MANY_ZOMBIES: usize = 8;
const CHILDREN_SEEN: usize = 16;

/// Judges the process that adopts orphans of this process. Which ancestor is the nearest subreaper cannot be read
/// from outside, so the caller says which process did adopt one.
pub fn judge(adopter: i32) -> Verdict {
    let Ok(stat) = census::stat(adopter) else {
        return Verdict {
            reaps: false,
            why: format!("the adopter (pid {adopter}) cannot be seen"),
        };
    };
    let status = procfs::text(format!("/proc/{adopter}/status")).unwrap_or_default();
    weigh_evidence(&stat, &status, || old_zombies(adopter))
}

/// How many of its adopted children are old zombies. Every start asks, so only the first children are checked. They
/// are the oldest: an adopter that never reaps has its zombies there.
fn old_zombies(adopter: i32) -> usize {
    let adopted = census::adopted(adopter).unwrap_or_default();
    count_of_first(&adopted, |&pid| {
        census::stat(pid).is_ok_and(|stat| stat.dead() && age_ms(&stat) > OLD_ZOMBIE_MS)
    })
}

/// Counts matches among the first entries, and stops once the count can no longer reach [`MANY_ZOMBIES`], because
/// each check costs start-up time.
fn count_of_first<T>(all: &[T], mut such: impl FnMut(&T) -> bool) -> usize {
    let first = &all[..all.len().min(CHILDREN_SEEN)];
    let mut count = 0;
    for (seen, one) in first.iter().enumerate() {
        if count + (first.len() - seen) < MANY_ZOMBIES {
            break;
        }
        count += usize::from(such(one));
    }
    count
}

/// Time since its start; how long it has been dead cannot be seen.
fn age_ms(stat: &Stat) -> u64 {
    clock::since_boot_ms().saturating_sub(clock::ticks_ms(stat.start))
}

/// Weighs the evidence in order. Old zombies are counted only if nothing else has decided.
fn weigh_evidence(adopter: &Stat, status: &str, old_zombies: impl FnOnce() -> usize) -> Verdict {
    let Stat { pid, comm, .. } = adopter;
    let verdict_of = |reaps: bool, why: String| Verdict { reaps, why };
    let has_sigchld = |field: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & (1 << (libc::SIGCHLD - 1)) != 0)
    };
    if has_sigchld("SigIgn:") {
        return verdict_of(
            true,
            format!("pid {pid} ({comm}) ignores SIGCHLD, the kernel reaps for it"),
        );
    }
    if REAPERS.contains(&comm.as_str()) {
        return verdict_of(true, format!("pid {pid} is {comm}"));
    }
    let base = comm
        .split(|c: char| c.is_ascii_digit() || c == '.')
        .next()
        .unwrap_or(comm);
    if NON_REAPERS.contains(&comm.as_str()) || NON_REAPERS.contains(&base) {
        return verdict_of(
            false,
            format!("pid {pid} is {comm}, which does not reap orphans"),
        );
    }
    let zombies = old_zombies();
    if zombies >= MANY_ZOMBIES {
        return verdict_of(
            false,
            format!("pid {pid} ({comm}) has {zombies} old zombies"),
        );
    }
    if adopter.waited_ticks > 0 || adopter.waited_faults > 0 {
        return verdict_of(
            true,
            format!("pid {pid} ({comm}) has waited for children before"),
        );
    }
    // A blocked SIGCHLD says nothing: every process blocks it for a moment while it starts another.
    if has_sigchld("SigCgt:") {
        return verdict_of(true, format!("pid {pid} ({comm}) handles SIGCHLD"));
    }
    verdict_of(
        false,
        format!("pid {pid} ({comm}) has never waited for a child and does not handle SIGCHLD"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adopter(comm: &str, waited: u64) -> Stat {
        Stat {
            pid: 1,
            comm: comm.into(),
            state: b'S',
            ppid: 0,
            pgrp: 1,
            session: 1,
            flags: 0,
            cpu_ticks: 0,
            waited_ticks: 0,
            waited_faults: waited,
            start: 0,
            rss_pages: 0,
        }
    }

    #[test]
    fn zombie_count_stops_when_the_answer_is_known() {
        // (which of the children are old zombies, whether they are many, how many were checked)
        let table: [(&[bool], bool, usize); 6] = [
            (&[], false, 0),
            (&[true; 7], false, 0),
            (&[true; 8], true, 8),
            (&[false; 16], false, 9),
            (&[true; 99], true, 16),
            (&[[false; 16], [true; 16]].concat(), false, 9),
        ];
        for (children, many, looks) in table {
            let mut looked = 0;
            let count = count_of_first(children, |&old| {
                looked += 1;
                old
            });
            assert_eq!(
                (count >= MANY_ZOMBIES, looked),
                (many, looks),
                "{children:?}"
            );
        }
    }

    #[test]
    fn evidence_in_order() {
        let none =
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000000\n";
        let ignores = "SigIgn:\t0000000000010000\n";
        let catches = "SigCgt:\t0000000000010000\n";
        let table = [
            (adopter("sleep", 0), none, 0, false),
            (adopter("node", 99), catches, 0, false),
            (adopter("python3.11", 99), catches, 0, false),
            (adopter("node", 0), ignores, 0, true),
            (adopter("systemd", 0), none, 999, true),
            (adopter("my-init", 5), none, 3, true),
            (adopter("my-init", 5), none, 1_000, false),
            (adopter("my-init", 0), catches, 0, true),
            (adopter("my-init", 0), none, 0, false),
        ];
        for (stat, status, zombies, reaps) in table {
            let verdict = weigh_evidence(&stat, status, || zombies);
            assert_eq!(
                verdict.reaps, reaps,
                "{} {zombies}: {}",
                stat.comm, verdict.why
            );
        }
    }
}
