//! The record on disk: one file for each configuration, read when a link begins and written by whoever ends it.
//!
//! A record only ever makes a server look quicker, so nothing here may hurt one: a file that is damaged, too large, of
//! another version or of another user is as good as none, and is replaced at the next end. It knows nothing of when the
//! record answers (`core::link`) and of what is worth keeping (`core::message::remembered`).
//!
//! Invariants: files are 0600 in a directory that is 0700; a file is replaced whole, by rename, so that of two writers
//! the last one wins and no reader sees half a file; environment and arguments are in the names of files as a digest; of
//! single variables, `openings` says what is stored.

mod key;
mod openings;
mod retain;
pub(crate) mod sha256;
mod shape;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use mainstay_core::limits::RECORD_FILE_BYTES;
use mainstay_core::message::remembered::{Answers, Remembered};
use mainstay_os::clock;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

use crate::state::{self, Directory, Location, NEW};
use openings::Openings;
use retain::Kind;

pub use key::Configuration;

/// What comes after the key in the name of a record.
const ENDING: &str = "json";
/// The same for the last openings of a command.
const ENDING_OF_OPENINGS: &str = "openings";

/// Where the record of one configuration is.
#[derive(Clone)]
pub struct Recollection {
    server: String,
    directory: Location,
    name: String,
    openings: String,
    begun: key::Begun,
    /// This session among the openings.
    session: u64,
    /// What of it has been noted there.
    noted: Option<Answers>,
}

/// A record as a visitor sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The name of the server that it was last written for; none if the file cannot be read.
    pub server: Option<String>,
    /// The file, in the directory of all records.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Whether it is what was learned of the environment of a command, and no record.
    pub is_openings: bool,
}

impl Recollection {
    /// The record of a configuration, in the directory of all records. The server's name is for people, and tells servers
    /// with the same command apart where it is learned which variables are volatile.
    pub fn of(directory: &Location, server: &str, configuration: &Configuration<'_>) -> Self {
        let begun = key::Begun::of(configuration);
        let openings = format!("{}.{ENDING_OF_OPENINGS}", configuration.command(server));
        let open = directory.open().ok();
        let known = open.and_then(|open| read_openings(&open, &openings));
        let is_volatile = |name: &str| known.as_ref().is_some_and(|all| all.is_volatile(name));
        let key = begun.key(configuration.env, is_volatile);
        Self {
            server: server.into(),
            directory: directory.clone(),
            name: format!("{key}.{ENDING}"),
            openings,
            begun,
            session: random().unwrap_or_default(),
            noted: None,
        }
    }

    /// The file; it need not exist.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// What is remembered: nothing, if there is no file that can be believed. Reading it counts as use.
    pub fn load(&self) -> Remembered {
        let read = self.directory.open().ok();
        let Some((file, bytes)) = read.and_then(|directory| read_in(&directory, &self.name)) else {
            return Remembered::default();
        };
        let Some((_, remembered)) = shape::understand(&bytes) else {
            return Remembered::default();
        };
        used(&file);
        remembered
    }

    /// Writes down what this session has learned, of the server and of its environment, if that is new, and lets go what is
    /// too old or too much beside it.
    pub fn save(&mut self, env: &[CString], remembered: &Remembered) -> io::Result<()> {
        let answers = remembered.answers();
        if !remembered.changed() && answers == self.noted {
            return Ok(());
        }
        let moved = match answers {
            Some(answers) => self.note(env, answers)?,
            None => false,
        };
        self.noted = answers;
        if remembered.changed() || moved {
            self.write(remembered)?;
        }
        Ok(())
    }

    fn write(&self, remembered: &Remembered) -> io::Result<()> {
        let directory = self.directory.make()?;
        let bytes = shape::written(&self.server, remembered)?;
        let replaced = replace(&directory, &self.name, &bytes);
        let in_use = [self.name.as_str(), &self.openings];
        retain::retain(&directory, &in_use, clock::wall_ms());
        replaced
    }

    /// Notes this opening beside the last ones of the command. Whether the record has another key with what that teaches.
    fn note(&mut self, env: &[CString], answers: Answers) -> io::Result<bool> {
        let directory = self.directory.make()?;
        let mut openings = match read_openings(&directory, &self.openings) {
            Some(openings) => openings,
            None => Openings::new(random()?),
        };
        if openings.note(self.session, answers, env) {
            replace(&directory, &self.openings, &openings.written(&self.server)?)?;
        }
        let key = self.begun.key(env, |name| openings.is_volatile(name));
        let name = format!("{key}.{ENDING}");
        let moved = name != self.name;
        self.name = name;
        Ok(moved)
    }
}

/// All records of a directory, by the names of their servers.
pub fn all(directory: &Location) -> io::Result<Vec<Kept>> {
    let directory = match directory.open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result?,
    };
    let mut found: Vec<Kept> = retain::files(&directory)?
        .into_iter()
        .filter(|file| file.kind != Kind::New)
        .map(|file| Kept {
            server: read_in(&directory, &file.name).and_then(|(_, bytes)| shape::server(&bytes)),
            is_openings: file.kind == Kind::Openings,
            name: file.name,
            bytes: file.bytes,
        })
        .collect();
    found.sort_by(|a, b| (&a.server, &a.name).cmp(&(&b.server, &b.name)));
    Ok(found)
}

/// How many records there are, and their bytes.
pub fn extent(directory: &Location) -> io::Result<(usize, u64)> {
    let files = match directory.open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        result => retain::files(&result?)?,
    };
    let bytes = files.iter().map(|file| file.bytes).sum();
    let records = files.iter().filter(|file| file.kind == Kind::Record);
    Ok((records.count(), bytes))
}

fn read_openings(directory: &Directory, name: &str) -> Option<Openings> {
    let (file, bytes) = read_in(directory, name)?;
    let openings = Openings::understand(&bytes)?;
    used(&file);
    Some(openings)
}

/// Puts a file in the place of another one, whole.
fn replace(directory: &Directory, name: &str, bytes: &[u8]) -> io::Result<()> {
    // Two sessions may write at once: each has a file of its own until it is whole.
    let new = format!("{NEW}{:016x}", random()?);
    let replaced = directory
        .create(&new)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| directory.rename(&new, name));
    if replaced.is_err() {
        directory.remove(&new).ok();
    }
    replaced
}

fn random() -> io::Result<u64> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(random))
}

/// To read a file is to use it. On a disk that cannot be written to, nothing is removed for its age either.
fn used(file: &File) {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let now = Timestamps {
        last_access: now,
        last_modification: now,
    };
    futimens(file, &now).ok();
}

/// A file that can be believed. What a server is said to offer is read by a model, so that words of strangers must not get in.
fn read_in(directory: &Directory, name: &str) -> Option<(File, Vec<u8>)> {
    let file = directory.open(name, RECORD_FILE_BYTES).ok()?;
    let bytes = state::read_all(&file, RECORD_FILE_BYTES).ok()?;
    Some((file, bytes))
}

#[cfg(test)]
mod tests;
