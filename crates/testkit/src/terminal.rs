//! A terminal that can hang up.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The master side. Dropping it is the hang-up: the kernel sends SIGHUP to the session leader and to the foreground group.
#[derive(Debug)]
pub struct Terminal {
    master: OwnedFd,
}

impl Terminal {
    /// A fresh one.
    pub fn open() -> io::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        Ok(Self { master })
    }

    /// The slave's path.
    pub fn path(&self) -> io::Result<PathBuf> {
        let name = ptsname(&self.master, Vec::new())?;
        Ok(PathBuf::from(name.to_string_lossy().into_owned()))
    }

    /// Its keyboard.
    pub fn keyboard(&self) -> io::Result<OwnedFd> {
        self.master.try_clone()
    }

    /// Hangs up.
    pub fn hang_up(self) {
        drop(self.master);
    }
}
