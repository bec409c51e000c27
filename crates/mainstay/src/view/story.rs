//! The story of one death: the verdict in plain words, the events that it rests on, and what followed.
//!
//! It is made of events alone, so that the same story is told at any time later.

use mainstay_core::event::{
    Cause, Event, Exit, Relation, Renewing, Seen, Standing, Status, What, signal_word,
};
use mainstay_core::ids::LinkId;
use mainstay_core::verdict::{self, By, Fact, Rule, Sure, Verdict};
use serde::Serialize;

use super::frames::brief;
use super::happening::{Happening, count, seen, suspect};
use super::measure::{fine, one_line};
use super::paint::Tone;
use crate::ledger::time;

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
        let (mut exit, mut lost) = (None, None);
        if let What::Exit(told) = &event.what {
            exit = Some(told);
        } else if let What::KeeperLost(told) = &event.what {
            lost = Some(told);
        }
        let teller = Teller {
            event,
            verdict: &verdict,
            evidence: verdict.evidence.iter().map(|at| &events[*at]).collect(),
        };
        Some(Self {
            id: event.id,
            server: event.server.clone(),
            at: event.at.clone(),
            told: teller.told(exit),
            standing: teller.standing().cloned(),
            generation: exit.map(|exit| exit.generation),
            pid: exit.map(|exit| exit.pid).or(lost.map(|lost| lost.pid)),
            status: exit
                .map(|exit| exit.status)
                .or(lost.and_then(|lost| lost.status)),
            uptime_ms: exit.map(|exit| exit.uptime_ms),
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
            lines.push("  it could be any other process of this user or of root".into());
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

struct Teller<'a> {
    event: &'a Event,
    verdict: &'a Verdict,
    evidence: Vec<&'a Event>,
}

impl Teller<'_> {
    fn told(&self, exit: Option<&Exit>) -> String {
        let server = one_line(&self.event.server, 64);
        let what = self.what();
        let Some(exit) = exit else {
            return format!("{server} {what}.");
        };
        let standing = self.standing();
        let after = match standing.and_then(|standing| standing.since_handshake_ms) {
            Some(ms) => format!("{} after the handshake", fine(ms)),
            None => format!("{} after its start", fine(exit.uptime_ms)),
        };
        let asks = match self.verdict.rule {
            Rule::SignalByClient
            | Rule::SignalByProcess
            | Rule::SignalBySomebodyGone
            | Rule::SignalByClaim
            | Rule::SignalByTerminal
            | Rule::SignalFromOutside
            | Rule::ShimKilled
            | Rule::ServerKilled
            | Rule::OutOfMemory => true,
            Rule::ClientClosed
            | Rule::ClientEnded
            | Rule::ClientDeaf
            | Rule::ServerByItself
            | Rule::ShimKilledWithClient
            | Rule::KeeperKilled
            | Rule::Asked
            | Rule::Renewed
            | Rule::Differs
            | Rule::CannotStart => false,
        };
        let mut parts = Vec::new();
        match standing.map(|standing| standing.stdin_open) {
            Some(false) if asks => parts.push("stdin was closed already".into()),
            Some(true) | None if asks => parts.push("stdin was still open".into()),
            Some(_) | None => {}
        }
        if let Some(standing) = standing {
            parts.push(match standing.last_answer_ms {
                Some(ms) => format!("the last answer was {} old", fine(ms)),
                None => "it had not answered anything yet".into(),
            });
        }
        parts.push(in_flight(exit, standing));
        format!("{server} {what} {after}. {}.", capital(&parts.join("; ")))
    }

    /// How the link stood when the first thing happened that led to the death.
    fn standing(&self) -> Option<&Standing> {
        self.evidence.iter().find_map(|event| match &event.what {
            What::Signal(signal) => signal.standing.as_deref(),
            What::Gone(gone) => gone.standing.as_deref(),
            What::Exit(exit) => exit.standing.as_deref(),
            What::Start(_)
            | What::StartFailed(_)
            | What::Teardown(_)
            | What::Sweep(_)
            | What::GuardLost(_)
            | What::KeeperLost(_)
            | What::ClientMoved(_)
            | What::Junk(_)
            | What::StderrDropped(_)
            | What::OpeningSilent(_)
            | What::Renewal(_)
            | What::Replayed(_)
            | What::Differs(_)
            | What::Abandoned(_)
            | What::ListChanged(_)
            | What::Instant(_)
            | What::ProbesUnanswered(_)
            | What::CallDeadline(_)
            | What::Suspects(_)
            | What::PipeEnd(_)
            | What::RecordingHurt(_) => None,
        })
    }

    /// What happened to the server, up to "so long after its start".
    fn what(&self) -> String {
        let sure = self.verdict.sure;
        let signal = self.verdict.signal.map_or("a signal".into(), signal_name);
        match self.verdict.rule {
            Rule::SignalByClient => {
                format!(
                    "was ended by {}",
                    self.client(&format!(", {signal}, {sure}"))
                )
            }
            Rule::SignalByProcess | Rule::SignalBySomebodyGone | Rule::SignalByClaim => {
                self.by_sender(&signal)
            }
            Rule::SignalByTerminal => format!("was ended by the terminal ({signal}, {sure})"),
            Rule::SignalFromOutside => {
                format!("was ended by a process outside this container ({signal}, {sure})")
            }
            Rule::ClientClosed => format!(
                "was ended because {} closed its stdin ({sure})",
                self.client("")
            ),
            Rule::ClientEnded => {
                let how = self.gone_status();
                format!(
                    "was ended because {} had ended{how} ({sure})",
                    self.client("")
                )
            }
            Rule::ClientDeaf => format!(
                "was ended because {} stopped reading ({sure})",
                self.client("")
            ),
            Rule::ServerByItself => match self.status() {
                Some(Status::Code(code)) => format!("ended by itself (exit code {code}, {sure})"),
                Some(status @ Status::Signal { .. }) => format!("crashed ({status}, {sure})"),
                None => format!("ended by itself ({sure})"),
            },
            Rule::OutOfMemory => {
                format!("was killed by the kernel because memory had run out (SIGKILL, {sure})")
            }
            Rule::ServerKilled => {
                format!("was killed by another process ({signal}, sender unknown)")
            }
            Rule::ShimKilledWithClient => format!(
                "was ended because the shim was killed together with {} ({signal}, {sure})",
                self.client("")
            ),
            Rule::ShimKilled => format!(
                "was ended because somebody killed the shim, the process that the client had started ({signal}, sender unknown)"
            ),
            Rule::KeeperKilled if sure == Sure::Certain => {
                "was ended because mainstay's keeper failed, which is a mistake of mainstay".into()
            }
            Rule::KeeperKilled => {
                format!(
                    "was ended because somebody killed mainstay's keeper ({signal}, sender unknown)"
                )
            }
            Rule::Asked => format!("was ended by `mainstay stop` ({sure})"),
            Rule::Renewed => self.renewed(),
            Rule::Differs => {
                format!(
                    "was ended by mainstay, because it could not go on with the session ({sure})"
                )
            }
            Rule::CannotStart => {
                let problem = self.problem();
                format!("could not be started ({sure}){problem}")
            }
        }
    }

    fn problem(&self) -> String {
        if let What::StartFailed(failed) = &self.event.what {
            return format!(": {}", one_line(&failed.problem, TEXT_CHARS));
        }
        String::new()
    }

    /// `claude (pid 1480540, SIGTERM, certain)`.
    fn client(&self, more: &str) -> String {
        if let By::Client(Some(Seen { who, comm })) = &self.verdict.by {
            return format!("{} (pid {who}{more})", one_line(comm, 40));
        }
        match more.trim_start_matches(", ") {
            "" => "the client".into(),
            more => format!("the client ({more})"),
        }
    }

    fn by_sender(&self, signal: &str) -> String {
        let sure = self.verdict.sure;
        let By::Process {
            pid,
            comm,
            uid,
            relation,
        } = &self.verdict.by
        else {
            return format!(
                "was ended by {}",
                self.client(&format!(", {signal}, {sure}"))
            );
        };
        let relation = match relation {
            Some(Relation::Other) | None => String::new(),
            Some(other) => format!(", {other}"),
        };
        match (comm, self.verdict.rule) {
            (_, Rule::SignalByClaim) => {
                let name = comm
                    .as_ref()
                    .map_or(String::new(), |comm| format!(", {}", one_line(comm, 40)));
                format!("was ended by whoever signed as pid {pid}{name} ({signal}, {sure})")
            }
            (Some(comm), _) => format!(
                "was ended by {} (pid {pid}{relation}, {signal}, {sure})",
                one_line(comm, 40)
            ),
            (None, _) => format!(
                "was ended by pid {pid} of uid {uid}, which had ended before it could be seen ({signal}, {sure})"
            ),
        }
    }

    fn renewed(&self) -> String {
        let sure = self.verdict.sure;
        let why = self.evidence.iter().find_map(|event| {
            if let What::Teardown(told) = &event.what
                && let Cause::Renewal(why) = &told.cause
            {
                return Some(why);
            }
            if let What::Renewal(told) = &event.what {
                return Some(&told.why);
            }
            None
        });
        match why {
            Some(Renewing::Idle { ms }) => {
                format!(
                    "was put to rest by mainstay: nobody had needed it for {} ({sure})",
                    fine(*ms)
                )
            }
            Some(Renewing::Asked) => format!("was replaced by `mainstay restart` ({sure})"),
            Some(why) => format!(
                "was replaced by mainstay: {} ({sure})",
                one_line(&why.to_string(), TEXT_CHARS)
            ),
            None => format!("was replaced by mainstay ({sure})"),
        }
    }

    fn gone_status(&self) -> String {
        let status = self.evidence.iter().find_map(|event| {
            if let What::Gone(gone) = &event.what {
                return gone.status;
            }
            None
        });
        status.map_or_else(String::new, |status| format!(": {status}"))
    }

    fn status(&self) -> Option<Status> {
        if let What::Exit(exit) = &self.event.what {
            return Some(exit.status);
        }
        None
    }
}

fn in_flight(exit: &Exit, standing: Option<&Standing>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for waiting in standing.iter().flat_map(|standing| &standing.waiting) {
        if !names.contains(&waiting.request.as_str()) {
            names.push(&waiting.request);
        }
    }
    let names = if names.is_empty() {
        String::new()
    } else {
        format!(" ({})", one_line(&names.join(", "), TEXT_CHARS))
    };
    match (exit.in_flight, exit.kept) {
        (0, _) => "nothing was in flight".into(),
        (all, 0) => format!(
            "{} in flight{names} got an answer from mainstay",
            count(all, "request")
        ),
        (all, kept) if kept >= all => {
            format!(
                "{} in flight{names} went on to the next generation",
                count(all, "request")
            )
        }
        (all, kept) => format!(
            "of {} in flight{names} {kept} went on to the next generation, the rest got an answer from mainstay",
            count(all, "request")
        ),
    }
}

/// What came behind the death, up to the next one.
fn followed(death: &Event, exit: Option<&Exit>, rest: &[Event]) -> Vec<String> {
    let mut lines = Vec::new();
    let since = |event: &Event| {
        let at = |event: &Event| time::parse(&event.at).unwrap_or(0);
        fine(at(event).saturating_sub(at(death)))
    };
    for event in rest {
        match &event.what {
            What::Exit(_) | What::StartFailed(_) | What::KeeperLost(_) => break,
            What::Start(start) => lines.push(format!(
                "started again as generation {} (pid {}) after {}",
                start.generation,
                start.pid,
                since(event)
            )),
            What::Teardown(teardown) => {
                let names: Vec<String> = teardown.left.iter().map(seen).collect();
                let left = names.len();
                let names = if left == 0 {
                    String::new()
                } else {
                    format!(": {}", names.join(", "))
                };
                let ms = fine(teardown.ms);
                lines.push(format!("{left} left of its tree after {ms}{names}"));
            }
            What::Replayed(_) | What::Differs(_) | What::Abandoned(_) | What::ListChanged(_) => {
                lines.push(Happening::of(event).text);
            }
            What::Sweep(_)
            | What::Signal(_)
            | What::Gone(_)
            | What::GuardLost(_)
            | What::ClientMoved(_)
            | What::Junk(_)
            | What::StderrDropped(_)
            | What::OpeningSilent(_)
            | What::Renewal(_)
            | What::Instant(_)
            | What::ProbesUnanswered(_)
            | What::CallDeadline(_)
            | What::Suspects(_)
            | What::PipeEnd(_)
            | What::RecordingHurt(_) => {}
        }
    }
    let again = rest
        .iter()
        .any(|event| matches!(event.what, What::Start(_)));
    if !again && exit.is_some() {
        lines.push("it was not started again".into());
    }
    if let What::KeeperLost(lost) = &death.what {
        if let Some(pid) = lost.successor {
            lines.insert(0, format!("a new keeper took over (pid {pid})"));
        }
        if lost.settled > 0 {
            let requests = count(lost.settled, "request");
            lines.insert(0, format!("{requests} answered with an error"));
        }
        if lost.successor.is_none() {
            lines.push("it was not started again".into());
        }
    }
    if lines.is_empty() {
        lines.push("nothing".into());
    }
    lines
}

fn signal_name(number: i32) -> String {
    signal_word(number).map_or_else(|| format!("signal {number}"), Into::into)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

#[cfg(test)]
mod tests;
