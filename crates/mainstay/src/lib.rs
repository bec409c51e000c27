//! mainstay manages the life of MCP servers: they end with their client, with everything that they started.
//!
//! This library is for **hosts**: long-running programs that start MCP servers for one session, job or tab after the other. A
//! [`Lease`] owns servers. When it is closed, dropped or expired, or when its owner dies, all its servers are ended with
//! everything that they started.
//!
//! ```no_run
#![doc = include_str!("../examples/lease.rs")]
//! ```
//!
//! # The mainstay binary is needed
//!
//! The processes that contain a server (shim, guard and keeper) are forks of one small program with a single thread. A host
//! usually has many threads, and a fork of such a process cannot safely run more code. So the library starts the `mainstay`
//! binary, as a client would. It is searched in this order: [`LeaseOptions::mainstay`], the variable `MAINSTAY_BIN`, `PATH`.
//! Leases themselves are files below `~/.local/state/mainstay`: opening, renewing and closing one starts no process.
//!
//! Every call blocks. Closing blocks until the servers have ended (by default less than 5 s, usually milliseconds). In an async
//! host, make these calls on a thread that may block.
//!
//! # What else is here
//!
//! All other public modules belong to the `mainstay` command. They are public only because the command needs them, they are not
//! documented, and they change without notice.
#![forbid(unsafe_code)]

mod host;

pub use host::{HostError, Lease, LeaseOptions, Server, ServerCommand};
pub use mainstay_keeper::lease::{Closed, EndedServer, Was};
pub use mainstay_protocol::event::Seen;
pub use mainstay_protocol::ids::{Identity, LinkId};
pub use mainstay_protocol::lease::Over;

#[doc(hidden)]
pub mod cli;

#[cfg(test)]
mod reference;
