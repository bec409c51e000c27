//! HTTP: what waits for sockets, names and TLS.
//!
//! What is said over it, and what an answer means, is decided elsewhere.

pub mod client;
pub mod proxy;
pub mod resolve;
pub mod target;
pub mod tls;

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime. Whoever is registered owns its descriptor for as long as it lives.
#[expect(
    deprecated,
    reason = "its successor is unsafe for the sake of types that lie about their descriptor; ours do not"
)]
pub fn registered<T: AsFd + AsRawFd>(inner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(inner, interest)
}
