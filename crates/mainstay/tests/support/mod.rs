//! Shared by the tests: home directories and stages, sessions with servers of several kinds, and commands whose output is read
//! line by line.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test program uses its part, and a test fails by panicking"
)]

pub mod at_terminal;
pub mod bridged;
pub mod configs;
pub mod engine;
pub mod front;
pub mod home;
pub mod keepers;
pub mod leased;
pub mod play;
pub mod scene;
pub mod tapping;
pub mod watching;

/// The name of a test in this module (`module_path!()`), in the form for `--exact`.
pub fn test_name(module: &str, test: &str) -> String {
    let within = module.split_once("::").map_or(module, |(_, within)| within);
    format!("{within}::{test}")
}
