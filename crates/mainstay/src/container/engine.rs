//! Calling an engine, and what its answers are worth.
//!
//! An engine that was told to stop or kill a container and says no may mean that there is none any more, or that its
//! daemon cannot be reached. So it is asked whether the container runs: only an answer without it is an end.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use mainstay_core::clock::Moment;
use mainstay_os::identity::{self, Handle};
use mainstay_os::{child, clock, turn};

use super::note::Note;

/// How a container is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is asked, and killed by its engine after so many seconds.
    Stop {
        /// How long it has.
        seconds: u64,
    },
    /// At once.
    Kill,
}

/// Whether a container was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs no more.
    Gone,
    /// Nobody says so.
    Left,
}

/// Ends a container, and waits for that, but not for ever.
pub fn end(note: &Note, id: &str, how: How, within_ms: u64) -> Fate {
    let until = clock::now().after_ms(within_ms);
    let seconds;
    let words = match how {
        How::Stop { seconds: given } => {
            seconds = given.to_string();
            vec!["stop", "-t", &seconds, id]
        }
        How::Kill => vec!["kill", id],
    };
    if let Some((true, _)) = call(note, &words, until) {
        return Fate::Gone;
    }
    let filter = format!("id={id}");
    match call(
        note,
        &["ps", "-q", "--no-trunc", "--filter", &filter],
        until,
    ) {
        Some((true, running)) if running.trim().is_empty() => Fate::Gone,
        Some(_) | None => Fate::Left,
    }
}

/// Calls the engine as the server was started; whether it succeeded, and what it said. None if it did not come to its end.
#[expect(
    clippy::disallowed_methods,
    reason = "a short errand of ours, not a server: it needs no containment"
)]
fn call(note: &Note, words: &[&str], until: Moment) -> Option<(bool, String)> {
    let mut command = Command::new(note.program()?);
    command
        .args(&note.options)
        .args(words)
        .envs(note.env().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if Path::new(&note.directory).is_dir() {
        command.current_dir(&note.directory);
    }
    turn::as_usual_in(&mut command);
    child::as_given(&mut command);
    let mut child = command.spawn().ok()?;
    let handle = identity::of(child.id() as i32).and_then(Handle::open);
    let left_ms = (until - clock::now()).div_ceil(1_000_000);
    if !handle.is_ok_and(|handle| handle.wait_ended(left_ms)) {
        // It is our child and not reaped, so the number is its own.
        child.kill().ok();
        child.wait().ok();
        return None;
    }
    let status = child.wait().ok()?;
    let mut said = String::new();
    // Less than a pipe holds, or it would not have ended.
    child
        .stdout
        .take()?
        .take(SAID_BYTES)
        .read_to_string(&mut said)
        .ok()?;
    Some((status.success(), said))
}

/// How much of an engine's answer is read.
const SAID_BYTES: u64 = 64 * 1024;
