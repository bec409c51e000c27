//! The directory of one lease. It is held by a descriptor, because a later lease of the same name is another directory.
//!
//! Foreign contents (garbage, links, pipes, large files) count as missing, and no call waits for them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_os::{clock, identity};
use mainstay_protocol::ids::Realm;
use mainstay_protocol::lease::{Around, Over, Term, name_trouble};
use mainstay_protocol::limits::{LEASE_BUSY_MS, LEASE_FILE_BYTES};
use mainstay_store::paths::Paths;
use mainstay_store::state::{self, Directory, FileInfo, Location};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::member::MemberFile;
use super::open::nap;

/// Owner and time of the lease.
pub const TERM: &str = "term.json";
/// The mark: the lease is over, and why.
pub const ENDED: &str = "ended.json";
pub use mainstay_store::state::NEW;
/// Directories that are being removed begin with this.
pub const GONE: &str = ".gone-";
/// How often the removal is tried while another process writes into the directory.
const REMOVALS: usize = 8;

/// See the [module](self).
#[derive(Debug)]
pub struct LeaseDirectory {
    name: String,
    /// The path under which it was found. A later lease may have that path now.
    path: Location,
    directory: Directory,
}

/// Whether a lease is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not over.
    Open(Term),
    /// Over, with the reason.
    Over(Option<Term>, Over),
}

/// The names of all leases, open or over, in order.
pub fn names(paths: &Paths) -> io::Result<Vec<String>> {
    let mut found = paths.lease().names()?;
    found.retain(|name| name_trouble(name).is_none());
    found.sort_unstable();
    Ok(found)
}

impl LeaseDirectory {
    /// The directory of a lease, if there is one.
    pub fn find(paths: &Paths, name: &str) -> io::Result<Option<Self>> {
        if name_trouble(name).is_some() {
            return Ok(None);
        }
        let path = paths.lease().join(name);
        match path.open() {
            Ok(directory) => Ok(Some(Self {
                name: name.into(),
                path,
                directory,
            })),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the directory of a new lease. It becomes visible when it is complete. Fails with `AlreadyExists` if the name is taken.
    pub fn create(paths: &Paths, term: &Term) -> io::Result<Self> {
        let (id, name) = (term.id, &term.name);
        let leases = paths.lease().open()?;
        let new = format!("{NEW}{id}");
        let directory = leases.new_directory(&new)?;
        let made = write_new(&directory, TERM, term)
            // The kernel does not replace a directory that is not empty, and the directory of a lease never is.
            .and_then(|_file| leases.rename(&new, name));
        match made {
            Ok(()) => Ok(Self {
                name: name.clone(),
                path: paths.lease().join(name),
                directory,
            }),
            Err(error) => {
                leases.remove_all(&new).ok();
                let taken = matches!(
                    error.kind(),
                    io::ErrorKind::AlreadyExists
                        | io::ErrorKind::DirectoryNotEmpty
                        | io::ErrorKind::NotADirectory
                );
                Err(if taken {
                    io::ErrorKind::AlreadyExists.into()
                } else {
                    error
                })
            }
        }
    }

    /// The name of the lease.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The open directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// A descriptor of its own, to be watched.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        // Not a duplicate, because locks and watches belong to the open file description.
        Ok(self.directory.again()?.into())
    }

    /// Owner and time, if they can be read.
    pub fn term(&self) -> Option<Term> {
        read(&self.directory, TERM).filter(|term: &Term| term.name == self.name)
    }

    /// Why it was marked as over, if it was.
    pub fn mark(&self) -> Option<Over> {
        if self.directory.has(ENDED) {
            // The mark counts even if its contents are damaged.
            let read = read(&self.directory, ENDED);
            return Some(read.unwrap_or(Over::Closed { by: None }));
        }
        // A removal deletes the files in any order, so the mark may be gone first.
        self.going().then_some(Over::Removed)
    }

    /// Open or over, as of now.
    pub fn state(&self, here: &Realm) -> State {
        let term = self.term();
        if let Some(over) = self.mark() {
            return State::Over(term, over);
        }
        let Some(term) = term else {
            return State::Over(None, Over::Removed);
        };
        let owner = term.owner.as_ref();
        let around = Around {
            here,
            now: clock::now(),
            owner_lives: owner.is_none_or(|seen| identity::alive(seen.who)),
        };
        match term.over(&around) {
            Some(over) => State::Over(Some(term), over),
            None => State::Open(term),
        }
    }

    /// Marks it as over, for good. The first process that does it gets the lock of [`Self::stay`].
    pub fn end(&self, over: &Over) -> io::Result<Option<Lock>> {
        // A program that uses the library may have threads.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = &self.directory;
        let new = format!("{NEW}ended-{}-{count}", std::process::id());
        let mut file = directory.create_anew(&new)?;
        // The mark counts even if it is empty, so a full disk keeps no lease open.
        file.write_all(&serde_json::to_vec(over)?).ok();
        flock(&file, FlockOperation::NonBlockingLockShared)?;
        let mut linked = directory.link(&new, ENDED);
        if linked.is_err() && directory.has(ENDED) && open_small(directory, ENDED).is_err() {
            // A pipe or a link, which cannot be locked.
            linked = directory.rename(&new, ENDED);
        }
        directory.remove(&new).ok();
        match linked {
            // The directory is being removed, and its old mark was deleted before ours was made.
            Ok(()) if self.going() => Ok(None),
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces owner and time. Only under [`Self::try_lock`].
    pub fn agree(&self, term: &Term) -> io::Result<()> {
        let new = format!("{NEW}{TERM}");
        write_new(&self.directory, &new, term)?;
        self.directory.rename(&new, TERM)
    }

    /// Prevents that another process renews the lease, or ends it because its time is over, until the lock is dropped. None if
    /// another process has the lock.
    pub fn try_lock(&self) -> io::Result<Option<Lock>> {
        let file = File::from(OwnedFd::from(self.directory.again()?));
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The same, but waits for the other process for a while. Keepers leave a lease that is over one at a time.
    pub fn turn(&self) -> io::Result<Lock> {
        let until = clock::now().after_ms(LEASE_BUSY_MS);
        loop {
            if let Some(lock) = self.try_lock()? {
                return Ok(lock);
            }
            if clock::now() >= until {
                return Err(io::Error::other("another command is changing it"));
            }
            nap();
        }
    }

    /// While this lock is held, the directory is not removed: a closing process reads the outcomes in it. Only after
    /// [`Self::end`].
    pub fn stay(&self) -> io::Result<Lock> {
        let until = clock::now().after_ms(LEASE_BUSY_MS);
        loop {
            let file = open_small(&self.directory, ENDED)?;
            match flock(&file, FlockOperation::NonBlockingLockShared) {
                // Another process checks for this lock, or removes the directory, at this moment.
                Err(Errno::WOULDBLOCK) if clock::now() < until => nap(),
                result => return Ok(result.map(|()| Lock { _file: file })?),
            }
        }
    }

    /// Removes the directory if it has no member and no closing process reads in it. Else one of those does it, or the next sweep.
    pub fn remove_if_empty(&self) {
        let _turn = self.turn();
        self.remove_if_done();
    }

    /// The same, for a process that has the lock of [`Self::turn`]. Files of members that are done may be left.
    pub fn remove_if_done(&self) {
        if MemberFile::all(self).is_ok_and(|others| others.iter().all(MemberFile::done)) {
            self.remove().ok();
        }
    }

    /// True if a closing process waits for the outcomes. Only under [`Self::turn`], because two processes that check at the same
    /// time would each take the other for a closing process.
    pub fn awaited(&self) -> bool {
        open_small(&self.directory, ENDED)
            .is_ok_and(|mark| flock(&mark, FlockOperation::NonBlockingLockExclusive).is_err())
    }

    /// Removes the directory, unless a closing process reads in it. True if it is gone. Only after [`Self::end`], and if no
    /// server is left.
    pub fn remove(&self) -> io::Result<bool> {
        let Ok(mark) = open_small(&self.directory, ENDED) else {
            return Ok(false);
        };
        if flock(&mark, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(false);
        }
        // Only a process with this lock removes it. So if the path leads to this mark now, it does until we are done.
        let Ok(there) = self.path.open().and_then(|there| there.look(ENDED)) else {
            return Ok(true);
        };
        if there.which != FileInfo::of_file(&mark)?.which {
            return Ok(true);
        }
        let (leases, name) = self.path.split().ok_or(io::ErrorKind::InvalidInput)?;
        let leases = leases.open()?;
        let (pid, inode) = (std::process::id(), there.which.1);
        let gone = format!("{GONE}{pid}-{inode}");
        leases.rename(name, &gone)?;
        // The name is free. If something stays, because another process removes it or writes into it, the next sweep removes it.
        let mut tries = 0..REMOVALS;
        while tries.next().is_some()
            && let Err(error) = leases.remove_all(&gone)
            && error.kind() == io::ErrorKind::DirectoryNotEmpty
        {}
        Ok(true)
    }

    /// True if it is being removed: it has been renamed.
    fn going(&self) -> bool {
        fs::read_link(self.directory.through()).is_ok_and(|path| {
            let name = path.file_name().unwrap_or_default();
            name.as_encoded_bytes().starts_with(GONE.as_bytes())
        })
    }
}

impl AsFd for LeaseDirectory {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Opens a file for reading, if it is not larger than the files of a lease are.
pub fn open_small(directory: &Directory, name: &str) -> io::Result<File> {
    directory.open(name, LEASE_FILE_BYTES)
}

/// The contents of a file, if they are valid.
pub fn read<T: DeserializeOwned>(directory: &Directory, name: &str) -> Option<T> {
    parse(&open_small(directory, name).ok()?)
}

/// The contents of an open file, if they are valid.
pub fn parse<T: DeserializeOwned>(file: &File) -> Option<T> {
    serde_json::from_slice(&state::read_all(file, LEASE_FILE_BYTES).ok()?).ok()
}

/// Makes a file with this value, and replaces what had the name before.
pub fn write_new<T: Serialize>(directory: &Directory, name: &str, value: &T) -> io::Result<File> {
    let mut file = directory.create_anew(name)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    Ok(file)
}
