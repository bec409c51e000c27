//! Simulated worlds: the link, and the HTTP front.

#![allow(clippy::unwrap_used, reason = "tests")]

mod front_worlds;
mod link_worlds;
