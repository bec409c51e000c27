//! Requests whose client is gone while the server still works on them, and how the next client's are told apart from them.
//!
//! A client that comes back counts its ids from the beginning again. An id that an orphan bears already must not go to
//! the server a second time: the request goes under a label of ours, and its answer gets the client's own bytes back. The
//! same for progress tokens, which nobody keeps account of: as long as an orphan may report progress, each token goes
//! under a label. This module knows tokens, not messages.
//!
//! Invariants:
//! - What the server says of an orphan reaches nobody, be it late, twice or never.
//! - A label is a string that no client takes for a number, and no label is given twice to one generation.
//! - At most [`IN_FLIGHT_MAX`] orphans are known by name; beyond that every id gets a label.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;

use super::token;
use crate::limits::{CANCELLED_MAX, IN_FLIGHT_MAX};

const ID_PREFIX: &[u8] = b"\"ms:re:";
const PROGRESS_PREFIX: &[u8] = b"\"ms:pt:";

/// What one generation was asked for clients that are gone.
#[derive(Clone, Debug, Default)]
pub struct Orphans {
    /// By the plain form of the id that the server knows: whether it was answered.
    ids: BTreeMap<Vec<u8>, bool>,
    unanswered: usize,
    /// More than can be known by name.
    too_many: bool,
    /// Requests of this client under a label: label to the client's own bytes.
    labels: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Progress tokens of this client under a label, with the id of their request.
    tokens: BTreeMap<Vec<u8>, Progress>,
    /// Ids that this client has taken back unanswered: the server may answer all the same.
    cancelled: VecDeque<Vec<u8>>,
    count: u64,
    /// Somebody else was served by this generation before.
    others: bool,
}

#[derive(Clone, Debug)]
struct Progress {
    own: Vec<u8>,
    /// The plain form of the id of the request that it belongs to.
    request: Vec<u8>,
}

impl Orphans {
    /// Whether there are none, so that nothing needs a label.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && !self.too_many && self.labels.is_empty() && self.tokens.is_empty()
    }

    /// Whether this generation has served another client before: an answer to nothing may be meant for that one.
    pub fn had_others(&self) -> bool {
        self.others
    }

    /// Whether the server may still say something about one of them.
    pub fn may_speak(&self) -> bool {
        self.unanswered > 0 || self.too_many
    }

    /// The client is gone, and this request of its is unanswered.
    pub fn add(&mut self, id: &[u8]) {
        let id = match self.label_of(id) {
            Some(label) => {
                self.labels.remove(&label);
                label
            }
            None => token::plain(id).into_owned(),
        };
        if self.ids.len() >= IN_FLIGHT_MAX {
            self.too_many = true;
            return;
        }
        if self.ids.insert(id, false).is_none() {
            self.unanswered += 1;
        }
    }

    /// The client is gone: all that it has taken back counts as unanswered, and nobody waits for progress.
    pub fn client_gone(&mut self) {
        self.others = true;
        // A label that is left is of a request that was taken back.
        let labels = core::mem::take(&mut self.labels).into_keys();
        for id in core::mem::take(&mut self.cancelled)
            .into_iter()
            .chain(labels)
        {
            // The server may not have heard that, or may not care.
            if self.ids.len() < IN_FLIGHT_MAX && self.ids.insert(id, false).is_none() {
                self.unanswered += 1;
            }
        }
        self.tokens.clear();
    }

    /// This client takes an unanswered request back, or we have done so and answered it.
    pub fn cancelled(&mut self, id: &[u8]) {
        if self.cancelled.len() >= CANCELLED_MAX {
            self.cancelled.pop_front();
        }
        self.cancelled.push_back(token::plain(id).into_owned());
    }

    /// The label under which a request with this id must go, if it cannot go as it is.
    pub fn label(&mut self, id: &[u8]) -> Option<Vec<u8>> {
        if !self.too_many && !self.ids.contains_key(&*token::plain(id)) {
            return None;
        }
        let label = self.next(ID_PREFIX);
        self.labels.insert(label.clone(), id.to_vec());
        Some(label)
    }

    /// The label under which a progress token must go, if it cannot go as it is.
    pub fn progress_label(&mut self, own: &[u8], request: &[u8]) -> Option<Vec<u8>> {
        if !self.may_speak() {
            return None;
        }
        let label = self.next(PROGRESS_PREFIX);
        let progress = Progress {
            own: own.to_vec(),
            request: token::plain(request).into_owned(),
        };
        self.tokens.insert(label.clone(), progress);
        Some(label)
    }

    /// The label under which the server knows this client's request.
    pub fn label_of(&self, id: &[u8]) -> Option<Vec<u8>> {
        let mut all = self.labels.iter();
        let (label, _) = all.find(|(_, own)| token::same(own, id))?;
        Some(label.clone())
    }

    /// The client's own id behind a label.
    pub fn own(&self, label: &[u8]) -> Option<&[u8]> {
        if self.labels.is_empty() {
            return None;
        }
        self.labels.get(label).map(Vec::as_slice)
    }

    /// The same, for an answer that has come: each is expected once.
    #[inline]
    pub fn close(&mut self, label: &[u8]) -> Option<Vec<u8>> {
        if self.labels.is_empty() {
            return None;
        }
        self.labels.remove(label)
    }

    /// This client's request has its answer: no progress of it is to come.
    pub fn done(&mut self, id: &[u8]) {
        if !self.tokens.is_empty() {
            let id = token::plain(id);
            self.tokens.retain(|_, progress| *progress.request != *id);
        }
    }

    /// The client's own progress token behind a label.
    pub fn progress(&self, label: &[u8]) -> Option<&[u8]> {
        self.tokens
            .get(label)
            .map(|progress| progress.own.as_slice())
    }

    /// Whether progress under this token is for nobody that is here.
    pub fn is_foreign_progress(&self, token: &[u8]) -> bool {
        self.may_speak() || token.starts_with(PROGRESS_PREFIX)
    }

    /// Whether an answer with this id is an orphan's.
    #[inline]
    pub fn is(&self, id: &[u8]) -> bool {
        (self.too_many || !self.ids.is_empty()) && self.is_one(id)
    }

    fn is_one(&self, id: &[u8]) -> bool {
        self.ids.contains_key(&*token::plain(id))
            || self.too_many
            || (id.starts_with(ID_PREFIX) && !self.labels.contains_key(id))
    }

    /// An answer has come: whether it is an orphan's.
    #[inline]
    pub fn answered(&mut self, id: &[u8]) -> bool {
        if !self.cancelled.is_empty() {
            let id = token::plain(id);
            self.cancelled.retain(|taken_back| **taken_back != *id);
        }
        self.is(id) && self.answered_one(id)
    }

    fn answered_one(&mut self, id: &[u8]) -> bool {
        // It stays known: a server that answers twice must not be believed the second time.
        if let Some(answered) = self.ids.get_mut(&*token::plain(id))
            && !core::mem::replace(answered, true)
        {
            self.unanswered -= 1;
        }
        true
    }

    /// The generation is gone, and with it all that it owed.
    pub fn forget(&mut self) {
        let count = self.count;
        *self = Self {
            count,
            ..Self::default()
        };
    }

    fn next(&mut self, prefix: &[u8]) -> Vec<u8> {
        self.count += 1;
        [prefix, format!("{}\"", self.count).as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orphaned(ids: &[&str]) -> Orphans {
        let mut orphans = Orphans::default();
        for id in ids {
            orphans.add(id.as_bytes());
        }
        orphans.client_gone();
        orphans
    }

    #[test]
    fn only_an_id_that_an_orphan_bears_gets_a_label() {
        let mut orphans = orphaned(&["3", "\"a/b\""]);
        assert_eq!(orphans.label(b"4"), None);
        let label = orphans.label(b"3.0").unwrap();
        let other = orphans.label(br#""a\/b""#).unwrap();
        assert!(label.starts_with(ID_PREFIX) && label != other);
        assert_eq!(orphans.label_of(b"3"), Some(label.clone()));
        assert_eq!(orphans.own(&label), Some(&b"3.0"[..]));
        assert_eq!(orphans.close(&label), Some(b"3.0".to_vec()));
        assert_eq!(orphans.close(&label), None);
        assert!(orphans.answered(&label), "a second answer is nobody's");
    }

    #[test]
    fn an_orphan_is_known_however_often_it_is_answered() {
        let mut orphans = orphaned(&["1", "2"]);
        assert!(orphans.may_speak());
        assert!(orphans.answered(b"1") && orphans.answered(b"1.0") && !orphans.answered(b"3"));
        assert!(orphans.may_speak() && orphans.answered(b"2") && !orphans.may_speak());
        assert!(!orphans.is_empty() && orphans.label(b"1").is_some());
        orphans.forget();
        assert!(orphans.is_empty() && !orphans.answered(b"1") && !orphans.had_others());
    }

    #[test]
    fn a_labelled_request_is_orphaned_under_its_label() {
        let mut orphans = orphaned(&["1"]);
        let label = orphans.label(b"1").unwrap();
        orphans.add(b"1");
        orphans.client_gone();
        assert_eq!(orphans.close(&label), None);
        assert!(orphans.answered(&label) && orphans.answered(b"1"));
        let again = orphans.label(b"1").unwrap();
        assert_ne!(again, label);
    }

    #[test]
    fn progress_goes_under_a_label_while_an_orphan_may_report() {
        let mut orphans = orphaned(&["1"]);
        let label = orphans.progress_label(b"7", b"7").unwrap();
        assert_eq!(orphans.progress(&label), Some(&b"7"[..]));
        assert!(orphans.is_foreign_progress(b"7"));
        assert!(orphans.answered(b"1"));
        assert_eq!(orphans.progress_label(b"8", b"8"), None);
        assert!(!orphans.is_foreign_progress(b"8"));
        orphans.done(b"7.0");
        assert_eq!(orphans.progress(&label), None);
        assert!(
            orphans.is_foreign_progress(&label),
            "late, of a request that is done"
        );
    }

    #[test]
    fn what_was_taken_back_may_be_answered_all_the_same() {
        let mut orphans = Orphans::default();
        orphans.cancelled(b"4");
        assert!(!orphans.answered(b"4.0"), "it was this client's");
        orphans.cancelled(b"5");
        assert!(orphans.is_empty() && !orphans.is(b"5"));
        orphans.client_gone();
        assert!(orphans.is(b"5") && !orphans.is(b"4") && orphans.may_speak());
        let label = orphans.label(b"5").unwrap();
        orphans.cancelled(b"5");
        orphans.client_gone();
        assert_eq!(orphans.close(&label), None);
        assert!(orphans.is(&label));
    }

    #[test]
    fn beyond_the_limit_every_id_gets_a_label() {
        let mut orphans = Orphans::default();
        for id in 0..=IN_FLIGHT_MAX {
            orphans.add(format!("{id}").as_bytes());
        }
        orphans.client_gone();
        assert!(orphans.label(b"\"never seen\"").is_some());
        assert!(orphans.is(b"\"whatever\""));
    }
}
