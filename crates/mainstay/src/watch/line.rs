//! One line of `mainstay watch`: what is said when a server comes or goes.

use mainstay_core::event::{Seen, Status, signal_name};
use mainstay_core::ids::Identity;
use serde::Serialize;

use super::look::{Candidate, Ours};
use crate::view::measure::{fine, memory, one_line, span};
use crate::view::paint::Tone;

/// The longest command that is shown.
const COMMAND_CHARS: usize = 160;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// A server is there.
    New,
    /// The server behind a launcher has come, or is another process now.
    Moved,
    /// A server is gone.
    Gone,
    /// A server outlives its client.
    Left,
    /// The client has ended.
    ClientGone,
}

impl Happened {
    fn word(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Moved => "MOVED",
            Self::Gone => "GONE",
            Self::Left => "LEFT",
            Self::ClientGone => "CLIENT",
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::New => Tone::Good,
            Self::Moved => Tone::Plain,
            Self::Gone | Self::ClientGone => Tone::Warn,
            Self::Left => Tone::Bad,
        }
    }
}

/// One line.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// When, as in events.
    pub at: String,
    /// What happened.
    pub what: Happened,
    /// The process.
    #[serde(flatten)]
    pub who: Identity,
    /// Its command, without what looks like a secret.
    pub command: Vec<String>,
    /// Who is at the other end.
    pub client: Option<Seen>,
    /// What its stdin is: pipe, socket, file, null, pty.
    pub stdin: &'static str,
    /// What its stdout is.
    pub stdout: &'static str,
    /// How long it has lived, or did.
    pub age_ms: u64,
    /// Resident memory when it was looked at.
    pub rss_kib: u64,
    /// Whoever launched it and has the same pipes, the first one first.
    pub launchers: Vec<Launcher>,
    /// It is itself a launcher, whose server has not come yet.
    pub launcher: bool,
    /// The process that was told before, if it moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Identity>,
    /// What it is to us, if it runs under mainstay.
    pub ours: Option<Ours>,
    /// How it ended, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Why its end is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<&'static str>,
    /// Who sent the signal that ended it, if it was traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<Sender>,
}

/// A launcher.
#[derive(Clone, Debug, Serialize)]
pub struct Launcher {
    /// Pid and start time.
    #[serde(flatten)]
    pub who: Identity,
    /// Its command.
    pub command: Vec<String>,
}

/// Who sent a signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sender {
    /// Its pid; 0 for the kernel.
    pub pid: i32,
    /// Its short name.
    pub comm: Option<String>,
    /// The signal.
    pub number: i32,
}

impl Line {
    /// What is said of a candidate.
    pub fn of(
        what: Happened,
        at: String,
        seen: &Candidate,
        launchers: &[&Candidate],
        age_ms: u64,
    ) -> Self {
        Self {
            at,
            what,
            who: seen.who,
            command: seen.argv.clone(),
            client: Some(seen.client.clone()),
            stdin: seen.stdin.word(),
            stdout: seen.stdout.word(),
            age_ms,
            rss_kib: seen.rss_kib,
            launchers: launchers
                .iter()
                .map(|launcher| Launcher {
                    who: launcher.who,
                    command: launcher.argv.clone(),
                })
                .collect(),
            launcher: super::launcher::launches(&seen.argv),
            from: None,
            ours: seen.ours.clone(),
            status: None,
            unknown: None,
            sender: None,
        }
    }

    /// The line with its end.
    pub fn render(&self, colour: bool) -> String {
        let clock = self.at.split_once('T').map_or("", |(_, clock)| clock);
        let clock = clock.trim_end_matches('Z');
        let word = format!("{:<6}", self.what.word());
        let mut parts = vec![
            Tone::Faint.paint(clock, colour),
            self.what.tone().paint(&word, colour),
            format!("{:>7}", self.who.pid),
        ];
        parts.extend(self.facts());
        let command = one_line(&self.command.join(" "), COMMAND_CHARS);
        parts.push(Tone::Strong.paint(&command, colour));
        parts.extend(self.remarks());
        parts.join("  ") + "\n"
    }

    fn facts(&self) -> Vec<String> {
        let client = self
            .client
            .as_ref()
            .map(|client| format!("{} ({})", one_line(&client.comm, 20), client.who));
        let ends = format!("{}/{}", self.stdin, self.stdout);
        match self.what {
            Happened::New | Happened::Moved | Happened::Left => {
                let mut facts: Vec<String> = client.into_iter().collect();
                facts.extend([ends, span(self.age_ms), memory(self.rss_kib)]);
                facts
            }
            Happened::Gone => {
                let mut facts: Vec<String> = client.into_iter().collect();
                facts.extend([format!("{} after {}", self.end(), fine(self.age_ms))]);
                facts
            }
            Happened::ClientGone => vec![self.end()],
        }
    }

    fn end(&self) -> String {
        let how = match (self.status, self.unknown) {
            (Some(status), _) => status.to_string(),
            (None, Some(why)) => format!("status unknown ({why})"),
            (None, None) => "status unknown".into(),
        };
        let Some(sender) = &self.sender else {
            return how;
        };
        let by = match (&sender.comm, sender.pid) {
            (_, 0) => "the kernel".into(),
            (Some(comm), pid) => format!("{} ({pid})", one_line(comm, 40)),
            (None, pid) => format!("pid {pid}"),
        };
        match self.status {
            Some(Status::Signal { .. }) => format!("{how} from {by}"),
            Some(Status::Code(_)) | None => {
                format!("{how}, had {} from {by}", signal_name(sender.number))
            }
        }
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Some(ours) = &self.ours {
            let server = ours.server.as_deref().unwrap_or("a server");
            remarks.push(format!("[mainstay: {}, {}]", one_line(server, 64), ours.id));
        }
        if let Some(from) = self.from.filter(|from| *from != self.who) {
            remarks.push(format!("[was {from}]"));
        }
        if !self.launchers.is_empty() {
            let names: Vec<String> = self
                .launchers
                .iter()
                .map(|launcher| {
                    let words = launcher.command.first().map_or("", String::as_str);
                    format!("{} ({})", one_line(words, 40), launcher.who)
                })
                .collect();
            remarks.push(format!("[via {}]", names.join(", ")));
        }
        if self.launcher && self.what != Happened::Gone {
            remarks.push("[launcher]".into());
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(what: Happened) -> Line {
        Line {
            at: "2026-11-15T22:31:07.123Z".into(),
            what,
            who: Identity {
                pid: 4711,
                start: 1,
            },
            command: vec!["node".into(), "server.js\n".into()],
            client: Some(crate::samples::seen(4000, "claude")),
            stdin: "socket",
            stdout: "pipe",
            age_ms: 41_200,
            rss_kib: 98_304,
            launchers: Vec::new(),
            launcher: false,
            from: None,
            ours: None,
            status: None,
            unknown: None,
            sender: None,
        }
    }

    #[test]
    fn coming_and_going_in_words() {
        let mut new = line(Happened::New);
        new.ours = Some(Ours {
            id: mainstay_core::ids::LinkId(7),
            server: Some("files".into()),
        });
        assert_eq!(
            new.render(false),
            "22:31:07.123  NEW        4711  claude (4000)  socket/pipe  41s  96 MiB  node server.js  [mainstay: files, 00000007]\n"
        );
        let mut gone = line(Happened::Gone);
        gone.status = Some(Status::Signal {
            number: 15,
            core: false,
        });
        gone.sender = Some(Sender {
            pid: 4000,
            comm: Some("claude".into()),
            number: 15,
        });
        assert_eq!(
            gone.render(false),
            "22:31:07.123  GONE       4711  claude (4000)  SIGTERM from claude (4000) after 41.20 s  node server.js\n"
        );
        gone.status = None;
        gone.sender = None;
        gone.unknown = Some("it belongs to another user");
        let text = gone.render(false);
        assert!(
            text.contains("  status unknown (it belongs to another user) after 41.20 s  "),
            "{text}"
        );
    }
}
