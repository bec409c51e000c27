//! Descriptors that only say "now": sockets and channels, and the ends of processes that are not our children.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use mainstay_os::ended;
use mainstay_os::identity::Handle;
use mainstay_protocol::event::Status;
use mainstay_protocol::ids::Identity;

use super::ready::Ready;

/// A descriptor that is watched for reading.
pub struct Watched<T: AsFd> {
    fd: Ready<T>,
    closed: bool,
}

impl<T: AsFd> Watched<T> {
    /// Watches it.
    pub fn new(inner: T) -> io::Result<Self> {
        Ok(Self {
            fd: Ready::to_read(inner)?,
            closed: false,
        })
    }

    /// There may be something to read that the kernel has not told of yet.
    pub fn look(&mut self) {
        self.fd.look_again();
    }

    /// The thing itself.
    pub fn get(&self) -> &T {
        self.fd.get_ref()
    }

    /// The thing itself, to be changed.
    pub fn get_mut(&mut self) -> &mut T {
        self.fd.get_mut()
    }

    /// Whether there may be something to read.
    pub fn poll_ready(&mut self) -> bool {
        !self.closed && self.fd.is_ready()
    }

    /// It was read until nothing was left.
    pub fn clear(&mut self) {
        self.fd.in_vain();
    }

    /// Nothing will ever come again.
    pub fn close(&mut self) {
        self.closed = true;
    }
}

/// How a process ended that is not our child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// Its status, if it could be seen.
    pub status: Option<Status>,
}

/// A process whose end matters.
pub enum DeathWatch {
    /// Watched from the first look on, because at a start the server comes first.
    Later(Identity),
    /// Its end will be seen.
    On(Identity, Ready<OwnedFd>),
    /// It was gone before it could be watched.
    Gone,
    /// There is no process to watch, or its end was told.
    Off,
}

impl DeathWatch {
    /// Watches this process from now on.
    pub fn on(who: Identity) -> Self {
        match Handle::open(who) {
            Ok(handle) => match Ready::to_read(handle.into_fd()) {
                Ok(fd) => Self::On(who, fd),
                Err(_) => Self::Off,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Gone,
            // It cannot be watched (another user's process in a hidden /proc): EOF must do.
            Err(_) => Self::Off,
        }
    }

    fn begin(&mut self) {
        if let Self::Later(who) = *self {
            *self = Self::on(who);
        }
    }

    /// How it ended, once.
    pub fn poll(&mut self) -> Option<Death> {
        self.begin();
        let death = match self {
            Self::On(who, fd) => fd.is_ready().then(|| Death {
                status: ended::status(fd.get_ref(), *who),
            }),
            Self::Gone => Some(Death { status: None }),
            Self::Later(_) | Self::Off => None,
        };
        if death.is_some() {
            *self = Self::Off;
        }
        death
    }

    /// As [`Self::poll`], but asks the kernel itself, and waits for a moment for a process that is just ending.
    pub fn look(&mut self) -> Option<Death> {
        self.begin();
        let death = match self {
            Self::On(who, fd) => ended::ended(fd.get_ref(), *who).then(|| Death {
                status: ended::status(fd.get_ref(), *who),
            }),
            Self::Gone => Some(Death { status: None }),
            Self::Later(_) | Self::Off => None,
        };
        if death.is_some() {
            *self = Self::Off;
        }
        death
    }
}
