//! mainstay's knowledge of clients: where their config files are, and how one entry is sent through mainstay and back.
//!
//! [`profile`] says where each client's files are and what they look like, [`place`] finds them, [`plan`] decides from bytes what will become of each
//! entry, [`mod@write`] puts the new bytes into the file. Design: `docs/design/adopt.md`.
//!
//! Invariants: every byte outside of an adopted entry's command and arguments is unchanged; releasing gives the old bytes back from the file alone; no byte
//! is lost, whatever ends the write. This crate starts no process, prints nothing, and asks nothing.

#![forbid(unsafe_code)]

pub mod behaviour;
mod diff;
pub mod explain;
mod form;
pub mod format;
pub mod limits;
pub mod node;
pub mod place;
pub mod plan;
pub mod policy;
pub mod profile;
pub mod refusal;
pub mod speaks;
pub mod stateful;
pub mod write;
