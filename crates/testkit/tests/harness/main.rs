//! The harness itself: the census, the puppet and the unruly server do what the tests rely on.

#![allow(clippy::unwrap_used, reason = "tests")]

mod the_census_sees_every_process;
mod the_puppet_obeys;
mod the_unruly_server_does_as_told;
