//! The events of the last day, read once from the newest back: how many there are, and which servers crashed or were given up.
//!
//! Lines are told apart by their bytes, and only those about a death are parsed, so a day with ten thousand events costs some milliseconds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::ControlFlow;

use mainstay_protocol::event::{Event, What};
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::time;
use mainstay_report::measure::{count, span};
use mainstay_report::safe::one_line;
use mainstay_store::ledger::backwards;
use mainstay_store::ledger::files::EventFile;
use memchr::memmem::{self, Finder};

use super::{Finding, Status};

/// No more bytes than this are read.
const BYTES_MAX: u64 = 4 * 1024 * 1024;
/// A server that crashed at least this often in a day is worth a line.
const CRASHES_MIN: u32 = 3;
/// How much of a server's last words is shown.
const LAST_CHARS: usize = 60;

/// The events of the last day.
#[derive(Debug, Default)]
pub struct Recent {
    /// Whole lines.
    pub events: u64,
    /// Lines that are not whole.
    pub torn: u64,
    /// Whole lines of a kind that this version does not know.
    pub unknown: u64,
    /// There are more, which were not read.
    pub more: bool,
    servers: BTreeMap<String, Trouble>,
}

/// What happened to the servers of one name.
#[derive(Debug, Default)]
struct Trouble {
    crashes: u32,
    /// How the last crash came about.
    last: Option<String>,
    /// When and why it was given up, if it did not come back later.
    given_up: Option<(u64, LinkId, String)>,
}

/// Reads the events since this time, in milliseconds since the epoch.
pub fn read(files: &[EventFile], since_ms: u64) -> io::Result<Recent> {
    let mut reading = Reading {
        since: time::rfc3339(since_ms),
        kind: Finder::new(b"\"event\":\""),
        kinds: HashMap::new(),
        returned: BTreeSet::new(),
        recent: Recent::default(),
    };
    let mut bytes = 0;
    let flow = backwards::lines(files, |place, line| {
        bytes += place.end - place.start;
        if bytes > BYTES_MAX {
            return ControlFlow::Break(true);
        }
        reading.line(line)
    })?;
    reading.recent.more = flow == ControlFlow::Break(true);
    Ok(reading.recent)
}

struct Reading {
    since: String,
    kind: Finder<'static>,
    /// The kinds that were met, and whether this version knows them.
    kinds: HashMap<Vec<u8>, bool>,
    /// Links whose server came up again, later than the line that is read.
    returned: BTreeSet<LinkId>,
    recent: Recent,
}

impl Reading {
    fn line(&mut self, line: &[u8]) -> ControlFlow<bool> {
        if line.trim_ascii().is_empty() {
            return ControlFlow::Continue(());
        }
        let kind = self.kind.find(line).map(|at| at + self.kind.needle().len());
        let word = kind.and_then(|at| line[at..].split(|&byte| byte == b'"').next());
        let whole = line.starts_with(b"{") && line.ends_with(b"}");
        let (Some(word), Some(at), true) = (word, at(line), whole) else {
            self.recent.torn += 1;
            return ControlFlow::Continue(());
        };
        // The text of a time sorts as the time does.
        if at < self.since.as_bytes() {
            return ControlFlow::Break(false);
        }
        if !self.knows(word, line) {
            self.recent.unknown += 1;
            return ControlFlow::Continue(());
        }
        self.recent.events += 1;
        let told = match word {
            b"abandoned" | b"ready" | b"replayed" | b"start_failed" => true,
            b"exit" => memmem::find(line, b"\"ending\":null").is_some(),
            _ => false,
        };
        if told && let Ok(event) = serde_json::from_slice::<Event>(line) {
            self.note(event);
        }
        ControlFlow::Continue(())
    }

    /// Whether this version knows the kind of the line.
    fn knows(&mut self, word: &[u8], line: &[u8]) -> bool {
        if let Some(&known) = self.kinds.get(word) {
            return known;
        }
        let known = serde_json::from_slice::<Event>(line).is_ok();
        self.kinds.insert(word.to_vec(), known);
        known
    }

    fn note(&mut self, event: Event) {
        let trouble = self.recent.servers.entry(event.server).or_default();
        if let What::Ready(_) = event.what {
            self.returned.insert(event.id);
        } else if let What::Exit(exit) = event.what {
            if !exit.status.success() {
                trouble.crashed(exit.status.to_string());
            }
        } else if let What::StartFailed(failed) = event.what {
            trouble.crashed(failed.problem);
        } else if let What::Abandoned(given_up) = event.what
            && !self.returned.contains(&event.id)
        {
            let at_ms = time::parse(&event.at).unwrap_or(0);
            let why = (at_ms, event.id, given_up.last);
            trouble.given_up.get_or_insert(why);
        }
    }
}

impl Recent {
    /// One finding for each server that was given up, or that crashes again and again. `given_up` says which links are given up now.
    pub fn findings(&self, now_ms: u64, given_up: &[LinkId]) -> Vec<Finding> {
        let found = self.servers.iter().filter_map(|(name, trouble)| {
            let (status, what) = trouble.told(name, now_ms, given_up)?;
            Some(Finding {
                command: Some(format!("mainstay why {}", quoted(name))),
                ..Finding::new("server", status, what)
            })
        });
        found.collect()
    }
}

impl Trouble {
    /// Notes a crash that was before those that are noted.
    fn crashed(&mut self, how: String) {
        self.crashes += 1;
        self.last.get_or_insert(how);
    }

    fn told(&self, name: &str, now_ms: u64, now: &[LinkId]) -> Option<(Status, String)> {
        if let Some((at_ms, id, last)) = &self.given_up {
            let last = one_line(last, LAST_CHARS);
            if now.contains(id) {
                let ago = span(now_ms.saturating_sub(*at_ms));
                let what = format!("{name} was given up {ago} ago: {last}");
                return Some((Status::Problem, what));
            }
            let what = format!("{name} was given up in the last day: {last}");
            return Some((Status::Note, what));
        }
        let last = one_line(self.last.as_deref()?, LAST_CHARS);
        let crashes = count(self.crashes, "time");
        let what = format!("{name} crashed {crashes} in the last day, the last time: {last}");
        (self.crashes >= CRASHES_MIN).then_some((Status::Note, what))
    }
}

/// The time of a line. It is near the beginning, except in a line that was cut.
fn at(line: &[u8]) -> Option<&[u8]> {
    const FIELD: &[u8] = b"\"at\":\"";
    const FRONT_BYTES: usize = 64;
    const TIME_BYTES: usize = 24;
    let front = &line[..line.len().min(FRONT_BYTES)];
    let found = memmem::find(front, FIELD).or_else(|| memmem::find(line, FIELD))?;
    line.get(found + FIELD.len()..found + FIELD.len() + TIME_BYTES)
}

/// A name as a shell takes it.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@/:+".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        return name.into();
    }
    format!("'{}'", name.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    //! guards: `doctor` names servers that were given up or crash again and again, from the events of the last day.

    use super::*;
    use mainstay_protocol::event::{Abandoned, OpeningSilent};
    use mainstay_store::ledger::files;
    use mainstay_store::scratch::Scratch;

    const NOW_MS: u64 = 1_763_460_000_000;

    fn line(ago_ms: u64, id: u32, server: &str, what: What) -> String {
        let event = Event {
            v: mainstay_protocol::event::VERSION,
            at: time::rfc3339(NOW_MS - ago_ms),
            id: LinkId(id),
            server: server.into(),
            what,
        };
        serde_json::to_string(&event).unwrap()
    }

    fn sample<T>(pick: impl Fn(What) -> Option<T>) -> T {
        let all = mainstay_report::samples::all();
        all.into_iter().find_map(pick).unwrap()
    }

    fn crash(ago_ms: u64, server: &str) -> String {
        let mut exit = sample(|what| {
            let What::Exit(exit) = what else { return None };
            Some(exit)
        });
        exit.ending = None;
        exit.status = mainstay_protocol::event::Status::Code(1);
        line(ago_ms, 1, server, What::Exit(exit))
    }

    fn given_up(ago_ms: u64, id: u32, server: &str) -> String {
        let what = Abandoned {
            deaths: 5,
            failed_starts: 0,
            window_ms: 60_000,
            last: "exit code 1".into(),
            changed: None,
            probe_ms: 0,
        };
        line(ago_ms, id, server, What::Abandoned(what))
    }

    fn silent(ago_ms: u64) -> String {
        let what = What::OpeningSilent(OpeningSilent { ms: 1 });
        line(ago_ms, 1, "quiet", what)
    }

    fn read_lines(lines: &[String]) -> Recent {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let name = format!("{}.jsonl", time::date(NOW_MS));
        let text = lines.join("\n") + "\n";
        std::fs::write(paths.events().path().join(name), text).unwrap();
        let files = files::list(&paths.events()).unwrap();
        read(&files, NOW_MS - time::DAY_MS).unwrap()
    }

    #[test]
    fn a_server_that_crashes_often_is_named_with_its_command() {
        let recent = read_lines(&[
            crash(time::DAY_MS + 1, "often"),
            crash(3_000, "often"),
            crash(2_000, "often"),
            crash(2_000, "seldom"),
            crash(1_000, "often"),
        ]);
        let found = recent.findings(NOW_MS, &[]);
        let [one] = found.as_slice() else {
            panic!("one finding, not {found:?}")
        };
        assert_eq!(
            (one.status, one.what.as_str(), one.command.as_deref()),
            (
                Status::Note,
                "often crashed 3 times in the last day, the last time: exit code 1",
                Some("mainstay why often")
            )
        );
        assert_eq!(
            recent.events, 4,
            "an event of the day before does not count"
        );
    }

    #[test]
    fn a_server_that_is_given_up_now_is_a_problem() {
        let lines = [given_up(200_000, 7, "my server"), silent(0)];
        let recent = read_lines(&lines);
        let told = |now: &[LinkId]| {
            let found = recent.findings(NOW_MS, now);
            (found[0].status, found[0].what.clone())
        };
        assert_eq!(
            told(&[LinkId(7)]),
            (
                Status::Problem,
                "my server was given up 3m20s ago: exit code 1".into()
            )
        );
        assert_eq!(told(&[]).0, Status::Note, "the link is gone");
        let found = recent.findings(NOW_MS, &[]);
        assert_eq!(
            found[0].command.as_deref(),
            Some("mainstay why 'my server'")
        );
    }

    #[test]
    fn a_server_that_came_back_is_not_given_up() {
        let ready = sample(|what| {
            let What::Ready(ready) = what else {
                return None;
            };
            Some(ready)
        });
        let lines = [
            given_up(2_000, 7, "back"),
            line(1_000, 7, "back", What::Ready(ready)),
        ];
        assert!(read_lines(&lines).findings(NOW_MS, &[]).is_empty());
    }

    #[test]
    fn torn_and_unknown_lines_are_counted() {
        let unknown = silent(0).replace("opening_silent", "from_the_future");
        let torn = r#"{"v":1,"at":"2025-11-"#.to_owned();
        let lines = [silent(9), torn, unknown.clone(), silent(5), unknown];
        let recent = read_lines(&lines);
        assert_eq!(
            (recent.events, recent.torn, recent.unknown, recent.more),
            (2, 1, 2, false)
        );
    }

    #[test]
    fn a_very_long_day_is_not_read_to_its_beginning() {
        let one = silent(9);
        let count = BYTES_MAX as usize / (one.len() + 1) + 100;
        let recent = read_lines(&vec![one.clone(); count]);
        assert!(recent.more);
        assert_eq!(recent.events, BYTES_MAX / (one.len() as u64 + 1));
    }
}
