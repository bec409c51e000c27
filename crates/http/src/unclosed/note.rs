//! The note of one unclosed session: written, locked, removed.

use std::fs::File;
use std::io::{self, Write};

use hyper::header::HeaderMap;
use mainstay_os::{clock, identity};
use mainstay_protocol::ids::{Identity, LinkId};
use mainstay_protocol::limits;
use mainstay_protocol::time::rfc3339;
use mainstay_store::config::target::Target;
use mainstay_store::paths::Paths;
use mainstay_store::state::{self, Directory, FileInfo, Location};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::credentials::{NamedHeader, Source};
use super::fingerprint::Fingerprint;

pub(super) use mainstay_store::state::NEW;
/// The file of a session whose id is known.
pub(super) const ENDING: &str = ".json";
/// The file of a session that the server was asked for and whose id is not known yet.
pub(super) const OPENING: &str = ".opening";
/// The file of the attempts to close a session.
pub(super) const TRIED: &str = ".tried";
/// How often the exclusive lock is tried while processes that only list notes hold shared ones.
const LOCK_TRIES: u32 = 100;
const LOCK_WAIT_MS: u32 = 1;
/// The largest file that is read.
const FILE_BYTES: u64 = 64 * 1024;

/// What is on the disk. The names of the fields are the file format, which older versions also read and write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Format version.
    pub v: u32,
    /// The server's name.
    pub server: String,
    /// The link that opened the session.
    pub link: LinkId,
    /// The server's URL, without user, password and query. Its path may hold a token, which the DELETE needs.
    pub url: String,
    /// Where the URL's secret part came from, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_secret: Option<Source>,
    /// The session id; empty while the session is being opened.
    pub session: String,
    /// The protocol version to send with DELETE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The headers that the user configured.
    #[serde(default)]
    pub headers: Vec<NamedHeader>,
    /// Recognises the secrets that opened the session; none if there were none, or in a note of an older version.
    #[serde(default, rename = "seal", skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// The process that opened the session.
    pub owner: Identity,
    /// The boot in which the owner ran.
    pub boot: String,
    /// When the session was opened, for people.
    pub since: String,
    /// The same in milliseconds since 1970.
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
            fingerprint: None,
            owner: identity::me().unwrap_or(Identity { pid: 0, start: 0 }),
            boot: identity::realm()
                .map(|realm| realm.boot)
                .unwrap_or_default(),
            since: rfc3339(now),
            since_ms: now,
        }
    }
}

/// The attempts to close a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// Attempts that failed, without those for which a secret was missing.
    #[serde(rename = "attempts")]
    pub count: u32,
    /// Why the last one failed.
    pub why: String,
    /// When the next one may be made, in milliseconds since 1970.
    pub next_ms: u64,
    /// When the last one was made, in milliseconds since 1970; 0 in a file of an older version.
    #[serde(default)]
    pub last_ms: u64,
    /// How long attempts have been made, in milliseconds, without the jumps of the clock.
    #[serde(default)]
    pub waited_ms: u64,
}

impl Attempts {
    /// True if it is too early for the next attempt. A time that is further away than the longest wait was written by a
    /// wrong clock, and is ignored.
    pub fn must_wait(&self, now_ms: u64) -> bool {
        now_ms < self.next_ms && self.next_ms - now_ms <= limits::CLOSE_RETRY_MOST_MS
    }

    /// `waited_ms` if the next attempt is made now. The time since the last one is capped, because the clock may have
    /// jumped or the machine may have slept.
    pub(super) fn waited_until(&self, now_ms: u64) -> u64 {
        let since = match self.last_ms {
            0 => 0,
            last => now_ms.saturating_sub(last),
        };
        self.waited_ms
            .saturating_add(since.min(limits::UNCLOSED_PAUSE_MOST_MS))
    }
}

/// A note whose lock this process holds.
#[derive(Debug)]
pub struct LockedNote {
    /// What is in the file.
    pub note: Note,
    place: Location,
    name: String,
    lock: File,
}

impl LockedNote {
    /// Writes the note of a session. When this returns, it is on the disk.
    pub fn write(paths: &Paths, note: Note) -> io::Result<Self> {
        Self::write_as(paths, note, ENDING)
    }

    /// Notes that the server is asked for a session, so that a kill before its answer is reported. It is not synced to the
    /// disk: a session without an id cannot be closed anyway.
    pub fn opening(paths: &Paths, note: Note) -> io::Result<Self> {
        Self::write_as(paths, note, OPENING)
    }

    fn write_as(paths: &Paths, mut note: Note, ending: &str) -> io::Result<Self> {
        // Here and not in the callers, so that no caller can write a secret of a URL.
        if let Ok(target) = Target::parse(&note.url)
            && target.has_secret()
        {
            note.url = target.plain();
            note.url_secret = note.url_secret.or(Some(Source::Flag));
            if note.headers.is_empty() && note.fingerprint.is_none() {
                note.fingerprint = Fingerprint::of(&target, &HeaderMap::new());
            }
        }
        let place = paths.sessions();
        let notes = place.make()?;
        let mut bytes = [0u8; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("{:016x}{ending}", u64::from_ne_bytes(bytes));
        let lock = put(&notes, &name, &note)?;
        Ok(Self {
            note,
            place,
            name,
            lock,
        })
    }

    /// Changes the protocol version to send with DELETE.
    pub fn rewrite(&mut self, version: Option<String>) -> io::Result<()> {
        let note = Note {
            version,
            ..self.note.clone()
        };
        self.lock = put(&self.place.open()?, &self.name, &note)?;
        self.note = note;
        Ok(())
    }

    /// Locks a note; none if another process holds its lock, or if it is gone or cannot be read.
    pub fn lock(place: &Location, name: &str) -> Option<Self> {
        let notes = place.open().ok()?;
        let lock = open(&notes, name).ok()?;
        if !lock_exclusively(&lock) {
            return None;
        }
        // The note may have been removed or rewritten before we had the lock.
        if FileInfo::of_file(&lock).ok()?.which != notes.look(name).ok()?.which {
            return None;
        }
        let note = read_from(&lock).ok()?;
        Some(Self {
            note,
            place: place.clone(),
            name: name.into(),
            lock,
        })
    }

    /// Removes the note: the session is closed, or given up.
    pub fn remove(self) -> io::Result<()> {
        let notes = self.place.open()?;
        let removed = notes.remove(&self.name);
        notes.remove(&attempts_file(&self.name)).ok();
        drop(self.lock);
        removed
    }

    /// The attempts so far.
    pub fn attempts(&self) -> Attempts {
        let notes = self.place.open();
        notes.map_or_else(
            |_| Attempts::default(),
            |notes| attempts(&notes, &self.name),
        )
    }

    /// Notes failed attempts of the session's owner. The next process need not wait: it may have what the owner had not.
    pub fn note_failure(&self, count: u32, why: String) {
        let before = self.attempts();
        let now = clock::wall_ms();
        self.write_attempts(&Attempts {
            count: before.count.saturating_add(count),
            why,
            next_ms: now,
            last_ms: now,
            waited_ms: before.waited_until(now),
        });
    }

    /// Best effort: if it cannot be written, the next attempt comes sooner.
    pub fn write_attempts(&self, attempts: &Attempts) {
        if let (Ok(bytes), Ok(notes)) = (serde_json::to_vec(attempts), self.place.open()) {
            notes.replace(&attempts_file(&self.name), &bytes).ok();
        }
    }
}

/// Writes a file and locks it under a temporary name, and renames it when it is on the disk.
fn put(notes: &Directory, name: &str, note: &Note) -> io::Result<File> {
    let new = format!("{NEW}{}", stem(name));
    let mut file = notes.create(&new)?;
    let written = (|| {
        // A process that lists notes holds its shared lock only for an instant.
        flock(&file, FlockOperation::LockExclusive)?;
        let mut bytes = serde_json::to_vec(note)?;
        bytes.push(b'\n');
        file.write_all(&bytes)?;
        if note.session.is_empty() {
            return notes.rename(&new, name);
        }
        file.sync_all()?;
        notes.rename(&new, name)?;
        notes.sync()
    })();
    if let Err(error) = written {
        notes.remove(&new).ok();
        return Err(error);
    }
    Ok(file)
}

/// Takes the lock, unless the owner or a closing process has it. A process that only lists notes has a shared lock for an
/// instant; that one is waited for.
fn lock_exclusively(file: &File) -> bool {
    for _ in 0..LOCK_TRIES {
        if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        if flock(file, FlockOperation::NonBlockingLockShared).is_err() {
            return false;
        }
        flock(file, FlockOperation::Unlock).ok();
        clock::nap(LOCK_WAIT_MS);
    }
    false
}

pub(super) fn open(notes: &Directory, name: &str) -> io::Result<File> {
    notes.open(name, FILE_BYTES)
}

pub(super) fn read(notes: &Directory, name: &str) -> io::Result<Note> {
    read_from(&open(notes, name)?)
}

fn read_from(file: &File) -> io::Result<Note> {
    serde_json::from_slice(&state::read_all(file, FILE_BYTES)?)
        .map_err(|_| io::Error::other("it is damaged, or mainstay did not write it"))
}

pub(super) fn attempts(notes: &Directory, name: &str) -> Attempts {
    let bytes = notes
        .read(&attempts_file(name), FILE_BYTES)
        .unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

fn attempts_file(name: &str) -> String {
    format!("{}{TRIED}", stem(name))
}

/// A file's name without its ending.
fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}
