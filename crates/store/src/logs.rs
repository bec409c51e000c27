//! Logs: what servers wrote to stderr, and what they wrote to stdout that was no message. A few files for each link.
//!
//! The keeper of a link is the only writer of its files. A file begins with a line that names the server; each line after it is
//! one line of the server. When a file is full, the next number begins and the oldest file goes. Readers take whole lines and
//! skip others.

pub mod read;
pub mod retain;
pub mod write;

use std::io;

use mainstay_protocol::ids::LinkId;
use serde::{Deserialize, Serialize};

use crate::state::Location;

/// The version of the format.
const VERSION: u32 = 1;

/// The first line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    v: u32,
    link: LinkId,
    server: String,
}

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When the keeper read it, in UTC.
    pub at: String,
    /// Which start of the server wrote it, counted from 1.
    pub generation: u32,
    /// Where the server wrote it.
    pub from: Source,
    /// The line without its end, without what looks like a secret.
    pub text: String,
}

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The server's stderr.
    Stderr,
    /// The server's stdout; the line was no message and did not reach the client.
    Stdout,
    /// Mainstay: the server was started or has ended, or lines are missing.
    Mainstay,
}

/// One file of a link's log. The order is the order of time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LogFile {
    link: LinkId,
    number: u32,
}

impl LogFile {
    fn of(name: &str) -> Option<Self> {
        let (link, number) = name.strip_suffix(".jsonl")?.split_once('.')?;
        Some(Self {
            link: link.parse().ok()?,
            number: number.parse().ok()?,
        })
    }

    fn name(&self) -> String {
        format!("{}.{}.jsonl", self.link, self.number)
    }
}

/// All files, each link's in the order of time; none if the directory does not exist.
fn files(directory: &Location) -> io::Result<Vec<LogFile>> {
    let names = directory.names()?;
    let mut files: Vec<LogFile> = names.iter().filter_map(|name| LogFile::of(name)).collect();
    files.sort();
    Ok(files)
}
