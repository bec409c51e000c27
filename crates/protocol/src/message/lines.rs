//! Bytes in pieces of any size in, whole lines out: for readers that want each line in memory. The keeper does not: it
//! forwards bytes as they come and only [scans](super::frame) them.
//!
//! Invariants:
//! - What comes out depends on the bytes only, never on how they were cut into pieces.
//! - At most `most` bytes of a line are held. Of a longer one only its [`Frame`](super::frame::Frame) is known.
//! - A line that lies whole in one piece is not copied.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use memchr::memchr;

use super::frame::Scanner;

/// Puts lines together.
#[derive(Clone, Debug)]
pub struct Lines {
    most: usize,
    part: Part,
}

/// What is there of the line that has not ended.
#[derive(Clone, Debug)]
enum Part {
    Held(Vec<u8>),
    Long(Box<Scanner>),
}

/// One line.
#[derive(Clone, Debug)]
pub enum Line<'a> {
    /// Without its newline.
    Whole(Cow<'a, [u8]>),
    /// Longer than may be held; [`Scanner::frame`] says what it is, as far as its beginning and its end tell.
    TooLong(Box<Scanner>),
}

impl Lines {
    /// Between two lines. A line of more than `most` bytes, its newline not counted, is too long.
    pub fn new(most: usize) -> Self {
        let part = Part::Held(Vec::new());
        Self { most, part }
    }

    /// The next line that ends in `piece`, which is left with what follows. None: all of it was taken, and the line goes on.
    pub fn next<'a>(&mut self, piece: &mut &'a [u8]) -> Option<Line<'a>> {
        let end = memchr(b'\n', piece);
        let (line, rest) = match end {
            Some(end) => (&piece[..end], &piece[end + 1..]),
            None => (*piece, &piece[piece.len()..]),
        };
        *piece = rest;
        match &mut self.part {
            Part::Held(held) if held.len() + line.len() > self.most => {
                let mut scanner = Box::<Scanner>::default();
                scanner.feed(held);
                scanner.feed(line);
                self.part = Part::Long(scanner);
            }
            Part::Held(held) if held.is_empty() && end.is_some() => {
                return Some(Line::Whole(Cow::Borrowed(line)));
            }
            Part::Held(held) => held.extend_from_slice(line),
            Part::Long(scanner) => {
                scanner.feed(line);
            }
        }
        end.map(|_| self.end_line())
    }

    /// The input has ended: the last line, if it had no newline.
    pub fn finish(&mut self) -> Option<Line<'static>> {
        match &self.part {
            Part::Held(held) if held.is_empty() => None,
            Part::Held(_) | Part::Long(_) => Some(self.end_line()),
        }
    }

    /// True if the line that has not ended is too long already.
    pub fn is_too_long(&self) -> bool {
        matches!(self.part, Part::Long(_))
    }

    fn end_line(&mut self) -> Line<'static> {
        match mem::replace(&mut self.part, Part::Held(Vec::new())) {
            Part::Held(line) => Line::Whole(Cow::Owned(line)),
            Part::Long(mut scanner) => {
                scanner.feed(b"\n");
                Line::TooLong(scanner)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::frame::{Id, Kind};
    use alloc::format;
    use alloc::string::String;
    use proptest::prelude::*;

    fn told(line: Line<'_>) -> String {
        match line {
            Line::Whole(line) => String::from_utf8_lossy(&line).into_owned(),
            Line::TooLong(scanner) => {
                let frame = scanner.frame();
                format!("{:?} {:?} of {}", frame.kind, frame.id, frame.bytes)
            }
        }
    }

    /// All lines of these bytes, in pieces of these sizes.
    fn split(most: usize, mut bytes: &[u8], mut sizes: impl FnMut() -> usize) -> Vec<String> {
        let mut lines = Lines::new(most);
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let (mut piece, rest) = bytes.split_at(sizes().clamp(1, bytes.len()));
            bytes = rest;
            while let Some(line) = lines.next(&mut piece) {
                all.push(told(line));
            }
            assert!(piece.is_empty());
            if let Part::Held(held) = &lines.part {
                assert!(held.len() <= most);
            }
        }
        all.extend(lines.finish().map(told));
        assert!(lines.finish().is_none(), "the last line is told once");
        all
    }

    #[test]
    fn lines_are_whole_however_they_are_cut() {
        let bytes = b"one\n\ntwo\r\nlast";
        for size in 1..bytes.len() {
            assert_eq!(split(4, bytes, || size), ["one", "", "two\r", "last"]);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_known_by_its_frame() {
        let line = br#"{"id":7,"method":"tools/call"}"#;
        let bytes = [line, &b"\nnext\n"[..]].concat();
        for size in 1..bytes.len() {
            let whole = split(line.len(), &bytes, || size);
            assert_eq!(whole[0].as_bytes(), line);
            let long = split(line.len() - 1, &bytes, || size);
            assert_eq!(long, ["Request Token([55]) of 31", "next"]);
            let end = split(line.len() - 1, line, || size);
            assert_eq!(end, ["Request Token([55]) of 31"]);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_known_before_it_ends() {
        let mut lines = Lines::new(3);
        for (mut piece, long) in [(&b"abc"[..], false), (b"d", true), (b"e", true)] {
            assert!(lines.next(&mut piece).is_none());
            assert_eq!(lines.is_too_long(), long);
        }
        assert!(matches!(
            lines.next(&mut &b"\n"[..]),
            Some(Line::TooLong(long)) if long.frame().kind == Kind::Junk && long.frame().id == Id::Absent
        ));
        assert!(!lines.is_too_long());
    }

    #[test]
    fn a_line_in_one_piece_is_not_copied() {
        let mut lines = Lines::new(10);
        let mut piece = &b"one\ntwo\n"[..];
        for _ in 0..2 {
            let line = lines.next(&mut piece);
            assert!(matches!(line, Some(Line::Whole(Cow::Borrowed(_)))));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_the_same_lines(bytes in "[a{}\",:id0-9\n]{0,60}", most in 0..20usize, sizes in prop::collection::vec(1..9usize, 1..9)) {
            let mut at = 0;
            let cut = split(most, bytes.as_bytes(), || { at += 1; sizes[at % sizes.len()] });
            prop_assert_eq!(&cut, &split(most, bytes.as_bytes(), || usize::MAX));
            let mut read: Vec<&str> = bytes.split('\n').collect();
            if read.last() == Some(&"") {
                read.pop();
            }
            prop_assert_eq!(cut.len(), read.len());
            for (line, read) in cut.iter().zip(read) {
                if read.len() <= most {
                    prop_assert_eq!(line, read);
                }
            }
        }
    }
}
