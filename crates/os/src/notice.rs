//! Sends this process a signal whenever an entry of one directory is created, removed or renamed.
//!
//! It uses dnotify, not inotify: a user has 128 inotify instances for all programs together, and one link must not
//! take one of them. The signal says neither what has changed nor how often; its receiver reads the directory. If the
//! kernel does not have dnotify, opening fails, and the caller reads the directory now and then.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;

/// The signal that reports a change. It ends a process that does not block it.
pub const SIGNAL: i32 = libc::SIGIO;

const DN_CREATE: libc::c_uint = 0x4;
const DN_DELETE: libc::c_uint = 0x8;
const DN_RENAME: libc::c_uint = 0x10;
const DN_MULTISHOT: libc::c_uint = 0x8000_0000;

/// A directory that this process watches as long as this value lives.
#[derive(Debug)]
pub struct Notice {
    _directory: OwnedFd,
}

impl Notice {
    /// Watches a directory from now on. The caller must have blocked [`SIGNAL`].
    pub fn on(directory: OwnedFd) -> io::Result<Self> {
        let what = DN_CREATE | DN_DELETE | DN_RENAME | DN_MULTISHOT;
        // SAFETY: the descriptor is open, and the argument is a plain integer.
        if unsafe { libc::fcntl(directory.as_raw_fd(), libc::F_NOTIFY, what) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            _directory: directory,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::Signals;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::fs::{self, File};

    fn told(signals: &Signals) -> bool {
        let mut fds = [PollFd::new(signals, PollFlags::IN)];
        let within = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // dnotify signals before the call that changed the directory returns.
        if poll(&mut fds, Some(&within)).unwrap() == 0 {
            return false;
        }
        let first = signals.read().unwrap();
        while signals.read().unwrap().is_some() {}
        first.is_some_and(|received| received.number == SIGNAL)
    }

    #[test]
    fn created_removed_and_renamed_entries_raise_the_signal() {
        let _lock = crate::child_lock::with_children();
        let place = std::env::temp_dir().join(format!("mainstay-notice-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        // The signal goes to the process and is blocked in this thread only. Another thread of the test runner would
        // take it and end the process, so the test runs in a child.
        let pid = crate::role::start(|| {
            let signals = Signals::open(&[SIGNAL]).unwrap();
            let directory = File::open(&place).unwrap();
            let notice = Notice::on(directory.into()).unwrap();
            let name = |name: &str| place.join(name);
            fs::write(name("a"), "").unwrap();
            let created = told(&signals);
            fs::hard_link(name("a"), name("b")).unwrap();
            let linked = told(&signals);
            fs::rename(name("a"), name("c")).unwrap();
            let renamed = told(&signals);
            fs::remove_file(name("c")).unwrap();
            let removed = told(&signals);
            let quiet = !told(&signals);
            drop(notice);
            fs::remove_file(name("b")).unwrap();
            let over = !told(&signals);
            u8::from(![created, linked, renamed, removed, quiet, over].contains(&false))
        });
        let code = crate::role::wait(pid.unwrap()).unwrap();
        fs::remove_dir_all(&place).unwrap();
        assert_eq!(code, Some(1));
    }
}
