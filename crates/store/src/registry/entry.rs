//! The directory of one link, held by its owners.
//!
//! Invariants: a directory that is visible under its id has been locked since before it became visible; files are
//! replaced by rename, so a reader sees an old or a new one, never half of one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use mainstay_os::clock;
use mainstay_protocol::ids::{Identity, LinkId};
use mainstay_protocol::limits::ENTRY_BUSY_MS;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use super::card::Card;
use super::list;
use crate::paths::Paths;
use crate::state::{Directory, Location};

/// The card's file name.
pub const CARD: &str = "card.json";
/// The file name of the tree as last recorded.
pub const MEMBERS: &str = "members.json";
/// The control socket's file name.
pub const SOCKET: &str = "control.sock";
/// The lock's file name.
pub const LOCK: &str = "lock";
pub use crate::state::NEW;
/// Time between two tries to get a lock.
const NAP_MS: u32 = 1;

/// A link's directory with its lock. Dropping it closes this process's copy of the lock; the lock itself is free
/// once every process that inherited it has closed it or is dead.
#[derive(Debug)]
pub struct Entry {
    path: Location,
    directory: Directory,
    lock: File,
}

impl Entry {
    /// Makes the directory of a new link with a random id, and takes its lock.
    pub fn fresh(paths: &Paths) -> io::Result<(LinkId, Self)> {
        loop {
            let mut bytes = [0u8; 4];
            rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
            let id = LinkId(u32::from_ne_bytes(bytes));
            match Self::create(paths, id) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => return Ok((id, result?)),
            }
        }
    }

    /// Makes a link's directory and takes its lock.
    pub fn create(paths: &Paths, id: LinkId) -> io::Result<Self> {
        // Made under another name and shown when locked. A sweeper may take the unlocked one for dead: once more.
        let mut tries = 0;
        loop {
            match Self::create_once(paths, id) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < 3 => tries += 1,
                result => return result,
            }
        }
    }

    fn create_once(paths: &Paths, id: LinkId) -> io::Result<Self> {
        let run = paths.run().open()?;
        let (name, new) = (id.to_string(), format!("{NEW}{id}"));
        let directory = run.new_directory(&new)?;
        let made = directory.create(LOCK).and_then(|lock| {
            flock(&lock, FlockOperation::LockExclusive)?;
            if run.has(&name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            run.rename(&new, &name)?;
            Ok(lock)
        });
        match made {
            Ok(lock) => Ok(Self {
                path: paths.run().join(name),
                directory,
                lock,
            }),
            Err(error) => {
                run.remove_all(&new).ok();
                Err(error)
            }
        }
    }

    /// The directory of a link whose last owners are dead, if it exists; else a new one. If another process reads or removes it
    /// at this moment, this waits for a short time.
    pub fn take(paths: &Paths, id: LinkId) -> io::Result<Self> {
        let until = clock::now().after_ms(ENTRY_BUSY_MS);
        loop {
            match Self::try_take(paths, id) {
                Err(error) if is_busy(&error) && clock::now() < until => clock::nap(NAP_MS),
                result => return result,
            }
        }
    }

    /// The same, without waiting.
    pub fn try_take(paths: &Paths, id: LinkId) -> io::Result<Self> {
        let path = paths.run().join(id.to_string());
        let Ok(directory) = path.open() else {
            return Self::create(paths, id);
        };
        match list::take(&directory) {
            Ok(Some(lock)) => Ok(Self {
                path,
                directory,
                lock,
            }),
            Ok(None) => Err(io::ErrorKind::WouldBlock.into()),
            Err(_) => Self::create(paths, id),
        }
    }

    /// The card as it was last written, with the members.
    pub fn read(&self) -> Option<Card> {
        list::read_card(&self.directory)
    }

    /// Another handle on the same directory and the same lock.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            path: self.path.clone(),
            directory: self.directory.try_clone()?,
            lock: self.lock.try_clone()?,
        })
    }

    /// A link's directory and lock, by the descriptors that [`Self::lent`] gave.
    pub fn adopt(paths: &Paths, id: LinkId, lent: Vec<OwnedFd>) -> Option<Self> {
        let [directory, lock] = <[OwnedFd; 2]>::try_from(lent).ok()?;
        let path = paths.run().join(id.to_string());
        Some(Self {
            directory: Directory::lent(directory, &path),
            path,
            lock: lock.into(),
        })
    }

    /// What another process needs to share the lock.
    pub fn lent(&self) -> [BorrowedFd<'_>; 2] {
        [self.directory.as_fd(), self.lock.as_fd()]
    }

    /// The descriptors that a forked role must keep to hold the lock.
    pub fn fds(&self) -> [i32; 2] {
        [self.directory.as_raw_fd(), self.lock.as_raw_fd()]
    }

    /// Where it is.
    pub fn path(&self) -> &Location {
        &self.path
    }

    /// The lock, to be inherited by guard and keeper (it is close-on-exec: a fork keeps it, the server never sees it).
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// Writes the card. Members have a file of their own and are left out.
    pub fn write(&self, card: &Card) -> io::Result<()> {
        if card.members.is_empty() {
            return self.replace(CARD, card);
        }
        let bare = Card {
            members: Vec::new(),
            ..card.clone()
        };
        self.replace(CARD, &bare)
    }

    /// Writes the tree as it is now.
    pub fn members(&self, members: &[Identity]) -> io::Result<()> {
        self.replace(MEMBERS, members)
    }

    /// Opens the control socket, non-blocking and close-on-exec.
    pub fn listen(&self) -> io::Result<UnixListener> {
        match self.directory.remove(SOCKET) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(socket_path(&self.directory))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Removes the directory: the link is over and nothing of it is left.
    pub fn clear(&self) -> io::Result<()> {
        remove(&self.path)
    }

    /// Removes the directory: the link is over and nothing of it is left.
    pub fn remove(self) -> io::Result<()> {
        self.clear()
    }

    fn replace<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> io::Result<()> {
        self.directory.replace(name, &serde_json::to_vec(value)?)
    }
}

/// True if another process reads, makes or removes the directory at this moment, which is over soon.
fn is_busy(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock
            | io::ErrorKind::NotFound
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::DirectoryNotEmpty
    )
}

/// The path of the control socket through its directory's descriptor: a socket path has 108 bytes at most, a home
/// directory may have more.
pub fn socket_path(directory: &Directory) -> PathBuf {
    directory.through().join(SOCKET)
}

/// Removes a link's directory, the lock last of all: as long as it is there, the directory has an owner.
pub(super) fn remove(path: &Location) -> io::Result<()> {
    let directory = path.open()?;
    for name in directory.names()? {
        if name == LOCK {
            continue;
        }
        match directory.remove(&name) {
            // It was replaced in the meantime.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    path.remove_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::card::samples;
    use crate::scratch::Scratch;
    use crate::state::{DIRECTORY_MODE, FILE_MODE};
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_directory_is_private_and_goes_with_its_link() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let entry = Entry::create(&paths, LinkId(7)).unwrap();
        entry.write(&samples::card(7, "demo")).unwrap();
        entry.members(&[]).unwrap();
        let _listener = entry.listen().unwrap();
        let path = entry.path().to_owned();
        assert_eq!(path, paths.run().join("00000007"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, DIRECTORY_MODE);
        for name in [CARD, MEMBERS, LOCK] {
            let mode = fs::metadata(path.join(name)).unwrap().mode();
            assert_eq!(mode & 0o777, FILE_MODE, "{name}");
        }
        assert_eq!(
            Entry::create(&paths, LinkId(7)).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        entry.remove().unwrap();
        assert_eq!(fs::read_dir(paths.run()).unwrap().count(), 0);
    }

    #[test]
    fn fresh_ids_differ() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let (first, entry) = Entry::fresh(&paths).unwrap();
        let (second, _other) = Entry::fresh(&paths).unwrap();
        assert_ne!(first, second);
        assert_eq!(*entry.path(), paths.run().join(first.to_string()));
    }

    #[test]
    fn a_long_home_has_a_socket_too() {
        let scratch = Scratch::new();
        let home = scratch.path().join("h".repeat(200));
        fs::create_dir(&home).unwrap();
        let paths = Paths::below(home).unwrap();
        paths.make().unwrap();
        let entry = Entry::create(&paths, LinkId(7)).unwrap();
        let listener = entry.listen().unwrap();
        let _again = entry.listen().unwrap();
        drop(listener);
        UnixStream::connect(socket_path(&entry.directory)).unwrap();
    }
}
