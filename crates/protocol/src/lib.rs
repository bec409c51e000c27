//! What is said around an MCP server: messages on the wire, events in the ledger, and the limits of both.
//!
//! [`message`] reads the lines of a client and a server and writes the answers that mainstay gives itself; [`event`] is the
//! closed list of facts that may be written down; [`frames`] shows lines to people, [`redact`] hides their secrets. [`ids`],
//! [`clock`], [`time`], [`limits`], [`policy`], [`tier`], [`traffic`] and [`lease`] are the words that all crates share. What follows from
//! a message or an event is decided elsewhere.
//!
//! Invariants: no `unsafe`, no `std`, no `async`, no clock and no I/O; foreign bytes never panic.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod clock;
pub mod copy;
pub mod event;
pub mod frames;
pub mod ids;
pub mod kill_point;
pub mod lease;
pub mod limits;
pub mod message;
pub mod policy;
pub mod redact;
pub mod tier;
pub mod time;
pub mod traffic;
