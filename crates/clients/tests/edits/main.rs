//! What adopt and release do to config files, through the public interface only.

#![allow(clippy::unwrap_used, reason = "tests")]

mod any_config;
mod fixtures;
mod hooks;
mod nasty_inputs;
mod places_and_policies;
mod preview;
mod remote_entries;
#[path = "../../../testkit/src/skip.rs"]
#[allow(dead_code, reason = "some of it is for the testkit only")]
mod skip;
mod support;
mod writing;
