//! A table that fits its screen: aligned columns, the widest text column gives way first.

use super::measure::one_line;
use super::paint::Tone;
use super::safe::visible;

/// Between two columns.
const GAP: &str = "  ";
/// A text column gives way down to this: every state and every tier can be read.
const LEAST: usize = 9;
/// And a name down to this: a table that is too wide is better than a name that nobody can type.
const LEAST_NAME: usize = 16;

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Text, to the left; gives way when the table is too wide.
    Text(&'static str),
    /// What a command takes, to the left; gives way like text, but only when it is long.
    Name(&'static str),
    /// Numbers, to the right; never cut.
    Number(&'static str),
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Text(title) | Self::Name(title) | Self::Number(title) => title,
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
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    cells: Vec<Cell>,
    below: Vec<String>,
}

impl Table {
    /// An empty one.
    pub fn new(columns: &[Column]) -> Self {
        Self {
            columns: columns.into(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; it has one field per column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(Row {
            cells,
            below: Vec::new(),
        });
    }

    /// Adds a line of its own below the last row, cut at the table's width.
    pub fn below(&mut self, line: &str) {
        if let Some(row) = self.rows.last_mut() {
            row.below.push(visible(line).into_owned());
        }
    }

    /// The table as text.
    pub fn render(&self, width: usize, colour: bool) -> String {
        let widths = self.widths(width);
        let mut out = String::new();
        let titles: Vec<Cell> = self
            .columns
            .iter()
            .map(|column| Cell::new(column.title(), Tone::Strong))
            .collect();
        self.line(&mut out, &titles, &widths, colour);
        for row in &self.rows {
            self.line(&mut out, &row.cells, &widths, colour);
            for line in &row.below {
                out.push_str(&Tone::Faint.paint(&cut_end(line, width), colour));
                out.push('\n');
            }
        }
        out
    }

    fn widths(&self, width: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                let fields = self.rows.iter().filter_map(|row| row.cells.get(at));
                let widest = fields.map(|cell| cell.text.chars().count()).max();
                widest.unwrap_or(0).max(column.title().chars().count())
            })
            .collect();
        loop {
            let total = widths.iter().sum::<usize>() + GAP.len() * (widths.len().saturating_sub(1));
            let widest = self
                .columns
                .iter()
                .zip(&mut widths)
                .filter(|(column, width)| match column {
                    Column::Text(_) => **width > LEAST,
                    Column::Name(_) => **width > LEAST_NAME,
                    Column::Number(_) => false,
                })
                .map(|(_, width)| width)
                .max();
            match widest {
                Some(widest) if total > width => *widest -= 1,
                Some(_) | None => return widths,
            }
        }
    }

    fn line(&self, out: &mut String, cells: &[Cell], widths: &[usize], colour: bool) {
        let mut line = String::new();
        let mut pending = String::new();
        for ((cell, column), &width) in cells.iter().zip(&self.columns).zip(widths) {
            let text = one_line(&cell.text, width);
            let pad = " ".repeat(width - text.chars().count());
            let painted = cell.tone.paint(&text, colour);
            line.push_str(&pending);
            // What follows the last field is left out: no line ends in blanks.
            pending = match column {
                Column::Text(_) | Column::Name(_) => {
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

/// Cuts the end of a line and keeps its indentation.
fn cut_end(line: &str, width: usize) -> String {
    let indent: String = line.chars().take_while(|c| *c == ' ').collect();
    let room = width.saturating_sub(indent.len());
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
}
