//! A process by pid and start time, so that a reused pid is never mistaken for it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use mainstay_protocol::ids::{Identity, Realm};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, test_kill_process};

use crate::{census, procfs};

/// This process.
pub fn me() -> io::Result<Identity> {
    of(rustix::process::getpid().as_raw_nonzero().get())
}

/// The process that has this pid now.
pub fn of(pid: i32) -> io::Result<Identity> {
    let start = census::brief(pid)?.start;
    Ok(Identity { pid, start })
}

/// Whether exactly this process exists and is no zombie. Unsure means alive: a `/proc` that hides other users'
/// processes, or a lack of descriptors, proves no death.
pub fn alive(who: Identity) -> bool {
    match census::brief(who.pid) {
        Ok(found) => found.start == who.start && !found.dead,
        Err(_) => there(who.pid),
    }
}

/// Whether the kernel knows any process with that number. This needs neither a descriptor nor a permission.
fn there(pid: i32) -> bool {
    let pid = (pid > 0).then(|| Pid::from_raw(pid)).flatten();
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// The reason why `/proc` cannot be used, if it shows another pid namespace than ours. Then each number in it means
/// another process.
pub fn misnamed() -> Option<String> {
    let mine = rustix::process::getpid().as_raw_nonzero().get();
    // If it cannot be read, the operation that needs it reports that.
    let shown = fs::read_link("/proc/self").ok()?;
    let shown = shown.to_string_lossy();
    (shown != mine.to_string()).then(|| {
        format!(
            "/proc shows another PID namespace: there this process is {shown}, here it is {mine}"
        )
    })
}

/// What the user can do about it.
pub const MISNAMED_HINT: &str =
    "give the namespace a /proc of its own (unshare --mount-proc, bwrap --proc /proc)";

/// Inode of the initial time namespace, in which start times are not shifted (the kernel's `PROC_TIME_INIT_INO`).
const FIRST_TIMENS: u64 = 0xEFFF_FFFA;

/// The boot and the namespaces in which our identities are valid.
pub fn realm() -> io::Result<Realm> {
    let boot = procfs::text("/proc/sys/kernel/random/boot_id")?;
    let pidns = fs::metadata("/proc/self/ns/pid")?.ino();
    let timens = match fs::metadata("/proc/self/ns/time") {
        Ok(meta) => Some(meta.ino()).filter(|&inode| inode != FIRST_TIMENS),
        // A kernel without time namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    Ok(Realm {
        boot: boot.chars().take(8).collect(),
        pidns,
        timens,
    })
}

/// A pidfd of one process, checked against its start time, so that a reused pid cannot mislead us.
#[derive(Debug)]
pub struct Handle {
    /// The process that this is a handle on.
    pub who: Identity,
    fd: OwnedFd,
}

impl Handle {
    /// Opens a handle. Fails with `NotFound` if and only if that process is gone, also if its pid belongs to another
    /// one by now.
    pub fn open(who: Identity) -> io::Result<Self> {
        let pid = Pid::from_raw(who.pid).ok_or(io::ErrorKind::InvalidInput)?;
        let fd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            // No process has the number, or it is now a thread of another process.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => {
                return Err(io::ErrorKind::NotFound.into());
            }
            Err(error) => return Err(error.into()),
        };
        let handle = Self { who, fd };
        // The start time is read after the pidfd is open: from here on the pid cannot be reused unnoticed.
        match of(who.pid) {
            Ok(found) if found == who => Ok(handle),
            Ok(_) => Err(io::ErrorKind::NotFound.into()),
            // `/proc` hides the process from us.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !handle.ended() => {
                Err(io::ErrorKind::PermissionDenied.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a signal to exactly this process.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.fd, signal)?)
    }

    /// Whether it has ended; a zombie has.
    pub fn ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .is_ok_and(|n| n > 0)
    }

    /// Waits at most this long for its end. Returns whether it has ended.
    pub fn wait_ended(&self, within_ms: u64) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let within = Timespec {
            tv_sec: (within_ms / 1_000) as i64,
            tv_nsec: (within_ms % 1_000 * 1_000_000) as i64,
        };
        poll(&mut fds, Some(&within)).is_ok_and(|n| n > 0)
    }

    /// The pidfd; readable once the process has ended.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    //! guards: A process is its pid and its start time, so a process that reuses a pid is never signalled.

    use super::*;

    #[test]
    fn a_wrong_start_time_is_never_signalled() {
        let me = me().unwrap();
        assert!(alive(me));
        let impostor = Identity {
            start: me.start + 1,
            ..me
        };
        assert!(!alive(impostor));
        assert_eq!(
            Handle::open(impostor).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert!(!Handle::open(me).unwrap().ended());
    }

    #[test]
    fn the_realm_is_a_boot_and_a_namespace() {
        let realm = realm().unwrap();
        assert_eq!(realm.boot.len(), 8);
        assert!(realm.pidns > 0);
    }
}
