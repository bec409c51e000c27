//! Announcements: every process of a scene announces itself, so that all of them are known by pid and start time.
//!
//! They use a datagram socket in the sandbox. All processes of a scene have the sandbox as working directory, so its short
//! name reaches it also from a daemon that has lost its environment and its parent.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use mainstay_os::identity::{self, Handle};
use mainstay_protocol::clock::Moment;

use super::waiter::{DemoError, Waiter};

/// The name of the socket in the sandbox.
const SOCKET: &str = "announcements";
/// The longest announcement.
const MESSAGE_BYTES: usize = 256;

/// Announces this process, or something that has happened in it.
pub fn announce(group: &str, what: &str) -> io::Result<()> {
    let message = format!("{group} {what} {}", std::process::id());
    UnixDatagram::unbound()?.send_to(message.as_bytes(), SOCKET)?;
    Ok(())
}

/// One announcement.
#[derive(Debug)]
pub struct Announcement {
    /// The group that the process belongs to: one server with its helpers, or one client.
    pub group: String,
    /// The role of the process, or what has happened.
    pub what: String,
    pub handle: Handle,
}

/// The socket, and the announcements so far.
#[derive(Debug)]
pub struct Announcements {
    socket: UnixDatagram,
    announced: Vec<Announcement>,
}

impl Announcements {
    /// Creates the socket in this directory.
    pub fn open(directory: &Path) -> io::Result<Self> {
        // Through the directory's descriptor, because the path of a socket has at most 108 bytes.
        let handle = std::fs::File::open(directory)?;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&handle);
        let socket = UnixDatagram::bind(format!("/proc/self/fd/{fd}/{SOCKET}"))?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            announced: Vec::new(),
        })
    }

    /// Waits until the announcements are enough.
    pub fn wait_until(
        &mut self,
        waiter: &Waiter,
        what: &str,
        limit: Moment,
        enough: impl Fn(&[Announcement]) -> bool,
    ) -> Result<(), DemoError> {
        loop {
            self.receive()?;
            if enough(&self.announced) {
                return Ok(());
            }
            if waiter.wait(&[self.socket.as_fd()], limit)? == [false] {
                let here = self.announced.len();
                return Err(DemoError::Failed(format!(
                    "{what} did not appear in time ({here} announcements came)"
                )));
            }
        }
    }

    /// Removes and returns the announcements of these groups.
    pub fn take(&mut self, of: impl Fn(&str) -> bool) -> Vec<Announcement> {
        let (taken, kept) = self
            .announced
            .drain(..)
            .partition(|announced| of(&announced.group));
        self.announced = kept;
        taken
    }

    /// Drops all announcements, also unread ones, because their scene is over.
    pub fn clear(&mut self) {
        let mut message = [0u8; MESSAGE_BYTES];
        while self.socket.recv(&mut message).is_ok() {}
        self.announced.clear();
    }

    fn receive(&mut self) -> Result<(), DemoError> {
        let mut message = [0u8; MESSAGE_BYTES];
        loop {
            let len = match self.socket.recv(&mut message) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let text = String::from_utf8_lossy(&message[..len]).into_owned();
            let mut words = text.split(' ');
            if let (Some(group), Some(what), Some(Ok(pid))) =
                (words.next(), words.next(), words.next().map(str::parse))
            {
                self.announced.push(Announcement {
                    group: group.into(),
                    what: what.into(),
                    handle: identity::of(pid).and_then(Handle::open)?,
                });
            }
        }
    }
}
