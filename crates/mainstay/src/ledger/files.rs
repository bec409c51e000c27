//! The names of the event files: `2026-11-15.jsonl`, then `2026-11-15.1.jsonl` once the first is full, and so on.

use std::io;
use std::path::{Path, PathBuf};

use super::time;
use crate::paths::entries;

/// One event file. The order is the order of time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventFile {
    /// Days since 1970-01-01.
    pub day: i64,
    /// 0 for the day's first file.
    pub number: u32,
    /// Where it is.
    pub path: PathBuf,
}

impl EventFile {
    /// The file of a day (as `2026-11-15`) with a number.
    pub fn new(directory: &Path, date: &str, number: u32) -> Option<Self> {
        let name = match number {
            0 => format!("{date}.jsonl"),
            _ => format!("{date}.{number}.jsonl"),
        };
        Self::of(&directory.join(name))
    }

    /// Whether a path is an event file, by its name.
    pub fn of(path: &Path) -> Option<Self> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
        let (date, number) = match stem.split_once('.') {
            Some((date, number)) => (date, number.parse().ok().filter(|&n| n > 0)?),
            None => (stem, 0),
        };
        Some(Self {
            day: time::day_number(date)?,
            number,
            path: path.into(),
        })
    }
}

/// All event files, oldest first; none if the directory does not exist.
pub fn list(directory: &Path) -> io::Result<Vec<EventFile>> {
    let found = entries(directory)?;
    let mut files: Vec<EventFile> = found
        .iter()
        .filter_map(|entry| EventFile::of(&entry.path()))
        .collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;

    #[test]
    fn the_order_is_the_order_of_time_and_others_are_left_out() {
        let scratch = Scratch::new();
        for name in [
            "2026-11-15.10.jsonl",
            "2026-11-15.jsonl",
            "2026-11-15.2.jsonl",
            "2026-11-02.jsonl",
            "notes.jsonl",
            "2026-11-15.0.jsonl",
            "2026-11-15.jsonl.bak",
        ] {
            fs::write(scratch.path().join(name), "").unwrap();
        }
        let names: Vec<String> = list(scratch.path())
            .unwrap()
            .iter()
            .map(|file| file.path.file_name().unwrap().to_str().unwrap().into())
            .collect();
        assert_eq!(
            names,
            [
                "2026-11-02.jsonl",
                "2026-11-15.jsonl",
                "2026-11-15.2.jsonl",
                "2026-11-15.10.jsonl"
            ]
        );
        assert_eq!(list(&scratch.path().join("none")).unwrap(), []);
    }
}
