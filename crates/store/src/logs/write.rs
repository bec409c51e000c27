//! Writing the log of one link, in files of bounded size.
//!
//! Invariants: the files of a link are together not larger than its limit; every file begins with its head; a line that a killed
//! keeper left incomplete is ended before the next one. An error is returned, and the next call tries again.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits::{LOG_FILE_BYTES_LEAST, LOG_FILES};
use rustix::process::{Resource, getrlimit};

use super::{Head, LogFile, VERSION, files};
use crate::paths::Paths;
use crate::state::{Directory, Location};

/// The log of one link. It holds no descriptor between two writes, because a keeper may have few.
#[derive(Debug)]
pub struct LogWriter {
    directory: Location,
    link: LinkId,
    head: Vec<u8>,
    file_bytes: u64,
    /// The file that was written to last.
    number: Option<u32>,
}

impl LogWriter {
    /// The log of a link; all its files together have at most so many bytes. The first write makes directory and file.
    pub fn new(paths: &Paths, link: LinkId, server: &str, limit_bytes: u64) -> Self {
        let mut head = serde_json::to_vec(&Head {
            v: VERSION,
            link,
            server: server.into(),
        })
        .unwrap_or_default();
        head.push(b'\n');
        Self {
            directory: paths.logs(),
            link,
            head,
            file_bytes: (limit_bytes / LOG_FILES).max(LOG_FILE_BYTES_LEAST),
            number: None,
        }
    }

    /// Appends whole lines, each with its end. Lines that do not fit into the file go to the next one.
    pub fn write(&mut self, mut lines: &[u8]) -> io::Result<()> {
        let directory = self.directory.make()?;
        let mut file = self.open(&directory)?;
        while !lines.is_empty() {
            let size = file.metadata()?.len();
            let room = self.file_bytes.saturating_sub(size) as usize;
            let mut end = whole_lines(lines, room);
            if end == 0 && size > self.head.len() as u64 {
                let next = self.number.map_or(0, |number| number + 1);
                file = self.begin(&directory, next)?;
                continue;
            }
            if end == 0 {
                // One line that is longer than a file may be.
                end = lines
                    .iter()
                    .position(|&b| b == b'\n')
                    .map_or(lines.len(), |at| at + 1);
            }
            put(&file, size, &lines[..end])?;
            lines = &lines[end..];
        }
        Ok(())
    }

    /// Opens the file to write to: the last one, else a new one.
    fn open(&mut self, directory: &Directory) -> io::Result<File> {
        let mut number = self.number;
        if number.is_none() {
            let mut all = files(&self.directory)?.into_iter();
            let last = all.rfind(|file| file.link == self.link);
            number = last.map(|file| file.number);
        }
        let Some(number) = number else {
            return self.begin(directory, 0);
        };
        let file = match directory.append(&self.name(number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.begin(directory, number);
            }
            opened => opened?,
        };
        let size = file.metadata()?.len();
        let mut end = [0u8];
        if size > 0 && file.read_at(&mut end, size - 1)? == 1 && end != *b"\n" {
            // The keeper before us was killed within a write, or the disk was full.
            put(&file, size, b"\n")?;
        }
        self.number = Some(number);
        Ok(file)
    }

    /// Begins the file with this number, and removes those that are too many.
    fn begin(&mut self, directory: &Directory, number: u32) -> io::Result<File> {
        for old in files(&self.directory)? {
            if old.link == self.link && u64::from(old.number) + LOG_FILES <= u64::from(number) {
                directory.remove(&old.name()).ok();
            }
        }
        let file = directory.append_new(&self.name(number))?;
        put(&file, 0, &self.head)?;
        self.number = Some(number);
        Ok(file)
    }

    fn name(&self, number: u32) -> String {
        let link = self.link;
        LogFile { link, number }.name()
    }
}

/// How many bytes of these whole lines fit.
fn whole_lines(lines: &[u8], room: usize) -> usize {
    let fits = &lines[..lines.len().min(room)];
    fits.iter()
        .rposition(|&b| b == b'\n')
        .map_or(0, |at| at + 1)
}

fn put(mut file: &File, size: u64, bytes: &[u8]) -> io::Result<()> {
    let allowed = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    if size + bytes.len() as u64 > allowed {
        // Not tried, because the kernel would send SIGXFSZ.
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    if file.write(bytes)? < bytes.len() {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! guards: The log of a server never grows beyond its limit, and its newest lines stay.

    use super::*;
    use crate::logs::read::LogReader;
    use crate::logs::{LogLine, Source};
    use crate::scratch::Scratch;
    use std::fs;

    const LINK: LinkId = LinkId(7);

    fn line(n: usize) -> Vec<u8> {
        let line = LogLine {
            at: "2026-11-15T22:31:07.123Z".into(),
            generation: 1,
            from: Source::Stderr,
            text: format!("{n} {}", "x".repeat(1_000)),
        };
        let mut bytes = serde_json::to_vec(&line).unwrap();
        bytes.push(b'\n');
        bytes
    }

    fn numbers(paths: &Paths) -> Vec<usize> {
        let mut all = Vec::new();
        LogReader::new(paths, LINK)
            .read(|line| all.push(line.text.split(' ').next().unwrap().parse().unwrap()))
            .unwrap();
        all
    }

    fn size(paths: &Paths) -> u64 {
        let files = fs::read_dir(paths.logs().path()).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    }

    #[test]
    fn a_log_stays_within_its_limit() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let limit = LOG_FILES * LOG_FILE_BYTES_LEAST;
        let mut log = LogWriter::new(&paths, LINK, "demo", limit);
        for n in (0..2_000).step_by(10) {
            let batch: Vec<u8> = (n..n + 10).flat_map(line).collect();
            log.write(&batch).unwrap();
            assert!(size(&paths) <= limit);
        }
        let kept = numbers(&paths);
        assert_eq!(kept.last(), Some(&1_999));
        assert!(kept.windows(2).all(|two| two[0] + 1 == two[1]), "{kept:?}");
        assert!(size(&paths) > limit / 2);
    }

    #[test]
    fn a_successor_goes_on_behind_a_torn_line() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        LogWriter::new(&paths, LINK, "demo", 1 << 20)
            .write(&line(1))
            .unwrap();
        let path = paths.logs().path().join("00000007.0.jsonl");
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"at\":\"20").unwrap();
        let mut log = LogWriter::new(&paths, LINK, "demo", 1 << 20);
        log.write(&line(2)).unwrap();
        assert_eq!(numbers(&paths), [1, 2]);
        // A file that a user removed is made again.
        fs::remove_file(&path).unwrap();
        log.write(&line(3)).unwrap();
        assert_eq!(numbers(&paths), [3]);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error_each_time() {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        fs::write(paths.logs().path(), "in the way").unwrap();
        let mut log = LogWriter::new(&paths, LINK, "demo", 1 << 20);
        assert!(log.write(&line(1)).is_err());
        fs::remove_file(paths.logs().path()).unwrap();
        log.write(&line(2)).unwrap();
        assert_eq!(numbers(&paths), [2]);
    }
}
