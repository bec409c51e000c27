//! The clone itself: `clone3` with a pidfd and, if wanted, straight into a cgroup; plain `fork` where it is refused.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::child::{self, Image};

const CLONE_PIDFD: u64 = 0x0000_1000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// A child that was just made.
#[derive(Debug)]
pub struct Born {
    pub pid: i32,
    pub pidfd: OwnedFd,
}

/// Starts a child that becomes the server; with a gate (its read and write end) it waits there first.
pub fn start(
    image: &Image,
    report: &OwnedFd,
    cgroup: Option<BorrowedFd<'_>>,
    gate: Option<(&OwnedFd, &OwnedFd)>,
) -> io::Result<Born> {
    let parent = rustix::process::getpid().as_raw_nonzero().get();
    let gate = gate.map(|(wait, open)| (wait.as_raw_fd(), open.as_raw_fd()));
    let closed = Closed::now();
    let made = clone(0, cgroup);
    if let Ok(Side::Child) = made {
        child::become_server(image, report.as_raw_fd(), gate, parent);
    }
    drop(closed);
    match made? {
        Side::Parent(born) => Ok(born),
        Side::Child => Err(io::ErrorKind::Other.into()),
    }
}

/// Which side of a clone we are on.
pub enum Side {
    Parent(Born),
    Child,
}

/// Clones this process. On the child's side nothing may be called but what a signal handler may call.
pub fn clone(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Side> {
    let mut pidfd: RawFd = -1;
    let mut args = [0u64; 11];
    args[0] = flags | CLONE_PIDFD;
    args[1] = (&raw mut pidfd) as u64;
    args[4] = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args[0] |= CLONE_INTO_CGROUP;
        args[10] = cgroup.as_raw_fd() as u64;
    }
    // The size is a version: 64 bytes are known since 5.3, the cgroup field needs 88 (5.7).
    let size = if cgroup.is_some() { 88 } else { 64 };
    // SAFETY: the arguments follow `struct clone_args`; without CLONE_VM and with no stack given the child runs on
    // its own copy of everything, as after fork, and we have one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size) };
    match pid {
        0 => Ok(Side::Child),
        1.. => Ok(Side::Parent(Born {
            pid: pid as i32,
            // SAFETY: the kernel has put a new descriptor there, which nobody else knows of.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        })),
        _ => {
            let error = io::Error::last_os_error();
            let refused = matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM));
            if refused && flags == 0 && cgroup.is_none() {
                fork()
            } else {
                Err(error)
            }
        }
    }
}

fn fork() -> io::Result<Side> {
    // SAFETY: we have one thread, so the child's copy of the process is consistent.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => Ok(Side::Child),
        1.. => {
            // Only we reap it, so the pid is still its own.
            let pid_known = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
            let pidfd = pidfd_open(pid_known, PidfdFlags::empty())?;
            Ok(Side::Parent(Born { pid, pidfd }))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// All signals blocked, so that no handler of ours ever runs in the child; as before once dropped.
pub struct Closed {
    before: libc::sigset_t,
}

impl Closed {
    pub fn now() -> Self {
        // SAFETY: both sets are valid for writing; a zeroed one is a valid empty set.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        // SAFETY: `before` is what the kernel gave us.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}
