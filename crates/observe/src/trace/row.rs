//! One traced signal as it is printed: signal, sender, victim and result.

use mainstay_os::sender::{LOOK_BYTES, Look, look};
use mainstay_os::tracefs::Sent;
use mainstay_os::{census, clock as os_clock};
use mainstay_protocol::event::{Delivery, Target, Traced, signal_name, signal_word};
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::redact;
use mainstay_protocol::time;
use mainstay_report::clock::{Precision, clock};
use mainstay_report::paint::Tone;
use mainstay_report::safe::one_line;
use mainstay_report::width::width;
use mainstay_report::wrap::wrap;
use serde::Serialize;

use super::link_processes::LinkProcess;
use crate::watch::view::Style;

/// The longest command line below a row.
const DETAIL_CHARS: usize = 200;
/// Arguments of a command line that are kept.
const WORDS: usize = 32;

/// One traced signal.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The time at which it was sent.
    pub at: String,
    /// The same in milliseconds since the epoch.
    #[serde(skip)]
    pub at_ms: u64,
    /// The number of the signal.
    pub number: i32,
    /// The name of the signal.
    pub signal: Option<&'static str>,
    /// `si_code`: 0 or less if a process sent it, more than 0 if the kernel did.
    pub code: i32,
    /// Whether the kernel delivered it.
    pub result: Delivery,
    /// The sender. If the kernel sent the signal, the process that ran at that moment.
    pub sender: Process,
    /// The process that it was sent to.
    pub victim: Process,
    /// The links that the victim belongs to, and its role there.
    #[serde(serialize_with = "as_links")]
    pub links: Vec<LinkProcess>,
    /// The links that the sender belongs to, and its role there. Clients are not named here.
    #[serde(serialize_with = "as_links")]
    pub sender_links: Vec<LinkProcess>,
    /// The name of the victim, if it is an MCP server that does not run under mainstay.
    pub victim_server: Option<String>,
    /// The name of the sender, if it is an MCP server that does not run under mainstay.
    pub sender_server: Option<String>,
}

/// A process as it was seen.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Process {
    /// Its pid; the id of a thread if its process is not known.
    pub pid: i32,
    /// Its start time in clock ticks since boot, if it could still be read.
    pub start: Option<u64>,
    /// Its short name.
    pub comm: Option<String>,
    /// The id of its user.
    pub uid: Option<u32>,
    /// The executable file.
    pub exe: Option<String>,
    /// Its arguments; values that look like a secret are hidden.
    pub cmdline: Vec<String>,
}

/// A link that the victim belongs to.
#[derive(Serialize)]
struct Link<'a> {
    /// The id of the link.
    id: LinkId,
    /// The server's name.
    server: &'a str,
    /// The role of the victim in the link.
    to: Target,
}

fn as_links<S: serde::Serializer>(links: &[LinkProcess], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(links.iter().map(|process| Link {
        id: process.id,
        server: &process.server,
        to: process.to,
    }))
}

impl Process {
    /// Reads the process that this thread belonged to at this time. If it is gone, only the name that the kernel gave is known.
    fn of(thread: i32, boot_ms: u64, kernel_name: impl FnOnce() -> Option<String>) -> Self {
        let pid = census::process_of(thread).unwrap_or(thread);
        let mut bytes = [0; LOOK_BYTES];
        let len = look(pid, &mut bytes);
        let there = |seen: &Look| {
            let stat = seen.stat.as_ref();
            stat.is_none_or(|stat| os_clock::ticks_ms(stat.start) <= boot_ms)
        };
        let Some(seen) = Look::of(&bytes[..len]).filter(there) else {
            return Self {
                pid,
                comm: kernel_name(),
                ..Self::default()
            };
        };
        let words = redact::words(&seen.cmdline);
        Self {
            pid,
            start: seen.stat.as_ref().map(|stat| stat.start),
            comm: seen.stat.map(|stat| stat.comm).or_else(kernel_name),
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
    /// Looks up sender and victim. `kernel_name` returns the name of a sender that is gone.
    pub fn of(sent: &Sent, kernel_name: impl FnOnce() -> Option<String>) -> Self {
        let age_ms = os_clock::now().0.saturating_sub(sent.at.0) / 1_000_000;
        let at_ms = os_clock::wall_ms().saturating_sub(age_ms);
        // Plus one, because each of these numbers is rounded.
        let boot_ms = os_clock::since_boot_ms().saturating_sub(age_ms) + 1;
        // The sender first, because it usually ends first (`kill`, `pkill`).
        let sender = Process::of(sent.sender, boot_ms, kernel_name);
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
            links: Vec::new(),
            sender_links: Vec::new(),
            victim_server: None,
            sender_server: None,
        }
    }

    /// Notes the sender's name at the time of the signal, if it has another by now. Program and arguments are left out: they
    /// may be those of the program that it runs now.
    pub fn sender_was(&mut self, comm: String) {
        self.sender.comm = Some(comm);
        self.sender.exe = None;
        self.sender.cmdline.clear();
    }

    /// Whether a server, or a process of mainstay, has sent or received it.
    pub fn about_a_server(&self) -> bool {
        !self.links.is_empty()
            || !self.sender_links.is_empty()
            || self.victim_server.is_some()
            || self.sender_server.is_some()
    }

    /// Whether it was sent to this target: a pid, a server's name, a link's id or a process's short name.
    pub fn wanted(&self, to: Option<&str>) -> bool {
        let Some(to) = to else { return true };
        let pid = self.victim.pid.to_string() == to;
        let comm = self.victim.comm.as_deref() == Some(to);
        pid || comm
            || self
                .links
                .iter()
                .any(|process| process.server == to || process.id.to_string() == to)
    }

    /// The event for one of the links that the victim belongs to.
    pub fn event_for(&self, process: &LinkProcess) -> Traced {
        Traced {
            to: process.to,
            start: Some(process.who.start),
            generation: process.generation,
            ..self.traced()
        }
    }

    /// The event without a link.
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

    /// The text: a sentence, and a line with the sender's command line.
    pub fn render(&self, style: Style) -> String {
        let time = clock(&self.at, style.zone, Precision::Milliseconds);
        let indent = width(&time) + 2;
        let room = style.columns.saturating_sub(indent);
        let signal = signal_name(self.number);
        let mut out = String::new();
        for (place, line) in wrap(&self.sentence(), room).iter().enumerate() {
            let lead = if place == 0 {
                format!("{}  ", Tone::Faint.paint(&time, style.colour))
            } else {
                " ".repeat(indent)
            };
            let painted = Tone::Warn.paint(&signal, style.colour);
            out += &lead;
            out += &line.replacen(&signal, &painted, 1);
            out.push('\n');
        }
        if self.code <= 0 && !self.sender.cmdline.is_empty() {
            let words = one_line(&self.sender.cmdline.join(" "), room.min(DETAIL_CHARS));
            let words = Tone::Faint.paint(&words, style.colour);
            out.extend([&" ".repeat(indent), &words, "\n"]);
        }
        out
    }

    /// `python3 (8902) sent SIGKILL to uv (17839), part of time (0389c0e2)`.
    fn sentence(&self) -> String {
        let sender = if self.code > 0 {
            "the kernel".into()
        } else {
            let is = parts(&self.sender_links, self.sender_server.as_deref());
            let end = if is.is_empty() { "" } else { "," };
            format!("{}{is}{end}", self.sender.named())
        };
        let mut text = format!(
            "{sender} sent {} to {}",
            signal_name(self.number),
            self.victim.named()
        );
        if self.result != Delivery::Delivered {
            text.extend([", ", &self.result.to_string()]);
        }
        text + &parts(&self.links, self.victim_server.as_deref())
    }
}

/// What a process is: `, the keeper of time (0389c0e2)`.
fn parts(links: &[LinkProcess], server: Option<&str>) -> String {
    let mut all = Vec::new();
    for process in links {
        let server = one_line(&process.server, 64);
        let role = if process.to == Target::Tree {
            "part".into()
        } else {
            process.to.to_string()
        };
        all.push(format!(", {role} of {server} ({})", process.id));
    }
    if let Some(server) = server {
        let server = one_line(server, 64);
        all.push(format!(", the server {server} without mainstay"));
    }
    all.concat()
}

/// The names of the signals, such as `SIGTERM, SIGKILL`.
pub fn signal_list(numbers: &[i32]) -> String {
    let names: Vec<String> = numbers.iter().map(|&number| signal_name(number)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_protocol::ids::Identity;
    use mainstay_report::samples::assert_snapshot;

    fn style(columns: usize) -> Style {
        Style {
            columns,
            colour: false,
            zone: |_| 3_600,
        }
    }

    fn process(pid: i32, comm: &str) -> Process {
        Process {
            pid,
            comm: Some(comm.into()),
            ..Process::default()
        }
    }

    fn link(pid: i32, server: &str, to: Target) -> LinkProcess {
        LinkProcess {
            who: Identity { pid, start: 1 },
            id: LinkId(0x0389_c0e2),
            server: server.into(),
            to,
            generation: None,
        }
    }

    fn row() -> Row {
        Row {
            at: "2026-11-15T22:31:07.123Z".into(),
            at_ms: 0,
            number: 9,
            signal: signal_word(9),
            code: 0,
            result: Delivery::Delivered,
            sender: process(8902, "python3"),
            victim: process(17_839, "uv"),
            links: vec![link(17_839, "mcp-server-time", Target::Tree)],
            sender_links: Vec::new(),
            victim_server: None,
            sender_server: None,
        }
    }

    /// One of each kind.
    fn rows() -> Vec<Row> {
        let mut by_kernel = row();
        by_kernel.links[0].to = Target::Server;
        by_kernel.result = Delivery::Ignored;
        by_kernel.code = 128;
        let mut by_keeper = row();
        by_keeper.sender = process(8899, "mcp-keeper");
        by_keeper.sender_links = vec![link(8899, "mcp-server-time", Target::Keeper)];
        let mut bare = row();
        bare.links = Vec::new();
        bare.victim_server = Some("deaf.py".into());
        bare.sender.cmdline = [
            "python3",
            "/srv/cleanup.py",
            "--older-than",
            "1h",
            "--match",
        ]
        .map(Into::into)
        .into();
        bare.sender.cmdline.push("mcp".repeat(40));
        vec![row(), by_kernel, by_keeper, bare]
    }

    #[test]
    fn signals_at_80_and_120_columns() {
        for columns in [80, 120] {
            let text: String = rows()
                .iter()
                .map(|row| row.render(style(columns)))
                .collect();
            let path = format!("src/trace/signals-{columns}.txt");
            assert_snapshot(env!("CARGO_MANIFEST_DIR"), &path, &text);
        }
    }

    #[test]
    fn no_line_is_wider_than_its_terminal() {
        for columns in 60..=200 {
            for mut row in rows() {
                row.sender.comm = Some("日本語日本語日本語日本".into());
                for link in &mut row.links {
                    link.server = "x".repeat(90);
                }
                let text = row.render(style(columns));
                for line in text.lines() {
                    assert!(width(line) <= columns, "{columns}: {line}");
                }
            }
        }
    }

    #[test]
    fn a_signal_between_other_processes_is_not_about_a_server() {
        assert!(rows().iter().all(Row::about_a_server));
        let mut other = row();
        other.links = Vec::new();
        assert!(!other.about_a_server());
    }
}
