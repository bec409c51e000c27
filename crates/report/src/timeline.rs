//! Everything about some servers on one clock: events and frames in one order, each with the time since the one before.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_protocol::event::{Brief, Event, Standing, What};
use mainstay_protocol::frames::Sight;
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits::RECENT_FRAMES;
use mainstay_protocol::time::{self, Zone, ZonedTime};
use serde::Serialize;

use crate::frames as words;
use crate::happening::Happening;
use crate::measure::fine;
use crate::paint::Tone;
use crate::safe::one_line;
use crate::width::{cut, width as wide};
use crate::wrap::wrap;

/// A name of a server may always be so wide; in a wide terminal it may take a quarter of the line.
const SERVER_CHARS: usize = 16;
/// Two records of one frame differ by no more than this: the clocks are read one after the other.
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
    /// The date and the zone, as `2026-11-15 (UTC)`.
    pub fn date(&self, zone: Zone) -> String {
        let at = ZonedTime::of(self.ms, zone);
        format!("{} ({})", at.date(), at.zone())
    }

    /// The lines, each with its end. `server` is how wide the names are.
    pub fn render(&self, server: usize, columns: usize, zone: Zone, colour: bool) -> String {
        let clock = ZonedTime::of(self.ms, zone).clock_ms();
        let since = format!("+{}", fine(self.since_ms));
        let name = one_line(&self.server, server);
        let pad = " ".repeat(server.saturating_sub(wide(&name)));
        let lead = format!(
            "{}  {since:>9}  {}{pad}  ",
            Tone::Faint.paint(&clock, colour),
            Tone::Strong.paint(&name, colour)
        );
        let used = 12 + 2 + 9 + 2 + server + 2;
        match &self.what {
            Thing::Event(event) => {
                let happening = Happening::of(event, zone);
                let room = columns.saturating_sub(used).max(20);
                let text = format!("{}  {}", happening.word, happening.text);
                let details = happening
                    .details
                    .iter()
                    .flat_map(|detail| wrap(detail, room));
                let pad = " ".repeat(used);
                let mut out = lead;
                for (at, line) in wrap_behind(&text, happening.word, room).iter().enumerate() {
                    if at > 0 {
                        out.push_str(&pad);
                    }
                    match line.strip_prefix(happening.word).filter(|_| at == 0) {
                        Some(rest) => {
                            out.push_str(&happening.tone.paint(happening.word, colour));
                            out.push_str(rest);
                        }
                        None => out.push_str(line),
                    }
                    out.push('\n');
                }
                for detail in details {
                    out.push_str(&pad);
                    out.push_str(&Tone::Faint.paint(&detail, colour));
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
                let text = cut(&text, columns.saturating_sub(used));
                format!("{lead}{}\n", words::tone(brief.kind).paint(&text, colour))
            }
            Thing::Frame(sight) => {
                let head = words::head(sight);
                let room = columns.saturating_sub(used + head.chars().count() + 2);
                let body = words::body(sight, room.max(1));
                let body = if room < 8 { String::new() } else { body };
                let head = cut(head.trim_end(), columns.saturating_sub(used));
                let head = words::tone(sight.kind).paint(&head, colour);
                format!("{lead}{head}  {body}").trim_end().to_string() + "\n"
            }
        }
    }
}

/// A text whose first word keeps two blanks behind it.
fn wrap_behind(text: &str, word: &str, room: usize) -> Vec<String> {
    let mut lines = wrap(text, room.saturating_sub(1));
    if let Some(rest) = lines.first().and_then(|line| line.strip_prefix(word)) {
        let first = format!("{word} {rest}");
        lines[0] = first.trim_end().into();
    }
    lines
}

/// How wide the names of these rows are on a line of so many columns.
pub fn width(rows: &[Row], columns: usize) -> usize {
    let most = SERVER_CHARS.max(columns / 4);
    let chars = |row: &Row| wide(&one_line(&row.server, most)).min(most);
    rows.iter().map(chars).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{samples, snapshot};
    use mainstay_protocol::event::Exit;
    use mainstay_protocol::frames::{Kind, Side};

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
        for columns in [80, 120] {
            let wide = width(&rows, columns);
            let text: String = rows
                .iter()
                .map(|row| row.render(wide, columns, time::utc, false))
                .collect();
            snapshot::check(&format!("timeline-{columns}"), &text);
            assert!(text.lines().all(|line| super::wide(line) <= columns));
        }
        assert!(rows[4].ns < rows[5].ns);
        let json = serde_json::to_value(&rows[4]).unwrap();
        assert_eq!(
            (&json["since_ms"], &json["frame"]["id"]),
            (&199.into(), &"3".into())
        );
    }
}
