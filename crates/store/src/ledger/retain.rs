//! Limits the size of the ledger: old files are removed, the oldest first.
//!
//! The process that makes a new event file does it, so it costs nothing on other days. Two at the same time do no harm.
//!
//! The clock alone makes no file old: a file is removed once it is that many days old *and* that many later days have a file
//! of their own. So a clock that is wrong for a day costs one old day, not all. A user who runs nothing for a month still
//! finds the days before it. The size limit holds in any case.

use mainstay_protocol::limits::{EVENTS_FILE_BYTES, Kept};
use mainstay_protocol::time;

use super::files;
use crate::config::Config;
use crate::paths::Paths;
use crate::state::Location;

/// Removes files that are older than the config allows, and the oldest files until the rest fits. The newest file always stays. If
/// the config file cannot be read, all files stay, because the wishes of the user are not known.
pub fn retain(paths: &Paths, wall_ms: u64) {
    if let Ok(config) = Config::load(paths) {
        keep(&paths.events(), wall_ms, config.events);
    }
}

fn keep(directory: &Location, wall_ms: u64, kept: Kept) {
    // The newest is still to grow, so the others leave it its room.
    let others = kept.bytes.saturating_sub(EVENTS_FILE_BYTES);
    prune(directory, wall_ms, kept.days, others);
}

fn prune(directory: &Location, wall_ms: u64, days: u64, bytes: u64) {
    let today = (wall_ms / time::DAY_MS) as i64;
    let Ok(open) = directory.open() else { return };
    let mut files = files::list(directory).unwrap_or_default();
    let mut on_days: Vec<i64> = files.iter().map(|file| file.day).collect();
    on_days.dedup();
    let days_after = |day| {
        on_days
            .iter()
            .rev()
            .take_while(|&&other| other > day)
            .count() as u64
    };
    // The newest is in use.
    files.pop();
    let size = |name: &str| open.look(name).map_or(0, |found| found.bytes);
    let mut total: u64 = files.iter().map(|file| size(&file.name)).sum();
    for file in files {
        let old = today - file.day >= days as i64 && days_after(file.day) >= days;
        if old || total > bytes {
            total -= size(&file.name).min(total);
            // Another process may have removed it already. A file that cannot be removed is tried again tomorrow.
            open.remove(&file.name).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;

    fn names(directory: &Location) -> Vec<String> {
        files::list(directory)
            .unwrap()
            .iter()
            .map(|file| file.name.trim_end_matches(".jsonl").into())
            .collect()
    }

    fn write(directory: &Location, day: u64) {
        let date = time::date(day * time::DAY_MS);
        fs::write(directory.join(format!("{date}.jsonl")), "{}\n").unwrap();
    }

    #[test]
    fn a_clock_that_is_wrong_for_days_costs_only_as_many_days() {
        let scratch = Scratch::new();
        let directory = &scratch.location();
        (1..=20).for_each(|day| write(directory, day));
        keep(directory, 20 * time::DAY_MS, Kept::default());
        // A year ahead, with a second file on that day, and still so on the next one.
        write(directory, 400);
        keep(directory, 400 * time::DAY_MS, Kept::default());
        let date = time::date(400 * time::DAY_MS);
        fs::write(directory.join(format!("{date}.1.jsonl")), "{}\n").unwrap();
        keep(directory, 400 * time::DAY_MS + 1, Kept::default());
        write(directory, 401);
        keep(directory, 401 * time::DAY_MS, Kept::default());
        let kept = names(directory);
        assert_eq!(kept.first().unwrap(), &time::date(9 * time::DAY_MS));
        assert_eq!(kept.len(), 12 + 3);
        // Once it is right again, what the wrong days wrote makes nothing older than it is.
        write(directory, 21);
        keep(directory, 21 * time::DAY_MS, Kept::default());
        assert_eq!(names(directory).len(), 13 + 3);
        // A clock that is far behind takes nothing either.
        write(directory, 0);
        keep(directory, 5, Kept::default());
        assert_eq!(names(directory).len(), 14 + 3);
    }

    #[test]
    fn old_files_go() {
        let scratch = Scratch::new();
        (1..=20).for_each(|day| write(&scratch.location(), day));
        fs::write(scratch.path().join("keep.txt"), "not ours").unwrap();
        keep(&scratch.location(), 20 * time::DAY_MS + 5, Kept::default());
        let kept = names(&scratch.location());
        assert_eq!(kept.len(), Kept::default().days as usize);
        assert_eq!(kept.first().unwrap(), &time::date(7 * time::DAY_MS));
        assert!(scratch.path().join("keep.txt").exists());
    }

    #[test]
    fn as_many_days_stay_as_the_user_wishes() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        paths.make().unwrap();
        let directory = paths.events();
        (1..=20).for_each(|day| write(&directory, day));
        let say = |text: &str| {
            let file = paths.config_file().unwrap();
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        say("[events]\ndays = \"three\"\n");
        retain(&paths, 20 * time::DAY_MS);
        assert_eq!(names(&directory).len(), 20, "not known, so nothing goes");
        say("[events]\ndays = 3\n");
        retain(&paths, 20 * time::DAY_MS);
        assert_eq!(names(&directory).len(), 3);
    }

    #[test]
    fn the_oldest_go_until_the_rest_fits() {
        let scratch = Scratch::new();
        for name in ["1970-01-02", "1970-01-03", "1970-01-03.1", "1970-01-03.2"] {
            fs::write(scratch.path().join(format!("{name}.jsonl")), [b'x'; 100]).unwrap();
        }
        prune(&scratch.location(), 2 * time::DAY_MS, 14, 150);
        assert_eq!(names(&scratch.location()), ["1970-01-03.1", "1970-01-03.2"]);
        prune(&scratch.location(), 2 * time::DAY_MS, 14, 0);
        assert_eq!(names(&scratch.location()), ["1970-01-03.2"]);
    }
}
