//! The one error type of the app: what was wrong, why, and what to do about it.
//!
//! Text is a lower-case fragment without a full stop. The hint stands on its own line.

use std::fmt;
use std::io::{self, Write};

use crate::exit::Exit;
use crate::view::safe;

/// Something went wrong and the command ends because of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    message: String,
    cause: Option<String>,
    hint: Option<String>,
    exit: Exit,
}

impl Report {
    /// What was wrong.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            cause: None,
            hint: None,
            exit,
        }
    }

    /// Why.
    #[must_use]
    pub fn because(mut self, cause: impl fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    /// What to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What was wrong and why, on one line.
    pub fn problem(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{}: {cause}", self.message),
            None => self.message.clone(),
        }
    }

    /// What to do, if anybody knows.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// How the command ends.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Tells it on stderr.
    pub fn tell(&self) {
        talk(&format!("{self}\n"));
    }

    /// Tells it on stderr, and the command goes on.
    pub fn warn(&self) {
        talk(&format!("{self}\n").replacen("error: ", "warning: ", 1));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.problem())?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Says something to the user on stderr. If nobody can hear it, there is nobody to tell that either.
pub fn talk(text: &str) {
    let text = safe::screen(text, false);
    io::stderr().lock().write_all(text.as_bytes()).ok();
}

/// Why a system call failed, without std's `(os error 13)`.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => "unknown error".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_stands_on_its_own_line() {
        let report = Report::new(Exit::State, "cannot write x")
            .because(plain(&io::Error::from_raw_os_error(13)))
            .hint("make it writable");
        assert_eq!(
            report.to_string(),
            "error: cannot write x: permission denied\nhint: make it writable"
        );
        let bare = Report::new(Exit::Usage, "no such verb");
        assert_eq!(bare.to_string(), "error: no such verb");
    }
}
