//! One traced signal as it is shown: who, to whom, which, and what became of it.

use mainstay_core::event::{Delivery, Target, Traced, signal_name, signal_word};
use mainstay_core::ids::LinkId;
use mainstay_core::redact;
use mainstay_os::sender::{LOOK_BYTES, Look, look};
use mainstay_os::tracefs::Sent;
use mainstay_os::{census, clock};
use serde::Serialize;

use super::known::Person;
use crate::ledger::time;
use crate::view::measure::one_line;
use crate::view::paint::Tone;

/// The longest command line below a row.
const DETAIL_CHARS: usize = 200;
/// Words of a command line that are kept.
const WORDS: usize = 32;

/// One signal.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// When it was sent, as in events.
    pub at: String,
    /// The same in milliseconds since the epoch.
    #[serde(skip)]
    pub at_ms: u64,
    /// Which.
    pub number: i32,
    /// Its name.
    pub signal: Option<&'static str>,
    /// `si_code`.
    pub code: i32,
    /// What became of it.
    pub result: Delivery,
    /// Who sent it; who ran at that moment, if the kernel sent it by itself.
    pub sender: Process,
    /// Whom it was for.
    pub victim: Process,
    /// What the victim is to links of ours.
    #[serde(rename = "links", serialize_with = "as_links")]
    pub people: Vec<Person>,
}

/// A process as it was seen.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Process {
    /// Its pid; a thread's id if the process could not be found out.
    pub pid: i32,
    /// Its start time in clock ticks since boot, if it still was there.
    pub start: Option<u64>,
    /// Its short name.
    pub comm: Option<String>,
    /// Its user.
    pub uid: Option<u32>,
    /// The file that it runs.
    pub exe: Option<String>,
    /// Its arguments, without what looks like a secret.
    pub cmdline: Vec<String>,
}

/// A link that it concerns.
#[derive(Serialize)]
struct Link<'a> {
    /// The link.
    id: LinkId,
    /// The server's name.
    server: &'a str,
    /// What the victim is to it.
    to: Target,
}

fn as_links<S: serde::Serializer>(people: &[Person], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(people.iter().map(|person| Link {
        id: person.id,
        server: &person.server,
        to: person.to,
    }))
}

impl Process {
    /// Looks at whom a thread belongs to that was there at this time; where nobody is to be seen any more, what the kernel
    /// has told of it.
    fn of(thread: i32, boot_ms: u64, told: impl FnOnce() -> Option<String>) -> Self {
        let pid = census::process_of(thread).unwrap_or(thread);
        let mut bytes = [0; LOOK_BYTES];
        let len = look(pid, &mut bytes);
        let there = |seen: &Look| {
            let stat = seen.stat.as_ref();
            stat.is_none_or(|stat| clock::ticks_ms(stat.start) <= boot_ms)
        };
        let Some(seen) = Look::of(&bytes[..len]).filter(there) else {
            return Self {
                pid,
                comm: told(),
                ..Self::default()
            };
        };
        let words = redact::words(&seen.cmdline);
        Self {
            pid,
            start: seen.stat.as_ref().map(|stat| stat.start),
            comm: seen.stat.map(|stat| stat.comm).or_else(told),
            uid: census::uid(pid),
            exe: seen.exe,
            cmdline: words
                .iter()
                .take(WORDS)
                .map(|word| one_line(word, DETAIL_CHARS))
                .collect(),
        }
    }

    fn named(&self) -> String {
        match &self.comm {
            Some(comm) => format!("{} ({})", one_line(comm, 40), self.pid),
            None => format!("pid {}", self.pid),
        }
    }
}

impl Row {
    /// What can be seen of both sides now, and what was told of the sender if it cannot be seen.
    pub fn of(sent: &Sent, told: impl FnOnce() -> Option<String>) -> Self {
        let age_ms = clock::now().0.saturating_sub(sent.at.0) / 1_000_000;
        let at_ms = clock::wall_ms().saturating_sub(age_ms);
        // One more, because each of these numbers is rounded.
        let boot_ms = clock::since_boot_ms().saturating_sub(age_ms) + 1;
        // The sender first: it is the one that ends soonest.
        let sender = Process::of(sent.sender, boot_ms, told);
        let victim = Process::of(sent.victim, boot_ms, || Some(sent.victim_comm.clone()));
        Self {
            at: time::rfc3339(at_ms),
            at_ms,
            number: sent.number,
            signal: signal_word(sent.number),
            code: sent.code,
            result: Delivery::of(sent.result),
            sender,
            victim,
            people: Vec::new(),
        }
    }

    /// Whether it is for this one: a pid, a server's name, a link's id or a process's short name.
    pub fn wanted(&self, to: Option<&str>) -> bool {
        let Some(to) = to else { return true };
        let pid = self.victim.pid.to_string() == to;
        let comm = self.victim.comm.as_deref() == Some(to);
        pid || comm
            || self
                .people
                .iter()
                .any(|person| person.server == to || person.id.to_string() == to)
    }

    /// The event for one of the links that it concerns.
    pub fn for_person(&self, person: &Person) -> Traced {
        Traced {
            to: person.to,
            start: Some(person.who.start),
            generation: person.generation,
            ..self.traced()
        }
    }

    /// The same, for nobody in particular.
    pub fn traced(&self) -> Traced {
        Traced {
            number: self.number,
            code: self.code,
            to: Target::default(),
            pid: self.victim.pid,
            start: self.victim.start,
            generation: None,
            result: self.result,
            sender: self.sender.pid,
            comm: self.sender.comm.clone(),
            sender_start: self.sender.start,
            uid: self.sender.uid,
            exe: self.sender.exe.clone(),
            cmdline: self.sender.cmdline.clone(),
        }
    }

    /// The lines, each with its end.
    pub fn render(&self, colour: bool) -> String {
        let clock = self.at.split_once('T').map_or("", |(_, clock)| clock);
        let clock = clock.trim_end_matches('Z');
        let sender = if self.code > 0 {
            "the kernel".into()
        } else {
            self.sender.named()
        };
        let mut out = format!(
            "{}  {}  {sender} to {}, {}",
            Tone::Faint.paint(clock, colour),
            Tone::Warn.paint(&signal_name(self.number), colour),
            self.victim.named(),
            self.result,
        );
        for person in &self.people {
            let server = Tone::Strong.paint(&one_line(&person.server, 64), colour);
            out.extend([", ", &format!("{} of {server} ({})", person.to, person.id)]);
        }
        out.push('\n');
        if self.code <= 0 && !self.sender.cmdline.is_empty() {
            let words = one_line(&self.sender.cmdline.join(" "), DETAIL_CHARS);
            out.extend(["    ", &Tone::Faint.paint(&words, colour), "\n"]);
        }
        out
    }
}

/// `SIGTERM, SIGKILL`.
pub fn signal_list(numbers: &[i32]) -> String {
    let names: Vec<String> = numbers.iter().map(|&number| signal_name(number)).collect();
    names.join(", ")
}
