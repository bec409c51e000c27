//! The clone itself: `clone3` with a pidfd and, if wanted, straight into a cgroup; plain `fork` if `clone3` is
//! refused.
//!
//! A child that has nothing to wait for runs in our memory until its exec. A child that waits at a gate, or becomes
//! an init, gets a copy. The [witness](super::witness) makes the process that becomes the server, and waits for it.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::child::{self, Image};
use super::witness::Witness;
use crate::role;
use crate::vfork::{self, CloneArgs};

const CLONE_PIDFD: u64 = 0x0000_1000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// A child that was just made.
#[derive(Debug)]
pub struct NewChild {
    pub pid: i32,
    pub pidfd: OwnedFd,
}

/// Starts a child that becomes the server, and its witness. With a gate (its read and write end) the child waits
/// there first.
pub fn start(
    image: &Image,
    report: &OwnedFd,
    cgroup: Option<BorrowedFd<'_>>,
    gate: Option<(&OwnedFd, &OwnedFd)>,
) -> io::Result<(NewChild, Witness)> {
    let gate = gate.map(|(wait, open)| (wait.as_raw_fd(), open.as_raw_fd()));
    Witness::start(|| {
        let work = Work {
            image,
            report: report.as_raw_fd(),
            gate,
            parent: rustix::process::getpid().as_raw_nonzero().get(),
        };
        if gate.is_none()
            && let Ok(born) = vfork_child(&work, cgroup)
        {
            return Ok(born);
        }
        match clone(0, cgroup)? {
            Side::Parent(born) => Ok(born),
            Side::Child => work.perform(),
        }
    })
}

/// What a child needs to become the server.
pub struct Work<'a> {
    pub image: &'a Image,
    pub report: RawFd,
    pub gate: Option<(RawFd, RawFd)>,
    pub parent: i32,
}

impl Work<'_> {
    pub fn perform(&self) -> ! {
        child::become_server(self.image, self.report, self.gate, self.parent)
    }

    /// Runs it in a child in our own memory. Returns once the child has executed or exited. `size` says how many
    /// bytes of the arguments the kernel reads.
    pub fn vfork(&self, args: CloneArgs, size: usize) -> io::Result<i32> {
        extern "C" fn perform(work: *mut c_void) -> ! {
            // SAFETY: it is the `Work` below; the parent, which owns it, is suspended.
            unsafe { &*work.cast::<Work<'_>>() }.perform()
        }
        // SAFETY: becoming the server is nothing but system calls on memory that was prepared for them.
        unsafe { vfork::start(args, size, perform, (&raw const *self).cast_mut().cast()) }
    }
}

/// Starts a child in our own memory, with a pidfd and, if wanted, in a cgroup.
fn vfork_child(work: &Work<'_>, cgroup: Option<BorrowedFd<'_>>) -> io::Result<NewChild> {
    let mut pidfd: RawFd = -1;
    let (args, size) = arguments(0, cgroup, &mut pidfd);
    let pid = work.vfork(args, size)?;
    Ok(NewChild {
        pid,
        // SAFETY: the kernel has put a new descriptor there, and no other value owns it.
        pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
    })
}

/// The arguments of a clone, and how many of their bytes count. The size is a version: 64 bytes are known since Linux
/// 5.3, the cgroup field needs 88 (5.7).
fn arguments(flags: u64, cgroup: Option<BorrowedFd<'_>>, pidfd: &mut RawFd) -> (CloneArgs, usize) {
    let mut args = [0u64; 11];
    args[0] = flags | CLONE_PIDFD;
    args[1] = (&raw mut *pidfd) as u64;
    args[4] = libc::SIGCHLD as u64;
    let Some(cgroup) = cgroup else {
        return (args, 64);
    };
    args[0] |= CLONE_INTO_CGROUP;
    args[10] = cgroup.as_raw_fd() as u64;
    (args, 88)
}

/// The side of a clone that we are on.
pub enum Side {
    Parent(NewChild),
    Child,
}

/// Clones this process. The child may only call what a signal handler may call.
pub fn clone(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Side> {
    let mut pidfd: RawFd = -1;
    let (args, size) = arguments(flags, cgroup, &mut pidfd);
    // SAFETY: the arguments follow `struct clone_args`. Without CLONE_VM and without a stack the child runs on its
    // own copy of everything, as after fork, and we have one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size) };
    match pid {
        0 => Ok(Side::Child),
        1.. => Ok(Side::Parent(NewChild {
            pid: pid as i32,
            // SAFETY: the kernel has put a new descriptor there, and no other value owns it.
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
            let known = Pid::from_raw(pid).ok_or(io::Error::from(io::ErrorKind::InvalidInput));
            let held = known.and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::empty())?));
            // An error means that nothing was started, so the child must not live on.
            let pidfd = held.inspect_err(|_| role::end(pid))?;
            Ok(Side::Parent(NewChild { pid, pidfd }))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Blocks all signals, so that no handler of ours ever runs in the child; restores the mask when dropped.
pub struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
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

impl Drop for SignalsBlocked {
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
