//! Recently traced signals, in a file for `mainstay watch`, because servers without a link have no events.
//!
//! Each tracer has one file, named by its pid and start time, and removes it at its end; the next tracer removes the file of
//! a killed one. If the file cannot be written, only `watch` misses the senders.

use std::fs::File;
use std::io::{self, Write};

use mainstay_os::assume::User;
use mainstay_os::identity;
use mainstay_protocol::event::Traced;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::TRACE_SHEET_BYTES as FILE_BYTES;
use mainstay_store::paths::Paths;
use mainstay_store::state::{Directory, Location};
use serde::{Deserialize, Serialize};

use super::home::Home;
use super::row::Row;

/// A file that exceeds `FILE_BYTES` is started anew with the next line, so no file of ours is larger than this.
const READ_MAX_BYTES: u64 = 2 * FILE_BYTES;

/// One line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    at_ms: u64,
    #[serde(flatten)]
    traced: Traced,
}

/// The file of this tracer.
#[derive(Debug)]
pub struct RecentSignals {
    user: User,
    place: Location,
    name: String,
    file: Option<File>,
    size: u64,
}

/// The result of a search for the sender of a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// No `trace-signals` runs.
    NoTracer,
    /// `trace-signals` runs but has not seen such a signal.
    NotFound,
    Found(Box<Traced>),
}

impl RecentSignals {
    /// Creates the file of this process, and removes the files of dead tracers.
    pub fn open(home: &Home) -> Self {
        home.user.with(|| Self::create(home))
    }

    fn create(home: &Home) -> Self {
        let place = home.paths.traced();
        if let Ok(directory) = place.make() {
            for (name, owner) in files(&directory) {
                if !identity::alive(owner) {
                    directory.remove(&name).ok();
                }
            }
        }
        let name =
            identity::me().map_or_else(|_| "0-0".into(), |me| format!("{}-{}", me.pid, me.start));
        let mut recent = Self {
            user: home.user,
            place,
            name,
            file: None,
            size: 0,
        };
        recent.begin().ok();
        recent
    }

    /// Adds a signal.
    pub fn append(&mut self, row: &Row) {
        let line = Line {
            at_ms: row.at_ms,
            traced: row.traced(),
        };
        let Ok(mut bytes) = serde_json::to_vec(&line) else {
            return;
        };
        bytes.push(b'\n');
        if self.size > FILE_BYTES {
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

impl Drop for RecentSignals {
    fn drop(&mut self) {
        let gone = || self.place.open()?.remove(&self.name);
        self.user.with(gone).ok();
    }
}

/// Finds the sender of the signal that ended this process, in the files of all running tracers: the last signal that was
/// delivered since the process was started.
pub fn find_sender(paths: &Paths, who: Identity, number: Option<i32>, born_ms: u64) -> Lookup {
    let mut answer = Lookup::NoTracer;
    let mut last = 0;
    let Ok(directory) = paths.traced().open() else {
        return answer;
    };
    for (name, owner) in files(&directory) {
        if !identity::alive(owner) {
            continue;
        }
        if answer == Lookup::NoTracer {
            answer = Lookup::NotFound;
        }
        let text = directory.read(&name, READ_MAX_BYTES).unwrap_or_default();
        for line in text.split(|&byte| byte == b'\n') {
            let Ok(Line { at_ms, traced }) = serde_json::from_slice(line) else {
                continue;
            };
            let fits = traced.pid == who.pid
                && traced.start.is_none_or(|start| start == who.start)
                && number.is_none_or(|number| number == traced.number)
                && traced.result.arrived();
            if fits && at_ms + 1_000 >= born_ms && at_ms >= last {
                last = at_ms;
                answer = Lookup::Found(Box::new(traced));
            }
        }
    }
    answer
}

fn files(directory: &Directory) -> Vec<(String, Identity)> {
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
    use mainstay_os::tracefs::Sent;
    use mainstay_protocol::clock::Moment;
    use mainstay_store::scratch::Scratch;
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
        // No process has this pid, so no start time can be read, as for a killed process.
        let who = Identity {
            pid: i32::MAX - 1,
            start: 5,
        };
        assert_eq!(find_sender(&paths, who, Some(9), 0), Lookup::NoTracer);
        let mut recent = RecentSignals::open(&home(&paths));
        assert_eq!(find_sender(&paths, who, Some(9), 0), Lookup::NotFound);
        recent.append(&row(who.pid, 9, 50_000));
        recent.append(&row(who.pid, 15, 50_001));
        recent.append(&row(who.pid - 1, 9, 50_002));
        let Lookup::Found(traced) = find_sender(&paths, who, Some(9), 40_000) else {
            panic!("the signal is in the file")
        };
        assert_eq!(traced.comm.as_deref(), Some("pkill"));
        assert_eq!(
            find_sender(&paths, who, Some(9), 60_000),
            Lookup::NotFound,
            "born later"
        );
        assert_eq!(find_sender(&paths, who, Some(2), 0), Lookup::NotFound);
        drop(recent);
        assert_eq!(find_sender(&paths, who, Some(9), 0), Lookup::NoTracer);
    }

    #[test]
    fn the_file_of_a_dead_tracer_is_removed() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        fs::create_dir_all(paths.traced()).unwrap();
        let old = paths.traced().join(format!("{}-1", i32::MAX));
        fs::write(&old, "{").unwrap();
        let recent = RecentSignals::open(&home(&paths));
        assert!(!old.exists());
        drop(recent);
        assert_eq!(files(&paths.traced().open().unwrap()), []);
    }
}
