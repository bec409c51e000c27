//! Waiting for new events, by the kernel's word (inotify) and without polling.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;

use crate::paths::Paths;
use crate::state::Location;

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Something was written.
    Written,
    /// The reader of our output went away.
    ReaderGone,
    /// The event directory was removed.
    LedgerGone,
}

/// A watch on the event directory. Open it before the first reading, and nothing falls between the two.
#[derive(Debug)]
pub struct LedgerWatch {
    fd: OwnedFd,
    directory: Location,
}

impl LedgerWatch {
    /// Begins to watch; the directory must exist.
    pub fn open(paths: &Paths) -> io::Result<Self> {
        Self::of(paths.events())
    }

    /// The same for another directory of ours.
    pub fn of(directory: Location) -> io::Result<Self> {
        let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let watched = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::DELETE_SELF
            | inotify::WatchFlags::ONLYDIR;
        inotify::add_watch(&fd, directory.open()?.through(), watched)?;
        Ok(Self { fd, directory })
    }

    /// Also wakes when something in this directory is removed.
    pub fn and_removals_in(&self, directory: &Location) -> io::Result<()> {
        let watched = inotify::WatchFlags::DELETE
            | inotify::WatchFlags::MOVED_FROM
            | inotify::WatchFlags::ONLYDIR;
        inotify::add_watch(&self.fd, directory.open()?.through(), watched)?;
        Ok(())
    }

    /// Waits until there may be something to read, or until the reader is gone.
    pub fn wait(&self, output: BorrowedFd<'_>) -> io::Result<Wake> {
        loop {
            // No event is requested for the output: the kernel reports errors and hang-ups anyway.
            let mut fds = [
                PollFd::new(&self.fd, PollFlags::IN),
                PollFd::from_borrowed_fd(output, PollFlags::empty()),
            ];
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if fds[1]
                .revents()
                .intersects(PollFlags::ERR | PollFlags::NVAL)
            {
                return Ok(Wake::ReaderGone);
            }
            if fds[0].revents().contains(PollFlags::IN) {
                self.drain()?;
                return Ok(if self.directory.is_there() {
                    Wake::Written
                } else {
                    Wake::LedgerGone
                });
            }
        }
    }

    /// What exactly happened does not matter: the reader looks at all files anyway.
    fn drain(&self) -> io::Result<()> {
        let mut buffer = [0u8; 4096];
        loop {
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use crate::scratch::Scratch;
    use mainstay_protocol::event::{OpeningSilent, What};
    use mainstay_protocol::ids::LinkId;
    use std::os::fd::AsFd;

    #[test]
    fn a_wait_ends_for_each_of_its_reasons() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let watch = LedgerWatch::open(&paths).unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let silent = What::OpeningSilent(OpeningSilent { ms: 1 });
        Ledger::open(&paths).record(LinkId(1), "a", silent);
        assert_eq!(watch.wait(writer.as_fd()).unwrap(), Wake::Written);
        std::fs::remove_dir_all(paths.events()).unwrap();
        assert_eq!(watch.wait(writer.as_fd()).unwrap(), Wake::LedgerGone);
        drop(reader);
        assert_eq!(watch.wait(writer.as_fd()).unwrap(), Wake::ReaderGone);
    }
}
