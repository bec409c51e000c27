//! A role with the batch policy is alone with it: a process that it starts has the policy that the role had before.
//! guards: The scheduling policy of our own processes is not inherited by a server.

use crate::common::alone;
use mainstay_os::{role, turn};

/// The policy of this process.
fn policy() -> i32 {
    // SAFETY: a system call without arguments in memory.
    unsafe { libc::sched_getscheduler(0) }
}

/// The policy of a role that had this policy and then asked for batch, and of a role that it starts.
fn policies(before: i32) -> [i32; 2] {
    let child = role::start(|| {
        let priority = libc::sched_param { sched_priority: 0 };
        // SAFETY: a system call on a value that outlives it.
        let given = unsafe { libc::sched_setscheduler(0, before, &raw const priority) };
        assert_eq!(given, 0);
        turn::wait_for_it();
        let started = role::start(|| policy() as u8);
        let started = started.and_then(role::wait).unwrap().unwrap();
        (policy() << 4 | started) as u8
    });
    let both = role::wait(child.unwrap()).unwrap().unwrap();
    [both >> 4, both & 15]
}

#[test]
fn batch_policy_is_not_inherited_by_children() {
    alone(
        this_test!("batch_policy_is_not_inherited_by_children"),
        || {
            let (other, batch, idle) = (libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE);
            assert_eq!(policies(other), [batch, other]);
            // A policy that is not the normal one is kept and inherited.
            assert_eq!(policies(batch), [batch, batch]);
            assert_eq!(policies(idle), [idle, idle]);
        },
    );
}
