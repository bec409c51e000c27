//! Calls an engine and judges its answers.
//!
//! If an engine fails to stop or kill a container, the container may be gone, or the daemon may be unreachable. So the engine
//! is also asked which containers run. Only an answer without this container counts as its end.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use mainstay_os::identity::{self, Handle};
use mainstay_os::{child, clock, turn};
use mainstay_protocol::clock::Moment;

use super::note::Note;

/// How to end a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Ask it; the engine kills it after this time.
    Stop {
        /// Seconds until the kill.
        seconds: u64,
    },
    /// Kill it now.
    Kill,
}

/// Whether the end of a container is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The engine says that it does not run.
    Gone,
    /// The engine did not confirm it.
    Left,
}

/// Ends a container and waits for it, for a limited time.
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

/// Calls the engine with the options of the server. Returns success and output; none if the engine did not exit in time.
#[expect(
    clippy::disallowed_methods,
    reason = "a short command of ours, not a server: it needs no containment"
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
        // It is our child and not reaped yet, so the pid is still its own.
        child.kill().ok();
        child.wait().ok();
        return None;
    }
    let status = child.wait().ok()?;
    let mut said = String::new();
    // The output fits into the pipe, else the engine could not have exited.
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
