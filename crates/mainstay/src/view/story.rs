//! The story of one death: the verdict in plain words, the events that it rests on, and what followed.
//!
//! It is made of events alone, so that the same story is told at any time later.

use mainstay_core::event::{
    Cause, Event, Exit, Lingering, Relation, Renewing, Seen, Status, What, signal_word,
};
use mainstay_core::ids::LinkId;
use mainstay_core::verdict::{self, By, Fact, Rule, Sure, Verdict};
use serde::Serialize;

use super::happening::{Happening, count, seen};
use super::measure::{fine, one_line};
use super::paint::Tone;
use crate::ledger::time;

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
        let (mut exit, mut lost, mut kept) = (None, None, None);
        if let What::Exit(told) = &event.what {
            exit = Some(told);
        } else if let What::Lingering(told) = &event.what {
            kept = Some(told);
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
            told: match kept {
                Some(kept) => teller.told_kept(kept, client_name(&events[..death]), rest),
                None => teller.told(exit),
            },
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
        if !self.verdict.suspects.is_empty() {
            let names: Vec<String> = self.verdict.suspects.iter().map(seen).collect();
            let names = names.join(", ");
            lines.push(format!(
                "  it could be the client, {names}, or any process of this user or of root"
            ));
        }
        lines.push(head("evidence"));
        for event in &self.evidence {
            let happening = Happening::of(event).render(colour);
            lines.extend(happening.lines().map(|line| format!("  {line}")));
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
        let after = fine(exit.uptime_ms);
        let open = match self.verdict.rule {
            Rule::SignalByClient
            | Rule::SignalByProcess
            | Rule::SignalBySomebodyGone
            | Rule::SignalByClaim
            | Rule::SignalByTerminal
            | Rule::SignalFromOutside
            | Rule::ShimKilled
            | Rule::ServerKilled
            | Rule::OutOfMemory => "Stdin was still open; ",
            Rule::ClientClosed
            | Rule::ClientEnded
            | Rule::ClientDeaf
            | Rule::ServerByItself
            | Rule::ShimKilledWithClient
            | Rule::KeeperKilled
            | Rule::Asked
            | Rule::Renewed
            | Rule::Differs
            | Rule::CannotStart => "",
        };
        let flight = in_flight(exit);
        let flight = if open.is_empty() {
            capital(&flight)
        } else {
            flight
        };
        let kept = self.kept_before();
        format!("{server} {what} {after} after its start. {open}{flight}.{kept}")
    }

    /// An attempt on the shim that the server has survived, and whether the client came back.
    fn told_kept(&self, kept: &Lingering, client: &str, rest: &[Event]) -> String {
        let server = one_line(&self.event.server, 64);
        let what = self.what().replacen("was ended", "was to be ended", 1);
        let after = fine(kept.uptime_ms);
        let flight = match kept.in_flight {
            0 => "nothing was in flight".into(),
            number => format!("{} in flight got no answer", count(number, "request")),
        };
        let ms = fine(kept.ms);
        let then = rest.iter().find_map(|event| {
            if let What::Reattached(back) = &event.what {
                let after = fine(back.after_ms);
                let client = one_line(client, 40);
                return Some(format!(
                    "Kept warm for {ms}; {client} came back after {after} and went on with the same server."
                ));
            }
            if let What::LingerEnded(ended) = &event.what {
                return Some(format!("Kept warm for {}; {}.", fine(ended.after_ms), ended.why));
            }
            None
        });
        let then = then.unwrap_or_else(|| format!("It is kept warm for {ms}."));
        format!("{server} {what} {after} after its start. Stdin was still open; {flight}. {then}")
    }

    /// That the server was kept before it was ended.
    fn kept_before(&self) -> String {
        let mut parted = self.evidence.iter().filter_map(|event| {
            if let What::LingerEnded(ended) = &event.what {
                return Some(ended);
            }
            None
        });
        parted.next().map_or_else(String::new, |ended| {
            let after = fine(ended.after_ms);
            format!(" It had been kept warm for {after}; {}.", ended.why)
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

fn in_flight(exit: &Exit) -> String {
    match (exit.in_flight, exit.kept) {
        (0, _) => "nothing was in flight".into(),
        (all, 0) => format!(
            "{} in flight got an answer from mainstay",
            count(all, "request")
        ),
        (all, kept) if kept >= all => {
            format!(
                "{} in flight went on to the next generation",
                count(all, "request")
            )
        }
        (all, kept) => format!(
            "of {} in flight {kept} went on to the next generation, the rest got an answer from mainstay",
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
            What::Exit(_) | What::StartFailed(_) | What::KeeperLost(_) | What::Lingering(_) => {
                break;
            }
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
            What::Replayed(_)
            | What::Differs(_)
            | What::Abandoned(_)
            | What::ListChanged(_)
            | What::Reattached(_)
            | What::LingerEnded(_) => {
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
            | What::CallDeadline(_) => {}
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
mod tests {
    use super::*;
    use crate::samples;
    use mainstay_core::event::{Cause, Lost, OutOfMemory, Relation, Signal, Start, Teardown};

    fn exit(change: impl FnOnce(&mut Exit)) -> What {
        let exit = samples::all().into_iter().find_map(|what| {
            if let What::Exit(exit) = what {
                return Some(exit);
            }
            None
        });
        let mut exit = exit.unwrap();
        change(&mut exit);
        What::Exit(exit)
    }

    fn teardown(cause: Cause) -> What {
        What::Teardown(Teardown {
            cause,
            rungs: Vec::new(),
            ms: 3,
            ended: 1,
            left: Vec::new(),
        })
    }

    fn story(whats: Vec<What>, death: usize) -> Story {
        let events: Vec<Event> = whats.into_iter().map(samples::event).collect();
        Story::of(&events, death).unwrap()
    }

    /// The sentence on a signal to the shim.
    fn by_signal(signal: Signal) -> String {
        let number = signal.number;
        let quiet = exit(|exit| exit.in_flight = 0);
        let cause = Cause::ShimSignal { number };
        let told = story(vec![What::Signal(signal), quiet, teardown(cause)], 1).told;
        let (first, _) = told.split_once(" 3.20 s after its start.").unwrap();
        first.into()
    }

    #[test]
    fn every_kind_of_sender_has_its_sentence() {
        let signal = Signal {
            number: 15,
            sender: 9,
            uid: 1000,
            ..Signal::default()
        };
        let seen = Signal {
            comm: Some("kill".into()),
            start: Some(1),
            relation: Some(Relation::BelowClient),
            ..signal.clone()
        };
        for (signal, told) in [
            (
                seen.clone(),
                "by kill (pid 9, a descendant of the client, SIGTERM, certain)",
            ),
            (
                Signal {
                    relation: Some(Relation::Client),
                    ..seen.clone()
                },
                "by the client (SIGTERM, certain)",
            ),
            (
                Signal { code: -1, ..seen },
                "by whoever signed as pid 9, kill (SIGTERM, probable)",
            ),
            (
                Signal {
                    gone: true,
                    ..signal.clone()
                },
                "by pid 9 of uid 1000, which had ended before it could be seen (SIGTERM, unknown)",
            ),
            (
                Signal {
                    code: 128,
                    number: 2,
                    ..signal.clone()
                },
                "by the terminal (SIGINT, certain)",
            ),
            (
                Signal {
                    sender: 0,
                    ..signal
                },
                "by a process outside this container (SIGTERM, certain)",
            ),
        ] {
            assert_eq!(by_signal(signal), format!("playwright was ended {told}"));
        }
    }

    #[test]
    fn crashes_memory_and_requests_in_flight() {
        let crash = story(vec![exit(|_| {})], 0);
        assert_eq!(
            crash.told,
            "playwright crashed (SIGSEGV (core dumped), certain) 3.20 s after its start. \
             Of 2 requests in flight 1 went on to the next generation, the rest got an answer from mainstay."
        );
        let memory = exit(|exit| {
            exit.status = Status::Signal {
                number: 9,
                core: false,
            };
            exit.out_of_memory = Some(OutOfMemory::Machine);
            exit.kept = 0;
        });
        assert_eq!(
            story(vec![memory], 0).told,
            "playwright was killed by the kernel because memory had run out (SIGKILL, probable) 3.20 s after its start. \
             Stdin was still open; 2 requests in flight got an answer from mainstay."
        );
    }

    #[test]
    fn a_killed_keeper_and_what_followed() {
        let lost = What::KeeperLost(Lost {
            pid: 44,
            status: Some(Status::Signal {
                number: 9,
                core: false,
            }),
            ended: 3,
            settled: 1,
            successor: Some(49),
        });
        let start = samples::all().remove(0);
        let What::Start(start) = start else {
            panic!("the first sample is a start")
        };
        let next = What::Start(Start {
            generation: 2,
            ..start
        });
        let told = story(vec![lost, next], 0);
        assert_eq!(
            told.told,
            "playwright was ended because somebody killed mainstay's keeper (SIGKILL, sender unknown)."
        );
        assert_eq!(
            told.followed,
            [
                "1 request answered with an error",
                "a new keeper took over (pid 49)",
                "started again as generation 2 (pid 4711) after 0 ms"
            ]
        );
    }
}
