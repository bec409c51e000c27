//! mainstay's hands: everything that touches the kernel, and nothing that decides.
//!
//! Small blocking calls with typed results. This is the only crate with `unsafe`, each block with its reason. It
//! knows processes, signals, descriptors and cgroups; it knows nothing of MCP.
//!
//! Invariants: a process is pid *and* start time; it is signalled through a pidfd after its start time was read
//! again; a child never inherits a descriptor, signal mask or signal disposition of ours.

pub mod census;
pub mod clock;
pub mod dbus;
pub mod identity;
pub mod spawn;
pub mod sweep;
pub mod tier;
pub mod tree;
