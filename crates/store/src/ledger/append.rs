//! Writing events: one `write(2)` each, to the file of the day, next to any number of other writers.
//!
//! Invariants: a line is whole or it is the last one that its writer could write; two writers never mix; the caller
//! never fails because of the ledger. An unwritable ledger is remembered and told once.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use mainstay_os::clock;
use mainstay_protocol::event::{Event, VERSION, What};
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits::EVENTS_FILE_BYTES;
use mainstay_protocol::time;
use mainstay_report::plain;
use rustix::process::{Resource, getrlimit};

use super::files::{self, EventFile};
use super::{cut, retain};
use crate::paths::Paths;
use crate::state::Location;

/// The ledger, open for writing.
#[derive(Debug)]
pub struct Ledger {
    paths: Paths,
    directory: Location,
    open: Option<Open>,
    trouble: Trouble,
}

#[derive(Debug)]
struct Open {
    day: i64,
    file: File,
}

#[derive(Debug)]
enum Trouble {
    /// The directories have not been checked yet.
    Unknown,
    None,
    Untold(String),
    Told,
}

impl Ledger {
    /// The ledger below these paths, whose directories are made if they are missing.
    pub fn open(paths: &Paths) -> Self {
        let mut ledger = Self::later(paths);
        ledger.make();
        ledger
    }

    /// The same, but the directories are made with the first event, for a process that must start fast.
    pub fn later(paths: &Paths) -> Self {
        Self::with(paths, Trouble::Unknown)
    }

    /// The ledger below these paths, whose directories exist: for a process that writes beside the owner.
    pub fn beside(paths: &Paths) -> Self {
        Self::with(paths, Trouble::None)
    }

    fn with(paths: &Paths, trouble: Trouble) -> Self {
        Self {
            paths: paths.clone(),
            directory: paths.events(),
            open: None,
            trouble,
        }
    }

    fn make(&mut self) {
        self.trouble = match self.paths.make_one(&self.directory) {
            Ok(()) => Trouble::None,
            Err(report) => {
                Trouble::Untold(format!("events cannot be written: {}", report.problem()))
            }
        };
    }

    /// Writes an event that happens now.
    pub fn record(&mut self, id: LinkId, server: &str, what: What) {
        self.record_at(clock::wall_ms(), id, server, what);
    }

    /// Writes an event that happened then.
    pub fn record_at(&mut self, wall_ms: u64, id: LinkId, server: &str, what: What) {
        self.append(&Event {
            v: VERSION,
            at: time::rfc3339(wall_ms),
            id,
            server: server.into(),
            what,
        });
    }

    /// Writes an event.
    pub fn append(&mut self, event: &Event) {
        if let Trouble::Unknown = self.trouble {
            self.make();
        }
        let line = cut::line(event);
        if let Err(error) = self.write(line, clock::wall_ms()) {
            self.open = None;
            if let Trouble::None = self.trouble {
                self.trouble = Trouble::Untold(format!(
                    "events cannot be written to {}: {}",
                    self.directory.display(),
                    plain(&error)
                ));
            }
        }
    }

    /// What keeps events from being written: said once, then never again.
    pub fn trouble(&mut self) -> Option<String> {
        match std::mem::replace(&mut self.trouble, Trouble::Told) {
            Trouble::Untold(text) => Some(text),
            Trouble::Told => None,
            before @ (Trouble::Unknown | Trouble::None) => {
                self.trouble = before;
                None
            }
        }
    }

    fn write(&mut self, line: Vec<u8>, wall_ms: u64) -> io::Result<()> {
        let (mut file, size) = self.file_for(wall_ms)?;
        let mut bytes = line;
        if size > 0 {
            // The last line of another process may be torn or incomplete. A blank line in between is harmless.
            let mut last = [0u8];
            if file.read_at(&mut last, size - 1)? == 1 && last != *b"\n" {
                bytes.insert(0, b'\n');
            }
        }
        let allowed = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if size + bytes.len() as u64 > allowed {
            // Not tried: a host program may have left SIGXFSZ as it was.
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let written = file.write(&bytes)?;
        if written < bytes.len() {
            // The rest is not written: it could land after a line of another process.
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// The day's file and its size: the one that is open, unless the day is over, it is full, or it was removed.
    fn file_for(&mut self, wall_ms: u64) -> io::Result<(&File, u64)> {
        let day = (wall_ms / time::DAY_MS) as i64;
        let usable = match &self.open {
            Some(open) if open.day == day => {
                let meta = open.file.metadata()?;
                meta.nlink() > 0 && meta.len() < EVENTS_FILE_BYTES
            }
            Some(_) | None => false,
        };
        if !usable {
            self.open = Some(Open {
                day,
                file: self.open_newest(day, wall_ms)?,
            });
        }
        let open = self.open.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let size = open.file.metadata()?.len();
        Ok((&open.file, size))
    }

    fn open_newest(&self, day: i64, wall_ms: u64) -> io::Result<File> {
        let date = time::date(wall_ms);
        let directory = self.directory.open()?;
        let mut number = files::sorted(&self.directory, &directory.names()?)
            .iter()
            .rev()
            .find(|file| file.day == day)
            .map_or(0, |file| file.number);
        loop {
            let EventFile { name, .. } =
                EventFile::new(&self.directory, &date, number).ok_or(io::ErrorKind::InvalidData)?;
            let (file, new) = match directory.append_new(&name) {
                Ok(file) => (file, true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    (directory.append(&name)?, false)
                }
                Err(error) => return Err(error),
            };
            if new {
                retain::retain(&self.paths, wall_ms);
            }
            if file.metadata()?.len() < EVENTS_FILE_BYTES {
                return Ok(file);
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use crate::state::FILE_MODE;
    use mainstay_protocol::event::{Junk, OpeningSilent};
    use std::fs::{self, OpenOptions};
    use std::path::PathBuf;

    fn silent(ms: u64) -> What {
        What::OpeningSilent(OpeningSilent { ms })
    }

    fn today(ledger: &Ledger) -> PathBuf {
        let file = files::list(&ledger.directory).unwrap().pop().unwrap();
        ledger.directory.path().join(file.name)
    }

    #[test]
    fn an_event_is_one_line_in_a_private_file() {
        let scratch = Scratch::new();
        let mut ledger = Ledger::open(&scratch.paths());
        ledger.record(LinkId(1), "a", silent(1));
        ledger.record(LinkId(1), "a", silent(2));
        let path = today(&ledger);
        let text = fs::read_to_string(&path).unwrap();
        let events: Vec<Event> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(events.len(), 2);
        assert_eq!(events[1].what, silent(2));
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, FILE_MODE);
        assert_eq!(ledger.trouble(), None);
    }

    #[test]
    fn directories_that_can_wait_are_made_with_the_first_event() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        fs::remove_dir_all(paths.events()).unwrap();
        let mut ledger = Ledger::later(&paths);
        assert!(!paths.events().exists());
        ledger.record(LinkId(1), "a", silent(1));
        assert_eq!(ledger.trouble(), None);
        assert_eq!(
            fs::read_to_string(today(&ledger)).unwrap().lines().count(),
            1
        );
    }

    #[test]
    fn a_torn_tail_ends_before_the_next_line() {
        let scratch = Scratch::new();
        let mut ledger = Ledger::open(&scratch.paths());
        ledger.record(LinkId(1), "a", silent(1));
        let path = today(&ledger);
        let torn = br#"{"v":1,"at":"2026-"#;
        OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(torn)
            .unwrap();
        ledger.record(LinkId(1), "a", silent(2));
        ledger.record(LinkId(1), "a", silent(3));
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[1].as_bytes(), torn);
        assert!(lines[2].ends_with(r#""event":"opening_silent","ms":2}"#));
    }

    #[test]
    fn a_full_file_rolls_over_and_a_removed_one_is_made_again() {
        let scratch = Scratch::new();
        let mut ledger = Ledger::open(&scratch.paths());
        ledger.record(LinkId(1), "a", silent(1));
        let first = today(&ledger);
        OpenOptions::new()
            .write(true)
            .open(&first)
            .unwrap()
            .set_len(EVENTS_FILE_BYTES)
            .unwrap();
        ledger.record(LinkId(1), "a", silent(2));
        let second = today(&ledger);
        assert_ne!(first, second);
        assert_eq!(
            EventFile::of(
                &ledger.directory,
                second.file_name().unwrap().to_str().unwrap()
            )
            .unwrap()
            .number,
            1
        );
        fs::remove_file(&second).unwrap();
        ledger.record(LinkId(1), "a", silent(3));
        assert_eq!(fs::read_to_string(&second).unwrap().lines().count(), 1);
    }

    #[test]
    fn an_unwritable_ledger_is_reported_once_and_breaks_nothing() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        fs::remove_dir(paths.events()).unwrap();
        fs::write(paths.events(), "in the way").unwrap();
        let mut ledger = Ledger::open(&paths);
        ledger.record(LinkId(1), "a", silent(1));
        ledger.record(LinkId(1), "a", silent(2));
        let told = ledger.trouble().unwrap();
        assert!(told.starts_with("events cannot be written: "), "{told}");
        assert_eq!(ledger.trouble(), None);
        ledger.record(LinkId(1), "a", silent(3));
        assert_eq!(ledger.trouble(), None);
    }

    #[test]
    fn writers_side_by_side_lose_and_mix_nothing() {
        const WRITERS: u32 = 8;
        const EACH: u64 = 200;
        let scratch = Scratch::new();
        let paths = scratch.paths();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let paths = paths.clone();
                scope.spawn(move || {
                    // Each has its own open file description, as each keeper has.
                    let mut ledger = Ledger::open(&paths);
                    for n in 0..EACH {
                        let sample = "x".repeat((n as usize * 37) % 9_000);
                        ledger.record(LinkId(writer), "a", What::Junk(Junk { lines: n, sample }));
                    }
                    assert_eq!(ledger.trouble(), None);
                });
            }
        });
        let mut next = vec![0; WRITERS as usize];
        for file in files::list(&paths.events()).unwrap() {
            for line in fs::read_to_string(paths.events().path().join(file.name))
                .unwrap()
                .lines()
            {
                if line.is_empty() {
                    continue;
                }
                let event: Event = serde_json::from_str(line).unwrap();
                let What::Junk(junk) = event.what else {
                    panic!("another kind")
                };
                assert_eq!(junk.lines, next[event.id.0 as usize]);
                next[event.id.0 as usize] += 1;
            }
        }
        assert_eq!(next, [EACH; WRITERS as usize]);
    }
}
