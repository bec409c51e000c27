//! The cache: one file for each configuration, with the handshake and the lists of its server. It is read when a link begins and
//! written when a session ends.
//!
//! The cache only makes a start faster, so a problem with it must never hurt a server. A file that is damaged, too large, of another
//! version or of another user counts as missing, and is replaced when the session ends. When the cache answers is decided in
//! `core::link`; what is worth keeping is decided in `protocol::message::remembered`.
//!
//! Invariants:
//! - Files are 0600 in a directory that is 0700.
//! - A file is replaced as a whole, by rename. Of two writers the last one wins, and no reader sees half a file.
//! - The name of a file is a digest of environment and arguments. The file has the command line with its secrets hidden, and
//!   no variables but those that `openings` describes.

pub mod digest;
mod format;
mod key;
mod openings;
mod retain;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use mainstay_os::clock;
use mainstay_protocol::limits::CACHE_FILE_BYTES;
use mainstay_protocol::message::remembered::{Answers, Remembered};
use mainstay_protocol::redact;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

use crate::state::{self, Directory, Location, NEW};
use openings::Openings;
use retain::Kind;

pub use format::CacheContents;
pub use key::Configuration;

/// The name of a cache file ends with this.
const ENDING: &str = "json";
/// The name of the file with the last openings of a command ends with this.
const ENDING_OF_OPENINGS: &str = "openings";

/// The cache file of one configuration, for one session.
#[derive(Clone)]
pub struct CacheFile {
    server: String,
    /// The command line, with its secrets hidden.
    command: String,
    directory: Location,
    name: String,
    openings: String,
    /// The file with what `learn` saw of this command.
    learned: String,
    /// Whether this session is one of `learn`.
    learns: bool,
    key: key::KeyPrefix,
    /// Identifies this session among the openings.
    session: u64,
    /// The answers of this session that are noted among the openings.
    noted: Option<Answers>,
}

/// A file of the cache, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheListing {
    /// The server that it was last written for; none if the file cannot be read.
    pub server: Option<String>,
    /// The command line, with its secrets hidden; none in a file of an earlier version.
    pub command: Option<String>,
    /// The name of the file.
    pub name: String,
    /// The size of the file.
    pub bytes: u64,
    /// When it was last used, in milliseconds since 1970.
    pub used_ms: u64,
    /// None if the file cannot be read, and in a file that says which variables of a command change from session to session.
    pub contents: Option<CacheContents>,
    /// True if the file says which variables of a command change from session to session.
    pub is_openings: bool,
}

impl CacheFile {
    /// The cache file of a configuration. The server's name is for people. It also separates servers with the same command
    /// when volatile variables are learned.
    pub fn of(directory: &Location, server: &str, configuration: &Configuration<'_>) -> Self {
        let prefix = key::KeyPrefix::of(configuration);
        let openings = format!("{}.{ENDING_OF_OPENINGS}", configuration.command(server));
        let open = directory.open().ok();
        let known = open.and_then(|open| read_openings(&open, &openings));
        let is_volatile = |name: &str| known.as_ref().is_some_and(|all| all.is_volatile(name));
        let key = prefix.key(configuration.env, is_volatile);
        Self {
            server: server.into(),
            command: shown_command(configuration),
            directory: directory.clone(),
            name: format!("{key}.{ENDING}"),
            openings,
            learned: format!("{}.{ENDING}", configuration.learned(server)),
            learns: false,
            key: prefix,
            session: random().unwrap_or_default(),
            noted: None,
        }
    }

    /// The file that `learn` writes. Sessions of any client, in any directory, begin with it if they have none of their own.
    #[must_use]
    pub fn of_learn(mut self) -> Self {
        self.name.clone_from(&self.learned);
        self.learns = true;
        self
    }

    /// The file; it need not exist.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// What is in the file; empty if there is no file that can be trusted. Reading it counts as use.
    pub fn load(&self) -> Remembered {
        let Ok(directory) = self.directory.open() else {
            return Remembered::default();
        };
        let mut remembered = load_in(&directory, &self.name).unwrap_or_default();
        if !self.learns
            && let Some(learned) = load_in(&directory, &self.learned)
        {
            remembered.complete_with(learned);
        }
        remembered
    }

    /// Saves what this session has learned of the server and of its environment, if it is new. Then removes other files that
    /// are too old or too many.
    pub fn save(&mut self, env: &[CString], remembered: &Remembered) -> io::Result<()> {
        if self.learns {
            return if remembered.changed() {
                self.write(remembered)
            } else {
                Ok(())
            };
        }
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
        let bytes = format::serialize(&self.server, &self.command, remembered)?;
        let replaced = replace(&directory, &self.name, &bytes);
        let in_use = [self.name.as_str(), &self.openings];
        retain::retain(&directory, &in_use, clock::wall_ms());
        replaced
    }

    /// Adds this session to the last openings of the command. True if the key of the configuration changed, because a variable
    /// turned out to be volatile.
    fn note(&mut self, env: &[CString], answers: Answers) -> io::Result<bool> {
        let directory = self.directory.make()?;
        let mut openings = match read_openings(&directory, &self.openings) {
            Some(openings) => openings,
            None => Openings::new(random()?),
        };
        if openings.note(self.session, answers, env) {
            replace(
                &directory,
                &self.openings,
                &openings.serialize(&self.server)?,
            )?;
        }
        let key = self.key.key(env, |name| openings.is_volatile(name));
        let name = format!("{key}.{ENDING}");
        let moved = name != self.name;
        self.name = name;
        Ok(moved)
    }
}

/// All files of the cache, sorted by the names of their servers.
pub fn all(directory: &Location) -> io::Result<Vec<CacheListing>> {
    let directory = match directory.open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result?,
    };
    let mut found: Vec<CacheListing> = retain::files(&directory)?
        .into_iter()
        .filter(|file| file.kind != Kind::New)
        .map(|file| {
            let read = read_in(&directory, &file.name).map(|(_, bytes)| bytes);
            let head = read.as_deref().and_then(format::head).unwrap_or_default();
            CacheListing {
                server: head.server,
                command: head.command,
                contents: read.as_deref().and_then(format::contents),
                is_openings: file.kind == Kind::Openings,
                name: file.name,
                bytes: file.bytes,
                used_ms: file.used_ms,
            }
        })
        .collect();
    found.sort_by(|a, b| (&a.server, &a.name).cmp(&(&b.server, &b.name)));
    Ok(found)
}

/// How many configurations are in the cache, and the bytes of all its files.
pub fn extent(directory: &Location) -> io::Result<(usize, u64)> {
    let files = match directory.open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        result => retain::files(&result?)?,
    };
    let bytes = files.iter().map(|file| file.bytes).sum();
    let configurations = files.iter().filter(|file| file.kind == Kind::Configuration);
    Ok((configurations.count(), bytes))
}

fn load_in(directory: &Directory, name: &str) -> Option<Remembered> {
    let (file, bytes) = read_in(directory, name)?;
    let (_, remembered) = format::parse(&bytes)?;
    mark_used(&file);
    Some(remembered)
}

fn read_openings(directory: &Directory, name: &str) -> Option<Openings> {
    let (file, bytes) = read_in(directory, name)?;
    let openings = Openings::parse(&bytes)?;
    mark_used(&file);
    Some(openings)
}

/// Replaces a file as a whole.
fn replace(directory: &Directory, name: &str, bytes: &[u8]) -> io::Result<()> {
    // Two sessions may write at the same time, so each writes to a temporary file of its own.
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

/// The command line for people. Its secrets are hidden as in events and in `ps`.
fn shown_command(configuration: &Configuration<'_>) -> String {
    let words = configuration.argv.iter();
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    redact::words(&words).join(" ")
}

fn random() -> io::Result<u64> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(random))
}

/// Sets the time of the last use. It may fail on a read-only disk, where no file is removed for its age either.
fn mark_used(file: &File) {
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

/// Reads a file that no other user could have written. A model reads the tool descriptions in it, so text of other users must
/// not get in.
fn read_in(directory: &Directory, name: &str) -> Option<(File, Vec<u8>)> {
    let file = directory.open(name, CACHE_FILE_BYTES).ok()?;
    let bytes = state::read_all(&file, CACHE_FILE_BYTES).ok()?;
    Some((file, bytes))
}

#[cfg(test)]
mod tests;
