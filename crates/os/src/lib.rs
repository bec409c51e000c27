//! mainstay's hands: everything that touches the kernel, and nothing that decides.
//!
//! Small blocking calls with typed results. This is the only crate with `unsafe`, each block with its reason. It
//! knows processes, signals, descriptors and cgroups; it knows nothing of MCP.
//!
//! Invariants: a process is pid *and* start time; it is signalled through a pidfd after its start time was read
//! again; a child never inherits a descriptor, signal mask, signal disposition or
//! scheduling policy of ours.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "mainstay is for Linux: it holds servers by pidfds, subreapers and cgroups, and for this system nothing is written yet"
);

pub mod adopter;
#[cfg(test)]
mod apart;
pub mod assume;
pub mod cap;
pub mod census;
pub mod channel;
pub mod child;
mod client_watch;
pub mod clock;
pub mod connector;
pub mod dbus;
pub mod descriptors;
mod diag;
pub mod door;
pub mod ended;
pub mod guard;
pub mod holder;
pub mod identity;
mod lend;
mod made_up;
mod mark;
pub mod measure;
pub mod memory;
pub mod notice;
pub mod orphans;
pub mod owner;
pub mod record;
pub mod role;
pub mod sender;
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
pub mod watch_files;
