//! The only code that writes to stdout, except in `run`, where stdout belongs to the protocol.
//!
//! A reader that ends early (`| head`) is not an error, because it has what it wanted. Output is made safe for a terminal here,
//! also into a pipe, because a pager may show it later.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use rustix::termios::{isatty, tcgetwinsize};
use serde::Serialize;

use crate::paint::{ColourChoice, Surroundings};
use crate::{Exit, Report, plain, safe};

/// The width of a terminal that does not report its width.
pub const COLUMNS: usize = 80;
/// A smaller reported width is ignored.
const MIN_COLUMNS: usize = 40;
/// The width for pipes and files that no terminal shows: nothing is cut there, so that programs find whole names.
pub const UNCUT: usize = 1_000;

/// What the option `--color` says; it is the same for every printer of a process.
static CHOICE: OnceLock<ColourChoice> = OnceLock::new();

/// Sets when colours are used. The first call counts.
pub fn choose_colour(choice: ColourChoice) {
    CHOICE.set(choice).ok();
}

/// Whether the program that reads our output still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It runs.
    There,
    /// It has ended.
    Gone,
}

/// The width of a terminal; none if it is a pipe or a file.
pub(crate) fn terminal_columns(out: &impl AsFd) -> Option<usize> {
    let size = isatty(out).then(|| tcgetwinsize(out).ok())?;
    let size = size.map(|size| usize::from(size.ws_col));
    let reported = size.filter(|&columns| columns >= MIN_COLUMNS);
    Some(reported.unwrap_or(COLUMNS))
}

/// The width for a pipe or file, with this value of the variable `COLUMNS`, and with the width of the terminal that stderr goes
/// to: there a pager will show the output.
fn pipe_columns(columns: Option<&str>, terminal: Option<usize>) -> usize {
    let columns = columns.and_then(|columns| columns.parse().ok());
    columns
        .filter(|&columns| columns >= MIN_COLUMNS)
        .or(terminal)
        .unwrap_or(UNCUT)
}

fn colour(terminal: bool) -> bool {
    let variable = |name: &str| std::env::var(name).ok();
    let around = Surroundings {
        terminal,
        no_color: variable("NO_COLOR"),
        clicolor_force: variable("CLICOLOR_FORCE"),
        term: variable("TERM"),
    };
    CHOICE.get().copied().unwrap_or_default().decide(&around)
}

/// Stdout of a command.
#[derive(Debug)]
pub struct Printer {
    out: io::Stdout,
    terminal: bool,
    colour: bool,
    columns: usize,
}

impl Default for Printer {
    fn default() -> Self {
        Self::new()
    }
}

impl Printer {
    /// Finds out whether stdout is a terminal, and its width.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that prints"
    )]
    pub fn new() -> Self {
        let out = io::stdout();
        let terminal = isatty(&out);
        let columns = terminal_columns(&out).unwrap_or_else(|| {
            let chosen = std::env::var("COLUMNS").ok();
            pipe_columns(chosen.as_deref(), terminal_columns(&io::stderr()))
        });
        Self {
            terminal,
            colour: colour(terminal),
            columns,
            out,
        }
    }

    /// Whether colour may be used.
    pub fn colour(&self) -> bool {
        self.colour
    }

    /// Whether stdout is a terminal.
    pub fn terminal(&self) -> bool {
        self.terminal
    }

    /// The same printer for lines of any width: nothing is cut.
    #[must_use]
    pub fn uncut(self) -> Self {
        Self {
            columns: UNCUT,
            ..self
        }
    }

    /// How wide a line may be.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Prints a text.
    pub fn text(&mut self, text: &str) -> Result<Reader, Report> {
        self.write(&safe::screen(text, self.colour))
    }

    /// Replaces the current line of the terminal by a text.
    pub fn over_line(&mut self, text: &str) -> Result<Reader, Report> {
        let text = safe::screen(text, self.colour);
        self.write(&format!("\r\u{1b}[K{text}"))
    }

    /// Switches to a screen of our own, without a cursor.
    pub(crate) fn enter_screen(&mut self) -> Result<Reader, Report> {
        self.write("\u{1b}[?1049h\u{1b}[?25l")
    }

    /// Switches back to the screen as it was.
    pub(crate) fn leave_screen(&mut self) -> Result<Reader, Report> {
        self.write("\u{1b}[?25h\u{1b}[?1049l")
    }

    /// Shows these lines from the top of the screen on, and nothing else.
    pub(crate) fn redraw(&mut self, lines: &[String]) -> Result<Reader, Report> {
        let mut page = String::from("\u{1b}[H");
        for (place, line) in lines.iter().enumerate() {
            // No end after the last line: the terminal would scroll.
            page.push_str(if place > 0 { "\r\n" } else { "" });
            page.push_str(&safe::screen(line, self.colour));
            page.push_str("\u{1b}[K");
        }
        page.push_str("\u{1b}[J");
        self.write(&page)
    }

    /// Prints a line of JSON that a client or a server wrote. Into a pipe or file it is written unchanged.
    pub fn message(&mut self, line: &str) -> Result<Reader, Report> {
        if self.terminal {
            self.write(&safe::json(line))
        } else {
            self.write(line)
        }
    }

    fn write(&mut self, text: &str) -> Result<Reader, Report> {
        let mut out = self.out.lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => Ok(Reader::There),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
            Err(error) => {
                Err(Report::new(Exit::Failed, "cannot write to stdout").because(plain(&error)))
            }
        }
    }

    /// Prints a value as indented JSON.
    pub fn json<T: Serialize>(&mut self, value: &T) -> Result<Reader, Report> {
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| Report::new(Exit::Failed, "cannot write JSON").because(error))?;
        text.push('\n');
        self.write(&safe::json(&text))
    }

    /// Prints a value as one line of JSON.
    pub fn json_line<T: Serialize>(&mut self, value: &T) -> Result<Reader, Report> {
        let mut text = serde_json::to_string(value)
            .map_err(|error| Report::new(Exit::Failed, "cannot write JSON").because(error))?;
        text.push('\n');
        self.write(&safe::json(&text))
    }
}

impl AsFd for Printer {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.out.as_fd()
    }
}

/// Prints a text and ignores a reader that has ended.
pub fn print_text(text: &str) -> Result<(), Report> {
    Printer::new().text(text).map(|_reader| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_into_a_pipe_is_as_wide_as_columns_or_the_terminal_beside_it() {
        for (columns, terminal, wide) in [
            (None, None, UNCUT),
            (None, Some(80), 80),
            (Some("120"), None, 120),
            (Some("120"), Some(80), 120),
            (Some("12"), None, UNCUT),
            (Some("wide"), Some(80), 80),
        ] {
            assert_eq!(pipe_columns(columns, terminal), wide, "{columns:?}");
        }
    }
}
