//! Servers and signals outside of mainstay: `watch` shows servers that start and end, `trace` shows which process sends a signal,
//! `reap` finds servers without a client and ends them on request.
//!
//! This crate never changes a server that mainstay started. Only the `mainstay` command uses its modules, so fields whose names say
//! everything have no documentation.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod reap;
#[doc(hidden)]
pub mod trace;
#[doc(hidden)]
pub mod watch;
