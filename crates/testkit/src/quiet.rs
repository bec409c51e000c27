//! One lock for all tests of a user on a machine, across test processes and checkouts.
//!
//! Every start of mainstay sweeps what dead sessions of the same user left, anywhere. A test that leaves something on purpose
//! needs the machine to itself, otherwise the start of another test may be "the next start". Only tests know this lock.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

/// A shared or an exclusive place. Dropping it gives it back.
#[derive(Debug)]
pub struct Quiet {
    _lock: File,
}

impl Quiet {
    /// A place beside others.
    pub fn shared() -> io::Result<Self> {
        Self::take(FlockOperation::LockShared)
    }

    /// The only place. Waits until no other test has one.
    pub fn alone() -> io::Result<Self> {
        Self::take(FlockOperation::LockExclusive)
    }

    fn take(how: FlockOperation) -> io::Result<Self> {
        // Named by user, because the sweep of one user does not reach the processes of another.
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
