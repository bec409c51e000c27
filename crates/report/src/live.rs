//! A terminal that is redrawn in place: its own screen, no echo, and everything as before at the end.

use std::io::{Stdin, stdin};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetwinsize,
    tcsetattr,
};

use crate::printer::{Printer, Reader};
use crate::width::width;
use crate::{Exit, Report, plain};

/// Rows of a terminal that does not say how many it has.
const ROWS: usize = 24;

/// The terminal while it is ours. Dropping it restores the terminal.
#[derive(Debug)]
pub struct LiveScreen {
    printer: Printer,
    /// If stdin is a terminal, too: where keys come from, and its settings before.
    keyboard: Option<(Stdin, Termios)>,
}

impl LiveScreen {
    /// Takes over the terminal that stdout is.
    pub fn open() -> Result<Self, Report> {
        let mut screen = Self {
            printer: Printer::new(),
            keyboard: None,
        };
        screen.printer.enter_screen()?;
        let keyboard = stdin();
        if isatty(&keyboard) {
            let failed = |error: rustix::io::Errno| {
                Report::new(Exit::Failed, "cannot take over the terminal")
                    .because(plain(&error.into()))
            };
            let before = tcgetattr(&keyboard).map_err(failed)?;
            let mut live = before.clone();
            live.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            live.special_codes[SpecialCodeIndex::VMIN] = 0;
            live.special_codes[SpecialCodeIndex::VTIME] = 0;
            // Ctrl-Z would leave a shell on our screen.
            live.special_codes[SpecialCodeIndex::VSUSP] = 0;
            tcsetattr(&keyboard, OptionalActions::Now, &live).map_err(failed)?;
            screen.keyboard = Some((keyboard, before));
        }
        Ok(screen)
    }

    /// How wide a line may be, and whether colours are used. The width may have changed since the last time.
    pub fn measure(&mut self) -> (usize, bool) {
        self.printer = Printer::new();
        (self.printer.columns(), self.printer.colour())
    }

    /// Shows this text, as far as there are rows, with this line at the bottom.
    pub fn draw(&mut self, text: &str, bottom: &str) -> Result<Reader, Report> {
        let size = tcgetwinsize(self.printer.as_fd()).ok();
        let rows = size
            .map(|size| usize::from(size.ws_row))
            .filter(|&rows| rows > 2);
        let page = page(text, bottom, rows.unwrap_or(ROWS), self.printer.columns());
        self.printer.redraw(&page)
    }

    /// The descriptor that keys come from.
    pub fn keys(&self) -> Option<BorrowedFd<'_>> {
        self.keyboard.as_ref().map(|(keyboard, _)| keyboard.as_fd())
    }

    /// Whether a key was pressed that ends it: q or Ctrl-D.
    pub fn asked_to_end(&self) -> bool {
        let mut keys = [0; 64];
        let read = self.keys().map(|fd| rustix::io::read(fd, &mut keys));
        let count = read.and_then(Result::ok).unwrap_or(0);
        let ends = |key: &u8| matches!(key, b'q' | b'Q' | 0x04);
        keys[..count].iter().any(ends)
    }
}

impl Drop for LiveScreen {
    fn drop(&mut self) {
        // There is no other place to report a failure.
        drop(self.printer.leave_screen());
        if let Some((keyboard, before)) = &self.keyboard {
            tcsetattr(keyboard, OptionalActions::Now, before).ok();
        }
    }
}

/// The lines of a page: those that do not fit are counted.
fn page(text: &str, bottom: &str, rows: usize, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(Into::into).collect();
    let room = rows.saturating_sub(2);
    if lines.len() > room {
        let hidden = lines.len() - room.saturating_sub(1);
        lines.truncate(room.saturating_sub(1));
        lines.push(format!("… {hidden} more lines: `mainstay ps` shows them"));
    }
    lines.push(String::new());
    let bottom = if width(bottom) <= columns {
        bottom
    } else {
        "q: end"
    };
    lines.push(bottom.into());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_no_more_lines_than_the_terminal() {
        assert_eq!(
            page("a\nb\n", "q ends it", 24, 80),
            ["a", "b", "", "q ends it"]
        );
        let text = "x\n".repeat(100);
        let shown = page(&text, "q ends it", 10, 80);
        assert_eq!(shown.len(), 10);
        assert_eq!(shown[7], "… 93 more lines: `mainstay ps` shows them");
        assert_eq!(page("a", "a long line", 24, 8)[2], "q: end");
    }
}
