//! Output of the demo: plain lines into a pipe; colours and a progress line on a terminal; or JSON.

use std::os::fd::AsFd;

use mainstay_report::paint::Tone;
use rustix::termios::isatty;
use serde::Serialize;

use super::scene::Scene;
use mainstay_report::printer::{COLUMNS, Printer};

/// Indentation of the lines of a scene.
const INDENT: usize = 3;

/// One line, made of pieces with different tones.
#[derive(Clone, Debug, Default)]
pub struct Line(Vec<(Tone, String)>);

impl Line {
    /// A line with one piece.
    pub fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self(vec![(tone, text.into())])
    }

    /// Adds a piece.
    #[must_use]
    pub fn and(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.0.push((tone, text.into()));
        self
    }
}

/// Stdout of the demo.
#[derive(Debug)]
pub struct Screen {
    printer: Printer,
    mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Json,
    Plain,
    /// A terminal, on which a line can be replaced.
    Live,
}

impl Screen {
    /// Finds out whether stdout is a terminal.
    pub fn new(json: bool) -> Self {
        let printer = Printer::new();
        let mode = if json {
            Mode::Json
        } else if isatty(printer.as_fd()) {
            Mode::Live
        } else {
            Mode::Plain
        };
        Self { printer, mode }
    }

    /// Whether progress is shown.
    pub fn live(&self) -> bool {
        self.mode == Mode::Live
    }

    /// Prints the lines before the first scene.
    pub fn opening(&mut self) {
        self.put(
            0,
            &[
                Line::new(
                    Tone::Strong,
                    "mainstay demo: what happens to MCP servers when a process dies",
                ),
                Line::new(
                    Tone::Faint,
                    "Real processes in a directory of their own; your servers are not touched.",
                ),
            ],
        );
    }

    /// Prints the lines before a scene.
    pub fn title(&mut self, number: usize, scene: &Scene) {
        self.put(
            0,
            &[
                Line::default(),
                Line::new(Tone::Strong, format!("{number}  {}", scene.title)),
            ],
        );
        self.put(INDENT, &paragraph(scene.about));
    }

    /// Prints the result of a scene.
    pub fn lines(&mut self, lines: &[Line]) {
        self.put(INDENT, lines);
    }

    /// Says so if a scene has not held.
    pub fn verdict(&mut self, held: bool) {
        if !held {
            self.put(INDENT, &[Line::new(Tone::Bad, "this did NOT hold")]);
        }
    }

    /// Prints the lines after the last scene.
    pub fn closing(&mut self, line: &Line) {
        self.put(
            0,
            &[
                Line::default(),
                line.clone(),
                Line::new(
                    Tone::Plain,
                    "Next: `mainstay adopt` does this for the servers of your clients; it asks first.",
                ),
            ],
        );
    }

    /// Shows what the demo waits for, on a line that the next output replaces.
    pub fn progress(&mut self, text: &str) {
        if self.mode == Mode::Live {
            let text = Tone::Faint.paint(text, self.printer.colour());
            let pad = if text.is_empty() { "" } else { "   " };
            // Errors are ignored for the same reason as in `json`.
            drop(self.printer.over_line(&format!("{pad}{text}")));
        }
    }

    /// Prints a value, with `--json`.
    pub fn json<T: Serialize>(&mut self, value: &T) {
        if self.mode == Mode::Json {
            // If the reader has ended or the disk is full, the scenes still run to their end, so that all processes are ended.
            drop(self.printer.json_line(value));
        }
    }

    fn put(&mut self, indent: usize, lines: &[Line]) {
        if self.mode == Mode::Json {
            return;
        }
        let colour = self.printer.colour();
        let mut text = String::new();
        for Line(pieces) in lines {
            if !pieces.is_empty() {
                text.extend(std::iter::repeat_n(' ', indent));
            }
            text.extend(pieces.iter().map(|(tone, piece)| tone.paint(piece, colour)));
            text.push('\n');
        }
        self.print(&text);
    }

    fn print(&mut self, text: &str) {
        // Errors are ignored for the same reason as in `json`.
        drop(self.printer.text(text));
    }
}

/// Wraps a text between words. A word that is longer than a line gets its own line.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > columns {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

/// An explanation, wrapped and faint.
pub fn paragraph(text: &str) -> Vec<Line> {
    wrap(text, COLUMNS - INDENT)
        .into_iter()
        .map(|line| Line::new(Tone::Faint, line))
        .collect()
}

/// A quoted text, wrapped and marked with `>`.
pub fn quote(text: &str) -> Vec<Line> {
    const MARK: &str = "> ";
    wrap(text, COLUMNS - INDENT - MARK.len())
        .into_iter()
        .map(|line| Line::new(Tone::Faint, MARK).and(Tone::Plain, line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_between_words() {
        assert_eq!(wrap("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrap("abcdef g", 4), ["abcdef", "g"]);
        assert_eq!(wrap("a\nb", 4), ["a", "b"]);
        assert!(wrap("", 4).is_empty());
    }

    #[test]
    fn the_title_of_every_scene_fits_eighty_columns() {
        for scene in &crate::scene::SCENES {
            assert!(scene.title.chars().count() + INDENT <= COLUMNS);
        }
    }
}
