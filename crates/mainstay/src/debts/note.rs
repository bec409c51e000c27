//! Writing a debt down, and striking it out.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hyper::header::HeaderMap;
use mainstay_core::ids::{Identity, LinkId};
use mainstay_core::limits;
use mainstay_os::{clock, identity};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::seal::Seal;
use super::secret::{Named, Source};
use crate::http::target::Target;
use crate::ledger::time::rfc3339;
use crate::paths::{FILE_MODE, Paths};

/// Files that are still being written begin with this.
pub(super) const NEW: &str = ".new-";
/// What a debt's file ends with.
pub(super) const ENDING: &str = ".json";
/// What the file of an opening ends with.
pub(super) const OPENING: &str = ".opening";
/// What the file of a debt's attempts ends with.
pub(super) const TRIED: &str = ".tried";
/// How often a debt is tried to be claimed while others look at it.
const VISITS_MOST: u32 = 100;
/// Between two tries.
const VISIT_MS: u32 = 1;
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
    /// The server's URL, without user, password and query. Its path may hold a token, which the DELETE needs.
    pub url: String,
    /// Where the URL's secret part came from, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_secret: Option<Source>,
    /// The session; empty while it is being opened and has no name yet.
    pub session: String,
    /// The protocol version to close it with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The user's headers.
    #[serde(default)]
    pub headers: Vec<Named>,
    /// By which the values of all these are known again; none if there are none, or in a note of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
    /// Who opened it.
    pub owner: Identity,
    /// The boot that the owner is of.
    pub boot: String,
    /// When, for people.
    pub since: String,
    /// When, in milliseconds since 1970.
    pub since_ms: u64,
}

impl Note {
    /// A session that this process has opened just now, or is about to.
    pub fn of_ours(server: &str, link: LinkId, url: String, session: &str) -> Self {
        let now = clock::wall_ms();
        Self {
            v: 1,
            server: server.into(),
            link,
            url,
            url_secret: None,
            session: session.into(),
            version: None,
            headers: Vec::new(),
            seal: None,
            owner: identity::me().unwrap_or(Identity { pid: 0, start: 0 }),
            boot: identity::realm()
                .map(|realm| realm.boot)
                .unwrap_or_default(),
            since: rfc3339(now),
            since_ms: now,
        }
    }
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
    /// When the last one was, in milliseconds since 1970; 0 in a file of an older version.
    #[serde(default)]
    pub last_ms: u64,
    /// For how long it is being tried, in milliseconds, as far as no clock has jumped.
    #[serde(default)]
    pub waited_ms: u64,
}

impl Tried {
    /// Whether it is too soon for the next attempt. A time that is further away than any rest was written by a clock
    /// that was wrong.
    pub fn rests(&self, now_ms: u64) -> bool {
        now_ms < self.next_ms && self.next_ms - now_ms <= limits::DEBT_RETRY_MOST_MS
    }

    /// For how long it has been tried when it is tried now. A clock that jumps adds little to that.
    pub(super) fn waited_until(&self, now_ms: u64) -> u64 {
        let since = match self.last_ms {
            0 => 0,
            last => now_ms.saturating_sub(last),
        };
        self.waited_ms
            .saturating_add(since.min(limits::DEBT_PAUSE_MOST_MS))
    }
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
        Self::write_as(paths, note, ENDING)
    }

    /// Writes down that a session is asked for, so that a death in the middle of that is not silent. It outlives any
    /// process, and is worth no sync: nobody could close a session without a name.
    pub fn opening(paths: &Paths, note: Note) -> io::Result<Self> {
        Self::write_as(paths, note, OPENING)
    }

    fn write_as(paths: &Paths, mut note: Note, ending: &str) -> io::Result<Self> {
        // Whoever writes a note, no secret of a URL gets into it.
        if let Ok(target) = Target::parse(&note.url)
            && target.has_secret()
        {
            note.url = target.plain();
            note.url_secret = note.url_secret.or(Some(Source::Flag));
            if note.headers.is_empty() && note.seal.is_none() {
                note.seal = Seal::of(&target, &HeaderMap::new());
            }
        }
        paths
            .make()
            .map_err(|report| io::Error::other(report.problem()))?;
        let directory = paths.debts();
        let mut bytes = [0u8; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("{:016x}", u64::from_ne_bytes(bytes));
        let path = directory.join(format!("{name}{ending}"));
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
        let lock = open(path).ok()?;
        if !hold(&lock) {
            return None;
        }
        // It may have been struck out, or written anew, before we had the lock.
        let (held, there) = (lock.metadata().ok()?, fs::metadata(path).ok()?);
        if (held.dev(), held.ino()) != (there.dev(), there.ino()) {
            return None;
        }
        let note = read_from(&lock).ok()?;
        Some(Self {
            note,
            path: path.into(),
            lock,
        })
    }

    /// Strikes it out.
    pub fn strike_out(self) -> io::Result<()> {
        let removed = fs::remove_file(&self.path);
        for beside in ["tried", "tried-new"] {
            fs::remove_file(self.path.with_extension(beside)).ok();
        }
        drop(self.lock);
        removed
    }

    /// What became of earlier attempts.
    pub fn tried(&self) -> Tried {
        tried(&self.path)
    }

    /// Notes attempts of the session's owner that were in vain. The next payer need not rest: it may be of more use.
    pub fn note_failure(&self, attempts: u32, why: String) {
        let before = self.tried();
        let now = clock::wall_ms();
        self.note_attempt(&Tried {
            attempts: before.attempts.saturating_add(attempts),
            why,
            next_ms: now,
            last_ms: now,
            waited_ms: before.waited_until(now),
        });
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
        if note.session.is_empty() {
            return fs::rename(&new, path);
        }
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

/// Takes the lock, unless an owner or a payer has it. Whoever only looks shares it, and is gone in an instant.
fn hold(file: &File) -> bool {
    for _ in 0..VISITS_MOST {
        if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        if flock(file, FlockOperation::NonBlockingLockShared).is_err() {
            return false;
        }
        flock(file, FlockOperation::Unlock).ok();
        clock::nap(VISIT_MS);
    }
    false
}

/// Opens a file that may be a note: a plain file of ours, and nothing that could keep us waiting.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let careful = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(careful.bits() as i32)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(io::Error::other("it belongs to somebody else"));
    }
    Ok(file)
}

pub(super) fn read(path: &Path) -> io::Result<Note> {
    read_from(&open(path)?)
}

fn read_from(file: &File) -> io::Result<Note> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(io::Error::other("it is too long for a note of ours"));
    }
    serde_json::from_slice(&bytes)
        .map_err(|_| io::Error::other("it is damaged, or not a note of ours"))
}

pub(super) fn tried(path: &Path) -> Tried {
    let bytes = fs::read(path.with_extension("tried")).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}
