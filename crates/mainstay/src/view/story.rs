//! The story of one death: the verdict in plain words, the events that it rests on, and what followed.
//!
//! It is made of events alone, so that the same story is told at any time later.

use mainstay_core::event::{Event, Standing, Status, What};
use mainstay_core::ids::LinkId;
use mainstay_core::verdict::{self, Death, Fact, Rule, Sure, Verdict};
use serde::Serialize;

use super::frames::brief;
use super::happening::{Happening, suspect};
use super::paint::Tone;
use crate::ledger::time;

mod followed;
mod scene;
mod teller;
use followed::followed;
use teller::Teller;

/// What makes the next such death a certain one.
const TRACE: &str =
    "  `sudo mainstay trace-signals` sees who sends which signal to whom, from then on";
/// The longest foreign text within a sentence.
const TEXT_CHARS: usize = 200;

/// What is told of one death.
#[derive(Clone, Debug, Serialize)]
pub struct Story {
    /// The link.
    pub id: LinkId,
    /// The server's name.
    pub server: String,
    /// When it was written down.
    pub at: String,
    /// In words.
    pub told: String,
    /// Which generation, if one had started.
    pub generation: Option<u32>,
    /// The process that ended.
    pub pid: Option<i32>,
    /// How it ended.
    pub status: Option<Status>,
    /// How long it had lived.
    pub uptime_ms: Option<u64>,
    /// Who did it, and how sure that is.
    pub verdict: Verdict,
    /// The events that the verdict rests on.
    pub evidence: Vec<Event>,
    /// How the link stood when it began.
    pub standing: Option<Standing>,
    /// What followed, in words.
    pub followed: Vec<String>,
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
            verdict,
        })
    }

    /// The lines, each with its end.
    pub fn render(&self, colour: bool) -> String {
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
        for event in &self.evidence {
            let happening = Happening::of(event).render(colour);
            lines.extend(happening.lines().map(|line| format!("  {line}")));
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
        lines.join("\n") + "\n"
    }
}

/// The short name of the client, as it was when these were written down.
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
