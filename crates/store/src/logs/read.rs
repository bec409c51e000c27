//! Reading logs: which links have one, and the lines of one link from where the last reading stopped.

use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use mainstay_protocol::ids::LinkId;

use super::{Head, LogLine, files};
use crate::paths::Paths;
use crate::state::{Directory, Location};

/// A file larger than this is none of ours.
const FILE_BYTES: u64 = 1024 * 1024 * 1024;
/// The longest head of a file.
const HEAD_BYTES: u64 = 16 * 1024;
/// How much is read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// A link that has a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedLink {
    /// The link.
    pub link: LinkId,
    /// The name of its server.
    pub server: String,
    /// When the log was last written to, in milliseconds since 1970.
    pub changed_ms: u64,
}

/// The links that have a log, the one that was written to last at the end.
pub fn list(paths: &Paths) -> io::Result<Vec<LoggedLink>> {
    let location = paths.logs();
    let mut found: Vec<LoggedLink> = Vec::new();
    let Ok(directory) = location.open() else {
        // It is not there, or it is not ours; `names` tells which.
        return location.names().map(|_| found);
    };
    for file in files(&location)? {
        let name = file.name();
        let (Some(server), Ok(seen)) = (server(&directory, &name), directory.look(&name)) else {
            continue;
        };
        match found.last_mut() {
            Some(last) if last.link == file.link => last.changed_ms = seen.changed_ms,
            Some(_) | None => found.push(LoggedLink {
                link: file.link,
                server,
                changed_ms: seen.changed_ms,
            }),
        }
    }
    found.sort_by_key(|logged| logged.changed_ms);
    Ok(found)
}

/// The name in the head of a file.
fn server(directory: &Directory, name: &str) -> Option<String> {
    let file = directory.open(name, FILE_BYTES).ok()?;
    let mut bytes = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut bytes).ok()?;
    let line = bytes.split(|&b| b == b'\n').next()?;
    let head: Head = serde_json::from_slice(line).ok()?;
    Some(head.server)
}

/// The log of one link, open for reading.
#[derive(Debug)]
pub struct LogReader {
    directory: Location,
    link: LinkId,
    /// The file that is read, and how far.
    number: u32,
    place: u64,
}

impl LogReader {
    /// From the oldest line.
    pub fn new(paths: &Paths, link: LinkId) -> Self {
        Self {
            directory: paths.logs(),
            link,
            number: 0,
            place: 0,
        }
    }

    /// Hands over every line that was written since the last call. A line without its end waits for the next call.
    pub fn read(&mut self, mut take: impl FnMut(LogLine)) -> io::Result<()> {
        let all = files(&self.directory)?.into_iter();
        let own = all.filter(|file| file.link == self.link && file.number >= self.number);
        for file in own.collect::<Vec<_>>() {
            if file.number > self.number {
                (self.number, self.place) = (file.number, 0);
            }
            let directory = self.directory.open()?;
            let source = match directory.open(&file.name(), FILE_BYTES) {
                Ok(source) => source,
                // Removed in the meantime, because it was the oldest.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let mut pending: Vec<u8> = Vec::new();
            let mut chunk = vec![0u8; CHUNK_BYTES];
            loop {
                let count = source.read_at(&mut chunk, self.place + pending.len() as u64)?;
                if count == 0 {
                    break;
                }
                pending.extend_from_slice(&chunk[..count]);
                let Some(end) = pending.iter().rposition(|&b| b == b'\n') else {
                    continue;
                };
                for line in pending[..end].split(|&b| b == b'\n') {
                    // The head, or a line that a killed keeper left incomplete, is none.
                    if let Ok(line) = serde_json::from_slice(line) {
                        take(line);
                    }
                }
                pending.drain(..=end);
                self.place += end as u64 + 1;
            }
        }
        Ok(())
    }
}
