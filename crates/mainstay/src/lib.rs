//! mainstay: an MCP server lives exactly as long as somebody needs it.
//!
//! This library is for **hosts**: long-lived programs that start MCP servers for one session, job or tab after the other and
//! must not keep them. A [`Lease`] owns servers; when it is closed, dropped, expired, or its owner dies, all of them are ended
//! with everything that they started.
//!
//! ```no_run
#![doc = include_str!("../examples/lease.rs")]
//! ```
//!
//! # The mainstay binary is needed
//!
//! The processes that hold a server (shim, guard and keeper) are forks of one small program that has a single thread. A host
//! usually has many, and a fork of such a process may not go on running code; so the library starts the `mainstay` binary, as a
//! client would. It is looked for in this order: [`LeaseOptions::mainstay`], the variable `MAINSTAY_BIN`, `PATH`. Leases
//! themselves are files below `~/.local/state/mainstay`: opening, renewing and closing one starts no process.
//!
//! Every call blocks: closing for as long as the servers take to end (by default less than 5 s, usually milliseconds). In an
//! async host call it on a thread where blocking is allowed.
//!
//! # What else is here
//!
//! Everything but what is listed below is the inside of the `mainstay` command. It is public only for the command itself and
//! its tests, is not part of the documented surface, and changes without notice.
#![forbid(unsafe_code)]

mod host;

pub use host::{HostError, Lease, LeaseOptions, Server, ServerCommand};
pub use lease::{Closed, EndedServer, Was};
pub use mainstay_core::event::Seen;
pub use mainstay_core::ids::{Identity, LinkId};
pub use mainstay_core::lease::Over;

#[doc(hidden)]
pub mod bridge;
pub mod cli;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod container;
#[doc(hidden)]
pub mod debts;
pub mod demo;
#[doc(hidden)]
pub mod exit;
#[doc(hidden)]
pub mod http;
pub mod keeper;
#[doc(hidden)]
pub mod lease;
#[doc(hidden)]
pub mod ledger;
#[doc(hidden)]
pub mod paths;
#[doc(hidden)]
pub mod profile;
#[doc(hidden)]
pub mod recollection;
#[doc(hidden)]
pub mod registry;
#[doc(hidden)]
pub mod report;
#[doc(hidden)]
pub mod serve;
#[doc(hidden)]
pub mod state;
pub mod sweeper;
#[doc(hidden)]
pub mod trace;
pub mod view;
#[doc(hidden)]
pub mod warm;
#[doc(hidden)]
pub mod watch;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod scratch;
