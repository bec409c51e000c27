//! Waits for descriptors, and notices when the user interrupts the demo.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use mainstay_os::clock;
use mainstay_os::signals::{ENDING, Signals};
use mainstay_protocol::clock::Moment;
use mainstay_report::plain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Why a scene did not finish.
#[derive(Debug)]
pub enum DemoError {
    /// This signal interrupted it.
    Interrupted(i32),
    Failed(String),
}

impl From<io::Error> for DemoError {
    fn from(error: io::Error) -> Self {
        Self::Failed(plain(&error))
    }
}

/// Waits for descriptors.
#[derive(Debug)]
pub struct Waiter {
    signals: Option<Signals>,
}

impl Waiter {
    /// Blocks the signals that would end this process; a wait returns them as [`DemoError::Interrupted`].
    pub fn with_signals() -> io::Result<Self> {
        Ok(Self {
            signals: Some(Signals::open(&ENDING)?),
        })
    }

    /// Does not handle signals.
    pub fn without_signals() -> Self {
        Self { signals: None }
    }

    /// Waits until a descriptor is readable or closed, or the time is up. Returns for each descriptor whether it is.
    pub fn wait(&self, fds: &[BorrowedFd<'_>], until: Moment) -> Result<Vec<bool>, DemoError> {
        loop {
            let signals = self.signals.as_ref().map(AsFd::as_fd);
            let mut polled: Vec<PollFd<'_>> = fds
                .iter()
                .copied()
                .chain(signals)
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            let left = until - clock::now();
            let ready = match poll(&mut polled, Some(&timespec(left))) {
                Ok(ready) => ready,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(io::Error::from(error).into()),
            };
            if let Some(signals) = &self.signals
                && let Some(received) = signals.read()?
            {
                return Err(DemoError::Interrupted(received.number));
            }
            if ready > 0 || left == 0 {
                return Ok(polled[..fds.len()]
                    .iter()
                    .map(|fd| !fd.revents().is_empty())
                    .collect());
            }
        }
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}
