//! The sections of the page, one file each.

mod bridges;
mod cradle;
mod data;
mod life;
mod memory;
mod scan;
mod serve;
mod start;
mod successor;
mod tier;
mod zero;

use std::io;

use crate::args::Effort;
use crate::place::{Place, Programs};
use crate::table::Table;

/// A section of the page.
pub struct Section {
    /// The name for `--only`.
    pub name: &'static str,
    pub title: &'static str,
    run: fn(&Place<'_>, Effort) -> io::Result<Part>,
}

/// All of them, in the order of the page.
pub static ALL: [Section; 9] = [
    Section {
        name: "data",
        title: "Data path",
        run: data::measure,
    },
    Section {
        name: "start",
        title: "Start-up",
        run: start::measure,
    },
    Section {
        name: "memory",
        title: "Memory of idle links",
        run: memory::measure,
    },
    Section {
        name: "zero",
        title: "Time to zero",
        run: zero::measure,
    },
    Section {
        name: "life",
        title: "Death of a server, rest, and replay",
        run: life::measure,
    },
    Section {
        name: "successor",
        title: "Death of the keeper to the next generation",
        run: successor::measure,
    },
    Section {
        name: "serve",
        title: "HTTP front",
        run: serve::measure,
    },
    Section {
        name: "bridges",
        title: "Bridges between stdio and HTTP",
        run: bridges::measure,
    },
    Section {
        name: "scan",
        title: "Commands that look at every process",
        run: scan::measure,
    },
];

/// The result of a section.
pub struct Part {
    pub title: &'static str,
    /// Text and tables.
    pub blocks: Vec<Block>,
    /// The results for the targets of the design.
    pub targets: Vec<Target>,
}

/// A piece of a section.
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A table.
    Table(Table),
}

/// One target of the design.
pub struct Target {
    pub what: &'static str,
    pub aim: &'static str,
    pub measured: String,
    pub met: bool,
}

impl Section {
    /// Measures it and asserts that no process is left.
    pub fn measure(&self, programs: &Programs, effort: Effort) -> io::Result<Part> {
        let place = Place::new(programs);
        let outcome = (self.run)(&place, effort).and_then(|part| {
            place.wait_empty()?;
            Ok(part)
        });
        // Whatever failed afterwards, the hang is the reason.
        let outcome = match place.hung() {
            Some(who) => Err(io::Error::other(who)),
            None => outcome,
        };
        outcome
            .map(|part| Part {
                title: self.title,
                ..part
            })
            .map_err(|error| {
                let story = place.story();
                place.end_all();
                io::Error::other(format!("{}: {error}\n{story}", self.name))
            })
    }
}

impl Part {
    fn new(blocks: Vec<Block>, targets: Vec<Target>) -> Self {
        Self {
            title: "",
            blocks,
            targets,
        }
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl From<String> for Block {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Block {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}
