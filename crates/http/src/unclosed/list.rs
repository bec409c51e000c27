//! Lists the notes of unclosed sessions.

use std::io;
use std::path::PathBuf;

use mainstay_os::clock;
use mainstay_store::paths::Paths;
use mainstay_store::state::{Directory, Location};
use rustix::fs::{FlockOperation, flock};

use super::note::{self, Attempts, ENDING, NEW, Note, OPENING, TRIED};

/// A file that is older than this and still has its temporary name was left by a killed writer.
const WRITING_MS: u64 = 60_000;

/// A note, with its state as another process sees it.
#[derive(Debug)]
pub struct ListedNote {
    /// The file.
    pub path: PathBuf,
    /// Or why it cannot be read.
    pub note: io::Result<Note>,
    /// The process that opened the session lives, or another process is closing it now.
    pub locked: bool,
    /// The attempts to close it so far.
    pub attempts: Attempts,
}

/// The directories that have notes: first the one that is written to, then that of earlier versions.
pub(super) fn directories(paths: &Paths) -> [Location; 2] {
    [paths.sessions(), paths.old_sessions()]
}

/// All notes, oldest first.
pub fn list(paths: &Paths) -> Vec<ListedNote> {
    let opened = directories(paths)
        .into_iter()
        .filter_map(|at| at.open().ok());
    let mut all: Vec<ListedNote> = opened.flat_map(|notes| list_in(&notes)).collect();
    all.sort_by_key(|one| {
        let since = one.note.as_ref().map_or(0, |note| note.since_ms);
        (since, one.path.clone())
    });
    all
}

fn list_in(notes: &Directory) -> Vec<ListedNote> {
    let names = files(notes).into_iter().chain(openings(notes));
    let listed = names.filter_map(|name| {
        let note = match note::read(notes, &name) {
            Ok(note) => Ok(note),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => Err(error),
        };
        Some(ListedNote {
            locked: is_locked(notes, &name),
            attempts: note::attempts(notes, &name),
            note,
            path: notes.path().join(name),
        })
    });
    listed.collect()
}

/// True if the owner of a session is dead and the next attempt to close it may be made now.
pub fn is_due(paths: &Paths) -> bool {
    let now = clock::wall_ms();
    directories(paths).into_iter().any(|at| {
        let Ok(notes) = at.open() else {
            return false;
        };
        let due = |name: &String| {
            !is_locked(&notes, name)
                && !note::attempts(&notes, name).must_wait(now)
                && note::read(&notes, name).is_ok()
        };
        files(&notes).iter().any(due) || openings(&notes).iter().any(due)
    })
}

/// The notes of sessions whose id is known.
pub(super) fn files(notes: &Directory) -> Vec<String> {
    ending_with(notes, ENDING)
}

/// The notes of sessions that the server was asked for and whose id is not known yet.
pub(super) fn openings(notes: &Directory) -> Vec<String> {
    ending_with(notes, OPENING)
}

fn ending_with(notes: &Directory, ending: &str) -> Vec<String> {
    let mut names = notes.names().unwrap_or_default();
    names.retain(|name| name.ends_with(ending) && !name.starts_with(NEW));
    names
}

/// Removes what killed writers left.
pub(super) fn tidy(notes: &Directory) {
    for name in notes.names().unwrap_or_default() {
        if name.starts_with(NEW) && is_old(notes, &name) && !is_locked(notes, &name) {
            finish_or_remove(notes, &name);
        } else if let Some((stem, _)) = name.split_once(TRIED)
            && !notes.has(&format!("{stem}{ENDING}"))
        {
            // The attempts to close a session whose note is gone.
            notes.remove(&name).ok();
        }
    }
}

/// True if the file is so old that its writer no longer exists.
fn is_old(notes: &Directory, name: &str) -> bool {
    let found = notes.look(name);
    found.is_ok_and(|found| clock::wall_ms().saturating_sub(found.changed_ms) > WRITING_MS)
}

/// Gives a complete note its final name, because its session may be open. Removes a partial one: its session id was never
/// passed on.
fn finish_or_remove(notes: &Directory, name: &str) {
    let found = note::read(notes, name);
    let ending = match &found {
        Ok(note) if note.session.is_empty() => OPENING,
        Ok(_) | Err(_) => ENDING,
    };
    let place = format!("{}{ending}", name.trim_start_matches(NEW));
    if found.is_ok() && !notes.has(&place) {
        notes.rename(name, &place).ok();
    } else {
        notes.remove(name).ok();
    }
}

fn is_locked(notes: &Directory, name: &str) -> bool {
    // The shared lock is released at once. A closing process that meets it tries again (`note::lock_exclusively`).
    note::open(notes, name)
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}
