//! The record on disk: one file for each configuration, read when a link begins and written by whoever ends it.
//!
//! A record only ever makes a server look quicker, so nothing here may hurt one: a file that is damaged, too large, of
//! another version or of another user is as good as none, and is replaced at the next end. It knows nothing of when the
//! record answers (`core::link`) and of what is worth keeping (`core::message::remembered`).
//!
//! Invariants: files are 0600 in a directory that is 0700; a file is replaced whole, by rename, so that of two writers
//! the last one wins and no reader sees half a file; environment and arguments are in the names of files as a digest; of
//! single variables, [`openings`] says what is stored.

mod key;
mod openings;
mod retain;
pub(crate) mod sha256;
mod shape;

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mainstay_core::limits::RECORD_FILE_BYTES;
use mainstay_core::message::remembered::{Answers, Remembered};
use mainstay_os::clock;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

use crate::paths::{DIRECTORY_MODE, FILE_MODE};
use openings::Openings;
use retain::Kind;

pub use key::Configuration;

/// Files that are still being written begin with this.
const NEW: &str = ".new-";
/// What comes after the key in the name of a record.
const ENDING: &str = "json";
/// The same for the last openings of a command.
const ENDING_OF_OPENINGS: &str = "openings";

/// Where the record of one configuration is.
#[derive(Clone)]
pub struct Recollection {
    server: String,
    path: PathBuf,
    openings: PathBuf,
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
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Whether it is what was learned of the environment of a command, and no record.
    pub is_openings: bool,
}

impl Recollection {
    /// The record of a configuration, in the directory of all records. The server's name is for people, and tells servers
    /// with the same command apart where it is learned which variables are volatile.
    pub fn of(directory: &Path, server: &str, configuration: &Configuration<'_>) -> Self {
        let begun = key::Begun::of(configuration);
        let command = directory.join(configuration.command(server));
        let openings = command.with_extension(ENDING_OF_OPENINGS);
        let known = read_openings(&openings);
        let is_volatile = |name: &str| known.as_ref().is_some_and(|all| all.is_volatile(name));
        let key = begun.key(configuration.env, is_volatile);
        Self {
            server: server.into(),
            path: directory.join(key).with_extension(ENDING),
            openings,
            begun,
            session: random().unwrap_or_default(),
            noted: None,
        }
    }

    /// The file; it need not exist.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is remembered: nothing, if there is no file that can be believed. Reading it counts as use.
    pub fn load(&self) -> Remembered {
        let Some((file, bytes)) = read(&self.path) else {
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
        let bytes = shape::written(&self.server, remembered)?;
        let replaced = replace(&self.path, &bytes);
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        retain::retain(directory, &[&self.path, &self.openings], clock::wall_ms());
        replaced
    }

    /// Notes this opening beside the last ones of the command. Whether the record has another key with what that teaches.
    fn note(&mut self, env: &[CString], answers: Answers) -> io::Result<bool> {
        let mut openings = match read_openings(&self.openings) {
            Some(openings) => openings,
            None => Openings::new(random()?),
        };
        if openings.note(self.session, answers, env) {
            replace(&self.openings, &openings.written(&self.server)?)?;
        }
        let key = self.begun.key(env, |name| openings.is_volatile(name));
        let path = self.path.with_file_name(key).with_extension(ENDING);
        let moved = path != self.path;
        self.path = path;
        Ok(moved)
    }
}

/// All records of a directory, by the names of their servers.
pub fn all(directory: &Path) -> io::Result<Vec<Kept>> {
    let mut found: Vec<Kept> = retain::files(directory)?
        .into_iter()
        .filter(|file| file.kind != Kind::New)
        .map(|file| Kept {
            server: read(&file.path).and_then(|(_, bytes)| shape::server(&bytes)),
            is_openings: file.kind == Kind::Openings,
            path: file.path,
            bytes: file.bytes,
        })
        .collect();
    found.sort_by(|a, b| (&a.server, &a.path).cmp(&(&b.server, &b.path)));
    Ok(found)
}

/// How many records there are, and their bytes.
pub fn extent(directory: &Path) -> io::Result<(usize, u64)> {
    let files = retain::files(directory)?;
    let bytes = files.iter().map(|file| file.bytes).sum();
    let records = files.iter().filter(|file| file.kind == Kind::Record);
    Ok((records.count(), bytes))
}

fn read_openings(path: &Path) -> Option<Openings> {
    let (file, bytes) = read(path)?;
    let openings = Openings::understand(&bytes)?;
    used(&file);
    Some(openings)
}

/// Puts a file in the place of another one, whole.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(directory)?;
    let new = directory.join(format!("{NEW}{:016x}", random()?));
    let replaced = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&new)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        fs::remove_file(&new).ok();
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

/// A file that can be believed: ours, nobody else can write to it, of a sensible size. What a server is said to offer
/// is read by a model, so that words of strangers must not get in.
fn read(path: &Path) -> Option<(File, Vec<u8>)> {
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let found = file.metadata().ok()?;
    let ours = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
    if !found.is_file() || !ours || found.len() > RECORD_FILE_BYTES {
        return None;
    }
    let mut bytes = Vec::with_capacity(found.len() as usize);
    let limit = RECORD_FILE_BYTES + 1;
    (&mut file).take(limit).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= RECORD_FILE_BYTES).then_some((file, bytes))
}

#[cfg(test)]
mod tests;
