//! Descriptors that the runtime waits for.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime. The returned value owns the descriptor.
#[expect(
    deprecated,
    reason = "its successor is unsafe for the sake of types that lie about their descriptor; ours do not"
)]
pub fn registered<T: AsFd + AsRawFd>(inner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(inner, interest)
}
