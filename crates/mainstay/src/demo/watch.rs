//! Waiting for descriptors, with an ear for the user who has had enough.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use mainstay_core::clock::Moment;
use mainstay_os::clock;
use mainstay_os::signals::{ENDING, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::report::plain;

/// Why a scene did not come to its end.
#[derive(Debug)]
pub enum Trouble {
    /// The user (or somebody) sent this signal.
    Interrupted(i32),
    /// It could not be played; why.
    Failed(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Failed(plain(&error))
    }
}

/// Where waits happen.
#[derive(Debug)]
pub struct Watch {
    signals: Option<Signals>,
}

impl Watch {
    /// Takes the signals that would end us: a wait that is interrupted by one says so.
    pub fn listening() -> io::Result<Self> {
        Ok(Self {
            signals: Some(Signals::open(&ENDING)?),
        })
    }

    /// Leaves signals to do what they do.
    pub fn blind() -> Self {
        Self { signals: None }
    }

    /// Waits until a descriptor is readable or closed, or the time has come; which of them are.
    pub fn wait(&self, fds: &[BorrowedFd<'_>], until: Moment) -> Result<Vec<bool>, Trouble> {
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
                return Err(Trouble::Interrupted(received.number));
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
