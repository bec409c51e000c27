//! One lease's directory, held by a descriptor: a later lease of the same name is another directory.
//!
//! Foreign contents (garbage, links, pipes, large files) are as good as none, and nobody waits for them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_core::ids::Realm;
use mainstay_core::lease::{Around, Over, Term, name_trouble};
use mainstay_core::limits::{LEASE_BUSY_MS, LEASE_FILE_BYTES};
use mainstay_os::{clock, identity};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::member::Visit;
use super::open::nap;
use crate::paths::Paths;
use crate::state::{self, Directory, Found, Location};

/// What was agreed.
pub const TERM: &str = "term.json";
/// It is over, and why.
pub const ENDED: &str = "ended.json";
pub use crate::state::NEW;
/// Directories that are being removed begin with this.
pub const GONE: &str = ".gone-";
/// How often a directory is emptied into which somebody writes meanwhile.
const REMOVALS: usize = 8;

/// A lease's directory.
#[derive(Debug)]
pub struct Place {
    name: String,
    /// Where it was found; by now it may be another lease's.
    path: Location,
    directory: Directory,
}

/// How a lease is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It goes on.
    Open(Term),
    /// It is over.
    Over(Option<Term>, Over),
}

/// The names of all leases, open or over, in order.
pub fn names(paths: &Paths) -> io::Result<Vec<String>> {
    let mut found = paths.lease().names()?;
    found.retain(|name| name_trouble(name).is_none());
    found.sort_unstable();
    Ok(found)
}

impl Place {
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

    /// Makes the directory of a new lease; it is seen when it is whole. Fails with `AlreadyExists` if the name is taken.
    pub fn create(paths: &Paths, term: &Term) -> io::Result<Self> {
        let (id, name) = (term.id, &term.name);
        let leases = paths.lease().open()?;
        let new = format!("{NEW}{id}");
        let directory = leases.new_directory(&new)?;
        let made = write_new(&directory, TERM, term)
            // Over a directory with something in it the kernel renames nothing, and a lease always has something in it.
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory itself.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// A descriptor of its own, to be watched.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        // Not a duplicate: what is asked of a description would be shared.
        Ok(self.directory.again()?.into())
    }

    /// What was agreed, if it can be read.
    pub fn term(&self) -> Option<Term> {
        read(&self.directory, TERM).filter(|term: &Term| term.name == self.name)
    }

    /// Why it was marked as over, if it was.
    pub fn mark(&self) -> Option<Over> {
        if self.directory.has(ENDED) {
            // A mark is a mark, whatever is in it.
            let read = read(&self.directory, ENDED);
            return Some(read.unwrap_or(Over::Closed { by: None }));
        }
        // The files of one that is being removed go in any order: the mark may be the first.
        self.going().then_some(Over::Removed)
    }

    /// How it is now.
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

    /// Marks it as over, for good. If we were the first to do so, we stay (see [`Self::stay`]) from that moment on.
    pub fn end(&self, over: &Over) -> io::Result<Option<Lock>> {
        // A host may have threads.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = &self.directory;
        let new = format!("{NEW}ended-{}-{count}", std::process::id());
        let mut file = directory.create_anew(&new)?;
        // A mark is a mark, whatever is in it: a full disk keeps no lease open.
        file.write_all(&serde_json::to_vec(over)?).ok();
        flock(&file, FlockOperation::NonBlockingLockShared)?;
        let mut linked = directory.link(&new, ENDED);
        if linked.is_err() && directory.has(ENDED) && open_small(directory, ENDED).is_err() {
            // A pipe or a link, where nothing can be locked.
            linked = directory.rename(&new, ENDED);
        }
        directory.remove(&new).ok();
        match linked {
            // Its own mark has gone before us.
            Ok(()) if self.going() => Ok(None),
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes what was agreed anew. Only under [`Self::try_lock`].
    pub fn agree(&self, term: &Term) -> io::Result<()> {
        let new = format!("{NEW}{TERM}");
        write_new(&self.directory, &new, term)?;
        self.directory.rename(&new, TERM)
    }

    /// Keeps others from renewing it, or from ending it for its age, until the lock is dropped; none if another does that.
    pub fn try_lock(&self) -> io::Result<Option<Lock>> {
        let file = File::from(OwnedFd::from(self.directory.again()?));
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The same, after waiting for another for a while. Those who leave a lease that is over do so one at a time.
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

    /// While this lives, nobody removes the directory: somebody reads in it what became of its servers. Only after
    /// [`Self::end`].
    pub fn stay(&self) -> io::Result<Lock> {
        let until = clock::now().after_ms(LEASE_BUSY_MS);
        loop {
            let file = open_small(&self.directory, ENDED)?;
            match flock(&file, FlockOperation::NonBlockingLockShared) {
                // Somebody looks whether anybody stays, or removes it at this moment.
                Err(Errno::WOULDBLOCK) if clock::now() < until => nap(),
                result => return Ok(result.map(|()| Lock { _file: file })?),
            }
        }
    }

    /// Removes the directory if nobody is in it or stays; else somebody of those does, or the next sweep.
    pub fn remove_if_empty(&self) {
        let _turn = self.turn();
        self.remove_if_done();
    }

    /// The same, for somebody whose turn it is. Who was not waited for after all has left its file behind.
    pub fn remove_if_done(&self) {
        if Visit::all(self).is_ok_and(|others| others.iter().all(Visit::done)) {
            self.remove().ok();
        }
    }

    /// Whether somebody stays, to read what became of its servers. Only under [`Self::turn`]: two who ask at once would take
    /// each other for somebody who stays.
    pub fn awaited(&self) -> bool {
        open_small(&self.directory, ENDED)
            .is_ok_and(|mark| flock(&mark, FlockOperation::NonBlockingLockExclusive).is_err())
    }

    /// Removes the directory, unless somebody stays; whether it is gone. Only after [`Self::end`], without servers.
    pub fn remove(&self) -> io::Result<bool> {
        let Ok(mark) = open_small(&self.directory, ENDED) else {
            return Ok(false);
        };
        if flock(&mark, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(false);
        }
        // Nobody removes it but under this lock: if the name leads to this mark now, it does so until we are done.
        let Ok(there) = self.path.open().and_then(|there| there.look(ENDED)) else {
            return Ok(true);
        };
        if there.which != Found::of_file(&mark)?.which {
            return Ok(true);
        }
        let (leases, name) = self.path.split().ok_or(io::ErrorKind::InvalidInput)?;
        let leases = leases.open()?;
        let (pid, inode) = (std::process::id(), there.which.1);
        let gone = format!("{GONE}{pid}-{inode}");
        leases.rename(name, &gone)?;
        // The name is free. What stays (a sweep may be at it, or somebody may still be writing into it) goes with a sweep.
        let mut tries = 0..REMOVALS;
        while tries.next().is_some()
            && let Err(error) = leases.remove_all(&gone)
            && error.kind() == io::ErrorKind::DirectoryNotEmpty
        {}
        Ok(true)
    }

    /// Whether it is being removed: its name was taken from it.
    fn going(&self) -> bool {
        fs::read_link(self.directory.through()).is_ok_and(|path| {
            let name = path.file_name().unwrap_or_default();
            name.as_encoded_bytes().starts_with(GONE.as_bytes())
        })
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Opens a file of modest size for reading.
pub fn open_small(directory: &Directory, name: &str) -> io::Result<File> {
    directory.open(name, LEASE_FILE_BYTES)
}

/// What a file says, if it says what it should.
pub fn read<T: DeserializeOwned>(directory: &Directory, name: &str) -> Option<T> {
    parse(&open_small(directory, name).ok()?)
}

/// What an open file says.
pub fn parse<T: DeserializeOwned>(file: &File) -> Option<T> {
    serde_json::from_slice(&state::read_all(file, LEASE_FILE_BYTES).ok()?).ok()
}

/// Makes a file with this in it; whatever was there under that name goes.
pub fn write_new<T: Serialize>(directory: &Directory, name: &str, value: &T) -> io::Result<File> {
    let mut file = directory.create_anew(name)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    Ok(file)
}
