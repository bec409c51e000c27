//! The recording: every frame of a session in one file, secrets hidden, for as long as disk and limit allow.
//!
//! Lines wait in a bounded buffer and are written between two turns. A write may take its time on a slow disk, so the disk
//! is used for a small part of the time only; what does not fit meanwhile is lost and counted. Nothing that goes wrong
//! here reaches the link: it is told once, in an event.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mainstay_core::clock::Moment;
use mainstay_core::event::RecordingHurt;
use mainstay_core::frames::{End, Head, Line, Lost, Sight};
use mainstay_core::ids::LinkId;
use mainstay_core::limits::{RECORDING_BYTES, RECORDING_RESTS};
use mainstay_core::redact;
use mainstay_os::clock;
use rustix::process::{Resource, getrlimit};

use crate::ledger::time;
use crate::report::plain;

/// How long the disk is left alone after an error.
const AFTER_ERROR_MS: u64 = 1_000;
/// Room that is kept for the last line.
const END_BYTES: u64 = 512;

/// A recording.
pub struct Recording {
    link: LinkId,
    path: PathBuf,
    /// None: it could not be opened, or has reached its size.
    file: Option<File>,
    secrets: bool,
    limit: u64,
    size: u64,
    waiting: Vec<u8>,
    /// The file ends within a line.
    torn: bool,
    lost: u64,
    lost_in_all: u64,
    rests_until: Moment,
    hurt: Hurt,
}

/// What is wrong with it, and whether that is told.
enum Hurt {
    No,
    Untold(String),
    Told,
}

/// Opens the file of a recording: a private, regular one, to be appended to.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        // A pipe without a reader must not keep us waiting.
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

impl Recording {
    /// Goes on at the end of the file, or begins it.
    pub fn new(link: LinkId, path: &Path, limit: u64, secrets: bool) -> Self {
        let (file, hurt) = match open(path) {
            Ok(file) => (Some(file), Hurt::No),
            Err(error) => (None, Hurt::Untold(plain(&error))),
        };
        let size = file.as_ref().and_then(|file| file.metadata().ok());
        // A write beyond the limit of the process would end it by a signal.
        let of_process = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        Self {
            link,
            path: path.into(),
            file,
            secrets,
            limit: limit.min(of_process).saturating_sub(END_BYTES),
            size: size.map_or(0, |meta| meta.len()),
            waiting: Vec::new(),
            torn: false,
            lost: 0,
            lost_in_all: 0,
            rests_until: Moment(0),
            hurt,
        }
    }

    /// Says what follows. What a killed keeper wrote last may be half a line.
    pub fn begin(&mut self, head: Head) {
        self.torn = self.size > 0;
        let redacted = !self.secrets;
        self.put(&Line::Head(Head { redacted, ..head }).text());
    }

    /// One more frame.
    pub fn push(&mut self, sight: Sight) {
        let body = match sight.body {
            Some(body) if !self.secrets => Some(redact::body(&body).into_owned()),
            other => other,
        };
        let line = Line::Frame(Sight { body, ..sight }.into()).text();
        self.put(&line);
    }

    /// Writes what waits, unless the disk has its rest.
    pub fn write(&mut self, now: Moment) {
        if now < self.rests_until || self.waiting.is_empty() {
            return;
        }
        let Some(file) = &mut self.file else {
            return;
        };
        let begun = clock::now();
        let written = file.write(&self.waiting);
        let ended = clock::now();
        self.rests_until = Moment(ended.0 + RECORDING_RESTS * (ended - begun));
        match written {
            Ok(len) => {
                let last = self.waiting.drain(..len).next_back();
                self.torn = last.is_some_and(|byte| byte != b'\n');
                self.size += len as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                // What waits is gone, and with it the rest of a line that is half there.
                let lines = self.waiting.split(|&byte| byte == b'\n').count() - 1;
                self.waiting.clear();
                self.lose(lines as u64);
                self.rests_until = ended.after_ms(AFTER_ERROR_MS);
                self.complain(plain(&error));
            }
        }
    }

    /// When it can be written again, if something waits.
    pub fn due(&self) -> Option<Moment> {
        (self.file.is_some() && !self.waiting.is_empty()).then_some(self.rests_until)
    }

    /// What went wrong, once.
    pub fn hurt(&mut self) -> Option<RecordingHurt> {
        let Hurt::Untold(why) = &mut self.hurt else {
            return None;
        };
        let why = std::mem::take(why);
        self.hurt = Hurt::Told;
        Some(RecordingHurt {
            path: self.path.to_string_lossy().into_owned(),
            why,
            lost: self.lost_in_all,
        })
    }

    /// The link ends: what waits is written, be it that the disk had earned a rest.
    pub fn close(&mut self) {
        let why = "the link has ended".into();
        if self.file.is_some() {
            self.end(why);
        }
    }

    fn put(&mut self, line: &[u8]) {
        if self.file.is_none() {
            self.lost_in_all += 1;
            return;
        }
        let mut more = Vec::new();
        // With nothing behind it, the half line at the end of the file is all there will be of it.
        let half = self.torn && self.waiting.is_empty();
        if half {
            more.push(b'\n');
        }
        if self.lost > 0 {
            let (link, count) = (self.link, self.lost);
            more.extend(Line::Lost(Lost { link, count }).text());
        }
        let len = (more.len() + line.len()) as u64;
        if self.size + self.waiting.len() as u64 + len > self.limit {
            self.lose(1);
            self.end("it has reached its size (--record-bytes)".into());
            self.complain("it has reached its size (--record-bytes)".into());
            return;
        }
        if self.waiting.len() + more.len() + line.len() > RECORDING_BYTES {
            self.lose(1);
            self.complain("the disk is too slow".into());
            return;
        }
        self.lost = 0;
        self.waiting.extend(more);
        self.waiting.extend_from_slice(line);
    }

    /// The last line.
    fn end(&mut self, why: String) {
        if self.lost > 0 {
            let (link, count) = (self.link, self.lost);
            self.waiting.extend(Line::Lost(Lost { link, count }).text());
            self.lost = 0;
        }
        let at = time::rfc3339(clock::wall_ms());
        let end = End {
            link: self.link,
            at,
            why,
        };
        self.waiting.extend(Line::End(end).text());
        self.rests_until = Moment(0);
        self.write(Moment(0));
        self.file = None;
        self.waiting = Vec::new();
    }

    fn lose(&mut self, count: u64) {
        self.lost += count;
        self.lost_in_all += count;
    }

    fn complain(&mut self, why: String) {
        if let Hurt::No = self.hurt {
            self.hurt = Hurt::Untold(why);
        }
    }
}
