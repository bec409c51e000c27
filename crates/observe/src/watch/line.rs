//! One line of `mainstay watch`: a server has started, moved or ended, or its client has ended.

use std::ffi::OsString;

use mainstay_keeper::default_name;
use mainstay_protocol::event::{Seen, Status, signal_name};
use mainstay_protocol::ids::Identity;
use mainstay_report::paint::Tone;
use mainstay_report::safe::one_line;
use serde::Serialize;

use super::inspect::{Candidate, OurLink};

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// A server has started, or was found running.
    New,
    /// A launcher has started its server, or the server is another process now.
    Moved,
    /// A server has ended.
    Gone,
    /// A server still runs although its client has ended.
    Left,
    /// The client has ended.
    ClientGone,
    /// A server is there whose client is gone.
    Orphan,
}

impl Happened {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Moved => "MOVED",
            Self::Gone => "GONE",
            Self::Left => "LEFT",
            Self::ClientGone => "CLIENT",
            Self::Orphan => "ORPHAN",
        }
    }

    pub(super) fn tone(self) -> Tone {
        match self {
            Self::New => Tone::Good,
            Self::Moved => Tone::Plain,
            Self::Gone | Self::ClientGone => Tone::Warn,
            Self::Left | Self::Orphan => Tone::Bad,
        }
    }
}

/// One line of output.
#[derive(Clone, Debug, Serialize)]
pub struct WatchLine {
    /// The time of the change.
    pub at: String,
    /// What happened.
    pub what: Happened,
    /// The process.
    #[serde(flatten)]
    pub who: Identity,
    /// Its command; values that look like a secret are hidden.
    pub command: Vec<String>,
    /// The process at the other end of its stdin.
    pub client: Option<Seen>,
    /// What its stdin is: pipe, socket, file, null, pty.
    pub stdin: &'static str,
    /// What its stdout is.
    pub stdout: &'static str,
    /// How long it has run, or did.
    pub age_ms: u64,
    /// Resident memory at the last inspection.
    pub rss_kib: u64,
    /// The launchers with the same pipes, outermost first.
    pub launchers: Vec<Launcher>,
    /// Whether it is a launcher that has not started its server yet.
    pub launcher: bool,
    /// For `moved`: the process that was reported before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Identity>,
    /// The link, if the process runs under mainstay.
    pub ours: Option<OurLink>,
    /// Its exit status, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Why the exit status is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<&'static str>,
    /// The sender of the signal that ended it, if `trace-signals` saw it.
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

/// The sender of a signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sender {
    /// Its pid; 0 for the kernel.
    pub pid: i32,
    /// Its short name.
    pub comm: Option<String>,
    /// The signal.
    pub number: i32,
}

impl WatchLine {
    /// The line for a process.
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

    /// The server's name: that of its link, or one made from its command.
    pub fn name(&self) -> String {
        let named = self.ours.as_ref().and_then(|ours| ours.server.clone());
        named.unwrap_or_else(|| {
            let words: Vec<OsString> = self.command.iter().map(OsString::from).collect();
            default_name::of(&words)
        })
    }

    /// The client: of a server under mainstay the one that its link serves.
    pub fn shown_client(&self) -> Option<&Seen> {
        let linked = self.ours.as_ref().and_then(|ours| ours.client.as_ref());
        linked.or(self.client.as_ref())
    }

    /// The pid of the server. The client's child is only mainstay's own process.
    pub fn shown_pid(&self) -> i32 {
        let linked = self.ours.as_ref().and_then(|ours| ours.process.as_ref());
        linked.map_or(self.who.pid, |seen| seen.who.pid)
    }

    /// Its memory, of the same process.
    pub fn shown_rss_kib(&self) -> u64 {
        let linked = self.ours.as_ref().and_then(|ours| ours.rss_kib);
        linked.unwrap_or(self.rss_kib)
    }

    /// How it ended, and by which sender.
    pub fn end(&self) -> String {
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

    /// What else is known about its start: the process that it was before, and its launchers.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Some(from) = self.from.filter(|from| *from != self.who) {
            remarks.push(format!("was {from}"));
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
            remarks.push(format!("via {}", names.join(", ")));
        }
        if self.launcher && self.what != Happened::Gone {
            remarks.push("launcher".into());
        }
        remarks
    }
}

#[cfg(test)]
pub mod samples {
    use super::*;
    use mainstay_protocol::ids::LinkId;

    /// A server of claude without mainstay.
    pub fn line(what: Happened) -> WatchLine {
        WatchLine {
            at: "2026-11-15T22:31:07.123Z".into(),
            what,
            who: Identity {
                pid: 27_890,
                start: 1,
            },
            command: vec!["python3".into(), "/srv/deaf.py\n".into()],
            client: Some(mainstay_report::samples::seen(27_819, "claude")),
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

    /// The link of a server under mainstay.
    pub fn ours() -> OurLink {
        OurLink {
            id: LinkId(0xfc07_d4f2),
            server: Some("everything".into()),
            short_id: "fc07".into(),
            client: Some(mainstay_report::samples::seen(15_484, "python")),
            process: Some(mainstay_report::samples::seen(15_818, "node")),
            rss_kib: Some(61_440),
        }
    }
}
