//! The one permitted home of stdout, outside of `run` where it is the wire.
//!
//! A reader that goes away (`| head`) is success: it has what it wanted. What goes out is made safe for a terminal here, also
//! into a pipe, because a pager or a file shows it later.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::termios::{isatty, tcgetwinsize};
use serde::Serialize;

use super::safe;
use crate::exit::Exit;
use crate::report::{Report, plain};

/// The width of a screen that does not say how wide it is.
pub const COLUMNS: usize = 80;
/// What is narrower is not believed.
const NARROW: usize = 40;
/// Where nobody looks at a screen nothing is cut: whoever searches for a name finds it.
const UNCUT: usize = 1_000;

/// Whether the reader is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It is.
    There,
    /// It went away.
    Gone,
}

/// How wide a line may be that goes into a pipe or a file, with this `COLUMNS`.
fn wanted(columns: Option<&str>) -> usize {
    let columns = columns.and_then(|columns| columns.parse().ok());
    columns
        .filter(|&columns| columns >= NARROW)
        .unwrap_or(UNCUT)
}

/// Stdout, as views use it.
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
    /// Looks at what stdout is.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that prints"
    )]
    pub fn new() -> Self {
        let out = io::stdout();
        let terminal = isatty(&out);
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let columns = if terminal {
            let size = tcgetwinsize(&out).ok();
            let size = size.map(|size| usize::from(size.ws_col));
            size.filter(|&columns| columns >= NARROW).unwrap_or(COLUMNS)
        } else {
            wanted(std::env::var("COLUMNS").ok().as_deref())
        };
        Self {
            terminal,
            colour: terminal && !plain,
            columns,
            out,
        }
    }

    /// Whether colour may be used.
    pub fn colour(&self) -> bool {
        self.colour
    }

    /// How wide a line may be.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Prints a text.
    pub fn text(&mut self, text: &str) -> Result<Reader, Report> {
        self.write(&safe::screen(text, self.colour))
    }

    /// Prints a text over the line that the cursor is in.
    pub fn over_line(&mut self, text: &str) -> Result<Reader, Report> {
        let text = safe::screen(text, self.colour);
        self.write(&format!("\r\u{1b}[K{text}"))
    }

    /// Prints a line of JSON that a client or a server wrote: into a pipe or a file byte for byte.
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

    /// Prints a value as JSON, for programs and people.
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

/// Prints a text, with no more ado.
pub fn print_text(text: &str) -> Result<(), Report> {
    Printer::new().text(text).map(|_reader| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_a_pipe_is_cut_only_where_it_is_wanted() {
        for (columns, wide) in [
            (None, UNCUT),
            (Some("120"), 120),
            (Some("12"), UNCUT),
            (Some("wide"), UNCUT),
        ] {
            assert_eq!(wanted(columns), wide, "{columns:?}");
        }
    }
}
