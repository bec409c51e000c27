//! Writing a debt down, and striking it out.

use std::fs::File;
use std::io::{self, Write};

use hyper::header::HeaderMap;
use mainstay_core::ids::{Identity, LinkId};
use mainstay_core::limits;
use mainstay_os::{clock, identity};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::seal::Seal;
use super::secret::{Named, Source};
use crate::http::target::Target;
use crate::ledger::time::rfc3339;
use crate::paths::Paths;
use crate::state::{self, Directory, Found, Location};

pub(super) use crate::state::NEW;
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
    place: Location,
    name: String,
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
        let place = paths.debts();
        let debts = place.make()?;
        let mut bytes = [0u8; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("{:016x}{ending}", u64::from_ne_bytes(bytes));
        let lock = put(&debts, &name, &note)?;
        Ok(Self {
            note,
            place,
            name,
            lock,
        })
    }

    /// The same debt, closed with another version.
    pub fn rewrite(&mut self, version: Option<String>) -> io::Result<()> {
        let note = Note {
            version,
            ..self.note.clone()
        };
        self.lock = put(&self.place.open()?, &self.name, &note)?;
        self.note = note;
        Ok(())
    }

    /// Takes hold of a debt that nobody holds; none if somebody does, or if it is gone or cannot be read.
    pub fn claim(place: &Location, name: &str) -> Option<Self> {
        let debts = place.open().ok()?;
        let lock = open(&debts, name).ok()?;
        if !hold(&lock) {
            return None;
        }
        // It may have been struck out, or written anew, before we had the lock.
        if Found::of_file(&lock).ok()?.which != debts.look(name).ok()?.which {
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

    /// Strikes it out.
    pub fn strike_out(self) -> io::Result<()> {
        let debts = self.place.open()?;
        let removed = debts.remove(&self.name);
        debts.remove(&beside(&self.name)).ok();
        drop(self.lock);
        removed
    }

    /// What became of earlier attempts.
    pub fn tried(&self) -> Tried {
        let debts = self.place.open();
        debts.map_or_else(|_| Tried::default(), |debts| tried(&debts, &self.name))
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
        if let (Ok(bytes), Ok(debts)) = (serde_json::to_vec(tried), self.place.open()) {
            debts.replace(&beside(&self.name), &bytes).ok();
        }
    }
}

/// Writes a file that is locked from its first moment, and puts it in its place when it is on the disk.
fn put(debts: &Directory, name: &str, note: &Note) -> io::Result<File> {
    let new = format!("{NEW}{}", stem(name));
    let mut file = debts.create(&new)?;
    let written = (|| {
        // Whoever looks at it holds it for an instant only.
        flock(&file, FlockOperation::LockExclusive)?;
        let mut bytes = serde_json::to_vec(note)?;
        bytes.push(b'\n');
        file.write_all(&bytes)?;
        if note.session.is_empty() {
            return debts.rename(&new, name);
        }
        file.sync_all()?;
        debts.rename(&new, name)?;
        debts.sync()
    })();
    if let Err(error) = written {
        debts.remove(&new).ok();
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

/// Opens a file that may be a note.
pub(super) fn open(debts: &Directory, name: &str) -> io::Result<File> {
    debts.open(name, FILE_BYTES)
}

pub(super) fn read(debts: &Directory, name: &str) -> io::Result<Note> {
    read_from(&open(debts, name)?)
}

fn read_from(file: &File) -> io::Result<Note> {
    serde_json::from_slice(&state::read_all(file, FILE_BYTES)?)
        .map_err(|_| io::Error::other("it is damaged, or not a note of ours"))
}

pub(super) fn tried(debts: &Directory, name: &str) -> Tried {
    let bytes = debts.read(&beside(name), FILE_BYTES).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// The file of a debt's attempts.
fn beside(name: &str) -> String {
    format!("{}{TRIED}", stem(name))
}

/// A file's name without its ending.
fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}
