//! Never shipped: the base of mainstay's tests with real processes.
//!
//! The [`unruly`] server misbehaves on command. The [`puppet`] is a client process that can itself be killed. The [`census`]
//! proves that a test left no process behind. A [`stage`] gives each test its own HOME.
//!
//! Invariants: every process of a test carries the test's mark, in its arguments or its environment. Nothing waits by the clock:
//! a time-out is only ever a hang stop. The census ends all that a failed test leaves.

pub mod afford;
pub mod built;
pub mod card;
pub mod census;
pub mod client;
pub mod fork;
pub mod httpd;
pub mod killers;
pub mod lab;
pub mod puppet;
pub mod quiet;
pub mod shared_world;
pub mod skip;
pub mod stage;
pub mod terminal;
pub mod unruly;
pub mod wait;
pub mod wire;
#[allow(
    clippy::struct_excessive_bools,
    clippy::unnecessary_wraps,
    clippy::unused_self,
    clippy::format_collect,
    clippy::collapsible_if,
    clippy::single_match_else,
    reason = "a simulated world is many small facts beside each other, and its watchers have one signature"
)]
pub mod world;

/// Here and not beside its code, because the tests of `os` include that file.
#[cfg(test)]
mod skip_tests {
    use crate::skip::{add, by_reason, not_allowed, told};

    #[test]
    fn a_reason_is_listed_once_with_all_its_tests() {
        let list = std::env::temp_dir().join(format!("not-tested-{}", std::process::id()));
        add(&list, "b", "two", "needs\nroot");
        add(&list, "a", "one", "needs root");
        add(&list, "a", "one", "needs root");
        add(&list, "c", "three", "no systemd");
        let text = std::fs::read_to_string(&list).unwrap_or_default();
        drop(std::fs::remove_file(&list));
        let skipped = by_reason(&text);
        assert_eq!(
            told(&skipped),
            "not tested here: a::one, b::two (needs root); c::three (no systemd)"
        );
        assert_eq!(not_allowed(&skipped, ""), ["needs root", "no systemd"]);
        assert_eq!(not_allowed(&skipped, "memory, root"), ["no systemd"]);
        let nothing = "not tested here: nothing, every test could run";
        assert_eq!(told(&by_reason("")), nothing);
    }
}
