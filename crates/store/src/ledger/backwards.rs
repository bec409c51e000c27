//! Reading the ledger from its newest line to its oldest, no further than is needed.
//!
//! What is asked for is mostly near the end, and a ledger may have 64 MB. Lines are handed over as they are written; a taker looks for
//! the bytes of what it wants before it parses a line.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use super::files::EventFile;
use super::read::{self, LINE_BYTES};

/// How much is read at once.
const CHUNK_BYTES: u64 = 256 * 1024;

/// Where a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// In which file.
    pub file: EventFile,
    /// Its first byte.
    pub start: u64,
    /// Behind its newline.
    pub end: u64,
}

/// Hands over every line of these files (oldest first), the last one first, until the taker has had enough. A line that is not at its end yet,
/// or is too long to be one of ours, is left out.
pub fn lines<B>(
    files: &[EventFile],
    mut take: impl FnMut(&Place, &[u8]) -> ControlFlow<B>,
) -> io::Result<ControlFlow<B>> {
    for file in files.iter().rev() {
        let Some(source) = read::open(file)? else {
            continue;
        };
        let end = source.metadata()?.len();
        let flow = lines_of(file, &source, end, &mut take)?;
        if flow.is_break() {
            return Ok(flow);
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The same, from behind this line on.
pub fn lines_up_to<B>(
    files: &[EventFile],
    place: &Place,
    mut take: impl FnMut(&Place, &[u8]) -> ControlFlow<B>,
) -> io::Result<ControlFlow<B>> {
    if let Some(source) = read::open(&place.file)? {
        let flow = lines_of(&place.file, &source, place.end, &mut take)?;
        if flow.is_break() {
            return Ok(flow);
        }
    }
    let earlier = files.partition_point(|file| *file < place.file);
    lines(&files[..earlier], take)
}

fn lines_of<B>(
    file: &EventFile,
    source: &File,
    end: u64,
    take: &mut impl FnMut(&Place, &[u8]) -> ControlFlow<B>,
) -> io::Result<ControlFlow<B>> {
    // What is read and not handed over yet: from `start` on, up to the end of a line.
    let mut start = end;
    let mut pending: Vec<u8> = Vec::new();
    // Whether the line at the end of `pending` is none of ours.
    let mut void = false;
    while start > 0 {
        let count = start.min(CHUNK_BYTES);
        let mut chunk = Vec::with_capacity(count as usize + pending.len());
        chunk.resize(count as usize, 0);
        source.read_exact_at(&mut chunk, start - count)?;
        start -= count;
        if start + count == end && chunk.last() != Some(&b'\n') {
            void = true;
            chunk.push(b'\n');
        }
        chunk.append(&mut pending);
        pending = chunk;
        while let Some(last) = pending.len().checked_sub(1) {
            let before = memchr::memrchr(b'\n', &pending[..last]);
            let first = match before {
                Some(newline) => newline + 1,
                None if start == 0 => 0,
                None => break,
            };
            if !std::mem::take(&mut void) {
                let place = Place {
                    file: file.clone(),
                    start: start + first as u64,
                    end: start + pending.len() as u64,
                };
                let flow = take(&place, &pending[first..last]);
                if flow.is_break() {
                    return Ok(flow);
                }
            }
            pending.truncate(first);
        }
        if pending.len() > LINE_BYTES {
            pending = vec![b'\n'];
            void = true;
        }
    }
    Ok(ControlFlow::Continue(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::files;
    use crate::scratch::Scratch;
    use std::fs;

    /// All lines, as they are handed over, each checked against its place.
    fn all(files: &[EventFile]) -> Vec<String> {
        let mut found = Vec::new();
        let flow = lines(files, |place, line| {
            let whole = fs::read(place.file.directory.path().join(&place.file.name)).unwrap();
            let there = &whole[place.start as usize..place.end as usize];
            assert_eq!(there, [line, b"\n"].concat());
            found.push(String::from_utf8_lossy(line).into_owned());
            ControlFlow::<()>::Continue(())
        });
        assert!(flow.unwrap().is_continue());
        found
    }

    #[test]
    fn it_is_the_other_way_round_of_the_lines() {
        let scratch = Scratch::new();
        let chunk = CHUNK_BYTES as usize;
        let numbered: Vec<String> = (0..40_000).map(|n| n.to_string()).collect();
        for text in [
            String::new(),
            "one line\n".into(),
            "\n\n".into(),
            "a\nbb\nccc\n".into(),
            format!("{}\n{}\n", "x".repeat(chunk - 1), "y".repeat(chunk)),
            format!("{}\n{}\nz\n", "x".repeat(3 * chunk), "y".repeat(chunk - 2)),
            numbered.join("\n") + "\n",
        ] {
            fs::write(scratch.path().join("2026-11-15.jsonl"), &text).unwrap();
            let files = files::list(&scratch.location()).unwrap();
            let mut expected: Vec<&str> = text.lines().collect();
            expected.reverse();
            assert_eq!(all(&files), expected);
        }
    }

    #[test]
    fn a_line_without_its_end_and_one_without_end_are_left_out() {
        let scratch = Scratch::new();
        let endless = "x".repeat(3 * LINE_BYTES);
        let text = format!("first\n{endless}\nlast\n{{\"v\":1,");
        fs::write(scratch.path().join("2026-11-15.jsonl"), text).unwrap();
        let files = files::list(&scratch.location()).unwrap();
        assert_eq!(all(&files), ["last", "first"]);
        fs::write(scratch.path().join("2026-11-15.jsonl"), endless).unwrap();
        assert_eq!(all(&files), Vec::<String>::new());
    }

    #[test]
    fn it_stops_early_and_goes_on_from_a_place() {
        let scratch = Scratch::new();
        for (name, text) in [
            ("2026-11-14", "a\nb\n"),
            ("2026-11-15", "c\nd\n"),
            ("2026-11-15.1", "e\n"),
        ] {
            fs::write(scratch.path().join(format!("{name}.jsonl")), text).unwrap();
        }
        let files = files::list(&scratch.location()).unwrap();
        assert_eq!(all(&files), ["e", "d", "c", "b", "a"]);
        let found = lines(&files, |place, line| match line {
            b"d" => ControlFlow::Break(place.clone()),
            _ => ControlFlow::Continue(()),
        });
        let ControlFlow::Break(place) = found.unwrap() else {
            panic!("it is there")
        };
        let mut rest = Vec::new();
        let flow = lines_up_to(&files, &place, |_, line| {
            rest.push(line.to_vec());
            ControlFlow::<()>::Continue(())
        });
        assert!(flow.unwrap().is_continue());
        assert_eq!(rest, [b"d", b"c", b"b", b"a"]);
    }
}
