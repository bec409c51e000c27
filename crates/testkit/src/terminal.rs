//! A terminal that can hang up.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The master side. Dropping it hangs up: the kernel sends SIGHUP to the session leader and to the foreground group.
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

    /// The slave, opened in this process. It does not become this process's terminal, because a test program that leads a session
    /// (started by `setsid`) would itself get the SIGHUP of the hang-up.
    pub fn slave(&self) -> io::Result<File> {
        File::options()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NOCTTY.bits() as i32)
            .open(self.path()?)
    }

    /// The write end of its keyboard.
    pub fn keyboard(&self) -> io::Result<OwnedFd> {
        self.master.try_clone()
    }

    /// Hangs up.
    pub fn hang_up(self) {
        drop(self.master);
    }
}
