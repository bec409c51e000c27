//! The table of requests that wait for an answer.
//!
//! Every request that goes to a server is opened here and closed by its answer, so that at a death each one gets
//! exactly one answer. The entries live in [`Slot`]s given from outside, in memory that outlives a killed keeper. The
//! index over them is private and rebuilt from the slots. This module knows ids, not messages, and writes no answer.
//!
//! Invariants:
//! - An id is in the table at most once, whatever way it is written ([`token::same`]).
//! - The slot that was freed last is taken first, so few requests in flight touch few pages. The slots that were never
//!   used are at the end and are not read.
//! - Whatever the slots hold, nothing panics; what is no entry is free.
//! - All operations on one id take constant time; [`Inflight::new`] and [`Inflight::forget_settled`] walk the used part.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::iter;

use self::index::Index;
use super::slot::State;
pub use super::slot::{Entry, Slot, Tracked};
use super::token;
pub use super::token::Token;
use crate::clock::Moment;
use crate::limits::{ID_BYTES, IN_FLIGHT_MAX};

mod index;

/// What became of a request that was to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It waits.
    New,
    /// A request with the same id was open; this one took its place.
    Again,
    /// No slot is free: it was not noted.
    Full,
    /// Its id is too long, or empty: it was not noted.
    Untracked,
}

/// The requests that wait, in slots given from outside.
#[derive(Debug)]
pub struct Inflight<S> {
    slots: S,
    /// The slots of all entries, by the hashes of their ids.
    index: Index,
    /// The open entries in the order of opening, as a list through the used slots.
    order: Vec<Link>,
    first: u32,
    last: u32,
    /// The used slots that are free; the last one is taken next.
    free: Vec<u32>,
    open: usize,
    settled: usize,
    /// Where the answers that are on their way to the client belong.
    unwritten: VecDeque<OnWay>,
    /// The same for answers of our own, which go another way.
    unwritten_ours: Vec<OnWay>,
    /// The same for requests that the server may still answer.
    settling: Vec<OnWay>,
    /// Where the server's line that is being routed ends in what goes on to the client.
    passed_end: u64,
    /// The number of our next line to the client.
    next_of_ours: u64,
    sequence: u64,
}

/// An answer that is on its way to the client.
#[derive(Clone, Copy, Debug)]
struct OnWay {
    slot: u32,
    /// Where it ends: a byte of what goes on to the client, or a line of ours.
    end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

impl Link {
    const NONE: Self = Self {
        before: NONE,
        after: NONE,
    };
}

const NONE: u32 = u32::MAX;

/// No table ever counts so far; a slot that says so holds garbage.
const SEQUENCE_MAX: u64 = u64::MAX / 2;

impl<S: AsRef<[Slot]> + AsMut<[Slot]>> Inflight<S> {
    /// Takes the slots over with whatever entries they hold. At most [`IN_FLIGHT_MAX`] are used.
    pub fn new(slots: S) -> Self {
        let mut table = Self {
            slots,
            index: Index::default(),
            order: Vec::new(),
            first: NONE,
            last: NONE,
            free: Vec::new(),
            open: 0,
            settled: 0,
            unwritten: VecDeque::new(),
            unwritten_ours: Vec::new(),
            settling: Vec::new(),
            passed_end: 0,
            next_of_ours: 0,
            sequence: 0,
        };
        table.rebuild();
        table
    }

    /// The slots, as a successor would find them.
    pub fn slots(&self) -> &[Slot] {
        self.slots.as_ref()
    }

    /// Notes a request that goes to the server.
    pub fn open(&mut self, id: &[u8], method: Tracked, generation: u32, now: Moment) -> Opened {
        self.enter(id, method, Some(generation), now)
    }

    /// Notes a request that waits within us.
    pub fn hold(&mut self, id: &[u8], method: Tracked, now: Moment) -> Opened {
        self.enter(id, method, None, now)
    }

    fn enter(&mut self, id: &[u8], method: Tracked, sent_to: Option<u32>, now: Moment) -> Opened {
        if id.is_empty() || id.len() > ID_BYTES {
            return Opened::Untracked;
        }
        let entry = Entry {
            method,
            sent_to,
            opened: now,
        };
        let hash = token::hash(id);
        let (slot, opened) = match self.find(hash, id) {
            Some((slot, State::Open)) => {
                self.unlink(slot);
                (slot, Opened::Again)
            }
            Some((slot, State::Settled)) => {
                self.settled -= 1;
                (slot, Opened::New)
            }
            Some((slot, State::Answered)) => {
                self.stop_settling(slot);
                // The answer on its way no longer belongs to this slot, whichever request has the slot when it is
                // written.
                self.unwritten.retain(|other| other.slot != slot);
                self.unwritten_ours.retain(|other| other.slot != slot);
                (slot, Opened::New)
            }
            None => {
                let Some(slot) = self.take().or_else(|| self.take_settled()) else {
                    return Opened::Full;
                };
                self.index.insert(hash, slot);
                (slot, Opened::New)
            }
        };
        self.sequence += 1;
        self.slots.as_mut()[slot as usize].publish(id, entry, self.sequence);
        self.link(slot);
        debug_assert_eq!(self.look_up(hash, id), Some(slot), "one slot per id");
        self.check();
        opened
    }

    /// The server answered: the request that waited for it, if one did.
    pub fn close(&mut self, id: &[u8]) -> Option<Entry> {
        let slot = self.slot_of(id)?;
        let (state, _, entry) = self.slots.as_ref()[slot as usize].read()?;
        if state != State::Open {
            return None;
        }
        self.unlink(slot);
        self.release(slot);
        self.check();
        Some(entry)
    }

    /// The server's answer is on its way to the client: the request no longer waits, but the entry stays until
    /// [`Inflight::delivered`].
    pub fn answered(&mut self, id: &[u8]) -> Option<Entry> {
        let (slot, entry) = self.take_answer(id)?;
        self.passes(slot);
        Some(entry)
    }

    /// The same for a request of this sort and no other. Returns when it came, if one waited.
    #[inline]
    pub fn answered_if(&mut self, id: &[u8], method: Tracked) -> Option<Moment> {
        let slot = self.slot_of(id)?;
        let found = &mut self.slots.as_mut()[slot as usize];
        if !found.waits_for(method) {
            return None;
        }
        let opened = found.opened();
        found.answered();
        self.unlink(slot);
        self.passes(slot);
        Some(opened)
    }

    /// An answer of our own is on its way to the client: the entry stays until [`Inflight::written`].
    pub fn answered_by_us(&mut self, id: &[u8]) -> Option<Entry> {
        let (slot, entry) = self.take_answer(id)?;
        let end = self.next_of_ours;
        self.unwritten_ours.push(OnWay { slot, end });
        Some(entry)
    }

    /// The server's line that is routed next ends here in what goes on to the client.
    #[inline]
    pub fn line_ends_at(&mut self, passed_end: u64) {
        self.passed_end = passed_end;
    }

    /// The answer of ours that is noted next goes to the client as this line of ours.
    pub fn next_of_ours(&mut self, line: u64) {
        self.next_of_ours = line;
    }

    #[inline]
    fn passes(&mut self, slot: u32) {
        let end = self.passed_end;
        debug_assert!(
            self.unwritten.back().is_none_or(|last| last.end <= end),
            "answers pass in order"
        );
        self.unwritten.push_back(OnWay { slot, end });
    }

    /// The server's answer, which is [`answered`](Self::answered), goes the way of ours.
    pub fn goes_with_ours(&mut self, id: &[u8]) {
        let Some(slot) = self.slot_of(id) else {
            return;
        };
        if let Some(at) = self.unwritten.iter().position(|other| other.slot == slot) {
            self.unwritten.remove(at);
            let end = self.next_of_ours;
            self.unwritten_ours.push(OnWay { slot, end });
        }
    }

    /// All answers of the server that were on their way have reached the client.
    pub fn delivered(&mut self) {
        self.delivered_to(u64::MAX);
    }

    /// What goes on to the client has been written up to here: the answers that end before it have reached the client.
    pub fn delivered_to(&mut self, end: u64) {
        while self.unwritten.front().is_some_and(|first| first.end <= end)
            && let Some(OnWay { slot, .. }) = self.unwritten.pop_front()
        {
            self.release_answered(slot);
        }
        self.check();
    }

    /// All answers of our own that were on their way have reached the client.
    pub fn written(&mut self) {
        self.written_to(u64::MAX);
    }

    /// Our lines up to this one have been written: the answers among them have reached the client.
    pub fn written_to(&mut self, line: u64) {
        while let Some(at) = self.unwritten_ours.iter().position(|a| a.end <= line) {
            let OnWay { slot, .. } = self.unwritten_ours.swap_remove(at);
            self.release_answered(slot);
        }
        while let Some(at) = self.settling.iter().position(|a| a.end <= line) {
            let OnWay { slot, .. } = self.settling.swap_remove(at);
            self.slots.as_mut()[slot as usize].settle();
        }
        self.check();
    }

    /// An answer of our own is on its way to the client: the request no longer waits, and a late answer of the server
    /// is dropped. If the answer is never [`written`](Self::written), the entry is open for a successor. Returns
    /// whether the request waited.
    pub fn settle(&mut self, id: &[u8]) -> bool {
        let Some((slot, entry)) = self.take_answer(id) else {
            return false;
        };
        debug_assert!(
            !entry.is_held(),
            "only a server that was asked answers late"
        );
        let end = self.next_of_ours;
        self.settling.push(OnWay { slot, end });
        self.settled += 1;
        self.check();
        true
    }

    /// Whether we answered it ourselves.
    #[inline]
    pub fn is_settled(&self, id: &[u8]) -> bool {
        self.settled > 0 && self.is_one_settled(id)
    }

    fn is_one_settled(&self, id: &[u8]) -> bool {
        match self.find(token::hash(id), id) {
            Some((_, State::Settled)) => true,
            Some((slot, State::Answered)) => self.settling.iter().any(|it| it.slot == slot),
            Some((_, State::Open)) | None => false,
        }
    }

    /// A late answer came: true if we had answered it ourselves. It is forgotten with this, as an answer comes once.
    #[inline]
    pub fn swallow(&mut self, id: &[u8]) -> bool {
        self.is_settled(id) && self.swallow_one(id)
    }

    fn swallow_one(&mut self, id: &[u8]) -> bool {
        if let Some(slot) = self.slot_of(id) {
            if let Some(answer) = self.stop_settling(slot) {
                self.unwritten_ours.push(answer);
            } else {
                self.settled -= 1;
                self.release(slot);
            }
        }
        self.check();
        true
    }

    /// This generation and those before it are gone: no late answers of theirs can come.
    pub fn forget_settled(&mut self, generation: u32) {
        if self.settled == 0 {
            return;
        }
        self.settled -= self.settling.len();
        self.unwritten_ours.append(&mut self.settling);
        for slot in 0..self.order.len() as u32 {
            let Some((State::Settled, _, entry)) = self.slots.as_ref()[slot as usize].read() else {
                continue;
            };
            if entry.sent_to.is_some_and(|sent_to| sent_to <= generation) {
                self.settled -= 1;
                self.release(slot);
            }
        }
        self.check();
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.open
    }

    /// How many more can be opened.
    pub fn room(&self) -> usize {
        let all = self.slots.as_ref().len().min(IN_FLIGHT_MAX);
        let late = self.settled - self.settling.len();
        all.saturating_sub(self.index.len() - late)
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// How many were answered by ourselves and may still be answered by the server.
    pub fn settled(&self) -> usize {
        self.settled
    }

    /// The request with this id, if it waits.
    pub fn get(&self, id: &[u8]) -> Option<Entry> {
        let (slot, State::Open) = self.find(token::hash(id), id)? else {
            return None;
        };
        self.slots.as_ref()[slot as usize]
            .read()
            .map(|(_, _, entry)| entry)
    }

    /// Where the request with this id is, if it waits: its place among the slots, the same until it is closed.
    pub fn place(&self, id: &[u8]) -> Option<usize> {
        match self.find(token::hash(id), id)? {
            (slot, State::Open) => Some(slot as usize),
            (_, State::Settled | State::Answered) => None,
        }
    }

    /// Whether it has a request with this id, waiting or not.
    pub fn knows(&self, id: &[u8]) -> bool {
        self.slot_of(id).is_some()
    }

    /// The one that waits longest.
    pub fn oldest(&self) -> Option<(&[u8], Entry)> {
        self.iter().next()
    }

    /// All that wait, in the order of opening.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Entry)> {
        let mut next = self.first;
        iter::from_fn(move || {
            let link = self.order.get(next as usize)?;
            let (_, id, entry) = self.slots.as_ref()[next as usize].read()?;
            next = link.after;
            Some((id, entry))
        })
    }

    /// Closes the one that waits longest. To answer all: answer [`oldest`](Self::oldest), then take it, so that a kill
    /// in between answers it twice rather than never.
    pub fn take_oldest(&mut self) -> Option<(Token, Entry)> {
        let (id, entry) = self.oldest()?;
        let id = Token::new(id)?;
        self.close(&id)?;
        Some((id, entry))
    }

    /// Closes all that wait, in the order of opening.
    pub fn drain(&mut self) -> impl Iterator<Item = (Token, Entry)> {
        iter::from_fn(|| self.take_oldest())
    }

    fn rebuild(&mut self) {
        let slots = self.slots.as_mut();
        let room = slots.len().min(IN_FLIGHT_MAX);
        let used = slots[..room]
            .iter()
            .take_while(|slot| slot.touched())
            .count();
        let mut held: Vec<(u64, u32)> = Vec::new();
        for (slot, at) in slots[..used].iter_mut().zip(0..) {
            self.order.push(Link::NONE);
            if slot.read().is_some() && slot.sequence() < SEQUENCE_MAX {
                held.push((slot.sequence(), at));
            } else {
                slot.clear();
                self.free.push(at);
            }
        }
        // Newest first, so that of two with the same id the later one stays.
        held.sort_unstable_by(|a, b| b.cmp(a));
        self.sequence = held.first().map_or(0, |&(sequence, _)| sequence);
        held.retain(|&(_, at)| {
            let slot = &self.slots.as_ref()[at as usize];
            let Some((_, id, _)) = slot.read() else {
                return false;
            };
            let hash = token::hash(id);
            if self.find(hash, id).is_some() {
                self.slots.as_mut()[at as usize].clear();
                self.free.push(at);
                return false;
            }
            self.index.insert(hash, at);
            true
        });
        for &(_, at) in held.iter().rev() {
            match self.slots.as_ref()[at as usize].read() {
                Some((State::Open, _, _)) => self.link(at),
                Some((State::Answered, _, _)) => {
                    self.slots.as_mut()[at as usize].reopen();
                    self.link(at);
                }
                Some((State::Settled, _, _)) => self.settled += 1,
                None => {}
            }
        }
        self.check();
    }

    fn slot_of(&self, id: &[u8]) -> Option<u32> {
        // Most answers come in the order of their requests.
        if let Some(slot) = self.slots.as_ref().get(self.first as usize)
            && slot.id() == id
        {
            return Some(self.first);
        }
        self.look_up(token::hash(id), id)
    }

    fn look_up(&self, hash: u64, id: &[u8]) -> Option<u32> {
        let slots = self.slots.as_ref();
        // Whatever is in the index is an entry.
        self.index
            .find(hash, |slot| token::same(slots[slot as usize].id(), id))
    }

    fn find(&self, hash: u64, id: &[u8]) -> Option<(u32, State)> {
        let slot = self.look_up(hash, id)?;
        let state = self.slots.as_ref()[slot as usize].state()?;
        Some((slot, state))
    }

    fn take(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = self.order.len();
        if slot >= self.slots.as_ref().len().min(IN_FLIGHT_MAX) {
            return None;
        }
        self.order.push(Link::NONE);
        Some(slot as u32)
    }

    /// The place of the late answer that is waited for longest: it was told to be cancelled, and may never come.
    fn take_settled(&mut self) -> Option<u32> {
        if self.settled == self.settling.len() {
            return None;
        }
        let slots = self.slots.as_ref().iter().zip(0..).take(self.order.len());
        let settled = slots.filter_map(|(slot, at)| match slot.read()? {
            (State::Settled, _, _) => Some((slot.sequence(), at)),
            (State::Open | State::Answered, _, _) => None,
        });
        let (_, slot) = settled.min()?;
        self.settled -= 1;
        self.release(slot);
        self.free.pop()
    }

    fn take_answer(&mut self, id: &[u8]) -> Option<(u32, Entry)> {
        let slot = self.slot_of(id)?;
        let (State::Open, _, entry) = self.slots.as_ref()[slot as usize].read()? else {
            return None;
        };
        self.unlink(slot);
        self.slots.as_mut()[slot as usize].answered();
        Some((slot, entry))
    }

    /// Stops waiting for a late answer; whether one was awaited while ours is on its way.
    fn stop_settling(&mut self, slot: u32) -> Option<OnWay> {
        let at = self.settling.iter().position(|other| other.slot == slot)?;
        self.settled -= 1;
        Some(self.settling.swap_remove(at))
    }

    /// An answered slot keeps its id until it is released here or opened again.
    fn release_answered(&mut self, slot: u32) {
        debug_assert_eq!(
            self.slots.as_ref()[slot as usize].state(),
            Some(State::Answered),
            "an answer that was on its way belongs to its request until it has arrived"
        );
        self.release(slot);
    }

    fn release(&mut self, slot: u32) {
        self.slots.as_mut()[slot as usize].clear();
        self.index.remove(slot);
        self.free.push(slot);
    }

    /// What holds between two calls: every used slot is free or an entry, and every entry is counted where it belongs.
    #[inline]
    fn check(&self) {
        debug_assert_eq!(
            self.index.len(),
            self.open + self.unwritten.len() + self.unwritten_ours.len() + self.settled,
            "every entry waits, is answered or is settled"
        );
        debug_assert_eq!(
            self.free.len() + self.index.len(),
            self.order.len(),
            "every used slot is free or an entry"
        );
        debug_assert!(
            self.order.len() <= self.slots.as_ref().len().min(IN_FLIGHT_MAX),
            "within the table"
        );
        debug_assert!(
            self.settling.len() <= self.settled,
            "those on their way count"
        );
        debug_assert_eq!(
            self.open == 0,
            self.first == NONE,
            "the list has a beginning"
        );
        debug_assert_eq!(self.open == 0, self.last == NONE, "the list has an end");
    }

    fn link(&mut self, slot: u32) {
        debug_assert_eq!(
            self.slots.as_ref()[slot as usize].state(),
            Some(State::Open),
            "only what waits is in the list"
        );
        let before = self.last;
        self.order[slot as usize] = Link {
            before,
            after: NONE,
        };
        match self.order.get_mut(before as usize) {
            Some(link) => link.after = slot,
            None => self.first = slot,
        }
        self.last = slot;
        self.open += 1;
    }

    fn unlink(&mut self, slot: u32) {
        let Link { before, after } = self.order[slot as usize];
        match self.order.get_mut(before as usize) {
            Some(link) => link.after = after,
            None => self.first = after,
        }
        match self.order.get_mut(after as usize) {
            Some(link) => link.before = before,
            None => self.last = before,
        }
        self.open -= 1;
    }
}

#[cfg(test)]
mod tests;
