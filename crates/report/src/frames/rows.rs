//! The rows of `mainstay tap`: what is asked for and what comes back, one line each.

use std::collections::VecDeque;

use mainstay_protocol::frames::{Kind, Side, Sight};

use super::gist::{self, Gist};
use super::{latency, size};
use crate::clock::{Precision, Zone, clock};
use crate::paint::Tone;
use crate::safe::one_line;
use crate::width::width;

/// Requests whose answers are waited for, at most.
const ASKED_MAX: usize = 1_024;
/// Columns of a latency.
const LATENCY: usize = 7;
/// Columns of what is asked for, at most.
const SUBJECT: usize = 60;

/// How rows look.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// How wide a row may be.
    pub columns: usize,
    /// Whether colours are used.
    pub colour: bool,
    /// The user's time zone.
    pub zone: Zone,
    /// Also milliseconds, ids and sizes.
    pub verbose: bool,
}

/// A request: the side that asked, and its id.
type Asked = (Side, String);

/// Turns frames into rows. It remembers what was asked, so that an answer that comes later is shown with its request.
#[derive(Debug, Default)]
pub struct FrameRows {
    asked: VecDeque<(Asked, String)>,
    last: Option<Asked>,
}

impl FrameRows {
    /// The row of a frame, with its end.
    pub fn row(&mut self, sight: &Sight, style: Style) -> String {
        let precision = if style.verbose {
            Precision::Milliseconds
        } else {
            Precision::Seconds
        };
        let time = clock(&sight.at, style.zone, precision);
        let (strong, rest, tone) = self.words(sight);
        let lead = format!("{}{}", arrow(sight), details(sight, style.verbose));
        let room = style
            .columns
            .saturating_sub(width(&time) + 2 + width(&lead) + 1);
        // A latency keeps the blanks before it.
        let strong = if sight.kind.answers() {
            strong
        } else {
            one_line(&strong, room.min(SUBJECT))
        };
        let gap = if strong.is_empty() { 0 } else { 2 };
        let rest = rest.split_whitespace().collect::<Vec<_>>().join(" ");
        let rest = one_line(&rest, room.saturating_sub(width(&strong) + gap));
        let strong_tone = if tone == Tone::Plain {
            Tone::Strong
        } else {
            tone
        };
        let row = format!(
            "{}  {lead} {}{:gap$}{}",
            Tone::Faint.paint(&time, style.colour),
            strong_tone.paint(&strong, style.colour),
            "",
            tone.paint(&rest, style.colour),
        );
        row.trim_end().to_owned() + "\n"
    }

    /// What stands first, what follows, and whether it is good or bad news.
    fn words(&mut self, sight: &Sight) -> (String, String, Tone) {
        let body = sight.body.as_deref().unwrap_or_default();
        let method = sight.method.as_deref();
        match sight.kind {
            Kind::Request | Kind::Notification => {
                let method = method.unwrap_or(sight.kind.word());
                let Gist { subject, text, .. } = gist::of_request(method, body);
                let asked = format!("{method} {subject}").trim_end().to_owned();
                let tone = super::tone(sight.kind);
                if sight.kind == Kind::Request {
                    self.remember((sight.from, id(sight)), asked.clone());
                }
                (format!("{}{asked}", by(sight)), text, tone)
            }
            Kind::Response | Kind::Error => {
                let gist = gist::of_answer(method, body);
                let tone = if gist.error { Tone::Bad } else { Tone::Plain };
                let asked = self.answered(sight);
                let text =
                    asked.map_or(gist.text.clone(), |asked| format!("{asked}: {}", gist.text));
                let took = sight.latency_us.map_or_else(String::new, latency);
                (
                    format!("{took:>LATENCY$}"),
                    format!("{}{text}", by(sight)),
                    tone,
                )
            }
            Kind::Batch => ("batch".into(), body.into(), Tone::Plain),
            Kind::Blank => ("empty line".into(), String::new(), Tone::Warn),
            Kind::Junk => ("not a message".into(), body.into(), Tone::Warn),
        }
    }

    fn remember(&mut self, key: Asked, asked: String) {
        if self.asked.len() >= ASKED_MAX {
            self.asked.pop_front();
        }
        self.last = Some(key.clone());
        self.asked.push_back((key, asked));
    }

    /// What an answer belongs to, unless its request is the row above it.
    fn answered(&mut self, sight: &Sight) -> Option<String> {
        let asker = match (sight.from, sight.to) {
            (Side::Server, _) | (Side::Mainstay, Side::Client) => Side::Client,
            (Side::Client, _) | (Side::Mainstay, Side::Server | Side::Mainstay) => Side::Server,
        };
        let id = id(sight);
        let at = self.asked.iter().position(|((side, asked), _)| {
            let same_side = *side == asker || *side == Side::Mainstay;
            *asked == id && same_side
        });
        let last = self.last.take();
        let known = at.and_then(|at| self.asked.remove(at));
        match known {
            Some((key, _)) if last.as_ref() == Some(&key) => None,
            Some((_, asked)) => Some(asked),
            None => sight.method.clone(),
        }
    }
}

fn id(sight: &Sight) -> String {
    sight.id.clone().unwrap_or_default()
}

/// Towards the server, or towards the client.
fn arrow(sight: &Sight) -> char {
    match (sight.from, sight.to) {
        (Side::Client, _) | (Side::Mainstay, Side::Server | Side::Mainstay) => '→',
        (Side::Server, _) | (Side::Mainstay, Side::Client) => '←',
    }
}

/// Whether mainstay wrote it, or keeps it.
fn by(sight: &Sight) -> String {
    match (sight.from, sight.to, sight.ours) {
        (Side::Mainstay, _, Some(ours)) => format!("(mainstay: {ours}) "),
        (Side::Mainstay, _, None) => "(mainstay) ".into(),
        (_, Side::Mainstay, _) => "(to mainstay) ".into(),
        _ => String::new(),
    }
}

fn details(sight: &Sight, verbose: bool) -> String {
    match (&sight.id, verbose) {
        (_, false) => String::new(),
        (Some(id), true) => format!(" #{} {}", one_line(id, 24), size(sight.bytes)),
        (None, true) => format!(" {}", size(sight.bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::assert_snapshot;
    use mainstay_protocol::frames::Ours;
    use mainstay_protocol::ids::LinkId;

    fn sight(from: Side, to: Side, kind: Kind, method: &str, id: &str, body: &str) -> Sight {
        Sight {
            n: 1,
            at: "2026-11-15T22:31:07.123Z".into(),
            ns: 5,
            link: LinkId(7),
            from,
            to,
            generation: 1,
            kind,
            method: Some(method.into()),
            id: (!id.is_empty()).then(|| id.into()),
            bytes: 120,
            latency_us: kind.answers().then_some(2_130),
            ours: None,
            body: Some(body.into()),
            cut: false,
        }
    }

    fn session() -> Vec<Sight> {
        use Kind::{Error, Junk, Notification, Request, Response};
        use Side::{Client, Mainstay, Server};
        let call = |id: u32, name: &str, arguments: &str| {
            let body =
                format!(r#"{{"id":{id},"params":{{"name":"{name}","arguments":{arguments}}}}}"#);
            sight(
                Client,
                Server,
                Request,
                "tools/call",
                &id.to_string(),
                &body,
            )
        };
        let mut probe = sight(Mainstay, Server, Request, "ping", "\"m1\"", "{}");
        probe.ours = Some(Ours::Probe);
        vec![
            sight(
                Client,
                Server,
                Request,
                "initialize",
                "0",
                r#"{"params":{"clientInfo":{"name":"claude","version":"2.1"}}}"#,
            ),
            sight(
                Server,
                Client,
                Response,
                "initialize",
                "0",
                r#"{"result":{"serverInfo":{"name":"time","version":"1.0"},"protocolVersion":"2025-11-25"}}"#,
            ),
            sight(
                Client,
                Server,
                Notification,
                "notifications/initialized",
                "",
                "{}",
            ),
            call(30, "get_current_time", r#"{"timezone":"Europe/Berlin"}"#),
            sight(
                Server,
                Client,
                Response,
                "tools/call",
                "30",
                r#"{"result":{"content":[{"type":"text","text":"{\n  \"timezone\": \"Europe/Berlin\",\n  \"datetime\": \"2026-11-17T13:24:00+01:00\"\n}"}]}}"#,
            ),
            call(31, "slow", "{}"),
            call(
                32,
                "write_file",
                r#"{"path":"/srv/日本語.txt","content":"日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語"}"#,
            ),
            sight(
                Server,
                Client,
                Error,
                "tools/call",
                "31",
                r#"{"error":{"code":-32602,"message":"unknown tool"}}"#,
            ),
            sight(
                Server,
                Client,
                Junk,
                "",
                "",
                "Starting default (STDIO) server...",
            ),
            probe,
            sight(
                Server,
                Mainstay,
                Response,
                "ping",
                "\"m1\"",
                r#"{"result":{}}"#,
            ),
        ]
    }

    fn rows(style: Style) -> String {
        let mut rows = FrameRows::default();
        session()
            .iter()
            .map(|sight| rows.row(sight, style))
            .collect()
    }

    const STYLE: Style = Style {
        columns: 80,
        colour: false,
        zone: |_| 3_600,
        verbose: false,
    };

    #[test]
    fn rows_at_80_columns() {
        let dir = env!("CARGO_MANIFEST_DIR");
        assert_snapshot(dir, "src/frames/rows-80.txt", &rows(STYLE));
    }

    #[test]
    fn rows_at_120_columns_with_ids_and_milliseconds() {
        let style = Style {
            columns: 120,
            verbose: true,
            ..STYLE
        };
        let dir = env!("CARGO_MANIFEST_DIR");
        assert_snapshot(dir, "src/frames/rows-120.txt", &rows(style));
    }

    #[test]
    fn no_row_is_wider_than_its_terminal() {
        for columns in 60..=200 {
            for verbose in [false, true] {
                let style = Style {
                    columns,
                    verbose,
                    ..STYLE
                };
                for row in rows(style).lines() {
                    assert!(width(row) <= columns, "{columns}: {row}");
                }
            }
        }
    }
}
