//! The story of one death: the verdict as sentences, the events that it rests on, and what followed.
//!
//! It is made of events alone, so that the same story is told at any time later.

use mainstay_core::verdict::{self, Death, Fact, Rule, Sure, Verdict};
use mainstay_protocol::event::{Event, Standing, Status, What};
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::time::{self, Zone};
use serde::Serialize;

use crate::frames::brief;
use crate::happening::{Happening, Layout, suspect};
use crate::paint::Tone;
use crate::wrap::{width, wrap};

mod brief;
mod followed;
mod scene;
mod teller;
pub use brief::Impact;
use followed::followed;
use teller::Teller;

/// How to be certain about the next such death.
const TRACE: &str = "  `sudo mainstay trace-signals` shows the sender of each signal, from then on";
/// The longest foreign text within a sentence.
const TEXT_CHARS: usize = 200;

/// What is known about one death.
#[derive(Clone, Debug, Serialize)]
pub struct Story {
    /// The link.
    pub id: LinkId,
    /// The server's name.
    pub server: String,
    /// When the event was written.
    pub at: String,
    /// The verdict as sentences.
    pub told: String,
    /// Which generation, if one had started.
    pub generation: Option<u32>,
    /// The process that ended.
    pub pid: Option<i32>,
    /// How it ended.
    pub status: Option<Status>,
    /// How long it had lived.
    pub uptime_ms: Option<u64>,
    /// What ended it, and how sure that is.
    pub verdict: Verdict,
    /// The events that the verdict rests on.
    pub evidence: Vec<Event>,
    /// The state of the link when it began.
    pub standing: Option<Standing>,
    /// What followed, one sentence each.
    pub followed: Vec<String>,
    /// The verdict in one sentence.
    pub headline: String,
    /// What it did to the session.
    pub impact: Impact,
    /// The last lines of stderr that tell most.
    pub last_words: Vec<String>,
    /// What the user can do.
    pub next: String,
}

impl Story {
    /// The story of the death at this place among the events of one link.
    pub fn of(events: &[Event], death: usize) -> Option<Self> {
        let facts: Vec<Fact<'_>> = events
            .iter()
            .map(|event| Fact {
                at_ms: time::parse(&event.at).unwrap_or(0),
                what: &event.what,
            })
            .collect();
        let verdict = verdict::judge(&facts, death)?;
        let event = events.get(death)?;
        let rest = &events[death + 1..];
        let (exit, lost, kept) = match Death::of(&event.what)? {
            Death::Exit(exit) => (Some(exit), None, None),
            Death::KeeperLost(lost) => (None, Some(lost), None),
            Death::Survived(kept) => (None, None, Some(kept)),
            Death::CannotStart => (None, None, None),
        };
        let teller = Teller {
            event,
            verdict: &verdict,
            evidence: verdict.evidence.iter().map(|at| &events[*at]).collect(),
        };
        Some(Self {
            id: event.id,
            server: event.server.clone(),
            at: event.at.clone(),
            told: match kept {
                Some(kept) => teller.told_kept(kept, client_name(&events[..death]), rest),
                None => teller.told(exit),
            },
            standing: teller.standing().cloned(),
            generation: exit.map(|exit| exit.generation),
            pid: exit.map(|exit| exit.pid).or(lost.map(|lost| lost.pid)),
            status: exit
                .map(|exit| exit.status)
                .or(lost.and_then(|lost| lost.status)),
            uptime_ms: exit
                .map(|exit| exit.uptime_ms)
                .or(kept.map(|kept| kept.uptime_ms)),
            evidence: teller.evidence.iter().map(|&event| event.clone()).collect(),
            followed: followed(event, exit, rest),
            headline: teller.headline(exit, kept),
            impact: Impact {
                kept: kept.map(|kept| teller::kept_warm(kept, client_name(&events[..death]), rest)),
                ..Impact::of(event, rest)
            },
            last_words: brief::last_words(event),
            next: brief::next(&teller),
            verdict,
        })
    }

    /// All that is known, in lines that fit these columns.
    pub fn full(&self, columns: usize, zone: Zone, colour: bool) -> String {
        let head = |text: &str| Tone::Strong.paint(text, colour);
        let mut lines = vec![self.told.clone(), head("because")];
        lines.push(format!("  {}: {}", self.verdict.sure, self.verdict.rule));
        if self.verdict.sure == Sure::Unknown && self.verdict.rule != Rule::KeeperKilled {
            let suspects = self.verdict.suspects.iter();
            lines.extend(suspects.map(|who| format!("  it could be {}", suspect(who))));
            let itself = if self.verdict.rule == Rule::ServerKilled {
                "the server itself, or "
            } else {
                ""
            };
            lines.push(format!(
                "  it could be {itself}any other process of this user or of root"
            ));
            lines.push(TRACE.into());
        }
        lines.push(head("evidence"));
        let happenings: Vec<Happening> = self
            .evidence
            .iter()
            .map(|event| Happening::of(event, zone))
            .collect();
        let mut layout = Layout {
            columns: columns.saturating_sub(2),
            verbose: true,
            colour,
            ..Layout::default()
        };
        for happening in &happenings {
            layout.make_room(happening);
        }
        for happening in &happenings {
            let shown = happening.render(&layout);
            lines.extend(shown.lines().map(|line| format!("  {line}")));
        }
        if let Some(standing) = &self.standing
            && !standing.frames.is_empty()
        {
            lines.push(head("last frames"));
            let frames = standing.frames.iter();
            lines.extend(frames.map(|frame| format!("  {}", brief(frame))));
        }
        lines.push(head("what followed"));
        lines.extend(self.followed.iter().map(|line| format!("  {line}")));
        lines.iter().flat_map(|line| fold(line, columns)).collect()
    }
}

/// A line that is too wide goes on below itself, a little further to the right. Each line has its end.
fn fold(line: &str, columns: usize) -> Vec<String> {
    // A line with colours was made to fit.
    if width(line) <= columns || line.contains('\u{1b}') {
        return vec![format!("{line}\n")];
    }
    let text = line.trim_start();
    let indent = line.len() - text.len();
    let more = if indent == 0 { 0 } else { indent + 2 };
    let room = columns.saturating_sub(more).max(20);
    let pad = |at: usize| if at == 0 { indent } else { more };
    let lines = wrap(text, room).into_iter().enumerate();
    lines
        .map(|(at, line)| format!("{}{line}\n", " ".repeat(pad(at))))
        .collect()
}

/// The short name of the client at the time of these events.
fn client_name(events: &[Event]) -> &str {
    let named = events.iter().rev().find_map(|event| {
        if let What::Start(start) = &event.what {
            return start.client.as_ref();
        }
        if let What::ClientMoved(moved) = &event.what {
            return Some(&moved.to);
        }
        None
    });
    named.map_or("the client", |seen| &seen.comm)
}

#[cfg(test)]
mod tests;
