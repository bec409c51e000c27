//! Reading events: all files in the order of time, from where the last reading stopped.
//!
//! A line that is torn, or of a kind that a newer mainstay writes, is counted and skipped; foreign bytes never fail a
//! reading. A last line without its newline is left until it is whole.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use mainstay_protocol::event::Event;
use mainstay_protocol::time;
use memchr::memmem::Finder;
use serde::Deserialize;

use super::backwards::{self, Place};
use super::files::{self, EventFile};
use crate::paths::Paths;
use crate::state::Location;

/// A line longer than this is none of ours.
pub(super) const LINE_BYTES: usize = 1024 * 1024;
/// A file larger than this is none of ours.
const FILE_BYTES: u64 = 1024 * 1024 * 1024;
/// How much is read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Which events are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this server only.
    pub server: Option<String>,
    /// Of links whose id begins like this.
    pub id: Option<String>,
    /// Not before this time, in milliseconds since the epoch.
    pub since_ms: Option<u64>,
    /// None of these kinds, by their names.
    pub without: &'static [&'static str],
}

impl Filter {
    /// Whether an event is wanted.
    pub fn admits(&self, event: &Event) -> bool {
        let server = self
            .server
            .as_ref()
            .is_none_or(|name| *name == event.server);
        let id = self
            .id
            .as_ref()
            .is_none_or(|prefix| event.id.to_string().starts_with(prefix.as_str()));
        // The text of a time sorts as the time does.
        let since = self
            .since_ms
            .is_none_or(|since| event.at >= time::rfc3339(since));
        server && id && since && !self.without.contains(&event.what.name())
    }

    /// What the line of a wanted event contains, so that others need not be parsed.
    fn bytes(&self) -> Vec<Finder<'static>> {
        let server = self.server.as_deref().map(server_bytes);
        let id = self.id.as_deref().map(id_bytes);
        let both = server.into_iter().chain(id);
        both.map(|bytes| Finder::new(&bytes).into_owned()).collect()
    }

    fn admits_file(&self, file: &EventFile) -> bool {
        self.since_ms
            .is_none_or(|since| file.day >= (since / time::DAY_MS) as i64)
    }
}

/// The bytes of a server name in a line.
pub fn server_bytes(name: &str) -> Vec<u8> {
    let name = serde_json::to_string(name).unwrap_or_default();
    format!("\"server\":{name}").into_bytes()
}

/// The bytes of an id with this prefix in a line.
pub fn id_bytes(prefix: &str) -> Vec<u8> {
    format!("\"id\":\"{prefix}").into_bytes()
}

/// Opens an event file. None if it was removed in the meantime, or is not ours.
pub(super) fn open(file: &EventFile) -> io::Result<Option<File>> {
    let directory = file.directory.open();
    match directory.and_then(|directory| directory.open(&file.name, FILE_BYTES)) {
        Ok(source) => Ok(Some(source)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::InvalidData
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Lines that could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Not whole.
    pub torn: u64,
    /// Whole, but of a kind that we do not know.
    pub unknown: u64,
}

/// The ledger, open for reading.
#[derive(Debug)]
pub struct Events {
    directory: Location,
    filter: Filter,
    bytes: Vec<Finder<'static>>,
    places: BTreeMap<EventFile, u64>,
    skipped: Skipped,
}

impl Events {
    /// The ledger below these paths, from its beginning.
    pub fn open(paths: &Paths, filter: Filter) -> Self {
        Self {
            directory: paths.events(),
            bytes: filter.bytes(),
            filter,
            places: BTreeMap::new(),
            skipped: Skipped::default(),
        }
    }

    /// The ledger below these paths, without what is in it already.
    pub fn from_now(paths: &Paths) -> Self {
        let mut events = Self::open(paths, Filter::default());
        if let Ok(directory) = events.directory.open() {
            for file in files::list(&events.directory).unwrap_or_default() {
                let length = directory.look(&file.name).map_or(0, |found| found.bytes);
                events.places.insert(file, length);
            }
        }
        events
    }

    /// Skips all wanted events but the last so many.
    pub fn skip_to_last(&mut self, count: u64) -> io::Result<()> {
        let files: Vec<EventFile> = files::list(&self.directory)?
            .into_iter()
            .filter(|file| self.filter.admits_file(file))
            .collect();
        let mut left = count;
        let flow = backwards::lines(&files, |place, line| {
            if left == 0 {
                return ControlFlow::Break(place.clone());
            }
            let wanted = self.may_admit(line)
                && serde_json::from_slice::<Event>(line)
                    .is_ok_and(|event| self.filter.admits(&event));
            left -= u64::from(wanted);
            ControlFlow::Continue(())
        })?;
        if let ControlFlow::Break(place) = flow {
            self.skip_behind(&place)?;
        }
        Ok(())
    }

    /// Skips all events up to this one, it included.
    pub fn skip_behind(&mut self, place: &Place) -> io::Result<()> {
        for file in files::list(&self.directory)? {
            if file < place.file
                && let Some(source) = open(&file)?
            {
                self.places.insert(file, source.metadata()?.len());
            }
        }
        self.places.insert(place.file.clone(), place.end);
        Ok(())
    }

    /// The files, oldest first.
    pub fn files(&self) -> io::Result<Vec<EventFile>> {
        files::list(&self.directory)
    }

    /// Hands over every wanted event that was written since the last call, with its line as it was written, until the
    /// taker has had enough.
    pub fn read<B>(
        &mut self,
        mut take: impl FnMut(&Event, &str) -> ControlFlow<B>,
    ) -> io::Result<ControlFlow<B>> {
        let files = files::list(&self.directory)?;
        self.places.retain(|file, _| files.contains(file));
        for file in files {
            if !self.filter.admits_file(&file) {
                continue;
            }
            let place = self.places.get(&file).copied().unwrap_or(0);
            let (place, flow) = self.read_file(&file, place, &mut take)?;
            self.places.insert(file, place);
            if let ControlFlow::Break(enough) = flow {
                return Ok(ControlFlow::Break(enough));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn may_admit(&self, line: &[u8]) -> bool {
        self.bytes.iter().all(|bytes| bytes.find(line).is_some())
    }

    /// How many lines could not be read so far.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    fn read_file<B>(
        &mut self,
        file: &EventFile,
        mut place: u64,
        take: &mut impl FnMut(&Event, &str) -> ControlFlow<B>,
    ) -> io::Result<(u64, ControlFlow<B>)> {
        let Some(source) = open(file)? else {
            return Ok((place, ControlFlow::Continue(())));
        };
        let mut pending: Vec<u8> = Vec::new();
        let mut chunk = vec![0u8; CHUNK_BYTES];
        loop {
            let count = source.read_at(&mut chunk, place + pending.len() as u64)?;
            if count == 0 {
                return Ok((place, ControlFlow::Continue(())));
            }
            pending.extend_from_slice(&chunk[..count]);
            let mut done = 0;
            while let Some(end) = pending[done..].iter().position(|&b| b == b'\n') {
                let flow = self.line(&pending[done..done + end], take);
                done += end + 1;
                if flow.is_break() {
                    return Ok((place + done as u64, flow));
                }
            }
            if done == 0 && pending.len() > LINE_BYTES {
                self.skipped.torn += 1;
                done = pending.len();
            }
            pending.drain(..done);
            place += done as u64;
        }
    }

    fn line<B>(
        &mut self,
        line: &[u8],
        take: &mut impl FnMut(&Event, &str) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if !self.may_admit(line) {
            return ControlFlow::Continue(());
        }
        let text = String::from_utf8_lossy(line);
        if text.trim().is_empty() {
            return ControlFlow::Continue(());
        }
        match serde_json::from_str::<Event>(&text) {
            Ok(event) if self.filter.admits(&event) => {
                return take(&event, &under_its_name(text, event.what.name()));
            }
            Ok(_) => {}
            Err(_) if serde_json::from_str::<Envelope>(&text).is_ok() => self.skipped.unknown += 1,
            Err(_) => self.skipped.torn += 1,
        }
        ControlFlow::Continue(())
    }
}

/// Every wanted event, oldest first.
pub fn all(paths: &Paths, filter: Filter) -> io::Result<(Vec<Event>, Skipped)> {
    let mut found = Vec::new();
    let mut events = Events::open(paths, filter);
    let flow = events.read(|event, _| {
        found.push(event.clone());
        ControlFlow::<()>::Continue(())
    })?;
    debug_assert!(flow.is_continue());
    Ok((found, events.skipped()))
}

/// The line with the name that its kind has now: an earlier version may have written another one.
fn under_its_name<'a>(line: Cow<'a, str>, name: &str) -> Cow<'a, str> {
    const FIELD: &str = "\"event\":\"";
    // A quote in a string has a backslash before it, so the field is the first that looks like it.
    let Some((head, tail)) = line.split_once(FIELD) else {
        return line;
    };
    match tail.split_once('"') {
        Some((written, rest)) if written != name => {
            Cow::Owned(format!("{head}{FIELD}{name}\"{rest}"))
        }
        Some(_) | None => line,
    }
}

/// What every event has, also one of a kind that is not known yet.
#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "v")]
    _v: u32,
    #[serde(rename = "event")]
    _event: String,
}

#[cfg(test)]
mod tests {
    //! guards: The last events are found without reading the others.

    use super::*;
    use crate::ledger::Ledger;
    use crate::scratch::Scratch;
    use mainstay_protocol::event::{OpeningSilent, What};
    use mainstay_protocol::ids::LinkId;
    use std::fs;
    use std::io::Write;

    fn line(at: &str, id: &str, server: &str, ms: u64) -> String {
        format!(
            r#"{{"v":1,"at":"{at}","id":"{id}","server":"{server}","event":"opening_silent","ms":{ms}}}"#
        )
    }

    fn ms(event: &Event) -> u64 {
        let What::OpeningSilent(OpeningSilent { ms }) = &event.what else {
            panic!("another kind: {event:?}")
        };
        *ms
    }

    fn read(paths: &Paths, filter: Filter) -> (Vec<u64>, Skipped) {
        let mut events = Events::open(paths, filter);
        let found = rest(&mut events);
        (found, events.skipped())
    }

    fn rest(events: &mut Events) -> Vec<u64> {
        let mut found = Vec::new();
        let flow = events.read(|event, _| {
            found.push(ms(event));
            ControlFlow::<()>::Continue(())
        });
        assert!(flow.unwrap().is_continue());
        found
    }

    #[test]
    fn the_last_ones_are_found_without_reading_the_others() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let at = |day: u32| format!("2026-11-{day}T10:00:00.000Z");
        for (day, from) in [(14, 0), (15, 4)] {
            let mut text = "torn\n".repeat(3);
            for n in from..from + 4 {
                let name = if n % 2 == 0 { "even" } else { "odd" };
                text += &(line(&at(day), "00000001", name, n) + "\n");
            }
            fs::write(paths.events().join(format!("2026-11-{day}.jsonl")), text).unwrap();
        }
        let odd = || Filter {
            server: Some("odd".into()),
            ..Filter::default()
        };
        for (filter, count, expected, torn) in [
            (Filter::default(), 2, &[6, 7][..], 0),
            (Filter::default(), 5, &[3, 4, 5, 6, 7], 3),
            (Filter::default(), 8, &[0, 1, 2, 3, 4, 5, 6, 7], 3),
            (Filter::default(), 99, &[0, 1, 2, 3, 4, 5, 6, 7], 6),
            (Filter::default(), 0, &[], 0),
            (odd(), 1, &[7], 0),
            (odd(), 3, &[3, 5, 7], 0),
        ] {
            let mut events = Events::open(&paths, filter);
            events.skip_to_last(count).unwrap();
            assert_eq!(rest(&mut events), expected, "{count}");
            assert_eq!(events.skipped().torn, torn, "{count}");
            // What is written from now on comes, too.
            let more = line(&at(15), "00000001", "odd", 9) + "\n";
            let file = paths.events().join("2026-11-15.jsonl");
            let before = fs::read(&file).unwrap();
            fs::write(&file, [&before[..], more.as_bytes()].concat()).unwrap();
            assert_eq!(rest(&mut events), [9], "{count}");
            fs::write(&file, before).unwrap();
        }
    }

    #[test]
    fn torn_lines_and_unknown_kinds_are_skipped_and_extra_fields_ignored() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let at = "2026-11-15T10:00:00.000Z";
        let mut text = Vec::new();
        for part in [
            line(at, "00000001", "a", 1),
            line(at, "00000001", "a", 2).replace("\"ms\"", "\"later\":{\"x\":[1]},\"ms\""),
            r#"{"v":1,"at":"2026-11-15T10:"#.into(),
            String::new(),
            line(at, "00000001", "a", 3).replace("opening_silent", "linger_began"),
            "not json at all".into(),
            r#""a text""#.into(),
            line(at, "00000001", "a", 4),
        ] {
            text.extend_from_slice(part.as_bytes());
            text.push(b'\n');
        }
        text.extend_from_slice(b"\xff\xfe\n");
        text.extend_from_slice(line(at, "00000001", "a", 5).as_bytes());
        fs::write(paths.events().join("2026-11-15.jsonl"), text).unwrap();
        let (found, skipped) = read(&paths, Filter::default());
        assert_eq!(found, [1, 2, 4], "a line without its end is not taken yet");
        assert_eq!(
            skipped,
            Skipped {
                torn: 4,
                unknown: 1
            }
        );
    }

    #[test]
    fn files_follow_each_other_and_filters_hold() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let write = |name: &str, lines: &[String]| {
            fs::write(paths.events().join(name), lines.join("\n") + "\n").unwrap();
        };
        write(
            "2026-11-15.1.jsonl",
            &[line("2026-11-15T12:00:00.000Z", "00000002", "b", 3)],
        );
        write(
            "2026-11-14.jsonl",
            &[line("2026-11-14T23:59:59.999Z", "00000001", "a", 1)],
        );
        write(
            "2026-11-15.jsonl",
            &[line("2026-11-15T00:00:00.000Z", "00000001", "a", 2)],
        );
        assert_eq!(read(&paths, Filter::default()).0, [1, 2, 3]);
        let server = Filter {
            server: Some("a".into()),
            ..Filter::default()
        };
        assert_eq!(read(&paths, server).0, [1, 2]);
        let id = Filter {
            id: Some("00000002".into()),
            ..Filter::default()
        };
        assert_eq!(read(&paths, id).0, [3]);
        let since = Filter {
            since_ms: time::parse("2026-11-15T00:00:00.001Z"),
            ..Filter::default()
        };
        assert_eq!(read(&paths, since).0, [3]);
    }

    #[test]
    fn a_second_reading_brings_only_what_is_new() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let mut ledger = Ledger::open(&paths);
        let mut events = Events::open(&paths, Filter::default());
        let mut seen = Vec::new();
        for round in 0..3 {
            ledger.record(
                LinkId(1),
                "a",
                What::OpeningSilent(OpeningSilent { ms: round }),
            );
            let flow = events.read(|event, _| {
                seen.push(ms(event));
                ControlFlow::<()>::Continue(())
            });
            assert!(flow.unwrap().is_continue());
        }
        assert_eq!(seen, [0, 1, 2]);

        // A line that comes in two parts is taken once, when it is whole.
        let file = files::list(&paths.events()).unwrap().pop().unwrap();
        let file = paths.events().path().join(file.name);
        let whole = line("2026-11-15T12:00:00.000Z", "00000001", "a", 9) + "\n";
        for part in [&whole[..20], &whole[20..]] {
            fs::OpenOptions::new()
                .append(true)
                .open(&file)
                .unwrap()
                .write_all(part.as_bytes())
                .unwrap();
            let flow = events.read(|event, _| {
                seen.push(ms(event));
                ControlFlow::<()>::Continue(())
            });
            assert!(flow.unwrap().is_continue());
        }
        assert_eq!(seen, [0, 1, 2, 9]);
        assert_eq!(events.skipped(), Skipped::default());
    }

    #[test]
    fn a_reader_that_has_enough_goes_on_behind_it() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let mut ledger = Ledger::open(&paths);
        for n in 0..3 {
            ledger.record(LinkId(1), "a", What::OpeningSilent(OpeningSilent { ms: n }));
        }
        let mut events = Events::open(&paths, Filter::default());
        let first = events
            .read(|event, _| ControlFlow::Break(ms(event)))
            .unwrap();
        let second = events
            .read(|event, _| ControlFlow::Break(ms(event)))
            .unwrap();
        assert_eq!(
            (first, second),
            (ControlFlow::Break(0), ControlFlow::Break(1))
        );
    }

    #[test]
    fn an_endless_line_is_skipped_with_bounded_memory() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let mut text = vec![b'x'; 3 * LINE_BYTES];
        text.push(b'\n');
        text.extend_from_slice(line("2026-11-15T12:00:00.000Z", "00000001", "a", 1).as_bytes());
        text.push(b'\n');
        fs::write(paths.events().join("2026-11-15.jsonl"), text).unwrap();
        let (found, skipped) = read(&paths, Filter::default());
        assert_eq!(found, [1]);
        assert!(skipped.torn > 0);
    }
}
