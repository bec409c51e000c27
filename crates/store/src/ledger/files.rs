//! The names of the event files: `2026-11-15.jsonl`, then `2026-11-15.1.jsonl` once the first is full, and so on.

use std::io;

use mainstay_protocol::time;

use crate::state::Location;

/// One event file. The order is the order of time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventFile {
    /// Days since 1970-01-01.
    pub day: i64,
    /// 0 for the day's first file.
    pub number: u32,
    /// Where it is.
    pub directory: Location,
    /// What it is called.
    pub name: String,
}

impl EventFile {
    /// The file of a day (as `2026-11-15`) with a number.
    pub fn new(directory: &Location, date: &str, number: u32) -> Option<Self> {
        let name = match number {
            0 => format!("{date}.jsonl"),
            _ => format!("{date}.{number}.jsonl"),
        };
        Self::of(directory, &name)
    }

    /// Whether a name is that of an event file.
    pub fn of(directory: &Location, name: &str) -> Option<Self> {
        let stem = name.strip_suffix(".jsonl")?;
        let (date, number) = match stem.split_once('.') {
            Some((date, number)) => (date, number.parse().ok().filter(|&n| n > 0)?),
            None => (stem, 0),
        };
        Some(Self {
            day: time::day_number(date)?,
            number,
            directory: directory.clone(),
            name: name.into(),
        })
    }
}

/// All event files, oldest first; none if the directory does not exist.
pub fn list(directory: &Location) -> io::Result<Vec<EventFile>> {
    Ok(sorted(directory, &directory.names()?))
}

/// The event files among these names, oldest first.
pub fn sorted(directory: &Location, names: &[String]) -> Vec<EventFile> {
    let mut files: Vec<EventFile> = names
        .iter()
        .filter_map(|name| EventFile::of(directory, name))
        .collect();
    files.sort();
    files
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
        let names: Vec<String> = list(&scratch.location())
            .unwrap()
            .into_iter()
            .map(|file| file.name)
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
        assert_eq!(list(&scratch.location().join("none")).unwrap(), []);
    }
}
