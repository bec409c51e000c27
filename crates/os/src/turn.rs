//! When we get our turn on a processor.
//!
//! A relay that interrupts whoever writes to it finds one message where it could have found twenty, and being called
//! costs more than a message does. So a keeper waits for its turn: it runs at once where nobody else does, and is next
//! where somebody does. It asks for no less of the processor than before.
//!
//! Invariant: nobody whom we start inherits that.

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

fn set(policy: i32) -> bool {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: a system call on a value that lives through it.
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role;

    /// The policy of a child of this one's child, if each does as ours do.
    fn policies(before: i32) -> Option<i32> {
        let child = role::start(|| {
            set(before);
            wait_for_it();
            // SAFETY: as above.
            let own = unsafe { libc::sched_getscheduler(0) } as u8;
            let child = role::start(|| {
                // SAFETY: as above.
                unsafe { libc::sched_getscheduler(0) as u8 }
            });
            let inherited = child.and_then(role::wait).ok().flatten().unwrap_or(15) as u8;
            own << 4 | inherited
        });
        role::wait(child.unwrap()).unwrap()
    }

    #[test]
    fn we_wait_and_our_children_do_not() {
        let (other, batch, idle) = (libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE);
        assert_eq!(policies(other), Some(batch << 4 | other));
        // Whoever was given another policy hands it on as it is.
        assert_eq!(policies(batch), Some(batch << 4 | batch));
        assert_eq!(policies(idle), Some(idle << 4 | idle));
    }
}
