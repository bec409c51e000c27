//! A role that waits for its turn does so alone: whoever it starts is scheduled as it was before.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::alone;
use mainstay_os::{role, turn};

/// The policy of this process.
fn policy() -> i32 {
    // SAFETY: a system call without arguments in memory.
    unsafe { libc::sched_getscheduler(0) }
}

/// The policy of a role that was scheduled like this and waits for its turn, and of a role that it starts.
fn policies(before: i32) -> [i32; 2] {
    let child = role::start(|| {
        let priority = libc::sched_param { sched_priority: 0 };
        // SAFETY: a system call on a value that lives through it.
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
fn we_wait_and_our_children_do_not() {
    alone("we_wait_and_our_children_do_not", || {
        let (other, batch, idle) = (libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE);
        assert_eq!(policies(other), [batch, other]);
        // Whoever was given another policy hands it on as it is.
        assert_eq!(policies(batch), [batch, batch]);
        assert_eq!(policies(idle), [idle, idle]);
    });
}
