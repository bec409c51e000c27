//! A server that has gone, until it is known how it ended and who ended it.
//!
//! The kernel tells the status of somebody else's child when it has been reaped, or while it waits for that; a tracer
//! writes the sender down beside us. Both take a moment, and neither is waited for longer than that.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use mainstay_core::event::Status;
use mainstay_core::limits::{WATCH_SENDER_MS as SENDER_MS, WATCH_STATUS_MS as STATUS_MS};
use mainstay_os::{census, clock, ended};

use super::line::{Happened, Line, Sender};
use super::look::Candidate;
use super::{age_ms, now_text};
use crate::paths::Paths;
use crate::trace::sheet::{self, Answer};

/// How often both are asked.
const AGAIN_MS: u64 = 10;

/// What an end can be known by.
#[derive(Debug)]
pub struct Known {
    /// Its pidfd, if there was one.
    pub fd: Option<OwnedFd>,
    /// The connector's word.
    pub exit: Option<Status>,
    /// Why there was no pidfd.
    pub unwatched: Option<&'static str>,
}

/// A server that has gone.
#[derive(Debug)]
pub struct Leaving {
    /// Who.
    pub gone: Candidate,
    /// When it is to be asked again.
    pub again_ms: u64,
    launchers: Vec<Candidate>,
    known: Known,
    since_ms: u64,
    at: String,
    age_ms: u64,
    born_ms: u64,
}

impl Leaving {
    /// It has gone just now.
    pub fn new(gone: Candidate, launchers: Vec<Candidate>, known: Known, now_ms: u64) -> Self {
        let age_ms = age_ms(gone.who);
        Self {
            gone,
            launchers,
            known,
            again_ms: now_ms,
            since_ms: now_ms,
            at: now_text(),
            age_ms,
            born_ms: clock::wall_ms().saturating_sub(age_ms),
        }
    }

    /// The line, once everything is known or will not be.
    pub fn settle(
        &mut self,
        paths: &Paths,
        exits: &HashMap<i32, Status>,
        now_ms: u64,
    ) -> Option<Line> {
        if now_ms < self.again_ms {
            return None;
        }
        let waited = now_ms.saturating_sub(self.since_ms);
        let who = self.gone.who;
        let fd = self.known.fd.as_ref();
        let status = fd
            .and_then(|fd| ended::status(fd, who))
            .or_else(|| exits.get(&who.pid).copied())
            .or(self.known.exit);
        let hopeless = self.known.fd.is_none() || waited >= STATUS_MS;
        if status.is_none() && !hopeless {
            self.again_ms = now_ms + AGAIN_MS;
            return None;
        }
        let number = match status {
            Some(Status::Signal { number, .. }) => Some(number),
            Some(Status::Code(_)) | None => None,
        };
        let answer = sheet::ask(paths, who, number, self.born_ms);
        if answer == Answer::Nothing && number.is_some() && waited < SENDER_MS {
            self.again_ms = now_ms + AGAIN_MS;
            return None;
        }
        let launchers: Vec<&Candidate> = self.launchers.iter().collect();
        let mut line = Line::of(
            Happened::Gone,
            self.at.clone(),
            &self.gone,
            &launchers,
            self.age_ms,
        );
        line.status = status;
        line.unknown = status.is_none().then(|| self.why_unknown());
        if let Answer::Sender(traced) = answer {
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
        match (self.known.unwatched, &self.known.fd) {
            (Some(why), _) => why,
            (None, None) => "it could not be watched: too many open files",
            (None, Some(_)) if self.waits_to_be_reaped() => {
                "its parent has not reaped it, and it belongs to another user"
            }
            (None, Some(_)) => {
                "it was reaped before anybody could look, and this kernel is older than 6.15"
            }
        }
    }
}
