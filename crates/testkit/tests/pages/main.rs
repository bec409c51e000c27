//! Checks that the pages are true of the code and of its dependencies.

#![allow(clippy::unwrap_used, reason = "tests")]

mod architecture;
mod crates;
mod dependencies;
mod files;
mod invariants;
mod life_matrix;
mod words;
