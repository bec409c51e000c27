//! One place of the in-flight table, as plain memory that two processes may see one after the other.
//!
//! A slot is 128 bytes; all zero means free and never used; any other bytes are safe to read and mean an entry only
//! if they make one. The writer may be killed between any two stores: the head, which makes a slot an entry, is stored
//! last and cleared first, and is one word, so that a slot is at every instant either free or a valid entry.

use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use crate::clock::Moment;
use crate::copy;
use crate::kill_point::kill_point;
use crate::limits::ID_BYTES;

/// The kind of request that waits, as far as it matters for what we do when its answer cannot come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Tracked {
    /// Anything not named here.
    Other = 0,
    /// `initialize`.
    Initialize = 1,
    /// `server/discover`.
    Discover = 2,
    /// `ping`.
    Ping = 3,
    /// `tools/list`, `prompts/list` and the like.
    List = 4,
    /// `tools/call`.
    ToolsCall = 5,
    /// `resources/read`, `prompts/get` or `completion/complete`.
    Read = 6,
    /// `logging/setLevel`.
    SetLevel = 7,
    /// `resources/subscribe` or `resources/unsubscribe`.
    Subscribe = 8,
    /// `subscriptions/listen`.
    Listen = 9,
    /// `tasks/get`, `tasks/result` and the like.
    Task = 10,
}

impl Tracked {
    const ALL: [Self; 11] = [
        Self::Other,
        Self::Initialize,
        Self::Discover,
        Self::Ping,
        Self::List,
        Self::ToolsCall,
        Self::Read,
        Self::SetLevel,
        Self::Subscribe,
        Self::Listen,
        Self::Task,
    ];

    /// The class of a method.
    pub fn of(method: &str) -> Self {
        match method {
            "tools/call" => Self::ToolsCall,
            "initialize" => Self::Initialize,
            "server/discover" => Self::Discover,
            "ping" => Self::Ping,
            "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => {
                Self::List
            }
            "resources/read"
            | "prompts/get"
            | "completion/complete"
            | "tasks/get"
            | "tasks/result"
            | "tasks/list"
            | "tasks/update" => Self::Read,
            "logging/setLevel" => Self::SetLevel,
            "resources/subscribe" | "resources/unsubscribe" => Self::Subscribe,
            "subscriptions/listen" => Self::Listen,
            _ if method.starts_with("tasks/") => Self::Task,
            _ => Self::Other,
        }
    }

    /// How an answer of ours names it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Other => "the request",
            Self::Initialize => "initialize",
            Self::Discover => "server/discover",
            Self::Ping => "ping",
            Self::List => "a list request",
            Self::ToolsCall => "tools/call",
            Self::Read => "a read request",
            Self::SetLevel => "logging/setLevel",
            Self::Subscribe => "a resource subscription",
            Self::Listen => "subscriptions/listen",
            Self::Task => "a task request",
        }
    }

    /// The method, where the class has only one.
    pub fn method(self) -> Option<&'static str> {
        match self {
            Self::Initialize
            | Self::Discover
            | Self::Ping
            | Self::ToolsCall
            | Self::SetLevel
            | Self::Listen => Some(self.word()),
            Self::Other | Self::List | Self::Read | Self::Subscribe | Self::Task => None,
        }
    }

    /// Whether such a request may be sent twice without harm: it only reads, or sets what it set before.
    pub fn is_repeatable(self) -> bool {
        match self {
            Self::Initialize
            | Self::Discover
            | Self::Ping
            | Self::List
            | Self::Read
            | Self::SetLevel
            | Self::Subscribe
            | Self::Listen => true,
            Self::ToolsCall | Self::Task | Self::Other => false,
        }
    }

    /// Whether it stays open until the client or the server ends it.
    pub fn listens(self) -> bool {
        self == Self::Listen
    }

    /// Whether we learn from its answer.
    pub fn teaches(self) -> bool {
        match self {
            Self::Initialize | Self::Discover | Self::List | Self::SetLevel | Self::Subscribe => {
                true
            }
            Self::Other | Self::Ping | Self::ToolsCall | Self::Read | Self::Listen | Self::Task => {
                false
            }
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What sort of request.
    pub method: Tracked,
    /// The generation that it was sent to. `None`: it waits within us, and no server has been sent it.
    pub sent_to: Option<u32>,
    /// When it came.
    pub opened: Moment,
}

impl Entry {
    /// Whether it waits within us.
    pub fn is_held(&self) -> bool {
        self.sent_to.is_none()
    }
}

/// Whether a request still waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It waits.
    Open,
    /// We answered it ourselves; a late answer of the server is dropped.
    Settled,
    /// The server answered it, and the answer is not written yet: for a successor it is open.
    Answered,
}

/// One place of the table.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct Slot {
    /// State, method class, length of the id, [`SEAL`], one byte each; 0 = free.
    head: AtomicU32,
    generation: u32,
    /// The order of opening, from 1; 0 = never used. It stays when the slot is freed.
    sequence: u64,
    opened: u64,
    id: [u8; ID_BYTES],
}

const _: () = assert!(size_of::<Slot>() == 128);

const STATE_OPEN: u8 = 1;
const STATE_SETTLED: u8 = 2;
const STATE_ANSWERED: u8 = 3;
/// Tells a head from most garbage.
const SEAL: u8 = 0x5E;
/// How a slot writes that no generation was sent the request. No link starts so many.
const UNSENT: u32 = u32::MAX;

impl Slot {
    /// A slot that was never used: all bytes zero.
    pub const fn free() -> Self {
        Self {
            head: AtomicU32::new(0),
            generation: 0,
            sequence: 0,
            opened: 0,
            id: [0; ID_BYTES],
        }
    }

    /// Whether the slot was ever used. Slots are taken from the front, so the first that was not ends the used part.
    pub(super) fn touched(&self) -> bool {
        self.sequence != 0 || self.head.load(Ordering::Acquire) != 0
    }

    /// The order of opening.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The state of an entry that is known to be one.
    pub(super) fn state(&self) -> Option<State> {
        let [state, _, _, _] = self.head.load(Ordering::Acquire).to_le_bytes();
        state_of(state)
    }

    /// The id of an entry that is known to be one.
    pub(super) fn id(&self) -> &[u8] {
        let [_, _, len, _] = self.head.load(Ordering::Acquire).to_le_bytes();
        self.id.get(..usize::from(len)).unwrap_or_default()
    }

    /// Whether an entry that is known to be one waits for the answer to a request of this sort.
    pub(super) fn waits_for(&self, wanted: Tracked) -> bool {
        let [state, method, _, _] = self.head.load(Ordering::Acquire).to_le_bytes();
        state == STATE_OPEN && method == wanted as u8
    }

    /// When the request of an entry that is known to be one came.
    pub(super) fn opened(&self) -> Moment {
        Moment(self.opened)
    }

    /// What the slot holds; none if it is free or its bytes make no entry.
    pub(super) fn read(&self) -> Option<(State, &[u8], Entry)> {
        let [state, method, len, seal] = self.head.load(Ordering::Acquire).to_le_bytes();
        let state = state_of(state)?;
        if seal != SEAL || len == 0 || self.sequence == 0 {
            return None;
        }
        let entry = Entry {
            method: Tracked::from_byte(method)?,
            sent_to: (self.generation != UNSENT).then_some(self.generation),
            opened: Moment(self.opened),
        };
        Some((state, self.id.get(..usize::from(len))?, entry))
    }

    /// Makes the slot an open entry. If it is one already, with the same id, it stays one throughout.
    pub(super) fn publish(&mut self, id: &[u8], entry: Entry, sequence: u64) {
        debug_assert!(!id.is_empty() && id.len() <= ID_BYTES, "an id that fits");
        debug_assert_ne!(sequence, 0, "0 is a slot that was never used");
        debug_assert_ne!(entry.sent_to, Some(UNSENT), "a generation that can be told");
        let len = id.len().min(ID_BYTES);
        if self.read().is_none_or(|(_, old, _)| old != id) {
            self.clear();
            kill_point();
            self.sequence = sequence;
            kill_point();
            copy::short(&mut self.id, id);
        }
        kill_point();
        self.sequence = sequence;
        kill_point();
        self.generation = entry.sent_to.unwrap_or(UNSENT);
        kill_point();
        self.opened = entry.opened.0;
        kill_point();
        // Release keeps the compiler from moving the stores above below this one; a killed process has done every
        // store before the one that it died at, so no stronger order is needed.
        let head = u32::from_le_bytes([STATE_OPEN, entry.method as u8, len as u8, SEAL]);
        self.head.store(head, Ordering::Release);
    }

    /// Marks an entry as answered by ourselves.
    pub(super) fn settle(&mut self) {
        self.set(STATE_SETTLED);
    }

    /// The server has answered it.
    pub(super) fn answered(&mut self) {
        self.set(STATE_ANSWERED);
    }

    /// It waits again: the answer died with the keeper that had it.
    pub(super) fn reopen(&mut self) {
        self.set(STATE_OPEN);
    }

    fn set(&mut self, state: u8) {
        debug_assert!(self.read().is_some(), "only an entry changes its state");
        let [_, method, len, seal] = self.head.load(Ordering::Relaxed).to_le_bytes();
        let head = u32::from_le_bytes([state, method, len, seal]);
        kill_point();
        self.head.store(head, Ordering::Release);
    }

    /// Frees the slot.
    pub(super) fn clear(&mut self) {
        kill_point();
        self.head.store(0, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }
}

fn state_of(byte: u8) -> Option<State> {
    match byte {
        STATE_OPEN => Some(State::Open),
        STATE_SETTLED => Some(State::Settled),
        STATE_ANSWERED => Some(State::Answered),
        _ => None,
    }
}

#[cfg(test)]
impl Slot {
    /// A slot of any bytes.
    pub(super) fn of_bytes(bytes: [u8; 128]) -> Self {
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| bytes[at + i]));
        Self {
            head: AtomicU32::new(word(0) as u32),
            generation: (word(0) >> 32) as u32,
            sequence: word(8),
            opened: word(16),
            id: core::array::from_fn(|i| bytes[24 + i]),
        }
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self::free()
    }
}

impl Clone for Slot {
    fn clone(&self) -> Self {
        Self {
            head: AtomicU32::new(self.head.load(Ordering::Relaxed)),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: Entry = Entry {
        method: Tracked::ToolsCall,
        sent_to: Some(3),
        opened: Moment(77),
    };

    #[test]
    fn a_slot_keeps_what_was_published_until_it_is_cleared() {
        let mut slot = Slot::free();
        assert!(!slot.touched());
        assert_eq!(slot.read(), None);
        slot.publish(b"\"a\"", ENTRY, 1);
        assert_eq!(slot.read(), Some((State::Open, &b"\"a\""[..], ENTRY)));
        slot.settle();
        assert_eq!(slot.read(), Some((State::Settled, &b"\"a\""[..], ENTRY)));
        slot.clear();
        assert_eq!(slot.read(), None);
        assert!(slot.touched());
    }

    #[test]
    fn bytes_that_make_no_entry_are_none() {
        let good = {
            let mut slot = Slot::free();
            slot.publish(b"1", ENTRY, 1);
            slot
        };
        let head = good.head.load(Ordering::Relaxed).to_le_bytes();
        for (at, byte) in [(0, 0), (0, 4), (1, 11), (2, 0), (2, 105), (2, 255), (3, 0)] {
            let mut bad = head;
            bad[at] = byte;
            let slot = good.clone();
            slot.head.store(u32::from_le_bytes(bad), Ordering::Relaxed);
            assert_eq!(slot.read(), None, "byte {at} = {byte}");
        }
        let mut slot = good.clone();
        slot.sequence = 0;
        assert_eq!(slot.read(), None);
    }

    #[test]
    fn classes_survive_their_byte() {
        for class in Tracked::ALL {
            assert_eq!(Tracked::from_byte(class as u8), Some(class));
        }
        assert_eq!(Tracked::from_byte(11), None);
        for (method, class) in [
            ("tools/call", Tracked::ToolsCall),
            ("resources/templates/list", Tracked::List),
            ("tasks/cancel", Tracked::Task),
            ("roots/list", Tracked::Other),
            ("", Tracked::Other),
        ] {
            assert_eq!(Tracked::of(method), class);
        }
    }

    #[test]
    fn each_class_has_its_properties() {
        // Whether it may be sent twice, stays open, teaches us something; a class of several methods has no one name.
        let table = [
            ("tools/call", "tools/call", [false, false, false]),
            ("initialize", "initialize", [true, false, true]),
            ("server/discover", "server/discover", [true, false, true]),
            ("ping", "ping", [true, false, false]),
            ("tools/list", "a list request", [true, false, true]),
            ("prompts/list", "a list request", [true, false, true]),
            ("resources/list", "a list request", [true, false, true]),
            ("resources/read", "a read request", [true, false, false]),
            ("prompts/get", "a read request", [true, false, false]),
            (
                "completion/complete",
                "a read request",
                [true, false, false],
            ),
            ("tasks/get", "a read request", [true, false, false]),
            ("tasks/result", "a read request", [true, false, false]),
            ("tasks/list", "a read request", [true, false, false]),
            ("tasks/update", "a read request", [true, false, false]),
            ("tasks/cancel", "a task request", [false, false, false]),
            ("logging/setLevel", "logging/setLevel", [true, false, true]),
            (
                "resources/subscribe",
                "a resource subscription",
                [true, false, true],
            ),
            (
                "resources/unsubscribe",
                "a resource subscription",
                [true, false, true],
            ),
            (
                "subscriptions/listen",
                "subscriptions/listen",
                [true, true, false],
            ),
            ("x/y", "the request", [false, false, false]),
        ];
        for (method, word, facts) in table {
            let class = Tracked::of(method);
            assert_eq!(class.word(), word, "{method}");
            assert_eq!(class.method(), (word == method).then_some(method));
            let told = [class.is_repeatable(), class.listens(), class.teaches()];
            assert_eq!(told, facts, "{method}");
        }
    }

    #[test]
    fn a_slot_of_another_state_or_sort_does_not_wait() {
        let mut slot = Slot::free();
        assert!(!slot.waits_for(Tracked::Other));
        slot.publish(b"1", ENTRY, 1);
        assert!(slot.waits_for(Tracked::ToolsCall) && !slot.waits_for(Tracked::Ping));
        for change in [Slot::settle, Slot::answered] {
            slot.reopen();
            assert!(slot.waits_for(Tracked::ToolsCall));
            change(&mut slot);
            assert!(!slot.waits_for(Tracked::ToolsCall));
        }
    }

    /// A keeper that is killed while it writes a new entry over an old one has cleared the head first.
    #[test]
    fn a_slot_that_was_freed_or_begun_counts_as_used() {
        let mut slot = Slot::free();
        slot.sequence = 7;
        assert!(slot.touched());
        let slot = Slot::free();
        slot.head.store(1, Ordering::Relaxed);
        assert!(slot.touched());
    }

    #[test]
    fn an_entry_that_is_opened_again_is_one_at_every_kill_point() {
        extern crate std;
        use crate::kill_point::set_fuse;
        use std::panic::{AssertUnwindSafe, catch_unwind};

        let next = Entry {
            sent_to: Some(4),
            ..ENTRY
        };
        for point in 0.. {
            let mut slot = Slot::free();
            slot.publish(b"7", ENTRY, 1);
            let lived = catch_unwind(AssertUnwindSafe(|| {
                set_fuse(Some(point));
                slot.publish(b"7", next, 2);
                set_fuse(None);
            }));
            let (state, id, _) = slot.read().expect("an entry throughout");
            assert_eq!((state, id), (State::Open, &b"7"[..]));
            if lived.is_ok() {
                assert_eq!(slot.read(), Some((State::Open, &b"7"[..], next)));
                break;
            }
        }
        let mut slot = Slot::free();
        slot.publish(b"7", ENTRY, 1);
        slot.publish(b"7.0", ENTRY, 2);
        assert_eq!(slot.id(), b"7.0", "as the client wrote it last");
    }
}
