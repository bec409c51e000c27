//! Everything about some servers on one clock: events and frames in one order, each with the time since the one before.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_core::event::{Brief, Event, Standing, What};
use mainstay_core::frames::Sight;
use mainstay_core::ids::LinkId;
use mainstay_core::limits::RECENT_FRAMES;
use serde::Serialize;

use super::frames as words;
use super::happening::Happening;
use super::measure::{fine, one_line};
use super::paint::Tone;
use crate::ledger::time;

/// The widest name of a server.
const SERVER_CHARS: usize = 16;
/// Two tellings of one frame differ by no more than this: the clocks are read one after the other.
const SAME_MS: u64 = 3;

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// When.
    pub at: String,
    /// Since the row before.
    pub since_ms: u64,
    /// The link.
    pub id: LinkId,
    /// The server's name.
    pub server: String,
    /// What it is.
    #[serde(flatten)]
    pub what: Thing,
    #[serde(skip)]
    ms: u64,
    /// The order within a millisecond, as far as it is known.
    #[serde(skip)]
    ns: u64,
}

/// An event or a frame.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Thing {
    /// A frame of a recording.
    Frame(Box<Sight>),
    /// A frame that an event remembers.
    Brief(Brief),
    /// An event.
    Event(Box<Event>),
}

/// The rows, in their order.
#[derive(Debug, Default)]
pub struct Timeline {
    rows: Vec<Row>,
    names: BTreeMap<LinkId, String>,
    /// Links whose frames are known from a file.
    recorded: BTreeSet<LinkId>,
}

impl Timeline {
    /// Takes an event. The frames that it remembers are taken at the end.
    pub fn event(&mut self, event: Event) {
        self.names.insert(event.id, event.server.clone());
        let ms = time::parse(&event.at).unwrap_or(0);
        self.rows.push(Row {
            at: event.at.clone(),
            since_ms: 0,
            id: event.id,
            server: event.server.clone(),
            // Within a millisecond what passed comes before what was written down about it, but behind a start.
            ns: if matches!(event.what, What::Start(_)) {
                0
            } else {
                u64::MAX
            },
            what: Thing::Event(event.into()),
            ms,
        });
    }

    /// Whether there are events of this link.
    pub fn knows(&self, link: LinkId) -> bool {
        self.names.contains_key(&link)
    }

    /// Takes a frame of a file.
    pub fn frame(&mut self, sight: Sight, server: &str) {
        self.recorded.insert(sight.link);
        self.rows.push(Row {
            at: sight.at.clone(),
            since_ms: 0,
            id: sight.link,
            server: self
                .names
                .get(&sight.link)
                .map_or(server, |name| name)
                .into(),
            ms: time::parse(&sight.at).unwrap_or(0),
            ns: sight.ns,
            what: Thing::Frame(sight.into()),
        });
    }

    /// Puts all in order.
    pub fn rows(mut self) -> Vec<Row> {
        let mut remembered: BTreeMap<LinkId, Vec<Row>> = BTreeMap::new();
        for row in &self.rows {
            if let Thing::Event(event) = &row.what
                && !self.recorded.contains(&row.id)
                && let Some(standing) = standing(&event.what)
            {
                let of_link = remembered.entry(row.id).or_default();
                let then = match standing.wall_ms {
                    0 => row.ms,
                    ms => ms,
                };
                for (place, brief) in standing.frames.iter().enumerate() {
                    let ms = then.saturating_sub(brief.ago_ms);
                    let twice = |other: &Row| {
                        other.ms.abs_diff(ms) <= SAME_MS
                            && matches!(&other.what, Thing::Brief(same) if alike(same, brief))
                    };
                    // What another event remembers of the same frames is not far away.
                    if !of_link.iter().rev().take(4 * RECENT_FRAMES).any(twice) {
                        of_link.push(Row {
                            at: time::rfc3339(ms),
                            what: Thing::Brief(brief.clone()),
                            ms,
                            ns: 1 + place as u64,
                            ..row.clone()
                        });
                    }
                }
            }
        }
        self.rows.extend(remembered.into_values().flatten());
        self.rows.sort_by_key(|row| (row.ms, row.ns));
        let mut before = None;
        for row in &mut self.rows {
            row.since_ms = row.ms - before.unwrap_or(row.ms);
            before = Some(row.ms);
        }
        self.rows
    }
}

/// How the link stood, if the event tells.
fn standing(what: &What) -> Option<&Standing> {
    if let What::Exit(exit) = what {
        return exit.standing.as_deref();
    }
    if let What::Signal(signal) = what {
        return signal.standing.as_deref();
    }
    if let What::Gone(gone) = what {
        return gone.standing.as_deref();
    }
    None
}

/// Whether two events remember the same frame.
fn alike(one: &Brief, other: &Brief) -> bool {
    let same = |brief: &Brief| (brief.from, brief.to, brief.kind, brief.bytes);
    same(one) == same(other) && one.id == other.id
}

impl Row {
    /// The date.
    pub fn date(&self) -> &str {
        self.at.split_once('T').map_or("", |(date, _)| date)
    }

    /// The lines, each with its end. `server` is how wide the names are.
    pub fn render(&self, server: usize, columns: usize, colour: bool) -> String {
        let clock = self.at.split_once('T').map_or("", |(_, clock)| clock);
        let clock = one_line(clock.trim_end_matches('Z'), 12);
        let since = format!("+{}", fine(self.since_ms));
        let name = one_line(&self.server, SERVER_CHARS);
        let lead = format!(
            "{}  {since:>9}  {}  ",
            Tone::Faint.paint(&clock, colour),
            Tone::Strong.paint(&format!("{name:server$}"), colour)
        );
        let used = 12 + 2 + 9 + 2 + server + 2;
        match &self.what {
            Thing::Event(event) => {
                let happening = Happening::of(event);
                let word = happening.tone.paint(happening.word, colour);
                let mut out = format!("{lead}{word}  {}\n", happening.text);
                for detail in &happening.details {
                    let detail = Tone::Faint.paint(detail, colour);
                    out.push_str(&" ".repeat(used));
                    out.push_str(&detail);
                    out.push('\n');
                }
                out
            }
            Thing::Brief(brief) => {
                let latency = brief
                    .latency_ms
                    .map_or_else(String::new, |ms| format!(", after {}", fine(ms)));
                let text = format!(
                    "{}  {} {} {}, {}{latency}",
                    words::way(brief.from, brief.to),
                    brief.kind.word(),
                    one_line(brief.method.as_deref().unwrap_or("-"), 40),
                    one_line(brief.id.as_deref().unwrap_or("-"), 24),
                    words::size(brief.bytes)
                );
                format!("{lead}{}\n", words::tone(brief.kind).paint(&text, colour))
            }
            Thing::Frame(sight) => {
                let head = words::head(sight);
                let room = columns.saturating_sub(used + head.chars().count() + 2);
                let body = words::body(sight, room.max(1));
                let body = if room < 8 { String::new() } else { body };
                let head = words::tone(sight.kind).paint(head.trim_end(), colour);
                format!("{lead}{head}  {body}").trim_end().to_string() + "\n"
            }
        }
    }
}

/// How wide the names of these rows are.
pub fn width(rows: &[Row]) -> usize {
    let chars = |row: &Row| row.server.chars().count().min(SERVER_CHARS);
    rows.iter().map(chars).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use mainstay_core::event::Exit;
    use mainstay_core::frames::{Kind, Side};

    fn exit(at: &str, id: u32, server: &str) -> Event {
        let exit = samples::all().into_iter().find_map(|what| {
            if let What::Exit(exit) = what {
                let stderr_tail = Vec::new();
                return Some(Exit {
                    stderr_tail,
                    ..exit
                });
            }
            None
        });
        Event {
            at: at.into(),
            id: LinkId(id),
            server: server.into(),
            ..samples::event(What::Exit(exit.unwrap()))
        }
    }

    fn sight(at: &str, ns: u64) -> Sight {
        Sight {
            n: 1,
            at: at.into(),
            ns,
            link: LinkId(2),
            from: Side::Server,
            to: Side::Client,
            generation: 1,
            kind: Kind::Response,
            method: Some("tools/list".into()),
            id: Some("3".into()),
            bytes: 90,
            latency_us: Some(1_500),
            ours: None,
            body: Some("{\"id\":3,\"result\":{}}".into()),
            cut: false,
        }
    }

    #[test]
    fn one_order_over_servers_and_sources() {
        let mut timeline = Timeline::default();
        timeline.event(exit("2026-11-15T22:31:07.500Z", 1, "one"));
        // A second event that remembers the same frames, seen a little later.
        let mut again = exit("2026-11-15T22:31:07.501Z", 1, "one");
        if let What::Exit(exit) = &mut again.what {
            for brief in &mut exit.standing.as_mut().unwrap().frames {
                brief.ago_ms += 2;
            }
        }
        timeline.event(again);
        timeline.event(exit("2026-11-15T22:31:08.000Z", 2, "the-other"));
        timeline.frame(sight("2026-11-15T22:31:07.700Z", 20), "?");
        timeline.frame(sight("2026-11-15T22:31:07.700Z", 10), "?");
        assert!(timeline.knows(LinkId(2)) && !timeline.knows(LinkId(3)));
        let rows = timeline.rows();
        let wide = width(&rows);
        let text: String = rows
            .iter()
            .map(|row| row.render(wide, 100, false))
            .collect();
        assert_eq!(
            text,
            "\
22:31:06.659      +0 ms  one        c→s  request tools/call 7, 120 B
22:31:06.700     +41 ms  one        c←s  response tools/call 7, 120 B, after 41 ms
22:31:07.500    +800 ms  one        exit  pid 4711, SIGSEGV (core dumped) after 3.20 s, 2 requests unanswered
22:31:07.501      +1 ms  one        exit  pid 4711, SIGSEGV (core dumped) after 3.20 s, 2 requests unanswered
22:31:07.700    +199 ms  the-other  c←s  =tools/list            3          90 B   1.5 ms  {}
22:31:07.700      +0 ms  the-other  c←s  =tools/list            3          90 B   1.5 ms  {}
22:31:08.000    +300 ms  the-other  exit  pid 4711, SIGSEGV (core dumped) after 3.20 s, 2 requests unanswered
"
        );
        assert!(rows[4].ns < rows[5].ns);
        let json = serde_json::to_value(&rows[4]).unwrap();
        assert_eq!(
            (&json["since_ms"], &json["frame"]["id"]),
            (&199.into(), &"3".into())
        );
    }
}
