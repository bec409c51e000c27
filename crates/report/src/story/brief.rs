//! The story in ten lines: what happened, what it did to the session, the last words, suspects, and what to do next.

use mainstay_core::verdict::{Death, Rule, Sure};
use mainstay_protocol::event::{Event, StartFailed, Status, Suspect, Suspicion, What};
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::message::settle;
use mainstay_protocol::time::{self, Zone, ZonedTime};
use serde::Serialize;

use super::Story;
use super::scene::capital;
use super::teller::Teller;
use crate::happening::suspect_briefly;
use crate::measure::{count, fine};
use crate::paint::Tone;
use crate::safe::one_line;
use crate::wrap::wrap;

/// Lines of stderr that are shown.
const LAST_WORDS: usize = 2;
/// Suspects that are named.
const SUSPECTS: usize = 3;
/// The column in which the texts begin.
const TEXT_COLUMN: usize = 14;
/// Programs that are made to end processes. Other programs that only speak of it are weak suspects.
const KILLERS: [&str; 7] = [
    "kill", "pkill", "killall", "skill", "xkill", "earlyoom", "nohang",
];

/// What a death did to the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Impact {
    /// How long after the death the next server was started; none if none was.
    pub restarted_ms: Option<u64>,
    /// How long that server took until it was ready.
    pub ready_ms: Option<u64>,
    /// What became of a server that was kept, because only the process that the client had started was killed.
    pub kept: Option<String>,
    /// The server was given up after too many deaths.
    pub given_up: bool,
    /// Requests of the client that mainstay answered with an error.
    pub failed: u32,
    /// Requests of the client that were sent to the next server.
    pub resent: u32,
}

impl Impact {
    pub(super) fn of(death: &Event, rest: &[Event]) -> Self {
        let mut impact = Self::default();
        match Death::of(&death.what) {
            Some(Death::Exit(exit)) => {
                impact.resent = exit.kept.min(exit.in_flight);
                impact.failed = exit.in_flight - impact.resent;
            }
            Some(Death::KeeperLost(lost)) => impact.failed = lost.settled,
            Some(Death::Survived(kept)) => impact.failed = kept.in_flight,
            Some(Death::CannotStart) | None => {}
        }
        let at = |event: &Event| time::parse(&event.at).unwrap_or(0);
        for event in rest {
            if let What::Start(_) = event.what {
                let after = at(event).saturating_sub(at(death));
                impact.restarted_ms.get_or_insert(after);
            } else if let What::Ready(ready) = &event.what {
                impact.ready_ms.get_or_insert(ready.ms);
            } else if let What::Abandoned(_) = event.what {
                impact.given_up = true;
            } else if Death::of(&event.what).is_some() {
                break;
            }
        }
        impact
    }

    fn text(&self) -> String {
        if let Some(kept) = &self.kept {
            return format!("{kept} {}", capital(&self.calls())) + ".";
        }
        format!("{}; {}", self.server(), self.calls())
    }

    fn server(&self) -> String {
        match (self.restarted_ms, self.ready_ms) {
            (Some(ms), Some(ready)) => {
                format!("restarted after {}, ready after {}", fine(ms), fine(ready))
            }
            (Some(ms), None) => format!("restarted after {}", fine(ms)),
            (None, _) if self.given_up => "given up after too many deaths".into(),
            (None, _) => "not started again".into(),
        }
    }

    fn calls(&self) -> String {
        match (self.failed, self.resent) {
            (0, 0) => "no call was lost".into(),
            (0, resent) => format!("{} went to the next server", count(resent, "call")),
            (failed, 0) => format!("{} got an error", count(failed, "call")),
            (failed, resent) => {
                format!(
                    "{} got an error, {resent} went to the next server",
                    count(failed, "call")
                )
            }
        }
    }
}

impl Story {
    /// The story in about ten lines.
    pub fn brief(&self, columns: usize, zone: Zone, colour: bool) -> String {
        let mut out = String::new();
        for line in wrap(&self.headline, columns) {
            out += &Tone::Strong.paint(&line, colour);
            out.push('\n');
        }
        let mut row = |name: &str, text: &str| {
            let room = columns.saturating_sub(TEXT_COLUMN).max(20);
            for (at, line) in wrap(text, room).iter().enumerate() {
                let name = if at == 0 { name } else { "" };
                out += &Tone::Faint.paint(&format!("  {name:<12}"), colour);
                out += line;
                out.push('\n');
            }
        };
        if let Some(at) = ZonedTime::of_text(&self.at, zone) {
            let id = self.id.short();
            row(
                "when",
                &format!("{} {} ({}), id {id}", at.date(), at.clock(), at.zone()),
            );
        }
        if self.verdict.rule != Rule::CannotStart {
            row("impact", &self.impact.text());
        }
        let room = columns.saturating_sub(TEXT_COLUMN).max(20);
        let words = self.last_words.iter();
        let words = words.filter(|_| !was_asked_for(self.verdict.rule));
        for (at, line) in words.enumerate() {
            let name = if at == 0 { "last words" } else { "" };
            row(name, &one_line(line, room));
        }
        if let Some(suspects) = self.suspects() {
            row("suspects", &suspects);
        }
        row("next", &self.next);
        out
    }

    /// One line for a list of deaths.
    pub fn line(&self, zone: Zone) -> (String, String) {
        let at = ZonedTime::of_text(&self.at, zone);
        let at = at.map_or_else(String::new, |at| format!("{} {}", at.date(), at.clock()));
        (format!("{at}  {}", self.id.short()), self.headline.clone())
    }

    /// At most three suspects, and how many weaker ones there are; none if the sender is known.
    fn suspects(&self) -> Option<String> {
        if self.verdict.sure != Sure::Unknown || self.verdict.rule == Rule::KeeperKilled {
            return None;
        }
        let (strong, weak): (Vec<&Suspect>, Vec<&Suspect>) = self
            .verdict
            .suspects
            .iter()
            .partition(|suspect| is_strong(suspect));
        let named: Vec<String> = strong
            .iter()
            .take(SUSPECTS)
            .map(|it| suspect_briefly(it))
            .collect();
        let more = strong.len() - named.len() + weak.len();
        let more = match more {
            0 => None,
            1 => Some("1 weaker one with --full".to_owned()),
            more => Some(format!("{more} weaker ones with --full")),
        };
        let all: Vec<String> = named.into_iter().chain(more).collect();
        if all.is_empty() {
            return Some("none was seen".into());
        }
        Some(all.join("; "))
    }
}

/// Whether more speaks against a process than its command line.
fn is_strong(suspect: &Suspect) -> bool {
    match suspect.why {
        Suspicion::Client | Suspicion::BelowClient => true,
        Suspicion::Name => KILLERS.contains(&suspect.seen.comm.as_str()),
        Suspicion::Mainstay => false,
    }
}

/// The last lines of stderr that tell most.
pub(super) fn last_words(death: &Event) -> Vec<String> {
    let What::Exit(exit) = &death.what else {
        return Vec::new();
    };
    let lines: Vec<&str> = settle::telling(&exit.stderr_tail)
        .into_iter()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let skip = lines.len().saturating_sub(LAST_WORDS);
    lines[skip..].iter().map(|line| (*line).into()).collect()
}

/// The word for a link that means no other: its name may be that of others, and a short id of digits alone may be a pid.
fn by_id(id: LinkId) -> String {
    let short = id.short();
    if short.bytes().all(|byte| byte.is_ascii_digit()) {
        return id.to_string();
    }
    short
}

/// What the user can do.
pub(super) fn next(teller: &Teller<'_>) -> String {
    let death = teller.event;
    let (name, id) = (one_line(&death.server, 64), by_id(death.id));
    match teller.verdict.rule {
        _ if teller.verdict.sure == Sure::Unknown => {
            "run `sudo mainstay trace-signals` and wait for the next time: it names the sender"
                .into()
        }
        Rule::CannotStart => {
            if let What::StartFailed(StartFailed { hint, .. }) = &death.what
                && !hint.is_empty()
            {
                return one_line(hint, 200);
            }
            format!("`mainstay events --server {name}` shows what was tried")
        }
        Rule::ServerByItself | Rule::ServerClosed | Rule::Differs => {
            format!("`mainstay logs {id}` shows what it wrote before")
        }
        Rule::OutOfMemory => {
            "`--memory-max SIZE` restarts it between two calls, before memory runs out".into()
        }
        Rule::KeeperKilled => "nothing: the session went on; please report this mistake".into(),
        Rule::ClientEnded | Rule::ShimKilledWithClient => {
            let ended = match teller.gone_status() {
                Some(Status::Signal { .. }) => "was killed",
                Some(Status::Code(_)) | None => "ended",
            };
            format!(
                "nothing: the client {ended}, and its servers ended with it; earlier ends: `mainstay why {name} --last 5`"
            )
        }
        Rule::ClientClosed | Rule::ClientDeaf | Rule::Asked | Rule::Renewed | Rule::LeaseEnded => {
            format!("nothing: this end was asked for; earlier ones: `mainstay why {name} --last 5`")
        }
        Rule::SignalByClient
        | Rule::SignalByProcess
        | Rule::SignalByProcessGone
        | Rule::SignalByClaim
        | Rule::SignalByTerminal
        | Rule::SignalFromOutside
        | Rule::ShimKilled
        | Rule::ServerKilled
        | Rule::TracedSignal
        | Rule::TracedKernel => {
            format!("`mainstay why {id} --full` shows the sender and the last messages")
        }
    }
}

/// Whether the client, the user or mainstay ended the server on purpose.
fn was_asked_for(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::ClientClosed
            | Rule::ClientEnded
            | Rule::ClientDeaf
            | Rule::ShimKilledWithClient
            | Rule::Asked
            | Rule::Renewed
            | Rule::LeaseEnded
    )
}
