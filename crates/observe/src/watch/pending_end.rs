//! A server that has ended, until its exit status and the sender of its signal are known.
//!
//! For a process that is not our child, the kernel shows the exit status while it is a zombie, and newer kernels also after
//! it was reaped. The sender comes from a running `mainstay trace-signals`. Both may take a moment; the wait is limited.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use mainstay_os::{census, clock, ended};
use mainstay_protocol::event::Status;
use mainstay_protocol::limits::{WATCH_SENDER_MS as SENDER_MS, WATCH_STATUS_MS as STATUS_MS};
use mainstay_store::paths::Paths;

use super::inspect::Candidate;
use super::line::{Happened, Sender, WatchLine};
use super::{age_ms, now_text};
use crate::trace::recent::{self, Lookup};

/// Time between two attempts.
const RETRY_MS: u64 = 10;

/// What is known about an end, and how to learn more.
#[derive(Debug)]
pub struct EndEvidence {
    pub pidfd: Option<OwnedFd>,
    /// The status that the proc connector has reported.
    pub exit: Option<Status>,
    /// Why there is no pidfd.
    pub why_unwatched: Option<&'static str>,
}

/// An end that is not reported yet.
#[derive(Debug)]
pub struct PendingEnd {
    pub gone: Candidate,
    /// The time of the next attempt.
    pub again_ms: u64,
    launchers: Vec<Candidate>,
    evidence: EndEvidence,
    since_ms: u64,
    at: String,
    age_ms: u64,
    born_ms: u64,
}

impl PendingEnd {
    /// The process has ended just now.
    pub fn new(
        gone: Candidate,
        launchers: Vec<Candidate>,
        evidence: EndEvidence,
        now_ms: u64,
    ) -> Self {
        let age_ms = age_ms(gone.who);
        Self {
            gone,
            launchers,
            evidence,
            again_ms: now_ms,
            since_ms: now_ms,
            at: now_text(),
            age_ms,
            born_ms: clock::wall_ms().saturating_sub(age_ms),
        }
    }

    /// The line to print, once status and sender are known or the wait for them is over.
    pub fn finish(
        &mut self,
        paths: &Paths,
        exits: &HashMap<i32, Status>,
        now_ms: u64,
    ) -> Option<WatchLine> {
        if now_ms < self.again_ms {
            return None;
        }
        let waited = now_ms.saturating_sub(self.since_ms);
        let who = self.gone.who;
        let fd = self.evidence.pidfd.as_ref();
        let status = fd
            .and_then(|fd| ended::status(fd, who))
            .or_else(|| exits.get(&who.pid).copied())
            .or(self.evidence.exit);
        let give_up = self.evidence.pidfd.is_none() || waited >= STATUS_MS;
        if status.is_none() && !give_up {
            self.again_ms = now_ms + RETRY_MS;
            return None;
        }
        let number = match status {
            Some(Status::Signal { number, .. }) => Some(number),
            Some(Status::Code(_)) | None => None,
        };
        let sender = recent::find_sender(paths, who, number, self.born_ms);
        if sender == Lookup::NotFound && number.is_some() && waited < SENDER_MS {
            self.again_ms = now_ms + RETRY_MS;
            return None;
        }
        let launchers: Vec<&Candidate> = self.launchers.iter().collect();
        let mut line = WatchLine::of(
            Happened::Gone,
            self.at.clone(),
            &self.gone,
            &launchers,
            self.age_ms,
        );
        line.status = status;
        line.unknown = status.is_none().then(|| self.why_unknown());
        if let Lookup::Found(traced) = sender {
            line.sender = Some(Sender {
                pid: if traced.by_kernel() { 0 } else { traced.sender },
                comm: traced.comm,
                number: traced.number,
            });
        }
        Some(line)
    }

    fn waits_to_be_reaped(&self) -> bool {
        let stat = census::stat(self.gone.who.pid);
        stat.is_ok_and(|stat| stat.who() == self.gone.who && stat.dead())
    }

    fn why_unknown(&self) -> &'static str {
        match (self.evidence.why_unwatched, &self.evidence.pidfd) {
            (Some(why), _) => why,
            (None, None) => "it could not be watched: too many open files",
            (None, Some(_)) if self.waits_to_be_reaped() => {
                "its parent has not reaped it, and it belongs to another user"
            }
            (None, Some(_)) => {
                "it was reaped before its status could be read, and this kernel is older than 6.15"
            }
        }
    }
}
