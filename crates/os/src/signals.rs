//! Signals that are read from a descriptor, with their sender.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Signals that end a process unless it catches them. The shim passes them on; the keeper stops when it gets one.
pub const ENDING: [i32; 6] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// A signal that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The signal number.
    pub number: i32,
    /// `si_code`.
    pub code: i32,
    /// The sender's pid.
    pub pid: i32,
    /// The sender's uid.
    pub uid: u32,
}

/// A descriptor from which blocked signals are read.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks these signals for this thread, which must be the only one, and opens a non-blocking descriptor for
    /// them.
    pub fn open(numbers: &[i32]) -> io::Result<Self> {
        let set = set_of(numbers);
        // SAFETY: `set` is initialised; the old mask is not asked for.
        if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } != 0
        {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor, and no other value owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next pending signal, if any.
    pub fn read(&self) -> io::Result<Option<Received>> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        // SAFETY: the buffer is exactly one record long and writable.
        let n = unsafe {
            libc::read(
                self.0.as_raw_fd(),
                info.as_mut_ptr().cast(),
                size_of::<libc::signalfd_siginfo>(),
            )
        };
        if n < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock {
                Ok(None)
            } else {
                Err(error)
            };
        }
        // SAFETY: zeroed at first and then filled by the kernel. Every bit pattern is valid for its integer fields.
        let info = unsafe { info.assume_init() };
        Ok(Some(Received {
            number: info.ssi_signo as i32,
            code: info.ssi_code,
            pid: info.ssi_pid as i32,
            uid: info.ssi_uid,
        }))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Ignores SIGPIPE: writing to a closed pipe shall return an error and not end us.
pub fn ignore_pipe() {
    // SAFETY: SIG_IGN is a valid disposition for SIGPIPE.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Ignores SIGXFSZ: writing to a file that may not grow (`ulimit -f`) shall return an error and not end us. `main`
/// calls this first, so that it holds in all our processes; a server gets the default again.
pub fn ignore_file_size() {
    // SAFETY: SIG_IGN is a valid disposition for SIGXFSZ.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Ends this process by a signal, so that the parent sees the true cause. Returns only if the signal does not end it.
pub fn die_by(number: i32) {
    let set = set_of(&[number]);
    // SAFETY: default disposition and an initialised set; the process may end inside `raise`, which is the purpose.
    unsafe {
        libc::signal(number, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(number);
    }
}

fn set_of(numbers: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before it is read; the numbers are valid signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &number in numbers {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_with_its_sender() {
        let signals = Signals::open(&[libc::SIGUSR1]).unwrap();
        assert_eq!(signals.read().unwrap(), None);
        // SAFETY: SIGUSR1 is blocked in this thread, so it stays pending until it is read.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) };
        let got = signals.read().unwrap().unwrap();
        assert_eq!(
            (got.number, got.pid),
            (libc::SIGUSR1, std::process::id() as i32)
        );
    }

    #[test]
    fn queued_signal_carries_the_pid_its_sender_wrote() {
        let signals = Signals::open(&[libc::SIGUSR2]).unwrap();
        // SAFETY: all-zero is a valid siginfo_t; the three fields are those of a queued signal.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        info.si_signo = libc::SIGUSR2;
        info.si_code = libc::SI_QUEUE;
        // SAFETY: the sender's pid is the first field of the union, at byte 16 on 64-bit Linux, inside the struct.
        unsafe {
            (&raw mut info)
                .cast::<u8>()
                .add(16)
                .cast::<i32>()
                .write_unaligned(1);
        }
        // SAFETY: `info` lives through the call; the signal is blocked in this thread, to which it goes.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                libc::getpid(),
                libc::gettid(),
                libc::SIGUSR2,
                &raw const info,
            )
        };
        assert_eq!(sent, 0);
        let got = signals.read().unwrap().unwrap();
        assert_eq!((got.code, got.pid), (libc::SI_QUEUE, 1), "a forged sender");
    }
}
