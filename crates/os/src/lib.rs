//! Everything that touches the kernel. Nothing here makes a decision of the product.
//!
//! Small blocking calls with typed results. This is the only crate with `unsafe`; each block states why it is sound.
//! The crate knows processes, signals, descriptors and cgroups. It does not know MCP.
//!
//! Invariants: a process is pid *and* start time. It is signalled through a pidfd, after its start time was read
//! again. A child inherits none of our descriptors, and neither our signal mask, nor our signal dispositions, nor our
//! scheduling policy.

#[cfg(not(target_os = "linux"))]
compile_error!("mainstay runs on Linux only: it holds servers by pidfds, subreapers and cgroups");

pub mod activation;
pub mod adopter;
pub mod assume;
pub mod cap;
pub mod census;
pub mod channel;
pub mod child;
#[cfg(test)]
mod child_lock;
mod client_watch;
pub mod clock;
pub mod connector;
pub mod dbus;
pub mod descriptors;
mod diag;
pub mod end_tree;
pub mod ended;
pub mod guard;
pub mod holder;
pub mod identity;
mod mark;
pub mod measure;
pub mod memory;
pub mod notice;
pub mod orphans;
pub mod owner;
pub mod packet_socket;
mod procfs;
pub mod record;
pub mod role;
pub mod sender;
pub mod setting;
pub mod shim;
pub mod signals;
#[cfg(test)]
#[path = "../../testkit/src/skip.rs"]
#[allow(dead_code, reason = "only its first part is used here")]
mod skip;
pub mod spawn;
pub mod stdio;
pub mod sweep;
pub mod tier;
pub mod title;
pub mod tracefs;
pub mod tree;
pub mod turn;
mod vfork;
pub mod watch_files;
pub mod wires;
