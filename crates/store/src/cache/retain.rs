//! Limits the cache: removes files that are unused for long, then the longest unused ones until the rest fits.
//!
//! This runs at each save. Two processes may do it at the same time: one of them finds a file gone, which does no harm.

use std::io;

use mainstay_protocol::limits::{CACHE_FILES_KEPT, CACHE_FILES_KEPT_BYTES, CACHE_FILES_KEPT_DAYS};
use mainstay_protocol::time::DAY_MS;

use super::key::KEY_DIGITS;
use super::{ENDING, ENDING_OF_OPENINGS};
use crate::state::{Directory, NEW};

/// A temporary file that is older than this was left by a killed writer.
const WRITING_MS: u64 = 3_600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A temporary file, still being written.
    New,
    /// The cache file of a configuration.
    Configuration,
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
            ENDING if ours => Some(Self::Configuration),
            ENDING_OF_OPENINGS if ours => Some(Self::Openings),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub struct CacheDirectoryEntry {
    pub name: String,
    pub kind: Kind,
    /// When it was last used, in milliseconds since 1970.
    pub used_ms: u64,
    pub bytes: u64,
}

/// The files with a name that the cache uses.
pub fn files(directory: &Directory) -> io::Result<Vec<CacheDirectoryEntry>> {
    let mut found = Vec::new();
    for name in directory.names()? {
        // A file that another process removes at this moment is left out.
        if let Some(kind) = Kind::of(&name)
            && let Ok(looked) = directory.look(&name)
            && looked.is_file
        {
            found.push(CacheDirectoryEntry {
                name,
                kind,
                used_ms: looked.changed_ms,
                bytes: looked.bytes,
            });
        }
    }
    Ok(found)
}

/// Removes files that are too old or too many, but never those of `in_use`.
pub fn retain(directory: &Directory, in_use: &[&str], wall_ms: u64) {
    prune(
        directory,
        in_use,
        wall_ms,
        CACHE_FILES_KEPT,
        CACHE_FILES_KEPT_BYTES,
    );
}

fn prune(directory: &Directory, in_use: &[&str], wall_ms: u64, count: usize, bytes: u64) {
    let mut files = files(directory).unwrap_or_default();
    let is_used = |file: &CacheDirectoryEntry| in_use.contains(&file.name.as_str());
    // Files in use first, then the others, the most recently used first.
    files.sort_by_key(|file| (!is_used(file), std::cmp::Reverse(file.used_ms)));
    let (mut configurations, mut openings, mut kept_bytes) = (0, 0, 0);
    for file in files {
        let unused_ms = wall_ms.saturating_sub(file.used_ms);
        let kept = match file.kind {
            Kind::New => None,
            Kind::Configuration => Some(&mut configurations),
            Kind::Openings => Some(&mut openings),
        };
        let stays = match kept {
            None => unused_ms < WRITING_MS,
            Some(kept) => {
                *kept += 1;
                kept_bytes += file.bytes;
                unused_ms < CACHE_FILES_KEPT_DAYS * DAY_MS && *kept <= count && kept_bytes <= bytes
            }
        };
        if !stays && !is_used(&file) {
            // A file that cannot be removed is tried again at the next save.
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

    fn configuration(number: u64) -> String {
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
    fn files_unused_for_long_are_removed() {
        let scratch = Scratch::new();
        let directory = scratch.path();
        for day in [1, 70, 71, 100, 200] {
            put(directory, &configuration(day), day);
        }
        put(directory, &openings(70), 70);
        put(directory, &openings(71), 71);
        for (name, day) in [(".new-a", 99), (".new-b", 100), ("notes.json", 1), ("x", 1)] {
            put(directory, name, day);
        }
        let open = scratch.location().open().unwrap();
        retain(&open, &[&configuration(1)], 100 * DAY_MS);
        let mut expected = [".new-b", "notes.json", "x"].map(String::from).to_vec();
        expected.extend([1, 71, 100, 200].map(configuration));
        expected.push(openings(71));
        expected.sort();
        assert_eq!(names(directory), expected);
    }

    #[test]
    fn the_longest_unused_are_removed_until_the_rest_fits() {
        let scratch = Scratch::new();
        let directory = scratch.path();
        for day in 1..=6 {
            put(directory, &configuration(day), day);
        }
        let (open, ours) = (scratch.location().open().unwrap(), configuration(1));
        prune(&open, &[&ours], 6 * DAY_MS, 4, 1_000);
        assert_eq!(names(directory), [1, 4, 5, 6].map(configuration));
        prune(&open, &[&ours], 6 * DAY_MS, 4, 250);
        assert_eq!(names(directory), [1, 6].map(configuration));
        prune(&open, &[&ours], 6 * DAY_MS, 0, 0);
        assert_eq!(names(directory), [configuration(1)]);
    }

    #[test]
    fn openings_are_counted_separately() {
        let scratch = Scratch::new();
        let directory = scratch.path();
        for day in 1..=6 {
            put(directory, &configuration(day), day);
            put(directory, &openings(day), day);
        }
        let open = scratch.location().open().unwrap();
        prune(&open, &[], 6 * DAY_MS, 2, 1_000);
        assert_eq!(
            names(directory),
            [configuration(5), openings(5), configuration(6), openings(6)]
        );
    }
}
