//! The one error type of the app: what was wrong, why, and what to do about it.
//!
//! Text is a lower-case fragment without a full stop. The hint stands on its own line.

use std::fmt;
use std::io::{self, Write};

use crate::exit::Exit;
use crate::printer::terminal_columns;
use crate::safe;
use crate::wrap::{width, wrap};

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

    /// Something of mainstay's own state cannot be read.
    pub fn unreadable(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(Exit::State, format!("cannot read {what}"))
            .because(plain(error))
            .hint("run `mainstay doctor` to find the reason")
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

    /// What to do, if it is known.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// How the command ends.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Prints it on stderr.
    pub fn tell(&self) {
        talk(&format!("{self}\n"));
    }

    /// Prints it on stderr, and the command continues.
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

/// Prints a line for the user on stderr. On a terminal, lines that are too long are wrapped at their words. A failure is ignored,
/// because there is no other place to report it.
pub fn talk(text: &str) {
    let text = safe::screen(text, false);
    let mut out = io::stderr().lock();
    let columns = terminal_columns(&out);
    let text = columns.map_or(text.clone(), |columns| fitted(&text, columns).into());
    out.write_all(text.as_bytes()).ok();
}

/// Lines that fit are left as they are.
fn fitted(text: &str, columns: usize) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let (content, end) = match line.strip_suffix('\n') {
            Some(content) => (content, "\n"),
            None => (line, ""),
        };
        if width(content) <= columns {
            out += line;
            continue;
        }
        let indent = content.len() - content.trim_start().len();
        let room = columns.saturating_sub(indent);
        let lines = wrap(content, room);
        let lines: Vec<String> = lines
            .iter()
            .map(|line| format!("{:indent$}{line}", ""))
            .collect();
        out += &lines.join("\n");
        out += end;
    }
    out
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
    fn long_lines_are_wrapped_at_words_on_a_terminal() {
        let text = "error: this is a long line\n  hint: short\n";
        assert_eq!(fitted(text, 80), text);
        assert_eq!(
            fitted(text, 13),
            "error: this\nis a long\nline\n  hint: short\n"
        );
        assert_eq!(fitted("  aa bb", 5), "  aa\n  bb");
    }

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
