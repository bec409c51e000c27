//! The few calls that need `unsafe`: fork, the end of a forked child, what a child has used, signal dispositions, the alarm.
//!
//! The unruly server needs them (a fork-and-exit chain is a fork without an exec). They are here and not in `os`, because `os` is
//! shipped. Only single-threaded programs (`unruly`) may call [`fork`].

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

/// Ignores signals in this process and in all processes that it makes from now on.
pub fn ignore(signals: &[i32]) {
    for &signal in signals {
        // SAFETY: SIG_IGN installs no handler, so no code of ours runs in signal context.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Restores the default action of a signal. Under `nohup`, all our processes would inherit an ignored SIGHUP.
pub fn heed(signal: i32) {
    // SAFETY: SIG_DFL installs no handler, so no code of ours runs in signal context.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Asks the kernel to end this process (SIGALRM) after some seconds, so that no process made here lives for ever, even if its
/// test was killed.
pub fn expire_after(seconds: u32) {
    // SAFETY: `alarm` has no preconditions; SIGALRM has its default action.
    unsafe { libc::alarm(seconds) };
}

/// Waits for the end of a child. Returns its exit code, none if a signal ended it, and its processor time in nanoseconds, user and system.
pub fn wait_for_cpu(pid: i32) -> io::Result<(Option<i32>, u64)> {
    let mut status = 0;
    // SAFETY: a zeroed rusage is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places are valid for the answer.
    while unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    Ok((code, ns(usage.ru_utime) + ns(usage.ru_stime)))
}
