//! A refusal by this process alone, where not even a link without a server can be: each request is answered with the
//! reason, until the client has had enough.

use std::ffi::OsString;

use mainstay_core::event::{StartFailed, What};
use mainstay_core::message::frame::{Fed, Id, Kind, Scanner};
use mainstay_core::message::settle::{self, Why};
use mainstay_core::message::slot::Tracked;
use mainstay_core::redact;
use mainstay_os::role;

use super::run::random_id;
use crate::ledger::append::Ledger;
use crate::paths::Paths;
use crate::report::Report;
use crate::warm;

const READ_BYTES: usize = 4096;

/// Which server is refused, and to which client.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// Where the ledger is.
    pub paths: &'a Paths,
    /// The server's name.
    pub name: &'a str,
    /// Its command.
    pub argv: &'a [OsString],
    /// What was read from the client already.
    pub read: &'a [u8],
}

impl Refusal<'_> {
    /// Tells the client and the ledger; the report is for stderr and the exit code.
    pub fn tell(&self, report: Report) -> Report {
        let told = note(self, &report);
        let why = Why::StartFailed {
            argv: &told.argv,
            problem: &told.problem,
            hint: &told.hint,
        };
        let mut scanner = Scanner::default();
        if answer(&mut scanner, self.read, &why) {
            answer_all(&mut scanner, &why);
        }
        report
    }
}

/// Writes into the ledger why the server was not started as it was asked for.
pub fn note(refusal: &Refusal<'_>, report: &Report) -> StartFailed {
    let words = refusal.argv.iter().map(|word| word.to_string_lossy());
    let words: Vec<String> = words.map(Into::into).collect();
    let told = StartFailed {
        argv: redact::words(&words),
        cwd: std::env::current_dir()
            .map_or_else(|_| String::new(), |cwd| cwd.display().to_string()),
        problem: report.problem(),
        hint: report.advice().unwrap_or_default().into(),
    };
    if let Ok(id) = random_id() {
        let mut ledger = Ledger::open(refusal.paths);
        ledger.record(id, refusal.name, What::StartFailed(told.clone()));
    }
    told
}

/// Answers the client's requests until it leaves.
fn answer_all(scanner: &mut Scanner, why: &Why<'_>) {
    let mut buffer = [0u8; READ_BYTES];
    loop {
        let len = match rustix::io::read(role::standard(0), &mut buffer) {
            Ok(0) => return,
            Ok(len) => len,
            Err(rustix::io::Errno::INTR) => continue,
            // A pipe that its other holders use without waiting.
            Err(rustix::io::Errno::AGAIN) => {
                mainstay_os::clock::nap(1);
                continue;
            }
            Err(_) => return,
        };
        if !answer(scanner, &buffer[..len], why) {
            return;
        }
    }
}

/// Answers the requests in this piece; whether the client still listens.
fn answer(scanner: &mut Scanner, mut piece: &[u8], why: &Why<'_>) -> bool {
    while let Fed::Line { used } = scanner.feed(piece) {
        piece = &piece[used..];
        let frame = scanner.frame();
        if let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id)
            && !warm::write_to_client(&settle::answer(id, Tracked::Other, false, why))
        {
            return false;
        }
    }
    true
}
