//! The sheet: traced signals of the last while, for `mainstay watch`, whose servers have no link and so no events.
//!
//! One file per tracer, named by its identity, gone with it; what a killed tracer has left is removed by the next one. It
//! is a help: where it cannot be written, nothing else suffers.

use std::fs::File;
use std::io::{self, Write};

use mainstay_core::event::Traced;
use mainstay_core::ids::Identity;
use mainstay_core::limits::TRACE_SHEET_BYTES as SHEET_BYTES;
use mainstay_os::assume::User;
use mainstay_os::identity;
use serde::{Deserialize, Serialize};

use super::home::Home;
use super::row::Row;
use crate::paths::Paths;
use crate::state::{Directory, Location};

/// A sheet is begun anew behind the line that makes it too long; larger than this is none of ours.
const SHEET_MOST_BYTES: u64 = 2 * SHEET_BYTES;

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
    place: Location,
    name: String,
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
        let place = home.paths.traced();
        if let Ok(directory) = place.make() {
            for (name, owner) in sheets(&directory) {
                if !identity::alive(owner) {
                    directory.remove(&name).ok();
                }
            }
        }
        let name =
            identity::me().map_or_else(|_| "0-0".into(), |me| format!("{}-{}", me.pid, me.start));
        let mut sheet = Self {
            user: home.user,
            place,
            name,
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
        self.file = Some(self.place.open()?.create_anew(&self.name)?);
        self.size = 0;
        Ok(())
    }
}

impl Drop for Sheet {
    fn drop(&mut self) {
        let gone = || self.place.open()?.remove(&self.name);
        self.user.with(gone).ok();
    }
}

/// Who sent this process the signal that ended it, by the sheets of those who trace now: the last one that arrived, not
/// before the process was born.
pub fn ask(paths: &Paths, who: Identity, number: Option<i32>, born_ms: u64) -> Answer {
    let mut answer = Answer::NoTracer;
    let mut last = 0;
    let Ok(directory) = paths.traced().open() else {
        return answer;
    };
    for (name, owner) in sheets(&directory) {
        if !identity::alive(owner) {
            continue;
        }
        if answer == Answer::NoTracer {
            answer = Answer::Nothing;
        }
        let text = directory.read(&name, SHEET_MOST_BYTES).unwrap_or_default();
        for line in text.split(|&byte| byte == b'\n') {
            let Ok(Line { at_ms, traced }) = serde_json::from_slice(line) else {
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

fn sheets(directory: &Directory) -> Vec<(String, Identity)> {
    let names = directory.names().unwrap_or_default().into_iter();
    names
        .filter_map(|name| {
            let (pid, start) = name.split_once('-')?;
            let owner = Identity {
                pid: pid.parse().ok()?,
                start: start.parse().ok()?,
            };
            Some((name, owner))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use mainstay_core::clock::Moment;
    use mainstay_os::tracefs::Sent;
    use std::fs;

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
        fs::create_dir_all(paths.traced()).unwrap();
        let old = paths.traced().join(format!("{}-1", i32::MAX));
        fs::write(&old, "{").unwrap();
        let sheet = Sheet::open(&home(&paths));
        assert!(!old.exists());
        drop(sheet);
        assert_eq!(sheets(&paths.traced().open().unwrap()), []);
    }
}
