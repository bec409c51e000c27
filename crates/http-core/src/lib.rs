//! Every decision about HTTP: [`bridge`] speaks to an MCP server over HTTP, [`serve`] answers clients over HTTP; the other modules
//! are the formats that both read.
//!
//! It refuses to know sockets, TLS and files: its caller waits for those, tells it what came, and does what it asks for.
//!
//! Invariants: no `unsafe`, no `std`, no `async`, no clock and no I/O; foreign bytes never panic.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod base64;
pub mod bridge;
pub mod dns;
pub mod headers;
pub mod lines;
pub mod serve;
pub mod sse;
pub mod words;
