//! Limits what the logs of ended servers take: old ones are removed, the oldest first.
//!
//! A log is kept as long as events are (`[events] days`). The logs of links that run are spared, because their keepers limit them.

use std::collections::BTreeMap;

use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits::LOGS_BYTES;
use mainstay_protocol::time::DAY_MS;

use super::{LogFile, files};
use crate::config::Config;
use crate::paths::Paths;

/// Removes the logs of ended servers that are too old, and the oldest ones until the rest fits. If the config file cannot be read,
/// all stay, because the wishes of the user are not known.
pub fn retain(paths: &Paths, wall_ms: u64) {
    if let Ok(config) = Config::load(paths) {
        keep(paths, wall_ms, config.events.days, LOGS_BYTES);
    }
}

struct Log {
    changed_ms: u64,
    bytes: u64,
    files: Vec<LogFile>,
}

fn keep(paths: &Paths, wall_ms: u64, days: u64, bytes: u64) {
    let location = paths.logs();
    let Ok(directory) = location.open() else {
        return;
    };
    let running = paths.run().names().unwrap_or_default();
    let mut logs: BTreeMap<LinkId, Log> = BTreeMap::new();
    for file in files(&location).unwrap_or_default() {
        let Ok(seen) = directory.look(&file.name()) else {
            continue;
        };
        if running.contains(&file.link.to_string()) {
            continue;
        }
        let log = logs.entry(file.link).or_insert(Log {
            changed_ms: 0,
            bytes: 0,
            files: Vec::new(),
        });
        log.changed_ms = log.changed_ms.max(seen.changed_ms);
        log.bytes += seen.bytes;
        log.files.push(file);
    }
    let mut logs: Vec<Log> = logs.into_values().collect();
    logs.sort_by_key(|log| log.changed_ms);
    let mut total: u64 = logs.iter().map(|log| log.bytes).sum();
    for log in logs {
        let old = wall_ms.saturating_sub(log.changed_ms) > days * DAY_MS;
        if old || total > bytes {
            total -= log.bytes;
            for file in log.files {
                directory.remove(&file.name()).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! guards: Logs of ended servers are removed when they are as old as the oldest events, or too large together.

    use super::*;
    use crate::scratch::Scratch;
    use mainstay_os::clock;
    use std::fs;

    fn write(paths: &Paths, name: &str, bytes: usize) {
        fs::create_dir_all(paths.logs().path()).unwrap();
        fs::write(paths.logs().path().join(name), vec![b'x'; bytes]).unwrap();
    }

    fn names(paths: &Paths) -> Vec<String> {
        let mut names = paths.logs().names().unwrap();
        names.sort();
        names
    }

    #[test]
    fn old_and_large_logs_go_and_running_ones_stay() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        for (name, bytes) in [
            ("00000001.0.jsonl", 100),
            ("00000001.1.jsonl", 100),
            ("00000002.0.jsonl", 100),
            ("00000003.4.jsonl", 500),
            ("notes.txt", 10),
        ] {
            write(&paths, name, bytes);
        }
        fs::create_dir_all(paths.run().path().join("00000003")).unwrap();
        let now = clock::wall_ms();
        keep(&paths, now, 14, 1_000);
        assert_eq!(names(&paths).len(), 5, "all are young and fit");
        keep(&paths, now, 14, 250);
        let left = names(&paths);
        assert_eq!(left.len(), 3, "{left:?}");
        assert!(left.contains(&"00000003.4.jsonl".into()), "{left:?}");
        keep(&paths, now + 15 * DAY_MS, 14, 1_000);
        assert_eq!(names(&paths), ["00000003.4.jsonl", "notes.txt"]);
    }
}
