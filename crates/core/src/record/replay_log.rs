//! The log that the next generation is replayed from: the opening's answer, the log level, subscriptions, open
//! questions.
//!
//! Entries in plain memory that outlives a killed keeper. The log knows kinds, keys and values, not what they mean. The
//! memory has two halves. The [`Board`] says which half is in force and how much of it is written. An entry is written
//! beyond the end and then published by one store of the length. It is removed by one store of its kind. When a half is
//! full, the live entries are copied to the other half, which is then put in force by one store.
//!
//! Invariants:
//! - A keeper that is killed between any two stores leaves the old value or the new one, whole.
//! - Any bytes and any board are safe to read; bytes that form no entry, and everything after them, are ignored.
//! - Every operation walks the log from its beginning; there is no index and no heap.

use core::iter;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use mainstay_protocol::kill_point::kill_point;

/// The kind of an entry. The key tells entries of one kind apart; it is empty where there is only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// What the client was told about the server: the answer to its opening.
    Greeting = 1,
    /// The last `logging/setLevel` that succeeded.
    Level = 2,
    /// A `resources/subscribe` that succeeded, by URI.
    Subscription = 3,
    /// An open `subscriptions/listen`, by id.
    Listen = 4,
    /// What the server acknowledged of a listen, by id.
    Acknowledged = 5,
    /// A request of the server's that waits at the client, by the id that the client knows.
    Asked = 6,
    /// What the client last saw of a list.
    Seen = 7,
    /// A long id of a request in flight, by the label that the server knows.
    LongId = 8,
}

impl EntryKind {
    /// Every kind, in the order of its byte.
    pub const ALL: [Self; 8] = [
        Self::Greeting,
        Self::Level,
        Self::Subscription,
        Self::Listen,
        Self::Acknowledged,
        Self::Asked,
        Self::Seen,
        Self::LongId,
    ];
}

/// Which half is in force, and how much of each is written. All zero: the log is empty.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Board {
    in_force: AtomicU32,
    len: [AtomicU32; 2],
}

impl Board {
    /// The board of fresh memory.
    pub const fn new() -> Self {
        Self {
            in_force: AtomicU32::new(0),
            len: [AtomicU32::new(0), AtomicU32::new(0)],
        }
    }

    fn half(&self) -> usize {
        usize::from(self.in_force.load(Ordering::Acquire) != 0)
    }
}

/// Bytes of an entry besides its key and its value.
pub const ENTRY_BYTES: usize = 9;

/// The kind of an entry that was removed.
const REMOVED: u8 = 0;

/// The log, in memory given from outside.
#[derive(Debug)]
pub struct ReplayLog<'a> {
    board: &'a Board,
    bytes: &'a mut [u8],
    /// Every state of the memory that a successor could find, one for each store that publishes.
    #[cfg(test)]
    trail: Option<alloc::vec::Vec<tests::Image>>,
}

impl<'a> ReplayLog<'a> {
    /// Takes the memory over with every whole entry in it. Half of the bytes can be used at a time.
    pub fn over(board: &'a Board, bytes: &'a mut [u8]) -> Self {
        let mut kept = Self {
            board,
            bytes,
            #[cfg(test)]
            trail: None,
        };
        // This also cuts off garbage, so that entries appended later are found.
        kept.trim();
        // A keeper that is killed between writing the new entry and removing the old one leaves both.
        let log = kept.log();
        let forerunner = entries(log)
            .last()
            .and_then(|last| find(log, last.kind, last.key).filter(|&at| at < last.at));
        if let Some(at) = forerunner {
            kept.strike(at);
        }
        debug_assert_eq!(
            entries(kept.log()).map(|held| held.size()).sum::<usize>(),
            kept.log().len(),
            "the log is whole entries and nothing else"
        );
        kept
    }

    /// Stores a value in place of the one with the same kind and key. False: there is no room, and the old value stays.
    pub fn put(&mut self, kind: EntryKind, key: &[u8], value: &[u8]) -> bool {
        if self.get(kind, key) == Some(value) {
            return true;
        }
        let (half, end) = (self.board.half(), self.log().len());
        let Some(size) = size(key, value) else {
            return false;
        };
        if size > self.room() - end {
            return self.move_with(kind, key, value, size);
        }
        write(&mut self.half_mut(half)[end..], kind as u8, key, value);
        self.publish(half, end + size);
        while let Some(at) = find(&self.log()[..end], kind as u8, key) {
            self.strike(at);
        }
        debug_assert_eq!(self.get(kind, key), Some(value), "what was put is there");
        true
    }

    /// Removes an entry. Whether it was there.
    pub fn remove(&mut self, kind: EntryKind, key: &[u8]) -> bool {
        let mut found = false;
        while let Some(at) = find(self.log(), kind as u8, key) {
            self.strike(at);
            found = true;
        }
        if found {
            self.trim();
        }
        debug_assert!(self.get(kind, key).is_none(), "what was removed is gone");
        found
    }

    /// The value with this kind and key.
    pub fn get(&self, kind: EntryKind, key: &[u8]) -> Option<&[u8]> {
        let last = entries(self.log()).filter(|held| held.is(kind as u8, key));
        last.last().map(|held| held.value)
    }

    /// Keys and values of one kind, in the order in which they were put. An entry that is put again unchanged keeps its
    /// place.
    pub fn each(&self, kind: EntryKind) -> impl Iterator<Item = (&[u8], &[u8])> {
        entries(self.log())
            .filter(move |held| held.kind == kind as u8)
            .map(|held| (held.key, held.value))
    }

    /// Removes all entries of one kind.
    pub fn clear(&mut self, kind: EntryKind) {
        let mut at = 0;
        while let Some(held) = read(self.log(), at) {
            let (next, found) = (held.end, held.kind == kind as u8);
            if found {
                self.strike(at);
            }
            at = next;
        }
        self.trim();
        debug_assert!(self.each(kind).next().is_none(), "all of one kind are gone");
    }

    /// Copies the live entries to the other half, with the new entry in place of the old one, and puts that half in
    /// force.
    fn move_with(&mut self, kind: EntryKind, key: &[u8], value: &[u8], size: usize) -> bool {
        let stays = |held: &Entry| held.kind != REMOVED && !held.is(kind as u8, key);
        let needed: usize = entries(self.log()).filter(stays).map(|e| e.size()).sum();
        if size > self.room().saturating_sub(needed) {
            return false;
        }
        let (room, old_len, old) = (self.room(), self.log().len(), self.board.half());
        let (first, second) = self.bytes.split_at_mut(room);
        let (from, to) = match old {
            0 => (first, second),
            _ => (second, first),
        };
        debug_assert!(needed + size <= to.len(), "it fits into the other half");
        let mut end = 0;
        for held in entries(&from[..old_len]).filter(stays) {
            to[end..end + held.size()].copy_from_slice(&from[held.at..held.end]);
            end += held.size();
        }
        debug_assert_eq!(end, needed, "all that lives was copied");
        write(&mut to[end..], kind as u8, key, value);
        self.publish(1 - old, end + size);
        kill_point();
        self.board.in_force.store(1 - old as u32, Ordering::Release);
        self.published();
        true
    }

    /// The most that one half takes.
    fn room(&self) -> usize {
        (self.bytes.len() / 2).min(u32::MAX as usize)
    }

    fn half_mut(&mut self, half: usize) -> &mut [u8] {
        let room = self.room();
        &mut self.bytes[half * room..][..room]
    }

    /// The published part of the half in force.
    fn log(&self) -> &[u8] {
        let (half, room) = (self.board.half(), self.room());
        let len = self.board.len[half].load(Ordering::Acquire) as usize;
        &self.bytes[half * room..][..len.min(room)]
    }

    /// Ends the log behind the last live entry.
    fn trim(&mut self) {
        let log = self.log();
        let live = entries(log).filter(|held| held.kind != REMOVED);
        let end = live.last().map_or(0, |held| held.end);
        if end != log.len() {
            self.publish(self.board.half(), end);
        }
    }

    /// Removes the entry at this place of the log: one store of one byte.
    fn strike(&mut self, at: usize) {
        let half = self.board.half();
        kill_point();
        self.half_mut(half)[at] = REMOVED;
        self.published();
    }

    fn publish(&mut self, half: usize, len: usize) {
        // Release keeps the compiler from moving the stores above below this one. A killed process has done every store
        // before the one at which it died, so no stronger order is needed.
        kill_point();
        self.board.len[half].store(len as u32, Ordering::Release);
        self.published();
    }

    /// Keeps the compiler from moving later stores before the one that published.
    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, reason = "tests keep the trail")
    )]
    fn published(&mut self) {
        compiler_fence(Ordering::SeqCst);
        #[cfg(test)]
        if let Some(trail) = &mut self.trail {
            trail.push(tests::Image::of(self.board, self.bytes));
        }
    }
}

/// One entry: kind (1 byte), length of the key (4), length of the value (4), key, value. Lengths are little-endian.
struct Entry<'b> {
    at: usize,
    end: usize,
    kind: u8,
    key: &'b [u8],
    value: &'b [u8],
}

impl Entry<'_> {
    fn is(&self, kind: u8, key: &[u8]) -> bool {
        self.kind == kind && self.key == key
    }

    fn size(&self) -> usize {
        self.end - self.at
    }
}

fn entries(log: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut at = 0;
    iter::from_fn(move || {
        let entry = read(log, at)?;
        at = entry.end;
        Some(entry)
    })
}

/// The first entry with this kind and key.
fn find(log: &[u8], kind: u8, key: &[u8]) -> Option<usize> {
    let found = entries(log).find(|held| held.is(kind, key));
    found.map(|held| held.at)
}

fn read(log: &[u8], at: usize) -> Option<Entry<'_>> {
    let (&[kind, lens @ ..], rest) = log.get(at..)?.split_first_chunk::<ENTRY_BYTES>()?;
    let lens = u64::from_le_bytes(lens);
    let (key, rest) = rest.split_at_checked(lens as u32 as usize)?;
    let value = rest.get(..(lens >> 32) as usize)?;
    Some(Entry {
        at,
        end: at + ENTRY_BYTES + key.len() + value.len(),
        kind,
        key,
        value,
    })
}

/// Writes an entry to the front of these bytes, which are long enough.
fn write(to: &mut [u8], kind: u8, key: &[u8], value: &[u8]) {
    let lens = key.len() as u64 | (value.len() as u64) << 32;
    let (head, rest) = to.split_at_mut(ENTRY_BYTES);
    head[0] = kind;
    head[1..].copy_from_slice(&lens.to_le_bytes());
    rest[..key.len()].copy_from_slice(key);
    rest[key.len()..][..value.len()].copy_from_slice(value);
}

/// The length of an entry; none if no half could ever hold it.
fn size(key: &[u8], value: &[u8]) -> Option<usize> {
    let size = ENTRY_BYTES
        .checked_add(key.len())?
        .checked_add(value.len())?;
    u32::try_from(size).is_ok().then_some(size)
}

#[cfg(test)]
mod tests;
