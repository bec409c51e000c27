//! HTTP: what waits for sockets, names and TLS.
//!
//! What is said over it, and what an answer means, is decided elsewhere.

pub mod client;
pub mod resolve;
pub mod target;
pub mod tls;
