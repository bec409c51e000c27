//! What is owed.

use std::path::PathBuf;

use mainstay_os::clock;
use rustix::fs::{FlockOperation, flock};

use super::note::{self, ENDING, NEW, Note, OPENING, TRIED, Tried};
use crate::paths::Paths;
use crate::report::plain;
use crate::state::Directory;

/// A file that is being written is younger than this.
const WRITING_MS: u64 = 60_000;

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
    let Ok(debts) = paths.debts().open() else {
        return Vec::new();
    };
    let mut all: Vec<Standing> = files(&debts)
        .into_iter()
        .chain(openings(&debts))
        .filter_map(|name| {
            let note = match note::read(&debts, &name) {
                Ok(note) => Ok(note),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
                Err(error) => Err(plain(&error)),
            };
            Some(Standing {
                held: held(&debts, &name),
                tried: note::tried(&debts, &name),
                note,
                path: debts.path().join(name),
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
    let Ok(debts) = paths.debts().open() else {
        return false;
    };
    let now = clock::wall_ms();
    let due = |name: &String| {
        !held(&debts, name)
            && !note::tried(&debts, name).rests(now)
            && note::read(&debts, name).is_ok()
    };
    files(&debts).iter().any(due) || openings(&debts).iter().any(due)
}

/// The files of debts.
pub(super) fn files(debts: &Directory) -> Vec<String> {
    ending_with(debts, ENDING)
}

/// The files of openings: the server was asked for a session that has no name yet.
pub(super) fn openings(debts: &Directory) -> Vec<String> {
    ending_with(debts, OPENING)
}

fn ending_with(debts: &Directory, ending: &str) -> Vec<String> {
    let mut names = debts.names().unwrap_or_default();
    names.retain(|name| name.ends_with(ending) && !name.starts_with(NEW));
    names
}

/// Takes away what was being written when its writer was killed: nobody was told of such a session's id.
pub(super) fn tidy(debts: &Directory) {
    for name in debts.names().unwrap_or_default() {
        if name.starts_with(NEW) && is_old(debts, &name) && !held(debts, &name) {
            finish_or_remove(debts, &name);
        } else if let Some((stem, _)) = name.split_once(TRIED)
            && !debts.has(&format!("{stem}{ENDING}"))
        {
            // What is said about attempts to pay a debt that is no more.
            debts.remove(&name).ok();
        }
    }
}

/// Whether a file has been there for so long that nobody is about to lock it.
fn is_old(debts: &Directory, name: &str) -> bool {
    let found = debts.look(name);
    found.is_ok_and(|found| clock::wall_ms().saturating_sub(found.changed_ms) > WRITING_MS)
}

/// A note that is whole is put in its place all the same: its session may be open.
fn finish_or_remove(debts: &Directory, name: &str) {
    let found = note::read(debts, name);
    let ending = match &found {
        Ok(note) if note.session.is_empty() => OPENING,
        Ok(_) | Err(_) => ENDING,
    };
    let place = format!("{}{ending}", name.trim_start_matches(NEW));
    if found.is_ok() && !debts.has(&place) {
        debts.rename(name, &place).ok();
    } else {
        debts.remove(name).ok();
    }
}

fn held(debts: &Directory, name: &str) -> bool {
    // A shared lock that is let go at once disturbs nobody but a payer that looks at this very moment, who comes again.
    note::open(debts, name)
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}
