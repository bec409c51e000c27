//! The few calls that only `unsafe` can make: fork, the end of a forked child, signal dispositions, the alarm.
//!
//! Misbehaving needs them (a comet is a fork without an exec), so they live here, in one file, and not in `os`,
//! which is shipped. Only single-threaded programs (`unruly`) may call [`fork`].

use std::io;

/// Which side of a fork we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The new process.
    Child,
    /// The old one, and the pid of the new one.
    Parent(i32),
}

/// Forks. The child keeps the arguments and the environment, and with them the test's mark.
pub fn fork() -> io::Result<Side> {
    // SAFETY: the callers are single-threaded programs, so the child may use every lock and the allocator.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => Ok(Side::Parent(pid)),
    }
}

/// Ends this process at once, without any clean-up that belongs to the process that it was forked from.
pub fn leave(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Ignores signals, in this process and in everybody it makes from now on.
pub fn ignore(signals: &[i32]) {
    for &signal in signals {
        // SAFETY: SIG_IGN installs no handler, so no code of ours runs in signal context.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Gives a signal its default meaning again: whoever runs the tests under `nohup` has had hang-ups ignored for all of us.
pub fn heed(signal: i32) {
    // SAFETY: SIG_DFL installs no handler, so no code of ours runs in signal context.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Asks the kernel to end this process (SIGALRM) after some seconds: nobody made here lives for ever, even if the
/// test that wanted it was itself killed.
pub fn expire_after(seconds: u32) {
    // SAFETY: `alarm` has no preconditions; SIGALRM has its default action.
    unsafe { libc::alarm(seconds) };
}
