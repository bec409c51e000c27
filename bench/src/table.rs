//! An aligned Markdown table: read as text, rendered as a table.

/// A table; every column but the first holds numbers.
#[derive(Clone, Debug)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns that hold words.
    words: usize,
}

impl Table {
    /// A table with these columns; the first `words` of them hold words.
    pub fn new(words: usize, head: &[&str]) -> Self {
        Self {
            head: head.iter().map(|&cell| cell.to_owned()).collect(),
            rows: Vec::new(),
            words,
        }
    }

    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        debug_assert_eq!(row.len(), self.head.len());
        self.rows.push(row);
    }

    pub fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.head.len())
            .map(|column| {
                let cells = self.rows.iter().chain([&self.head]);
                cells
                    .map(|row| width(&row[column]))
                    .max()
                    .unwrap_or(0)
                    .max(3)
            })
            .collect();
        let mut text = self.line(&self.head, &widths);
        for (column, width) in widths.iter().enumerate() {
            text.push_str("| ");
            if column < self.words {
                text.push_str(&"-".repeat(*width));
            } else {
                text.push_str(&"-".repeat(width - 1));
                text.push(':');
            }
            text.push(' ');
        }
        text.push_str("|\n");
        for row in &self.rows {
            text.push_str(&self.line(row, &widths));
        }
        text
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (column, (cell, column_width)) in row.iter().zip(widths).enumerate() {
            let gap = " ".repeat(column_width - width(cell));
            line.push_str("| ");
            if column < self.words {
                line.push_str(cell);
                line.push_str(&gap);
            } else {
                line.push_str(&gap);
                line.push_str(cell);
            }
            line.push(' ');
        }
        line.push_str("|\n");
        line
    }
}

fn width(cell: &str) -> usize {
    cell.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(1, &["what", "p50, µs"]);
        table.row(["direct", "3.20"]);
        table.row(["mainstay", "10.1"]);
        assert_eq!(
            table.render(),
            "| what     | p50, µs |\n\
             | -------- | ------: |\n\
             | direct   |    3.20 |\n\
             | mainstay |    10.1 |\n"
        );
    }
}
