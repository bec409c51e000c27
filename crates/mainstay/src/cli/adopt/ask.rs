//! Whether files may be changed: by an option, or by an answer at the terminal.

use std::io::{self, BufRead as _};

use mainstay_report::{Exit, Report, plain, talk};
use rustix::termios::isatty;

/// How the user agrees to a change, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// By `--yes`.
    Yes,
    /// By `--yes`; the answer is JSON.
    JsonYes,
    /// Not at all: `--dry-run`.
    DryRun,
    /// Not at all: JSON without `--yes`.
    Json,
    /// At the terminal.
    Ask,
    /// There is no terminal.
    CannotAsk,
}

impl Consent {
    pub fn of(yes: bool, dry_run: bool, json: bool) -> Self {
        match (yes, dry_run, json) {
            (true, _, true) => Self::JsonYes,
            (true, _, false) => Self::Yes,
            (false, _, true) => Self::Json,
            (false, true, false) => Self::DryRun,
            (false, false, false) if can_ask() => Self::Ask,
            (false, false, false) => Self::CannotAsk,
        }
    }
}

/// Whether there is a terminal to ask at, and to read the answer from.
pub fn can_ask() -> bool {
    isatty(io::stdin()) && isatty(io::stderr())
}

/// Asks, and reads one line. No answer is no.
pub fn agreed(question: &str) -> Result<bool, Report> {
    talk(&format!("{question} [y/N] "));
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(|error| {
        Report::new(Exit::Failed, "cannot read your answer").because(plain(&error))
    })?;
    if line.is_empty() {
        talk("\n");
    }
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}
