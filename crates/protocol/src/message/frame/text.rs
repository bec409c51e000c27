//! Bytes of JSON text: where strings and brackets end, forwards in pieces and backwards from the end of a line.

use memchr::{memchr2, memrchr};

/// Where a nested value stands between two pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nested {
    /// It ends before this index.
    Ends(usize),
    /// The piece ended between strings.
    Open,
    /// The piece ended inside a string.
    OpenText,
}

/// Walks over a nested value from `i`, which is not inside a string. Brackets are counted, not matched: in valid JSON
/// that is the same.
pub(super) fn nested(line: &[u8], mut i: usize, depth: &mut u64, escape: &mut bool) -> Nested {
    while let Some(&byte) = line.get(i) {
        i += 1;
        match BRACKETS[byte as usize] {
            0 => {}
            QUOTE => match string_end(line, i, escape) {
                Some(end) => i = end,
                None => return Nested::OpenText,
            },
            OPEN => *depth += 1,
            _ => {
                *depth -= 1;
                if *depth == 0 {
                    return Nested::Ends(i);
                }
            }
        }
    }
    Nested::Open
}

const QUOTE: u8 = 1;
const OPEN: u8 = 2;
const CLOSE: u8 = 3;

/// The bytes that matter between the strings of a nested value.
static BRACKETS: [u8; 256] = {
    let mut table = [0; 256];
    table[b'"' as usize] = QUOTE;
    table[b'{' as usize] = OPEN;
    table[b'[' as usize] = OPEN;
    table[b'}' as usize] = CLOSE;
    table[b']' as usize] = CLOSE;
    table
};

pub(super) fn ends_scalar(byte: u8) -> bool {
    matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\r')
}

/// Where the string ends whose inside starts or goes on at `i`: the index after its closing quote. If the piece ends
/// first, `escape` remembers a backslash at its very end.
#[inline]
pub(in crate::message) fn string_end(
    line: &[u8],
    mut i: usize,
    escape: &mut bool,
) -> Option<usize> {
    if *escape {
        if i >= line.len() {
            return None;
        }
        *escape = false;
        i += 1;
    }
    loop {
        i += quote_or_backslash(line.get(i..)?)?;
        if line[i] == b'"' {
            return Some(i + 1);
        }
        i += 2;
        if i > line.len() {
            *escape = true;
            return None;
        }
    }
}

/// Most strings are short: up to here, eight bytes at a time beat the call of a search.
const NEAR: usize = 64;

/// The first `"` or `\\`.
#[inline]
fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<8>();
    let mut at = 0;
    for word in words.iter().take(NEAR / 8) {
        let word = u64::from_le_bytes(*word);
        let found = zeros(word ^ QUOTES) | zeros(word ^ BACKSLASHES);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    far_quote_or_backslash(bytes, at)
}

#[inline(never)]
fn far_quote_or_backslash(bytes: &[u8], at: usize) -> Option<usize> {
    memchr2(b'"', b'\\', &bytes[at..]).map(|n| at + n)
}

const ONES: u64 = 0x0101_0101_0101_0101;
const QUOTES: u64 = u64::from_le_bytes([b'"'; 8]);
const BACKSLASHES: u64 = u64::from_le_bytes([b'\\'; 8]);

/// The top bit of each byte that is zero; above the lowest such byte there may be more bits, below it there are none.
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

/// The inside of the object that the line ends with, as far as `tail` reaches; none if it does not end with `}`.
pub(super) fn last_object(tail: &[u8]) -> Option<&[u8]> {
    trim(tail).strip_suffix(b"}")
}

/// The value of the last `id` among the plain members at the end of an object: walks backwards over numbers, words and
/// strings, up to the first value that is nested.
///
/// In valid JSON the last `}` closes the line's object, so the members before it are its own, and a quote outside of
/// strings has no backslash before it: backwards is as certain as forwards.
pub(super) fn last_id(mut inside: &[u8], is_id: impl Fn(&[u8]) -> bool) -> Option<&[u8]> {
    loop {
        let (before, value) = last_plain(trim(inside))?;
        let (before, key) = last_string(trim(trim(before).strip_suffix(b":")?))?;
        if is_id(&key[1..key.len() - 1]) {
            return Some(value);
        }
        inside = trim(before).strip_suffix(b",")?;
    }
}

/// Splits a number, word or string off the end.
fn last_plain(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    if bytes.ends_with(b"\"") {
        return last_string(bytes);
    }
    let plain = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'z' | b'E' | b'-' | b'+' | b'.');
    let len = bytes.iter().rev().take_while(|b| plain(b)).count();
    (len > 0).then(|| bytes.split_at(bytes.len() - len))
}

/// Splits a string off the end, quotes included.
fn last_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut inside = bytes.strip_suffix(b"\"")?;
    loop {
        let quote = memrchr(b'"', inside)?;
        let escapes = inside[..quote].iter().rev().take_while(|&&b| b == b'\\');
        if escapes.count() % 2 == 0 {
            return Some(bytes.split_at(quote));
        }
        inside = &inside[..quote];
    }
}

fn trim(bytes: &[u8]) -> &[u8] {
    let blank = |b: &&u8| matches!(b, b' ' | b'\t' | b'\r');
    &bytes[..bytes.len() - bytes.iter().rev().take_while(blank).count()]
}

/// Up to `N` bytes put together from pieces; what is longer is only known to be longer.
#[derive(Clone, Debug)]
pub(super) struct Bounded<const N: usize> {
    len: usize,
    bytes: [u8; N],
}

impl<const N: usize> Bounded<N> {
    pub(super) const fn new() -> Self {
        Self {
            len: 0,
            bytes: [0; N],
        }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push(&mut self, more: &[u8]) {
        let to = self.len.saturating_add(more.len());
        match self.bytes.get_mut(self.len..to) {
            Some(room) => {
                room.copy_from_slice(more);
                self.len = to;
            }
            // Nothing to add to what is full is no excess.
            None => self.len = if more.is_empty() { self.len } else { N + 1 },
        }
    }

    pub(super) fn get(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len)
    }

    /// Adds bytes and lets go of the first ones where there is no room.
    pub(super) fn push_last(&mut self, more: &[u8]) {
        let more = &more[more.len().saturating_sub(N)..];
        let excess = (self.len + more.len()).saturating_sub(N);
        self.bytes.copy_within(excess..self.len, 0);
        self.len -= excess;
        self.push(more);
    }
}
