//! Writing a debt down, and striking it out.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mainstay_core::ids::{Identity, LinkId};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::secret::{Named, Source};
use crate::paths::{FILE_MODE, Paths};

/// Files that are still being written begin with this.
pub(super) const NEW: &str = ".new-";
/// What a debt's file ends with.
pub(super) const ENDING: &str = ".json";
/// What the file of its attempts ends with.
pub(super) const TRIED: &str = ".tried";
/// The largest file that is read.
const FILE_BYTES: u64 = 64 * 1024;

/// One debt, as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Format version.
    pub v: u32,
    /// The server's name.
    pub server: String,
    /// The link that opened it.
    pub link: LinkId,
    /// The server's URL, without user, password and query.
    pub url: String,
    /// Where the URL's secret part came from, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_secret: Option<Source>,
    /// The session.
    pub session: String,
    /// The protocol version to close it with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The user's headers.
    #[serde(default)]
    pub headers: Vec<Named>,
    /// Who opened it.
    pub owner: Identity,
    /// The boot that the owner is of.
    pub boot: String,
    /// When, for people.
    pub since: String,
    /// When, in milliseconds since 1970.
    pub since_ms: u64,
}

/// What became of the attempts to pay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// How many.
    pub attempts: u32,
    /// Why the last one was in vain.
    pub why: String,
    /// Not before this time again, in milliseconds since 1970.
    pub next_ms: u64,
}

/// A debt whose lock this process holds.
#[derive(Debug)]
pub struct Held {
    /// What is owed.
    pub note: Note,
    path: PathBuf,
    lock: File,
}

impl Held {
    /// Writes a debt down. When this returns, it is on the disk.
    pub fn write(paths: &Paths, note: Note) -> io::Result<Self> {
        paths
            .make()
            .map_err(|report| io::Error::other(report.problem()))?;
        let directory = paths.debts();
        let mut bytes = [0u8; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("{:016x}", u64::from_ne_bytes(bytes));
        let path = directory.join(format!("{name}{ENDING}"));
        let lock = put(&directory, &name, &path, &note)?;
        Ok(Self { note, path, lock })
    }

    /// The same debt, closed with another version.
    pub fn rewrite(&mut self, version: Option<String>) -> io::Result<()> {
        let note = Note {
            version,
            ..self.note.clone()
        };
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let name = self.path.file_stem().unwrap_or_default();
        self.lock = put(directory, &name.to_string_lossy(), &self.path, &note)?;
        self.note = note;
        Ok(())
    }

    /// Takes hold of a debt that nobody holds; none if somebody does, or if it is gone or cannot be read.
    pub fn claim(path: &Path) -> Option<Self> {
        let lock = File::open(path).ok()?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        // It may have been struck out, or written anew, before we had the lock.
        let (held, there) = (lock.metadata().ok()?, fs::metadata(path).ok()?);
        if (held.dev(), held.ino()) != (there.dev(), there.ino()) {
            return None;
        }
        let note = read(path).ok()?;
        Some(Self {
            note,
            path: path.into(),
            lock,
        })
    }

    /// Strikes it out.
    pub fn strike_out(self) -> io::Result<()> {
        let removed = fs::remove_file(&self.path);
        fs::remove_file(self.path.with_extension("tried")).ok();
        drop(self.lock);
        removed
    }

    /// What became of earlier attempts.
    pub fn tried(&self) -> Tried {
        tried(&self.path)
    }

    /// Notes an attempt that was in vain. Best effort: without it, the next one comes sooner.
    pub fn note_attempt(&self, tried: &Tried) {
        let path = self.path.with_extension("tried");
        if let Ok(bytes) = serde_json::to_vec(tried) {
            let new = path.with_extension("tried-new");
            let written = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(FILE_MODE)
                .open(&new)
                .and_then(|mut file| file.write_all(&bytes));
            if written.and_then(|()| fs::rename(&new, &path)).is_err() {
                fs::remove_file(&new).ok();
            }
        }
    }
}

/// Writes a file that is locked from its first moment, and puts it in its place when it is on the disk.
fn put(directory: &Path, name: &str, path: &Path, note: &Note) -> io::Result<File> {
    let new = directory.join(format!("{NEW}{name}"));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&new)?;
    let written = (|| {
        // Whoever looks at it holds it for an instant only.
        flock(&file, FlockOperation::LockExclusive)?;
        let mut bytes = serde_json::to_vec(note)?;
        bytes.push(b'\n');
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(directory)?.sync_all()
    })();
    if let Err(error) = written {
        fs::remove_file(&new).ok();
        return Err(error);
    }
    Ok(file)
}

pub(super) fn read(path: &Path) -> io::Result<Note> {
    if fs::metadata(path)?.len() > FILE_BYTES {
        return Err(io::Error::other("it is too long for a note of ours"));
    }
    let note: Note = serde_json::from_slice(&fs::read(path)?)
        .map_err(|_| io::Error::other("it is damaged, or not a note of ours"))?;
    Ok(note)
}

pub(super) fn tried(path: &Path) -> Tried {
    let bytes = fs::read(path.with_extension("tried")).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}
