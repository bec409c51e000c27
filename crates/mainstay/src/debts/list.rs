//! What is owed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mainstay_os::clock;
use rustix::fs::{FlockOperation, flock};

use super::note::{self, ENDING, NEW, Note, OPENING, TRIED, Tried};
use crate::paths::Paths;
use crate::report::plain;

/// A file that is being written is younger than this, in seconds.
const WRITING_S: i64 = 60;

/// One debt, as a visitor sees it.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Its file.
    pub path: PathBuf,
    /// What is owed; or why that cannot be read.
    pub note: Result<Note, String>,
    /// Whoever opened the session lives, or somebody is paying right now.
    pub held: bool,
    /// What became of earlier attempts.
    pub tried: Tried,
}

/// Every debt, oldest first.
pub fn list(paths: &Paths) -> Vec<Standing> {
    let mut all: Vec<Standing> = files(paths)
        .into_iter()
        .chain(openings(paths))
        .filter_map(|path| {
            let note = match note::read(&path) {
                Ok(note) => Ok(note),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
                Err(error) => Err(plain(&error)),
            };
            Some(Standing {
                held: held(&path),
                tried: note::tried(&path),
                note,
                path,
            })
        })
        .collect();
    all.sort_by_key(|one| {
        let since = one.note.as_ref().map_or(0, |note| note.since_ms);
        (since, one.path.clone())
    });
    all
}

/// Whether somebody who is dead owes something whose time has come.
pub fn is_due(paths: &Paths) -> bool {
    let now = clock::wall_ms();
    let due =
        |path: &PathBuf| !held(path) && !note::tried(path).rests(now) && note::read(path).is_ok();
    files(paths).iter().any(due) || openings(paths).iter().any(due)
}

/// The files of debts.
pub(super) fn files(paths: &Paths) -> Vec<PathBuf> {
    ending_with(paths, ENDING)
}

/// The files of openings: the server was asked for a session that has no name yet.
pub(super) fn openings(paths: &Paths) -> Vec<PathBuf> {
    ending_with(paths, OPENING)
}

fn ending_with(paths: &Paths, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(paths.debts()).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(ending) && !name.starts_with(NEW)
        })
        .collect()
}

/// Takes away what was being written when its writer was killed: nobody was told of such a session's id.
pub(super) fn tidy(paths: &Paths) {
    let entries = fs::read_dir(paths.debts()).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(NEW) && is_old(&path) && !held(&path) {
            finish_or_remove(&path);
        } else if name.contains(TRIED) && !path.with_extension("json").exists() {
            // What is said about attempts to pay a debt that is no more.
            fs::remove_file(&path).ok();
        }
    }
}

/// Whether a file has been there for so long that nobody is about to lock it.
fn is_old(path: &Path) -> bool {
    let changed = fs::metadata(path).map_or(i64::MAX, |found| found.mtime());
    let now = (clock::wall_ms() / 1_000) as i64;
    now.saturating_sub(changed) > WRITING_S
}

/// A note that is whole is put in its place all the same: its session may be open.
fn finish_or_remove(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let found = note::read(path);
    let ending = match &found {
        Ok(note) if note.session.is_empty() => OPENING,
        Ok(_) | Err(_) => ENDING,
    };
    let place = path.with_file_name(format!("{}{ending}", name.trim_start_matches(NEW)));
    if found.is_ok() && !place.exists() {
        fs::rename(path, place).ok();
    } else {
        fs::remove_file(path).ok();
    }
}

fn held(path: &Path) -> bool {
    // A shared lock that is let go at once disturbs nobody but a payer that looks at this very moment, who comes again.
    note::open(path).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}
