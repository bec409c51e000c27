//! When we get our turn on a processor.
//!
//! A relay that interrupts whoever writes to it finds one message where it could have found twenty, and being called
//! costs more than a message does. So a keeper waits for its turn: it runs at once where nobody else does, and is next
//! where somebody does. It asks for no less of the processor than before.
//!
//! Invariant: nobody whom we start inherits that.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// This process waits for its turn, and was scheduled as usual before.
static WAITS: AtomicBool = AtomicBool::new(false);

/// We interrupt nobody from now on. Whoever has been given another policy than the usual one keeps it.
pub fn wait_for_it() {
    // SAFETY: a system call without arguments in memory.
    let usual = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER;
    // Refused nowhere but by a filter: then we are as eager as everybody.
    if usual && set(libc::SCHED_BATCH) {
        WAITS.store(true, Ordering::Relaxed);
    }
}

/// In a child of ours, before it does anything else: it is scheduled as we were at first. Only system calls, and nothing
/// is written: the child may run on our memory.
pub(crate) fn as_usual() {
    if WAITS.load(Ordering::Relaxed) {
        set(libc::SCHED_OTHER);
    }
}

/// The same for a command that is neither a role nor a server.
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
    // SAFETY: a system call on a value that lives through it.
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) == 0 }
}
