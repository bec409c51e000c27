//! What the user sees: plain lines in a pipe, a few colours and a line of progress on a terminal, or JSON.

use std::os::fd::AsFd;

use rustix::termios::isatty;
use serde::Serialize;

use super::scene::Scene;
use crate::view::paint::Tone;
use crate::view::printer::{COLUMNS, Printer};

/// How far everything of a scene is moved to the right.
const INDENT: usize = 3;

/// One line, in pieces of different tones.
#[derive(Clone, Debug, Default)]
pub struct Line(Vec<(Tone, String)>);

impl Line {
    /// A line of one piece.
    pub fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self(vec![(tone, text.into())])
    }

    /// The same, with one more piece.
    #[must_use]
    pub fn and(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.0.push((tone, text.into()));
        self
    }
}

/// Where it is shown.
#[derive(Debug)]
pub struct Screen {
    printer: Printer,
    mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Json,
    Plain,
    /// A terminal: a line can be written over.
    Live,
}

impl Screen {
    /// Looks at what stdout is.
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

    /// Whether progress is shown at all.
    pub fn live(&self) -> bool {
        self.mode == Mode::Live
    }

    /// Before the first scene.
    pub fn opening(&mut self) {
        self.put(
            0,
            &[
                Line::new(
                    Tone::Strong,
                    "mainstay demo: what becomes of MCP servers when something dies",
                ),
                Line::new(
                    Tone::Faint,
                    "Real processes in a directory of their own; nothing of yours is touched.",
                ),
            ],
        );
    }

    /// Before a scene.
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

    /// What came out of a scene.
    pub fn lines(&mut self, lines: &[Line]) {
        self.put(INDENT, lines);
    }

    /// Whether a scene held.
    pub fn verdict(&mut self, held: bool) {
        if !held {
            self.put(INDENT, &[Line::new(Tone::Bad, "this did NOT hold")]);
        }
    }

    /// After the last scene.
    pub fn closing(&mut self, line: &Line) {
        self.put(
            0,
            &[
                Line::default(),
                line.clone(),
                Line::new(
                    Tone::Plain,
                    "Next: write `mainstay run --` before a server's command in your client's config.",
                ),
            ],
        );
    }

    /// What is being waited for, on a line that the next one replaces.
    pub fn progress(&mut self, text: &str) {
        if self.mode == Mode::Live {
            let text = Tone::Faint.paint(text, self.printer.colour());
            let pad = if text.is_empty() { "" } else { "   " };
            // As in `json`.
            drop(self.printer.over_line(&format!("{pad}{text}")));
        }
    }

    /// A fact for programs.
    pub fn json<T: Serialize>(&mut self, value: &T) {
        if self.mode == Mode::Json {
            // A reader that went away, or a full disk: the scenes are played to their end all the same.
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
        // As in `json`.
        drop(self.printer.text(text));
    }
}

/// Breaks a text between words, into lines of so many characters at most; a longer word has a line of its own.
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

/// A text beside the point, broken to fit.
pub fn paragraph(text: &str) -> Vec<Line> {
    wrap(text, COLUMNS - INDENT)
        .into_iter()
        .map(|line| Line::new(Tone::Faint, line))
        .collect()
}

/// A text that somebody reads in the scene, set off and broken to fit.
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
    fn lines_break_between_words() {
        assert_eq!(wrap("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrap("abcdef g", 4), ["abcdef", "g"]);
        assert_eq!(wrap("a\nb", 4), ["a", "b"]);
        assert!(wrap("", 4).is_empty());
    }

    #[test]
    fn every_scene_fits_its_screen() {
        for scene in &super::super::scene::SCENES {
            assert!(scene.title.chars().count() + INDENT <= COLUMNS);
        }
    }
}
