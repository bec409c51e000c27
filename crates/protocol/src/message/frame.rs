//! Lines of newline-delimited JSON-RPC, looked at while they pass.
//!
//! A [`Scanner`] is fed bytes in pieces of any size and says where lines end and what each one is: its kind, its id
//! token, its method. It looks at the top-level keys `id`, `method`, `result` and `error` and at nothing else; as soon
//! as it has seen enough it only looks for the newline. A line that lies there whole and is written as most peers write
//! needs no scanner: [`Frame::at_a_glance`]. Nothing is validated: a line that is called a request may be broken further
//! on, and its reader will say so. Nothing is known of directions, eras, or what a method means.
//!
//! Invariants:
//! - A `\n` always ends a line (valid JSON has none inside), whatever else the bytes are.
//! - The result depends on the bytes of the line only, never on how they were cut into pieces.
//! - For a line that is a valid JSON object without repeated keys, kind, id and method are right; for a long line see
//!   below.
//! - [`Kind::Junk`] is certain: no JSON reader finds a message in such a line.
//! - The memory is fixed; nothing is allocated but for a method written with escapes.
//!
//! Where a line contradicts itself the first word counts: the first `id` (behind a long nested value, the last one), and
//! the first of `method`, `result` and `error`. Otherwise a 50 MB result could never be trusted before its end. That is
//! safe because a pipe has one client and one server:
//! - The id of a frame is always a top-level `id` of that very line. So a line opens or closes no entry that it does not
//!   name itself, and its writer could have named that one alone.
//! - A line with a repeated `id` is never relabelled ([`with_id`](super::envelope::with_id)), and of a repeated key nothing is
//!   taken that we act on (`Members::get`).
//! - Where clients share a server, a message with repeated keys is refused before it gets here
//!   (`Posted::read` of the HTTP front).
//!
//! A `method` or `error` that is `null` counts
//! as not there (some writers print every field they have), and an object with an id and none of the three is a
//! response, because that is what a JavaScript server writes for an undefined result.
//!
//! Long lines: TypeScript servers write `{"result":{…},"jsonrpc":"2.0","id":7}`, the id behind a result of any size, and
//! to count the brackets of a megabyte costs more than to copy it. So where the kind is known and a nested value is
//! still open after 4 KiB of line, the id is read backwards from the line's end, among the plain members behind the
//! last nested value. What that misses is an id *between* two nested values, which no known peer writes; where a line
//! lies there whole, [`Frame::completed`] finds it.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::str;

use memchr::memchr;

use self::key::{Field, KEY_BYTES};
pub(super) use self::text::string_end;
use self::text::{Bounded, Nested, ends_scalar, last_id, last_object, nested};
use super::envelope::Members;
use crate::limits::ID_BYTES;

mod glance;
mod key;
mod text;

/// The longest method name that is reported, in bytes as written.
pub const METHOD_BYTES: usize = 128;

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A method with an id: the sender waits for an answer.
    Request,
    /// A method without an id.
    Notification,
    /// An answer with a result.
    Response,
    /// An answer with an error.
    Error,
    /// An array. Its members are the business of [`batch`](super::batch).
    Batch,
    /// Nothing but white space.
    Blank,
    /// No message.
    Junk,
}

/// The id of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Id<'a> {
    /// There is none.
    Absent,
    /// `null`.
    Null,
    /// The JSON token as written, quotes included.
    Token(&'a [u8]),
    /// More than [`ID_BYTES`] bytes.
    TooLong,
}

/// What is known of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its id.
    pub id: Id<'a>,
    /// Its method, without escapes; none if absent, no text, or longer than [`METHOD_BYTES`].
    pub method: Option<Cow<'a, str>>,
    /// Its length so far, newline included.
    pub bytes: u64,
}

impl<'a> Frame<'a> {
    /// The same for a line that lies there whole: its id is found wherever it stands, and however long it is.
    #[must_use]
    pub fn completed(self, line: &'a [u8]) -> Self {
        let kind = match self.kind {
            Kind::Notification | Kind::Request => Kind::Request,
            Kind::Response => Kind::Response,
            Kind::Error => Kind::Error,
            Kind::Batch | Kind::Blank | Kind::Junk => return self,
        };
        match self.id {
            Id::TooLong => {}
            Id::Absent if line.len() as u64 >= LONG_BYTES => {}
            Id::Absent | Id::Null | Id::Token(_) => return self,
        }
        let members = Members::of_line(line).map_or(Vec::new(), |Members(all)| all);
        let mut ids = members.iter().filter(|(key, _)| key == "id");
        match ids.next().map(|(_, id)| id.get().as_bytes()) {
            None => self,
            Some(b"null") => Self {
                kind,
                id: Id::Null,
                ..self
            },
            Some(token) => Self {
                kind,
                id: Id::Token(token),
                ..self
            },
        }
    }
}

/// What became of a piece of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// A line ended after this many bytes of the piece; [`Scanner::frame`] describes it until the next feed.
    Line {
        /// Bytes consumed, newline included.
        used: usize,
    },
    /// All was consumed and the line goes on.
    Partial,
}

/// Finds lines and what they are, in pieces of any size.
#[derive(Clone, Debug)]
pub struct Scanner {
    /// Where in the line we are.
    at: At,
    /// The line is over; the next piece starts a new one.
    over: bool,
    /// Inside a string within `at`: the last byte of the piece was a backslash.
    escape: bool,
    /// The top-level key whose value comes or is here.
    field: Field,
    /// Where the value that is here is kept.
    keep: Keep,
    /// The first of method, result and error.
    verb: Verb,
    /// An id was seen, whole.
    has_id: bool,
    /// Open brackets of the nested value.
    depth: u64,
    bytes: u64,
    key: Bounded<KEY_BYTES>,
    id: Bounded<ID_BYTES>,
    method: Bounded<{ METHOD_BYTES + 2 }>,
    /// The last bytes of a long line.
    tail: Bounded<TAIL_BYTES>,
}

/// A nested value that is still open here is not followed further: see the module's docs.
pub(super) const LONG_BYTES: u64 = 4_096;
/// How many bytes at the end of a long line are looked at: enough for `,"jsonrpc":"2.0","id":`, an id, `}` and some
/// white space. A scanner that has these finds the id as one that has the whole line does.
pub const TAIL_BYTES: usize = ID_BYTES + 56;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the first byte that is not white space.
    Start,
    /// After this many bytes of a byte order mark.
    Mark(u8),
    /// After `{`.
    FirstKey,
    /// After `,`.
    NextKey,
    /// Inside a key.
    Key,
    /// After a key.
    Colon,
    /// After a colon.
    Value,
    /// Inside a string value.
    Text,
    /// Inside a number or a word.
    Scalar,
    /// Inside an object or array.
    Nested,
    /// Inside a string in an object or array.
    NestedText,
    /// Inside an object or array, in a long line.
    Tail,
    /// After a value.
    Comma,
    /// After the closing `}`.
    Closed,
    /// All is known that we want to know.
    Decided,
    /// In an array.
    Batch,
    /// In something that is no message.
    Junk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    Nothing,
    Id,
    Method,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    None,
    Method,
    Result,
    Error,
    /// It was in the beginning of the line, which is lost, or is in the rest, which is not searched for it.
    Lost,
}

/// What the beginning of a long line shows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Nothing yet.
    Unknown,
    /// It has a method.
    Asks,
    /// It has a result or an error.
    Answers,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// A scanner at the start of a line.
    pub const fn new() -> Self {
        Self {
            at: At::Start,
            over: false,
            escape: false,
            field: Field::Other,
            keep: Keep::Nothing,
            verb: Verb::None,
            has_id: false,
            depth: 0,
            bytes: 0,
            key: Bounded::new(),
            id: Bounded::new(),
            method: Bounded::new(),
            tail: Bounded::new(),
        }
    }

    /// A scanner in a line whose beginning is lost but for this. It finds an id at the end of the line. A line of which nothing else is
    /// known is called a request of no known method.
    pub const fn within_a_line(begun: Begun) -> Self {
        let mut scanner = Self::new();
        scanner.at = At::Tail;
        scanner.verb = match begun {
            Begun::Unknown => Verb::Lost,
            Begun::Asks => Verb::Method,
            Begun::Answers => Verb::Result,
        };
        scanner
    }

    /// In the middle of a line: what a scanner of its rest is to know of it.
    pub fn begun_as(&self) -> Begun {
        match self.verb {
            Verb::None | Verb::Lost => Begun::Unknown,
            Verb::Method => Begun::Asks,
            Verb::Result | Verb::Error => Begun::Answers,
        }
    }

    /// Consumes bytes up to and including the next newline, or all of them.
    pub fn feed(&mut self, piece: &[u8]) -> Fed {
        if self.over {
            self.reset();
        }
        if let Some(end) = memchr(b'\n', piece) {
            self.scan(&piece[..end]);
            self.bytes += end as u64 + 1;
            self.end_line();
            Fed::Line { used: end + 1 }
        } else {
            self.scan(piece);
            self.bytes += piece.len() as u64;
            Fed::Partial
        }
    }

    /// The input is over: the last line, if it had no newline.
    pub fn finish(&mut self) -> Option<Frame<'_>> {
        if self.over || self.bytes == 0 {
            return None;
        }
        self.end_line();
        Some(self.frame())
    }

    /// Whether the bytes so far end between two lines.
    pub fn between_lines(&self) -> bool {
        self.over || self.bytes == 0
    }

    /// The line that ended with the last feed.
    pub fn frame(&self) -> Frame<'_> {
        let kind = self.kind();
        let known = matches!(self.at, At::Decided | At::Closed);
        Frame {
            kind,
            id: if known && self.has_id {
                self.id_token()
            } else {
                Id::Absent
            },
            method: if known && self.verb == Verb::Method {
                self.method_name()
            } else {
                None
            },
            bytes: self.bytes,
        }
    }

    /// In the middle of a line: its kind, once that is final.
    pub fn known(&self) -> Option<Frame<'_>> {
        match self.at {
            At::Decided | At::Closed | At::Batch => Some(self.frame()),
            At::Start
            | At::Mark(_)
            | At::FirstKey
            | At::NextKey
            | At::Key
            | At::Colon
            | At::Value
            | At::Text
            | At::Scalar
            | At::Nested
            | At::NestedText
            | At::Tail
            | At::Comma
            | At::Junk => None,
        }
    }

    /// In the middle of a line: the same, and of an answer also where its id is still to come; that is absent then.
    pub fn begun(&self) -> Option<Frame<'_>> {
        let kind = match self.verb {
            Verb::Result => Kind::Response,
            Verb::Error => Kind::Error,
            Verb::None | Verb::Method | Verb::Lost => return self.known(),
        };
        if self.certain_junk() {
            return None;
        }
        self.known().or(Some(Frame {
            kind,
            id: Id::Absent,
            method: None,
            bytes: self.bytes,
        }))
    }

    /// In the middle of a line: whether it is certainly no message. That is so from its first byte on, unless this
    /// is `{` or `[` (after white space and a byte order mark).
    pub fn certain_junk(&self) -> bool {
        self.at == At::Junk
    }

    fn kind(&self) -> Kind {
        match self.at {
            At::Decided | At::Closed => match (self.verb, self.has_id) {
                (Verb::Method | Verb::Lost, true) => Kind::Request,
                (Verb::Method | Verb::Lost, false) => Kind::Notification,
                (Verb::Result, _) | (Verb::None, true) => Kind::Response,
                (Verb::Error, _) => Kind::Error,
                (Verb::None, false) => Kind::Junk,
            },
            At::Batch => Kind::Batch,
            At::Start => Kind::Blank,
            // The line ended inside the object.
            At::Mark(_)
            | At::FirstKey
            | At::NextKey
            | At::Key
            | At::Colon
            | At::Value
            | At::Text
            | At::Scalar
            | At::Nested
            | At::NestedText
            | At::Tail
            | At::Comma
            | At::Junk => Kind::Junk,
        }
    }

    fn id_token(&self) -> Id<'_> {
        match self.id.get() {
            Some(b"null") => Id::Null,
            Some(token) => Id::Token(token),
            None => Id::TooLong,
        }
    }

    fn method_name(&self) -> Option<Cow<'_, str>> {
        let token = self.method.get()?;
        let raw = token.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        // A method is short: a plain loop beats the call of a search.
        if raw.contains(&b'\\') {
            serde_json::from_slice::<String>(token).ok().map(Cow::Owned)
        } else {
            str::from_utf8(raw).ok().map(Cow::Borrowed)
        }
    }

    fn end_line(&mut self) {
        self.over = true;
        if self.at == At::Tail {
            let tail = self.tail.get().unwrap_or_default();
            self.at = At::Junk;
            if let Some(inside) = last_object(tail) {
                self.at = At::Closed;
                if let Some(id) = last_id(inside, |key| Field::of(key) == Field::Id) {
                    self.id.push(id);
                    self.has_id = true;
                }
            }
        }
    }

    fn reset(&mut self) {
        self.at = At::Start;
        self.over = false;
        self.escape = false;
        self.keep = Keep::Nothing;
        self.verb = Verb::None;
        self.has_id = false;
        self.bytes = 0;
        self.key.clear();
        self.id.clear();
        self.method.clear();
        self.tail.clear();
    }

    /// Walks over a piece of one line, without its newline.
    fn scan(&mut self, line: &[u8]) {
        // Where the string or value that is kept starts in this piece.
        let mut mark = 0;
        let mut i = 0;
        if self.at == At::Start && line.starts_with(glance::START) {
            // The same as walking over it byte by byte.
            self.at = At::NextKey;
            i = glance::START.len();
        }
        while let Some(&byte) = line.get(i) {
            match self.at {
                At::Decided | At::Closed | At::Batch | At::Junk => return,
                At::Start => {
                    self.at = match byte {
                        b' ' | b'\t' | b'\r' => At::Start,
                        b'{' => At::FirstKey,
                        b'[' => At::Batch,
                        0xEF if self.bytes + i as u64 == 0 => At::Mark(1),
                        _ => At::Junk,
                    };
                    i += 1;
                }
                At::Mark(seen) => {
                    self.at = match (seen, byte) {
                        (1, 0xBB) => At::Mark(2),
                        (2, 0xBF) => At::Start,
                        _ => At::Junk,
                    };
                    i += 1;
                }
                At::FirstKey | At::NextKey => {
                    match byte {
                        b' ' | b'\t' | b'\r' => {}
                        b'"' => {
                            self.at = At::Key;
                            self.key.clear();
                            mark = i + 1;
                        }
                        b'}' if self.at == At::FirstKey => self.at = At::Closed,
                        _ => self.at = At::Junk,
                    }
                    i += 1;
                }
                At::Key => {
                    if let Some((field, colon)) = Field::at_a_glance(&line[mark..])
                        && self.key.is_empty()
                    {
                        self.field = field;
                        self.at = At::Value;
                        i = mark + colon + 1;
                        continue;
                    }
                    let Some(end) = string_end(line, i, &mut self.escape) else {
                        self.key.push(&line[mark..]);
                        return;
                    };
                    let rest = &line[mark..end - 1];
                    self.field = if self.key.is_empty() {
                        Field::of(rest)
                    } else {
                        self.key.push(rest);
                        self.key.get().map_or(Field::Other, Field::of)
                    };
                    self.at = At::Colon;
                    i = end;
                }
                At::Colon => {
                    match byte {
                        b' ' | b'\t' | b'\r' => {}
                        b':' => self.at = At::Value,
                        _ => self.at = At::Junk,
                    }
                    i += 1;
                }
                At::Value => {
                    if matches!(byte, b' ' | b'\t' | b'\r') {
                        i += 1;
                        continue;
                    }
                    self.value_begins(byte);
                    mark = i;
                    if matches!(self.at, At::Text | At::Nested) {
                        i += 1;
                    }
                }
                At::Text => match string_end(line, i, &mut self.escape) {
                    Some(end) => {
                        self.value_ends(&line[mark..end]);
                        i = end;
                    }
                    None => return self.value_goes_on(&line[mark..]),
                },
                At::Scalar => match line[i..].iter().position(|&b| ends_scalar(b)) {
                    Some(n) => {
                        i += n;
                        self.value_ends(&line[mark..i]);
                    }
                    None => return self.value_goes_on(&line[mark..]),
                },
                At::Nested | At::NestedText => match self.nested_end(line, i) {
                    Some(end) => {
                        self.value_ends(&line[mark..end]);
                        i = end;
                    }
                    None if self.at == At::Tail => i = i.max(self.long_from(line.len())),
                    None => return self.value_goes_on(&line[mark..]),
                },
                At::Tail => return self.tail.push_last(&line[i..]),
                At::Comma => {
                    match byte {
                        b' ' | b'\t' | b'\r' => {}
                        b',' if line.get(i + 1) == Some(&b'"') => {
                            self.at = At::Key;
                            self.key.clear();
                            i += 1;
                            mark = i + 1;
                        }
                        b',' => self.at = At::NextKey,
                        b'}' => self.at = At::Closed,
                        _ => self.at = At::Junk,
                    }
                    i += 1;
                }
            }
        }
        if matches!(self.at, At::Text | At::Nested) {
            // The piece ends right after the opening byte.
            self.value_goes_on(&line[mark..]);
        }
    }

    /// The first byte of a top-level value: it says whether the value counts, and of which sort it is.
    fn value_begins(&mut self, byte: u8) {
        self.at = match byte {
            b'"' => At::Text,
            b'{' | b'[' => At::Nested,
            b',' | b'}' | b']' | b':' => At::Junk,
            _ => At::Scalar,
        };
        self.depth = 1;
        self.keep = Keep::Nothing;
        match self.field {
            Field::Other => return,
            Field::Id if !self.has_id => self.keep = Keep::Id,
            Field::Method if self.verb == Verb::None && byte != b'n' => {
                self.verb = Verb::Method;
                self.keep = Keep::Method;
            }
            Field::Result if self.verb == Verb::None => self.verb = Verb::Result,
            Field::Error if self.verb == Verb::None && byte != b'n' => self.verb = Verb::Error,
            Field::Id | Field::Method | Field::Result | Field::Error => {}
        }
        if self.keep == Keep::Nothing && self.at != At::Junk {
            self.decide();
        }
    }

    /// A top-level value ended; `rest` is what this piece had of it.
    fn value_ends(&mut self, rest: &[u8]) {
        self.at = At::Comma;
        match self.keep {
            Keep::Nothing => {}
            Keep::Id => {
                self.id.push(rest);
                self.has_id = true;
                self.decide();
            }
            Keep::Method => {
                self.method.push(rest);
                self.decide();
            }
        }
        self.keep = Keep::Nothing;
    }

    /// The piece ends inside a top-level value.
    fn value_goes_on(&mut self, rest: &[u8]) {
        match self.keep {
            Keep::Nothing => {}
            Keep::Id => self.id.push(rest),
            Keep::Method => self.method.push(rest),
        }
    }

    fn decide(&mut self) {
        if self.has_id && self.verb != Verb::None {
            self.at = At::Decided;
        }
    }

    /// Where the nested value ends in this piece. If it goes on past [`LONG_BYTES`], its brackets are counted no more.
    fn nested_end(&mut self, line: &[u8], mut i: usize) -> Option<usize> {
        let may_stop = self.verb != Verb::None && self.keep == Keep::Nothing;
        let short = if may_stop {
            &line[..self.long_from(line.len())]
        } else {
            line
        };
        let mut text = self.at == At::NestedText;
        if text && let Some(end) = string_end(short, i, &mut self.escape) {
            text = false;
            i = end;
        }
        if !text {
            match nested(short, i, &mut self.depth, &mut self.escape) {
                Nested::Ends(end) => return Some(end),
                Nested::Open => self.at = At::Nested,
                Nested::OpenText => self.at = At::NestedText,
            }
        }
        if may_stop && self.bytes + line.len() as u64 >= LONG_BYTES {
            self.at = At::Tail;
        }
        None
    }

    /// The index in a piece of this length from which on the line is long.
    fn long_from(&self, len: usize) -> usize {
        LONG_BYTES.saturating_sub(self.bytes).min(len as u64) as usize
    }
}

#[cfg(test)]
mod tests;
