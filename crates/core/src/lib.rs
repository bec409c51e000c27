//! mainstay's decisions, and nothing else.
//!
//! Every choice that depends on order or time is made here as `(now, input) → outputs`: which line goes
//! where, who still waits for an answer, which rung of the stop ladder comes next. This crate reads no clock,
//! opens no file, knows no process but by number, and allocates only what [`limits`] allow.
//!
//! Invariants: no `unsafe`, no `std`, no `async`; foreign bytes never panic.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod clock;
mod copy;
pub mod event;
pub mod frames;
pub mod http;
pub mod ids;
pub mod kill_point;
pub mod lease;
pub mod limits;
pub mod link;
pub mod message;
pub mod policy;
pub mod record;
pub mod redact;
pub mod relay;
pub mod senders;
pub mod serve;
pub mod server;
pub mod tier;
pub mod verdict;
