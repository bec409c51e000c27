//! Who else is starting things: one lock for all tests of a user on a machine, across test processes and checkouts.
//!
//! Every start of mainstay sweeps what dead sessions of the same user left, anywhere. A test that leaves something on purpose
//! needs the machine to itself, else somebody else's start may be "the next start". Only tests know this lock.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

/// A place among the others, or the only one. Dropping it gives it back.
#[derive(Debug)]
pub struct Quiet {
    _lock: File,
}

impl Quiet {
    /// Beside others.
    pub fn shared() -> io::Result<Self> {
        Self::take(FlockOperation::LockShared)
    }

    /// Alone; waits until nobody else has a place.
    pub fn alone() -> io::Result<Self> {
        Self::take(FlockOperation::LockExclusive)
    }

    fn take(how: FlockOperation) -> io::Result<Self> {
        // Named by user: another user's sweep does not reach our processes, nor ours theirs.
        let name = format!("mainstay-test-{}.lock", geteuid().as_raw());
        let lock = File::options()
            .create(true)
            .append(true)
            .open(std::env::temp_dir().join(name))?;
        while let Err(error) = flock(&lock, how) {
            if error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
        }
        Ok(Self { _lock: lock })
    }
}
