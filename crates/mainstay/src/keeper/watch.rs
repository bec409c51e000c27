//! Descriptors that only say "now": signals, the shim's words, and the deaths of shim, guard and client.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use mainstay_core::event::Status;
use mainstay_core::ids::Identity;
use mainstay_os::ended;
use mainstay_os::identity::Handle;

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

/// Who has died, and how, as far as the kernel tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dead {
    /// The shim.
    pub shim: Option<Death>,
    /// The guard.
    pub guard: Option<Death>,
    /// The client, and who that was.
    pub client: Option<(Identity, Death)>,
}

/// How somebody ended who is not our child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// Its status, if it could be seen.
    pub status: Option<Status>,
}

/// Watches the three whose death matters.
pub struct Watcher {
    guard_id: Identity,
    client_id: Option<Identity>,
    /// The shim has told of a signal, by which it ends.
    pub shim_signalled: bool,
    /// It knows that it may leave.
    pub leave_told: bool,
    shim: Watch,
    guard: Watch,
    client: Watch,
}

/// One whose end matters.
pub(super) enum Watch {
    /// To be watched from the first look on: at a start the server comes first.
    Later(Identity),
    /// Its end will be seen.
    On(Identity, Ready<OwnedFd>),
    /// It was gone before we could watch it.
    Gone,
    /// Nobody to watch, or its end was told.
    Off,
}

impl Watcher {
    /// Watches them from the first look on. Whoever has ended by then is told as gone.
    pub fn new(shim: Identity, guard: Identity, client: Option<Identity>) -> Self {
        Self {
            guard_id: guard,
            client_id: client,
            shim_signalled: false,
            leave_told: false,
            shim: Watch::Later(shim),
            guard: Watch::Later(guard),
            client: client.map_or(Watch::Off, Watch::Later),
        }
    }

    /// The guard that was watched first.
    pub fn guard(&self) -> Identity {
        self.guard_id
    }

    /// Another process is the shim now.
    pub fn watch_shim(&mut self, shim: Identity) {
        self.shim_signalled = false;
        self.leave_told = false;
        self.shim = Watch::on(shim);
    }

    /// Another process is the client now.
    pub fn watch_client(&mut self, client: Identity) {
        self.client_id = Some(client);
        self.client = Watch::on(client);
    }

    /// Whether the client has ended by now, for the last time.
    pub fn last_look_at_client(&mut self) -> Option<Death> {
        self.client.look()
    }

    /// Who has died since the last time.
    pub fn poll(&mut self) -> Dead {
        Dead {
            shim: self.shim.poll(),
            guard: self.guard.poll(),
            client: self.client_id.zip(self.client.poll()),
        }
    }
}

impl Watch {
    /// Watches somebody from now on.
    pub(super) fn on(who: Identity) -> Self {
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
    pub(super) fn poll(&mut self) -> Option<Death> {
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

    /// As [`Self::poll`], but asks the kernel itself, and waits for a moment for whoever is on its way out.
    fn look(&mut self) -> Option<Death> {
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
