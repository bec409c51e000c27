//! Load tests: they use the whole machine and count what is left, so they run one at a time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[path = "../support/mod.rs"]
mod support;

mod a_million_small_messages_in_order;
mod another_user_of_the_machine_is_refused;
mod fifty_megabyte_line_in_flat_memory;
mod ten_thousand_orphans_leave_few_zombies;
mod two_hundred_leases_in_a_row_leave_nothing;
mod watch_a_thousand_servers_at_once;

/// One test at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Raises this process's descriptor limit to the maximum until it is dropped.
struct Descriptors {
    before: Rlimit,
}

impl Descriptors {
    fn raised() -> Self {
        let before = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: before.maximum,
            ..before
        };
        setrlimit(Resource::Nofile, raised).unwrap();
        Self { before }
    }

    fn most(&self) -> u64 {
        self.before.maximum.unwrap_or(u64::MAX)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.before).unwrap();
    }
}
