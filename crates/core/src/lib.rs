//! mainstay's decisions, and nothing else.
//!
//! Every choice that depends on order or time is made here as `(now, input) → outputs`: which line goes
//! where, who still waits for an answer, which rung of the stop ladder comes next. This crate reads no clock,
//! opens no file, knows no process but by number, and allocates only what [`limits`](mainstay_protocol::limits) allow.
//!
//! Invariants: no `unsafe`, no `std`, no `async`; foreign bytes never panic.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod link;
pub mod reap;
pub mod record;
pub mod relay;
pub mod senders;
pub mod server;
pub mod verdict;
