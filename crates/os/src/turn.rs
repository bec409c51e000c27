//! The scheduling policy of the keeper: batch instead of normal.
//!
//! A relay that interrupts the process that writes to it finds one message where it could have found twenty, and each
//! wake-up costs more than a message. So the keeper uses `SCHED_BATCH`: on an idle processor it runs at once, on a
//! busy one it runs next, without interrupting. Its share of the processor stays the same.
//!
//! Invariant: no process that we start inherits this policy.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// This process uses `SCHED_BATCH` and had the normal policy before.
static WAITS: AtomicBool = AtomicBool::new(false);

/// From now on this process does not interrupt others when it wakes. A process whose policy is not the normal one
/// keeps it.
pub fn wait_for_it() {
    // SAFETY: a system call without arguments in memory.
    let usual = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER;
    // Only a seccomp filter refuses this; then the normal policy stays.
    if usual && set(libc::SCHED_BATCH) {
        WAITS.store(true, Ordering::Relaxed);
    }
}

/// Restores the normal policy in a child of ours, before it does anything else. Only system calls and no writes,
/// because the child may run in our memory.
pub(crate) fn as_usual() {
    if WAITS.load(Ordering::Relaxed) {
        set(libc::SCHED_OTHER);
    }
}

/// The same for a command that is neither a role of ours nor a server.
pub fn as_usual_in(command: &mut Command) {
    let reset = || {
        as_usual();
        Ok(())
    };
    // SAFETY: between fork and exec there is only that system call, on values of its own.
    unsafe { command.pre_exec(reset) };
}

fn set(policy: i32) -> bool {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: a system call on a value that outlives it.
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) == 0 }
}
