//! Keeping the records few: those unused for long go, then the longest unused ones until the rest fits.
//!
//! Done at each save. Two at once do no harm: whoever comes second finds a file gone.

use std::io;

use mainstay_core::limits::{RECORDS_KEPT, RECORDS_KEPT_BYTES, RECORDS_KEPT_DAYS};

use super::key::KEY_DIGITS;
use super::{ENDING, ENDING_OF_OPENINGS};
use crate::ledger::time::DAY_MS;
use crate::state::{Directory, NEW};

/// After this time, one that is still being written is what a killed writer left.
const WRITING_MS: u64 = 3_600_000;

/// What a file of ours is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Still being written.
    New,
    /// The record of a configuration.
    Record,
    /// The last openings of a command.
    Openings,
}

impl Kind {
    fn of(name: &str) -> Option<Self> {
        if name.starts_with(NEW) {
            return Some(Self::New);
        }
        let (stem, ending) = name.rsplit_once('.')?;
        let ours = stem.len() == KEY_DIGITS && stem.bytes().all(|b| b.is_ascii_hexdigit());
        match ending {
            ENDING if ours => Some(Self::Record),
            ENDING_OF_OPENINGS if ours => Some(Self::Openings),
            _ => None,
        }
    }
}

/// A file of ours in the directory of all records.
#[derive(Debug)]
pub struct Found {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// When it was last used, by the wall.
    pub used_ms: u64,
    /// Its size.
    pub bytes: u64,
}

/// The files that are ours, by their names.
pub fn files(directory: &Directory) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for name in directory.names()? {
        // One that went away while we looked is none.
        if let Some(kind) = Kind::of(&name)
            && let Ok(looked) = directory.look(&name)
            && looked.is_file
        {
            found.push(Found {
                name,
                kind,
                used_ms: looked.changed_ms,
                bytes: looked.bytes,
            });
        }
    }
    Ok(found)
}

/// Removes what is too old or too much, but never what is in use.
pub fn retain(directory: &Directory, but: &[&str], wall_ms: u64) {
    prune(directory, but, wall_ms, RECORDS_KEPT, RECORDS_KEPT_BYTES);
}

fn prune(directory: &Directory, but: &[&str], wall_ms: u64, count: usize, bytes: u64) {
    let mut files = files(directory).unwrap_or_default();
    let in_use = |file: &Found| but.contains(&file.name.as_str());
    // The one used last comes first, before all others those in use.
    files.sort_by_key(|file| (!in_use(file), std::cmp::Reverse(file.used_ms)));
    let (mut records, mut openings, mut kept_bytes) = (0, 0, 0);
    for file in files {
        let unused_ms = wall_ms.saturating_sub(file.used_ms);
        let kept = match file.kind {
            Kind::New => None,
            Kind::Record => Some(&mut records),
            Kind::Openings => Some(&mut openings),
        };
        let stays = match kept {
            None => unused_ms < WRITING_MS,
            Some(kept) => {
                *kept += 1;
                kept_bytes += file.bytes;
                unused_ms < RECORDS_KEPT_DAYS * DAY_MS && *kept <= count && kept_bytes <= bytes
            }
        };
        if !stays && !in_use(&file) {
            // What cannot be removed is seen again at the next save.
            directory.remove(&file.name).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, UNIX_EPOCH};

    fn put(directory: &Path, name: &str, day: u64) {
        let path = directory.join(name);
        fs::write(&path, [b'x'; 100]).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        let used = UNIX_EPOCH + Duration::from_millis(day * DAY_MS);
        file.set_modified(used).unwrap();
    }

    fn record(number: u64) -> String {
        format!("{number:032x}.json")
    }

    fn openings(number: u64) -> String {
        format!("{number:032x}.openings")
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_not_used_for_long_goes() {
        let scratch = Scratch::new();
        let directory = scratch.path();
        for day in [1, 70, 71, 100, 200] {
            put(directory, &record(day), day);
        }
        put(directory, &openings(70), 70);
        put(directory, &openings(71), 71);
        for (name, day) in [(".new-a", 99), (".new-b", 100), ("notes.json", 1), ("x", 1)] {
            put(directory, name, day);
        }
        let open = scratch.location().open().unwrap();
        retain(&open, &[&record(1)], 100 * DAY_MS);
        let mut expected = [".new-b", "notes.json", "x"].map(String::from).to_vec();
        expected.extend([1, 71, 100, 200].map(record));
        expected.push(openings(71));
        expected.sort();
        assert_eq!(names(directory), expected);
    }

    #[test]
    fn the_longest_unused_go_until_the_rest_fits() {
        let scratch = Scratch::new();
        let directory = scratch.path();
        for day in 1..=6 {
            put(directory, &record(day), day);
        }
        let (open, ours) = (scratch.location().open().unwrap(), record(1));
        prune(&open, &[&ours], 6 * DAY_MS, 4, 1_000);
        assert_eq!(names(directory), [1, 4, 5, 6].map(record));
        prune(&open, &[&ours], 6 * DAY_MS, 4, 250);
        assert_eq!(names(directory), [1, 6].map(record));
        prune(&open, &[&ours], 6 * DAY_MS, 0, 0);
        assert_eq!(names(directory), [record(1)]);
    }

    #[test]
    fn openings_are_counted_for_themselves() {
        let scratch = Scratch::new();
        let directory = scratch.path();
        for day in 1..=6 {
            put(directory, &record(day), day);
            put(directory, &openings(day), day);
        }
        let open = scratch.location().open().unwrap();
        prune(&open, &[], 6 * DAY_MS, 2, 1_000);
        assert_eq!(
            names(directory),
            [record(5), openings(5), record(6), openings(6)]
        );
    }
}
