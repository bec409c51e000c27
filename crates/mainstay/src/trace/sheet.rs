//! The sheet: traced signals of the last while, for `mainstay watch`, whose servers have no link and so no events.
//!
//! One file per tracer, named by its identity, gone with it; what a killed tracer has left is removed by the next one. It
//! is a help: where it cannot be written, nothing else suffers.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mainstay_core::event::Traced;
use mainstay_core::ids::Identity;
use mainstay_core::limits::TRACE_SHEET_BYTES as SHEET_BYTES;
use mainstay_os::assume::User;
use mainstay_os::identity;
use serde::{Deserialize, Serialize};

use super::home::Home;
use super::row::Row;
use crate::paths::{DIRECTORY_MODE, FILE_MODE, Paths};

/// One line.
#[derive(Serialize, Deserialize)]
struct Line {
    at_ms: u64,
    #[serde(flatten)]
    traced: Traced,
}

/// A tracer's own sheet.
#[derive(Debug)]
pub struct Sheet {
    user: User,
    path: PathBuf,
    file: Option<File>,
    size: u64,
}

/// What the sheets say about one death.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nobody traces.
    NoTracer,
    /// Somebody traces, and has not told anything that fits.
    Nothing,
    /// This is who it was.
    Sender(Box<Traced>),
}

impl Sheet {
    /// A new one, for this process; those of dead tracers are removed.
    pub fn open(home: &Home) -> Self {
        home.user.with(|| Self::made(home))
    }

    fn made(home: &Home) -> Self {
        let directory = directory(&home.paths);
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(&directory)
            .ok();
        for (path, owner) in sheets(&directory) {
            if !identity::alive(owner) {
                fs::remove_file(path).ok();
            }
        }
        let name =
            identity::me().map_or_else(|_| "0-0".into(), |me| format!("{}-{}", me.pid, me.start));
        let path = directory.join(name);
        let mut sheet = Self {
            user: home.user,
            path,
            file: None,
            size: 0,
        };
        sheet.begin().ok();
        sheet
    }

    /// Writes a signal down.
    pub fn append(&mut self, row: &Row) {
        let line = Line {
            at_ms: row.at_ms,
            traced: row.traced(),
        };
        let Ok(mut bytes) = serde_json::to_vec(&line) else {
            return;
        };
        bytes.push(b'\n');
        if self.size > SHEET_BYTES {
            self.user.with(|| self.begin()).ok();
        }
        if let Some(file) = &mut self.file
            && file.write_all(&bytes).is_ok()
        {
            self.size += bytes.len() as u64;
        }
    }

    fn begin(&mut self) -> io::Result<()> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(FILE_MODE)
            .open(&self.path)?;
        file.set_len(0)?;
        self.file = Some(file);
        self.size = 0;
        Ok(())
    }
}

impl Drop for Sheet {
    fn drop(&mut self) {
        self.user.with(|| fs::remove_file(&self.path)).ok();
    }
}

/// Who sent this process the signal that ended it, by the sheets of those who trace now: the last one that arrived, not
/// before the process was born.
pub fn ask(paths: &Paths, who: Identity, number: Option<i32>, born_ms: u64) -> Answer {
    let mut answer = Answer::NoTracer;
    let mut last = 0;
    for (path, owner) in sheets(&directory(paths)) {
        if !identity::alive(owner) {
            continue;
        }
        if answer == Answer::NoTracer {
            answer = Answer::Nothing;
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        for line in text.lines() {
            let Ok(Line { at_ms, traced }) = serde_json::from_str(line) else {
                continue;
            };
            let it = traced.pid == who.pid
                && traced.start.is_none_or(|start| start == who.start)
                && number.is_none_or(|number| number == traced.number)
                && traced.result.arrived();
            if it && at_ms + 1_000 >= born_ms && at_ms >= last {
                last = at_ms;
                answer = Answer::Sender(Box::new(traced));
            }
        }
    }
    answer
}

fn directory(paths: &Paths) -> PathBuf {
    paths.state().join("traced")
}

fn sheets(directory: &Path) -> Vec<(PathBuf, Identity)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let (pid, start) = name.to_str()?.split_once('-')?;
            let owner = Identity {
                pid: pid.parse().ok()?,
                start: start.parse().ok()?,
            };
            Some((entry.path(), owner))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use mainstay_core::clock::Moment;
    use mainstay_os::tracefs::Sent;

    fn home(paths: &Paths) -> Home {
        Home {
            paths: paths.clone(),
            user: User::me(),
        }
    }

    fn row(victim: i32, number: i32, at_ms: u64) -> Row {
        let sent = Sent {
            at: Moment(0),
            sender: i32::MAX,
            sender_comm: Some("pkill".into()),
            number,
            code: 0,
            victim,
            victim_comm: "node".into(),
            result: 0,
        };
        Row {
            at_ms,
            ..Row::of(&sent, || sent.sender_comm.clone())
        }
    }

    #[test]
    fn a_sender_is_found_by_process_signal_and_time() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        // Nobody has this pid, so that no start time can be read, as for one that was killed.
        let who = Identity {
            pid: i32::MAX - 1,
            start: 5,
        };
        assert_eq!(ask(&paths, who, Some(9), 0), Answer::NoTracer);
        let mut sheet = Sheet::open(&home(&paths));
        assert_eq!(ask(&paths, who, Some(9), 0), Answer::Nothing);
        sheet.append(&row(who.pid, 9, 50_000));
        sheet.append(&row(who.pid, 15, 50_001));
        sheet.append(&row(who.pid - 1, 9, 50_002));
        let Answer::Sender(traced) = ask(&paths, who, Some(9), 40_000) else {
            panic!("it is on the sheet")
        };
        assert_eq!(traced.comm.as_deref(), Some("pkill"));
        assert_eq!(
            ask(&paths, who, Some(9), 60_000),
            Answer::Nothing,
            "born later"
        );
        assert_eq!(ask(&paths, who, Some(2), 0), Answer::Nothing);
        drop(sheet);
        assert_eq!(ask(&paths, who, Some(9), 0), Answer::NoTracer);
    }

    #[test]
    fn the_sheet_of_a_dead_tracer_is_removed() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        fs::create_dir_all(directory(&paths)).unwrap();
        let old = directory(&paths).join(format!("{}-1", i32::MAX));
        fs::write(&old, "{").unwrap();
        let sheet = Sheet::open(&home(&paths));
        assert!(!old.exists());
        drop(sheet);
        assert_eq!(sheets(&directory(&paths)), []);
    }
}
