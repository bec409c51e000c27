//! Keeping the ledger small: old files go, the oldest first.
//!
//! Done by whoever makes a new event file, so it costs nothing on other days. Two at once do no harm.

use std::fs;
use std::path::Path;

use mainstay_core::limits::{EVENTS_KEPT_BYTES, EVENTS_KEPT_DAYS};

use super::append::FILE_BYTES;
use super::{files, time};

/// Removes what is older than the limit, then the oldest files until the rest fits. The newest file always stays.
pub fn retain(directory: &Path, wall_ms: u64) {
    // The newest is still to grow, so the others leave it its room.
    let others = EVENTS_KEPT_BYTES - FILE_BYTES;
    prune(directory, wall_ms, EVENTS_KEPT_DAYS, others);
}

fn prune(directory: &Path, wall_ms: u64, days: u64, bytes: u64) {
    let today = (wall_ms / time::DAY_MS) as i64;
    let mut files = files::list(directory).unwrap_or_default();
    // The newest is in use.
    files.pop();
    let size = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
    let mut total: u64 = files.iter().map(|file| size(&file.path)).sum();
    for file in files {
        let old = today - file.day >= days as i64;
        if old || total > bytes {
            total -= size(&file.path).min(total);
            // Somebody else may have removed it already; what cannot be removed is seen again tomorrow.
            fs::remove_file(&file.path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn names(directory: &Path) -> Vec<String> {
        files::list(directory)
            .unwrap()
            .iter()
            .map(|file| file.path.file_stem().unwrap().to_str().unwrap().into())
            .collect()
    }

    #[test]
    fn old_files_go() {
        let scratch = Scratch::new();
        for day in 1..=20u64 {
            let date = time::date(day * time::DAY_MS);
            fs::write(scratch.path().join(format!("{date}.jsonl")), "{}\n").unwrap();
        }
        fs::write(scratch.path().join("keep.txt"), "not ours").unwrap();
        retain(scratch.path(), 20 * time::DAY_MS + 5);
        let kept = names(scratch.path());
        assert_eq!(kept.len(), EVENTS_KEPT_DAYS as usize);
        assert_eq!(kept.first().unwrap(), &time::date(7 * time::DAY_MS));
        assert!(scratch.path().join("keep.txt").exists());
    }

    #[test]
    fn the_oldest_go_until_the_rest_fits() {
        let scratch = Scratch::new();
        for name in ["1970-01-02", "1970-01-03", "1970-01-03.1", "1970-01-03.2"] {
            fs::write(scratch.path().join(format!("{name}.jsonl")), [b'x'; 100]).unwrap();
        }
        prune(scratch.path(), 2 * time::DAY_MS, 14, 150);
        assert_eq!(names(scratch.path()), ["1970-01-03.1", "1970-01-03.2"]);
        prune(scratch.path(), 2 * time::DAY_MS, 14, 0);
        assert_eq!(names(scratch.path()), ["1970-01-03.2"]);
    }
}
