//! What a server was asked for clients that are gone, and how the next client's requests are told apart from that.
//!
//! A client that comes back counts its ids from the beginning again, and the server may answer what an earlier one asked: late,
//! although that was taken back, or a second time. Which of the old ids are still to come cannot be known, so from the
//! second client of a generation on every request goes under a label of ours, and its answer gets the client's own bytes
//! back. The same for progress tokens. A number goes under a number, for servers that know no other ids. This module
//! knows tokens, not messages.
//!
//! Invariants:
//! - An answer under any name but a label of this client's belongs to an earlier client, whether it comes late, twice
//!   or never.
//! - No label is given twice.
//! - At most [`IN_FLIGHT_MAX`] requests and [`PROGRESS_MAX`] tokens are known; the oldest goes.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::token;
use crate::limits::{IN_FLIGHT_MAX, PROGRESS_MAX};

const ID_PREFIX: &str = "\"ms:re:";
const PROGRESS_PREFIX: &str = "\"ms:pt:";
/// Numbers of ours begin here: where no client counts to, and with room for half a billion in 32 bits.
const NUMBERS_FROM: u64 = 1_500_000_000;

/// Whether one generation was asked anything for clients that are gone, and what it knows the present one's requests by.
#[derive(Clone, Debug, Default)]
pub struct Orphans {
    /// It has served another client before.
    others: bool,
    /// The client's own ids, by the number of their label.
    ids: BTreeMap<u64, Vec<u8>>,
    /// The client's own progress tokens. They outlive the answer: a task reports on.
    tokens: BTreeMap<u64, Vec<u8>>,
    /// Labels given so far.
    count: u64,
}

impl Orphans {
    /// Whether there can be none, so that nothing needs a label.
    pub fn is_empty(&self) -> bool {
        !self.others
    }

    /// The client is gone: no client waits for what it has asked.
    pub fn client_gone(&mut self) {
        self.others = true;
        self.ids.clear();
        self.tokens.clear();
    }

    /// The generation is gone, and with it all that it owed.
    pub fn forget(&mut self) {
        *self = Self {
            count: self.count,
            ..Self::default()
        };
    }

    /// The label under which a request with this id goes.
    pub fn label(&mut self, id: &[u8]) -> Vec<u8> {
        self.count += 1;
        give(&mut self.ids, self.count, id, IN_FLIGHT_MAX);
        let label = label(ID_PREFIX, self.count, id);
        debug_assert_eq!(self.own(&label), Some(id), "a label leads back to its id");
        label
    }

    /// The label under which a progress token goes.
    pub fn progress_label(&mut self, token: &[u8]) -> Vec<u8> {
        self.count += 1;
        give(&mut self.tokens, self.count, token, PROGRESS_MAX);
        let label = label(PROGRESS_PREFIX, self.count, token);
        debug_assert_eq!(
            self.progress(&label),
            Some(token),
            "a label leads back to its token"
        );
        label
    }

    /// The label under which the server knows this client's request, which is waited for no longer.
    pub fn unlabel(&mut self, id: &[u8]) -> Option<Vec<u8>> {
        let mut all = self.ids.iter();
        let (&n, _) = all.find(|(_, own)| token::same(own, id))?;
        self.ids.remove(&n);
        Some(label(ID_PREFIX, n, id))
    }

    /// The client's own id behind a label.
    pub fn own(&self, label: &[u8]) -> Option<&[u8]> {
        let n = number(&self.ids, label, ID_PREFIX)?;
        self.ids.get(&n).map(Vec::as_slice)
    }

    /// The same, for an answer that has come: each is expected once.
    pub fn close(&mut self, label: &[u8]) -> Option<Vec<u8>> {
        let n = number(&self.ids, label, ID_PREFIX)?;
        self.ids.remove(&n)
    }

    /// The client's own progress token behind a label.
    pub fn progress(&self, label: &[u8]) -> Option<&[u8]> {
        let n = number(&self.tokens, label, PROGRESS_PREFIX)?;
        self.tokens.get(&n).map(Vec::as_slice)
    }
}

fn give(all: &mut BTreeMap<u64, Vec<u8>>, n: u64, own: &[u8], most: usize) {
    if all.len() >= most {
        all.pop_first();
    }
    let before = all.insert(n, own.to_vec());
    debug_assert!(before.is_none(), "no label is given twice");
    debug_assert!(all.len() <= most, "the oldest goes");
}

/// What goes in the place of a token: a number for a number, a string for a string.
fn label(prefix: &str, n: u64, own: &[u8]) -> Vec<u8> {
    if own.first() == Some(&b'"') {
        format!("{prefix}{n}\"").into_bytes()
    } else {
        format!("{}", NUMBERS_FROM + n).into_bytes()
    }
}

/// The number of a label that was given.
fn number(given: &BTreeMap<u64, Vec<u8>>, label_as_written: &[u8], prefix: &str) -> Option<u64> {
    let plain = token::plain(label_as_written);
    let text = core::str::from_utf8(&plain).ok()?;
    let n = match text.strip_prefix(prefix) {
        Some(rest) => rest.strip_suffix('"')?.parse().ok()?,
        None => text.parse::<u64>().ok()?.checked_sub(NUMBERS_FROM)?,
    };
    let own = given.get(&n)?;
    (*label(prefix, n, own) == *plain).then_some(n)
}

#[cfg(test)]
mod tests {
    //! guards: Answers to requests of a former client are dropped, however often they come.

    use super::*;

    fn left() -> Orphans {
        let mut orphans = Orphans::default();
        assert!(orphans.is_empty(), "the first client needs no labels");
        orphans.client_gone();
        assert!(!orphans.is_empty());
        orphans
    }

    #[test]
    fn each_request_has_a_name_of_its_own_and_its_answer_is_expected_once() {
        let mut orphans = left();
        let (label, other) = (orphans.label(b"3.0"), orphans.label(br#""a\/b""#));
        assert_eq!(
            (&label[..], &other[..]),
            (&b"1500000001"[..], &br#""ms:re:2""#[..])
        );
        assert_eq!(orphans.own(&label), Some(&b"3.0"[..]));
        assert_eq!(orphans.own(b"1500000001.0"), Some(&b"3.0"[..]));
        for foreign in [&b"\"ms:re:1\""[..], b"1500000002", b"1500000000", b"1"] {
            assert_eq!(orphans.own(foreign), None, "another form is another's");
        }
        assert_eq!(orphans.close(&label), Some(b"3.0".to_vec()));
        assert_eq!((orphans.close(&label), orphans.own(&label)), (None, None));
        assert_eq!(orphans.unlabel(br#""a/b""#), Some(other.clone()));
        assert_eq!((orphans.close(&other), orphans.unlabel(b"3")), (None, None));
    }

    #[test]
    fn an_orphan_is_known_however_often_it_is_answered() {
        let mut orphans = left();
        let label = orphans.label(b"1");
        for foreign in [
            &b"1"[..],
            b"\"1\"",
            b"\"ms:re:\"",
            b"\"ms:re:2\"",
            b"\"ms:pt:1\"",
        ] {
            assert_eq!(orphans.close(foreign), None);
        }
        orphans.client_gone();
        assert_eq!((orphans.close(&label), orphans.close(&label)), (None, None));
        assert_ne!(orphans.label(b"1"), label);
        orphans.forget();
        assert!(orphans.is_empty());
        assert_eq!(
            orphans.label(b"1"),
            b"1500000003",
            "not even to the next generation"
        );
    }

    #[test]
    fn progress_is_known_beyond_the_answer() {
        let mut orphans = left();
        let (id, token) = (orphans.label(b"7"), orphans.progress_label(b"7"));
        assert_eq!(orphans.progress(&token), Some(&b"7"[..]));
        assert_eq!(
            (orphans.progress(b"7"), orphans.progress(&id)),
            (None, None)
        );
        orphans.close(&id);
        assert_eq!(orphans.progress(&token), Some(&b"7"[..]));
        orphans.client_gone();
        assert_eq!(orphans.progress(&token), None);
    }

    #[test]
    fn the_oldest_goes() {
        let mut orphans = left();
        let first = orphans.progress_label(b"0");
        let second = orphans.progress_label(b"1");
        for _ in 1..PROGRESS_MAX {
            orphans.progress_label(b"2");
        }
        assert_eq!(orphans.progress(&first), None);
        assert_eq!(orphans.progress(&second), Some(&b"1"[..]));
    }
}
