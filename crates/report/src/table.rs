//! A table that fits its screen: aligned columns, text gives way first, then whole columns are left out. A row is always one line.

use crate::paint::Tone;
use crate::safe::{one_line, visible};
use crate::width::{cut, width};
use crate::wrap::wrap;

/// Between two columns.
const GAP: &str = "  ";
/// A text column gives way down to this: every state and every tier can be read.
const LEAST: usize = 9;
/// A name column gives way down to this: a table that is too wide is better than a name that cannot be typed.
const LEAST_NAME: usize = 16;
/// A last column gives way down to this.
const LEAST_REST: usize = 12;
/// Down to these widths, a table with a last column takes from a column before it takes more from another: names and commands share the room.
const GOOD_NAME: usize = 20;
const GOOD_REST: usize = 28;
/// A note below its row is indented by this much.
const NOTE_INDENT: usize = 4;

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Text, to the left; gives way when the table is too wide.
    Text(&'static str),
    /// What a command takes, to the left; gives way like text, but only when it is long.
    Name(&'static str),
    /// Numbers, to the right; never cut.
    Number(&'static str),
    /// Text that takes what the others leave, to the left: it gives way first.
    Rest(&'static str),
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Text(title) | Self::Name(title) | Self::Number(title) | Self::Rest(title) => {
                title
            }
        }
    }

    /// How far it gives way.
    fn least(self, natural: usize) -> usize {
        match self {
            Self::Text(_) => natural.min(LEAST),
            Self::Name(_) => natural.min(LEAST_NAME),
            Self::Rest(_) => natural.min(LEAST_REST),
            Self::Number(_) => natural,
        }
    }
}

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A field with a tone.
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        let text: String = text.into();
        Self {
            text: visible(&text).into_owned(),
            tone,
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// A table under construction.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    lines: Vec<Line>,
    /// Columns that are left out if there is no room, the first one first.
    spare: Vec<&'static str>,
    indent: usize,
}

#[derive(Debug)]
enum Line {
    Row(Row),
    /// The title of the rows below it: text to the left, numbers to the right.
    Heading(Cell, String),
}

#[derive(Debug)]
struct Row {
    cells: Vec<Cell>,
    /// Stands in the last column if it fits, else below.
    note: Option<Cell>,
    below: Vec<Below>,
}

/// A line of its own below a row, with its indentation.
#[derive(Debug)]
enum Below {
    /// Cut at the table's width.
    Cut(String),
    /// Wrapped at its words.
    Wrapped(String),
}

/// The columns that are shown, by their number, and how wide they are.
type Layout = Vec<(usize, usize)>;

impl Table {
    /// An empty one.
    pub fn new(columns: &[Column]) -> Self {
        Self {
            columns: columns.into(),
            lines: Vec::new(),
            spare: Vec::new(),
            indent: 0,
        }
    }

    /// Columns that are left out if the table is too wide even with its text cut, the first one first.
    #[must_use]
    pub fn spare(mut self, titles: &[&'static str]) -> Self {
        self.spare = titles.into();
        self
    }

    /// A table with headings: its rows are indented.
    #[must_use]
    pub fn grouped(mut self) -> Self {
        self.indent = GAP.len();
        self
    }

    /// Adds a row; it has one field per column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.lines.push(Line::Row(Row {
            cells,
            note: None,
            below: Vec::new(),
        }));
    }

    /// Adds the title of the rows that follow.
    pub fn heading(&mut self, left: Cell, right: impl Into<String>) {
        self.lines.push(Line::Heading(left, right.into()));
    }

    /// Adds a text to the last row. It replaces the last field if there is room for all of it. Otherwise it stands below the row, wrapped.
    pub fn note(&mut self, note: Cell) {
        if let Some(Line::Row(row)) = self.lines.last_mut() {
            row.note = Some(note);
        }
    }

    /// Adds a line of its own below the last row, cut at the table's width.
    pub fn below(&mut self, line: &str) {
        if let Some(Line::Row(row)) = self.lines.last_mut() {
            row.below.push(Below::Cut(visible(line).into_owned()));
        }
    }

    /// Adds a sentence below the last row, wrapped at its words; each of its lines has the indentation of the first.
    pub fn sentence_below(&mut self, sentence: &str) {
        if let Some(Line::Row(row)) = self.lines.last_mut() {
            let sentence = visible(sentence).into_owned();
            row.below.push(Below::Wrapped(sentence));
        }
    }

    /// The table as text.
    pub fn render(&self, columns: usize, colour: bool) -> String {
        let layout = self.layout(columns);
        let mut out = String::new();
        let titles: Vec<Cell> = self
            .columns
            .iter()
            .map(|column| Cell::new(column.title(), Tone::Strong))
            .collect();
        self.fields(&mut out, &titles, &layout, colour);
        for line in &self.lines {
            match line {
                Line::Row(row) => self.whole_row(&mut out, row, &layout, columns, colour),
                Line::Heading(left, right) => {
                    let total = self.total(&layout).min(columns);
                    heading(&mut out, left, right, (total, columns), colour);
                }
            }
        }
        out
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.lines.iter().filter_map(|line| match line {
            Line::Row(row) => Some(row),
            Line::Heading(..) => None,
        })
    }

    fn natural(&self, at: usize) -> usize {
        let column = self.columns[at];
        let fields = self.rows().map(|row| {
            let note = row.note.as_ref().filter(|_| self.takes_notes(at));
            let cells = row.cells.get(at).into_iter().chain(note);
            cells.map(|cell| width(&cell.text)).max().unwrap_or(0)
        });
        fields.max().unwrap_or(0).max(width(column.title()))
    }

    fn takes_notes(&self, at: usize) -> bool {
        matches!(self.columns[at], Column::Rest(_))
    }

    fn total(&self, layout: &Layout) -> usize {
        let fields: usize = layout.iter().map(|(_, wide)| wide).sum();
        self.indent + fields + GAP.len() * layout.len().saturating_sub(1)
    }

    fn layout(&self, columns: usize) -> Layout {
        let mut layout: Layout = (0..self.columns.len())
            .map(|at| (at, self.natural(at)))
            .collect();
        for title in &self.spare {
            let least = layout
                .iter()
                .map(|&(at, natural)| (at, self.columns[at].least(natural)));
            if self.total(&least.collect()) <= columns {
                break;
            }
            layout.retain(|(at, _)| self.columns[*at].title() != *title);
        }
        let has_rest = layout.iter().any(|(at, _)| self.takes_notes(*at));
        while self.total(&layout) > columns {
            let gives_way = layout.iter_mut().filter(|(at, wide)| {
                let column = self.columns[*at];
                *wide > column.least(*wide)
            });
            let widest = gives_way.max_by_key(|(at, wide)| match self.columns[*at] {
                Column::Rest(_) => (*wide > GOOD_REST, true, *wide),
                Column::Name(_) if has_rest => (*wide > GOOD_NAME, false, *wide),
                Column::Text(_) | Column::Name(_) | Column::Number(_) => (false, false, *wide),
            });
            match widest {
                Some((_, wide)) => *wide -= 1,
                None => break,
            }
        }
        layout
    }

    fn whole_row(
        &self,
        out: &mut String,
        row: &Row,
        layout: &Layout,
        columns: usize,
        colour: bool,
    ) {
        let room = layout
            .last()
            .filter(|(at, _)| self.takes_notes(*at))
            .map_or(0, |(_, wide)| *wide);
        let note = row.note.as_ref();
        let mut cells = row.cells.clone();
        let fits = note.filter(|note| width(&note.text) <= room);
        if let (Some(note), Some(last)) = (fits, cells.last_mut()) {
            last.clone_from(note);
        }
        self.fields(out, &cells, layout, colour);
        if let Some(note) = note.filter(|_| fits.is_none()) {
            for line in wrap(&note.text, columns.saturating_sub(NOTE_INDENT)) {
                let line = note.tone.paint(&line, colour);
                out.extend([&" ".repeat(NOTE_INDENT), &line, "\n"]);
            }
        }
        for below in &row.below {
            let lines = match below {
                Below::Cut(line) => vec![cut_end(line, columns)],
                Below::Wrapped(sentence) => {
                    let indent = sentence.len() - sentence.trim_start().len();
                    let lines = wrap(sentence, columns.saturating_sub(indent));
                    let indented = |line: &String| format!("{:indent$}{line}", "");
                    lines.iter().map(indented).collect()
                }
            };
            for line in lines {
                out.push_str(&Tone::Faint.paint(&line, colour));
                out.push('\n');
            }
        }
    }

    fn fields(&self, out: &mut String, cells: &[Cell], layout: &Layout, colour: bool) {
        let mut line = " ".repeat(self.indent);
        let mut pending = String::new();
        for &(at, wide) in layout {
            let (Some(cell), column) = (cells.get(at), self.columns[at]) else {
                continue;
            };
            let text = one_line(&cell.text, wide);
            let pad = " ".repeat(wide.saturating_sub(width(&text)));
            let painted = cell.tone.paint(&text, colour);
            line.push_str(&pending);
            // What follows the last field is left out: no line ends in blanks.
            pending = match column {
                Column::Text(_) | Column::Name(_) | Column::Rest(_) => {
                    line.push_str(&painted);
                    pad + GAP
                }
                Column::Number(_) => {
                    line.push_str(&pad);
                    line.push_str(&painted);
                    GAP.into()
                }
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// Text to the left, numbers to the right edge of the table, or further if the text is long.
fn heading(
    out: &mut String,
    left: &Cell,
    right: &str,
    (total, columns): (usize, usize),
    colour: bool,
) {
    let taken = if right.is_empty() {
        0
    } else {
        width(right) + GAP.len()
    };
    let text = cut(&left.text, columns.saturating_sub(taken));
    let room = total.max(width(&text) + taken).saturating_sub(width(right));
    let pad = room.saturating_sub(width(&text));
    let line = format!("{}{:pad$}{right}", left.tone.paint(&text, colour), "");
    out.push_str(line.trim_end());
    out.push('\n');
}

/// Cuts the end of a line and keeps its indentation.
fn cut_end(line: &str, columns: usize) -> String {
    let indent: String = line.chars().take_while(|c| *c == ' ').collect();
    let room = columns.saturating_sub(indent.len());
    format!("{indent}{}", one_line(line, room))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[
            Column::Text("SERVER"),
            Column::Text("CLIENT"),
            Column::Number("PID"),
        ]);
        table.row(vec![
            "a-server-with-a-rather-long-name".into(),
            "claude".into(),
            "7".into(),
        ]);
        table.below("  └ 8 node");
        table.row(vec![Cell::new("b", Tone::Bad), "".into(), "4711".into()]);
        table
    }

    #[test]
    fn columns_are_aligned() {
        assert_eq!(
            table().render(80, false),
            "SERVER                            CLIENT   PID\n\
             a-server-with-a-rather-long-name  claude     7\n  └ 8 node\n\
             b                                         4711\n"
        );
    }

    #[test]
    fn the_widest_text_gives_way_and_numbers_never_do() {
        let narrow = table().render(30, false);
        assert_eq!(
            narrow,
            "SERVER            CLIENT   PID\n\
             a-server-with-a…  claude     7\n  └ 8 node\n\
             b                         4711\n"
        );
        assert!(table().render(1, false).contains("4711"));
    }

    #[test]
    fn a_name_stays_long_enough_to_be_known() {
        let mut table = Table::new(&[Column::Name("SERVER"), Column::Text("CLIENT")]);
        table.row(vec!["playwright".into(), "a-long-client".into()]);
        table.row(vec!["a-server-with-a-rather-long-name".into(), "x".into()]);
        assert_eq!(
            table.render(10, false),
            "SERVER            CLIENT\n\
             playwright        a-long-c…\n\
             a-server-with-a…  x\n"
        );
    }

    #[test]
    fn colour_changes_no_width() {
        let plain = table().render(40, false);
        let painted = table().render(40, true);
        assert!(painted.contains("\u{1b}[31mb\u{1b}[0m"));
        let mut stripped = painted;
        for code in ["\u{1b}[31m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[0m"] {
            stripped = stripped.replace(code, "");
        }
        assert_eq!(stripped, plain);
    }

    fn grouped() -> Table {
        let mut table = Table::new(&[
            Column::Name("NAME"),
            Column::Text("STATE"),
            Column::Number("PID"),
            Column::Rest("COMMAND"),
        ])
        .grouped()
        .spare(&["PID", "COMMAND"]);
        table.heading(Cell::new("claude 4000  ~/proj", Tone::Strong), "2 servers");
        table.row(vec![
            "files".into(),
            "ready".into(),
            "4711".into(),
            "server-filesystem ~/proj/data".into(),
        ]);
        table.row(vec![
            "crash".into(),
            "failed".into(),
            "-".into(),
            "server.py".into(),
        ]);
        table.note(Cell::new(
            "5 deaths in 1 min: mainstay why crash",
            Tone::Bad,
        ));
        table
    }

    #[test]
    fn a_note_takes_the_last_column_if_it_fits() {
        assert_eq!(
            grouped().render(70, false),
            "  NAME   STATE    PID  COMMAND
claude 4000  ~/proj                                2 servers
  files  ready   4711  server-filesystem ~/proj/data
  crash  failed     -  5 deaths in 1 min: mainstay why crash
"
        );
    }

    #[test]
    fn without_room_columns_are_left_out_and_a_note_is_wrapped_below() {
        assert_eq!(
            grouped().render(30, false),
            "  NAME   STATE   COMMAND
claude 4000  ~/proj  2 servers
  files  ready   server-files…
  crash  failed  server.py
    5 deaths in 1 min:
    mainstay why crash
"
        );
        let narrow = grouped().render(20, false);
        assert!(
            !narrow.contains("PID") && !narrow.contains("COMMAND"),
            "{narrow}"
        );
        assert!(narrow.lines().all(|line| width(line) <= 20), "{narrow}");
    }

    #[test]
    fn a_sentence_below_a_row_is_wrapped_and_a_line_is_cut() {
        let mut table = Table::new(&[Column::Text("A")]);
        table.row(vec!["x".into()]);
        table.below("  one two three");
        table.sentence_below("  one two three");
        let text = table.render(10, false);
        assert_eq!(text, "A\nx\n  one two…\n  one two\n  three\n");
    }

    #[test]
    fn wide_characters_keep_the_columns_aligned() {
        let mut table = Table::new(&[Column::Name("NAME"), Column::Number("PID")]);
        table.row(vec!["日本語".into(), "7".into()]);
        table.row(vec!["b".into(), "42".into()]);
        assert_eq!(
            table.render(80, false),
            "NAME    PID\n日本語    7\nb        42\n"
        );
    }
}
