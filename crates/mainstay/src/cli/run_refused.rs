//! Refuses a `run` for which not even a keeper can be started: this process answers each request of the client with the
//! reason, until the client closes its pipe.

use std::ffi::OsString;

use mainstay_keeper::warm;
use mainstay_os::{clock, role};
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{StartFailed, What};
use mainstay_protocol::limits::{EXPLAIN_MS, MISTAKE_ANSWERS, MISTAKE_BYTES, MISTAKE_MS};
use mainstay_protocol::message::frame::{Fed, Id, Kind, Scanner};
use mainstay_protocol::message::settle::{self, Why};
use mainstay_protocol::message::slot::Tracked;
use mainstay_protocol::redact;
use mainstay_report::Report;
use mainstay_store::ledger::append::Ledger;
use mainstay_store::paths::Paths;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::run::random_id;

const READ_BYTES: usize = 4096;

/// The server that is not started.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    pub paths: &'a Paths,
    pub name: &'a str,
    pub argv: &'a [OsString],
    /// Bytes that were read from the client already.
    pub read: &'a [u8],
}

impl Refusal<'_> {
    /// Records the reason and answers the client with it. Returns the report, for stderr and the exit code.
    pub fn answer_client(&self, report: Report) -> Report {
        let failed = record(self, &report);
        let why = Why::StartFailed {
            argv: &failed.argv,
            problem: &failed.problem,
            hint: &failed.hint,
        };
        let mut scanner = Scanner::default();
        if answer(&mut scanner, self.read, &why).is_some() {
            answer_all(&mut scanner, &why);
        }
        report
    }

    /// The same for a process that may have no client: answers only if pipes or sockets are its stdin and stdout, and only
    /// for a limited time. The reason is recorded at once, or with `spoken` when the client has sent a request.
    pub fn answer_opening(&self, report: &Report, when: Recorded) {
        let failed = failure(self, report);
        if when == Recorded::Now {
            write(self, &failed);
        }
        if !is_piped(0) || !is_piped(1) {
            return;
        }
        let why = Why::StartFailed {
            argv: &failed.argv,
            problem: &failed.problem,
            hint: &failed.hint,
        };
        let mut scanner = Scanner::default();
        let mut buffer = [0u8; READ_BYTES];
        let (mut bytes, mut answers) = (0, 0);
        let mut until = clock::now().after_ms(MISTAKE_MS);
        while bytes < MISTAKE_BYTES && answers < MISTAKE_ANSWERS {
            let Some(len) = read_until(&mut buffer, until) else {
                return;
            };
            bytes += len;
            let Some(count) = answer(&mut scanner, &buffer[..len], &why) else {
                return;
            };
            if count == 0 {
                continue;
            }
            if answers == 0 && when == Recorded::WithFirstRequest {
                write(self, &failed);
            }
            answers += count;
            until = clock::now().after_ms(EXPLAIN_MS);
        }
    }
}

/// When the event `start_failed` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Now,
    /// Once it is certain that there is a client.
    WithFirstRequest,
}

/// Whether this standard descriptor is a pipe or a socket, as clients use.
fn is_piped(fd: i32) -> bool {
    rustix::fs::fstat(role::standard(fd)).is_ok_and(|stat| {
        let kind = FileType::from_raw_mode(stat.st_mode);
        matches!(kind, FileType::Fifo | FileType::Socket)
    })
}

/// Reads from the client; none at its end, or when the time is up.
fn read_until(buffer: &mut [u8], until: Moment) -> Option<usize> {
    loop {
        let left_ms = until.ms_since(clock::now());
        let time = Timespec {
            tv_sec: (left_ms / 1_000) as i64,
            tv_nsec: (left_ms % 1_000) as i64 * 1_000_000,
        };
        let stdin = role::standard(0);
        let mut fds = [PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
        match poll(&mut fds, Some(&time)) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        }
        match rustix::io::read(stdin, &mut *buffer) {
            Ok(0) => return None,
            Ok(len) => return Some(len),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return None,
        }
    }
}

/// Writes the event `start_failed`.
pub fn record(refusal: &Refusal<'_>, report: &Report) -> StartFailed {
    let failed = failure(refusal, report);
    write(refusal, &failed);
    failed
}

fn failure(refusal: &Refusal<'_>, report: &Report) -> StartFailed {
    let words = refusal.argv.iter().map(|word| word.to_string_lossy());
    let words: Vec<String> = words.map(Into::into).collect();
    StartFailed {
        argv: redact::words(&words),
        cwd: std::env::current_dir()
            .map_or_else(|_| String::new(), |cwd| cwd.display().to_string()),
        problem: report.problem(),
        hint: report.advice().unwrap_or_default().into(),
    }
}

fn write(refusal: &Refusal<'_>, failed: &StartFailed) {
    if let Ok(id) = random_id() {
        let mut ledger = Ledger::open(refusal.paths);
        ledger.record(id, refusal.name, What::StartFailed(failed.clone()));
    }
}

/// Answers the client's requests until the client closes its pipe.
fn answer_all(scanner: &mut Scanner, why: &Why<'_>) {
    let mut buffer = [0u8; READ_BYTES];
    loop {
        let len = match rustix::io::read(role::standard(0), &mut buffer) {
            Ok(0) => return,
            Ok(len) => len,
            Err(rustix::io::Errno::INTR) => continue,
            // Another process has made this pipe non-blocking.
            Err(rustix::io::Errno::AGAIN) => {
                mainstay_os::clock::nap(1);
                continue;
            }
            Err(_) => return,
        };
        if answer(scanner, &buffer[..len], why).is_none() {
            return;
        }
    }
}

/// Answers the requests in this piece. Returns their number, or none if the client no longer reads.
fn answer(scanner: &mut Scanner, mut piece: &[u8], why: &Why<'_>) -> Option<usize> {
    let mut count = 0;
    while let Fed::Line { used } = scanner.feed(piece) {
        piece = &piece[used..];
        let frame = scanner.frame();
        if let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) {
            // A client of 2026-07-28 may begin with any request; a client of an earlier era begins with `initialize`.
            let method = frame.method.as_deref().map_or(Tracked::Other, Tracked::of);
            if !warm::write_to_client(&settle::answer(id, method, true, why)) {
                return None;
            }
            count += 1;
        }
    }
    Some(count)
}
