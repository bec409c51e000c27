//! Requests of our own at the server: their ids, and what each is for. The client never sees their answers.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use crate::message::lists::Which;

const PREFIX: &[u8] = b"\"ms:own:";

/// What a request of ours is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The replayed opening.
    Opening,
    /// A part of the replay.
    Replay,
    /// What a client that is gone had asked for is undone.
    Undo,
    /// Has this list changed?
    List { which: Which, page: usize },
    /// Is it there?
    Probe { n: u64 },
}

/// The ones that are unanswered.
#[derive(Debug, Default)]
pub(super) struct Own {
    count: u64,
    unanswered: BTreeMap<u64, Purpose>,
}

impl Own {
    /// A new one; its id: a string that is no number.
    pub fn open(&mut self, purpose: Purpose) -> Vec<u8> {
        self.count += 1;
        self.unanswered.insert(self.count, purpose);
        format!("\"ms:own:{}\"", self.count).into_bytes()
    }

    /// Whether an id is one of ours, answered or not.
    pub fn is(id: &[u8]) -> bool {
        id.starts_with(PREFIX)
    }

    /// Its answer is there.
    pub fn close(&mut self, id: &[u8]) -> Option<Purpose> {
        let digits = id.strip_prefix(PREFIX)?.strip_suffix(b"\"")?;
        let n = core::str::from_utf8(digits).ok()?.parse().ok()?;
        self.unanswered.remove(&n)
    }

    /// The server that was asked is gone.
    pub fn forget(&mut self) {
        self.unanswered.clear();
    }

    /// Whether an answer that tells more than that somebody is there is still to come.
    pub fn wants_more(&self) -> bool {
        let mut all = self.unanswered.values();
        all.any(|purpose| match purpose {
            Purpose::Opening | Purpose::Replay | Purpose::List { .. } => true,
            Purpose::Probe { .. } | Purpose::Undo => false,
        })
    }

    /// Whether none is unanswered.
    pub fn is_empty(&self) -> bool {
        self.unanswered.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_closes_its_own_question_once() {
        let mut own = Own::default();
        let a = own.open(Purpose::Opening);
        let b = own.open(Purpose::Probe { n: 3 });
        assert!(Own::is(&a) && Own::is(&b) && a != b && own.wants_more());
        assert_eq!(own.close(&b), Some(Purpose::Probe { n: 3 }));
        assert_eq!(own.close(&b), None);
        assert_eq!(own.close(b"\"ms:own:x\""), None);
        own.forget();
        own.open(Purpose::Probe { n: 4 });
        assert!(!own.wants_more() && !own.is_empty());
        own.forget();
        assert_eq!((own.close(&a), own.is_empty()), (None, true));
        assert!(!Own::is(b"7"));
    }
}
