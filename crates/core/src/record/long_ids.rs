//! Ids that are too long for the table of requests in flight.
//!
//! The table has [`ID_BYTES`] bytes for an id, which is more than known clients use. A request with a longer id goes to the
//! server under a short label of ours, so that all that is known of it is known under that label; what goes to the client has
//! the client's own id again. Labels and ids are kept in the record, because a successor of a killed keeper answers too.
//!
//! Invariants:
//! - A label is known until the table has forgotten its request.
//! - All ids together take at most [`LONG_IDS_BYTES`] bytes. A request that finds no room waits.

use alloc::format;
use alloc::vec::Vec;

use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits::{ID_BYTES, LONG_IDS_BYTES};
use mainstay_protocol::message::token;

use crate::record::replay_log::{EntryKind, ReplayLog};

/// The labels in use, with the ids that they stand for.
#[derive(Debug)]
pub(crate) struct LongIds {
    /// What every label of this link begins with.
    prefix: Vec<u8>,
    count: u64,
    known: Vec<(Vec<u8>, Vec<u8>)>,
}

impl LongIds {
    /// Those that a killed keeper left in the record.
    pub fn of(link: LinkId, kept: &ReplayLog<'_>) -> Self {
        let known = kept
            .each(EntryKind::LongId)
            .map(|(label, id)| (label.to_vec(), id.to_vec()));
        Self {
            prefix: format!("\"ms:id:{link}:").into_bytes(),
            count: 0,
            known: known.collect(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The label of this id; a new one if it has none. None if there is no room.
    pub fn label(
        &mut self,
        id: &[u8],
        generation: u32,
        kept: &mut ReplayLog<'_>,
    ) -> Option<Vec<u8>> {
        if let Some(label) = self.label_of(id) {
            return Some(label.to_vec());
        }
        let bytes: usize = self.known.iter().map(|(_, id)| id.len()).sum();
        if bytes + id.len() > LONG_IDS_BYTES {
            return None;
        }
        let label = loop {
            self.count += 1;
            let number = format!("{generation}:{}\"", self.count);
            let label = [&self.prefix[..], number.as_bytes()].concat();
            // A killed keeper may have given it.
            if self.id_of(&label).is_none() {
                break label;
            }
        };
        if !kept.put(EntryKind::LongId, &label, id) {
            return None;
        }
        debug_assert!(label.len() <= ID_BYTES, "a label fits into the table");
        self.known.push((label.clone(), id.to_vec()));
        debug_assert_eq!(self.id_of(&label), Some(id), "a label leads back to its id");
        Some(label)
    }

    /// The label of this id, if it has one.
    pub fn label_of(&self, id: &[u8]) -> Option<&[u8]> {
        let mut all = self.known.iter();
        let (label, _) = all.find(|(_, known)| token::same(known, id))?;
        Some(label)
    }

    /// The id that this label stands for.
    pub fn id_of(&self, label: &[u8]) -> Option<&[u8]> {
        let mut all = self.known.iter();
        let (_, id) = all.find(|(known, _)| token::same(known, label))?;
        Some(id)
    }

    /// Whether an id is a label of ours, even if its request is over.
    pub fn is_label(&self, id: &[u8]) -> bool {
        id.starts_with(&self.prefix)
    }

    /// Forgets the labels that are no longer in use.
    pub fn retain(&mut self, in_use: impl Fn(&[u8]) -> bool, kept: &mut ReplayLog<'_>) {
        self.known.retain(|(label, _)| {
            let stays = in_use(label);
            if !stays {
                kept.remove(EntryKind::LongId, label);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::replay_log::Board;
    use alloc::vec;

    #[test]
    fn a_label_stands_for_its_id_until_its_request_is_over() {
        let (board, mut bytes) = (Board::new(), vec![0; 256 * 1024]);
        let mut kept = ReplayLog::over(&board, &mut bytes);
        let mut ids = LongIds::of(LinkId(7), &kept);
        let one = format!("\"{}\"", "x".repeat(200)).into_bytes();
        let label = ids.label(&one, 3, &mut kept).unwrap();
        assert_eq!(label, b"\"ms:id:00000007:3:1\"");
        assert!(!ids.is_empty());
        assert_eq!(ids.label(&one, 4, &mut kept).as_ref(), Some(&label));
        assert_eq!(ids.id_of(&label), Some(&one[..]));
        let again = LongIds::of(LinkId(7), &kept);
        assert_eq!(again.label_of(&one), Some(&label[..]));
        let other = format!("\"{}\"", "y".repeat(200)).into_bytes();
        let mut again = again;
        let second = again.label(&other, 3, &mut kept).unwrap();
        assert_eq!(second, b"\"ms:id:00000007:3:2\"");
        again.retain(|known| known == label, &mut kept);
        ids.retain(|_| false, &mut kept);
        assert!(ids.is_empty() && ids.id_of(&label).is_none());
        assert!(LongIds::of(LinkId(7), &kept).is_empty());
    }

    #[test]
    fn long_ids_fit_up_to_the_limit_of_bytes() {
        let (board, mut bytes) = (Board::new(), vec![0; 256 * 1024]);
        let mut kept = ReplayLog::over(&board, &mut bytes);
        let mut ids = LongIds::of(LinkId(7), &kept);
        let long = |n: usize| format!("\"{n:04096}\"").into_bytes();
        let fit = (0..).take_while(|&n| ids.label(&long(n), 1, &mut kept).is_some());
        assert_eq!(fit.count(), LONG_IDS_BYTES / 4098);
        ids.retain(|label| label.ends_with(b":1\""), &mut kept);
        assert!(ids.label(&long(99), 1, &mut kept).is_some());
        // To the last byte.
        ids.retain(|_| false, &mut kept);
        let even = |n: usize| format!("\"{n:04094}\"").into_bytes();
        let fit = (0..).take_while(|&n| ids.label(&even(n), 1, &mut kept).is_some());
        assert_eq!(fit.count(), LONG_IDS_BYTES / 4096);
    }
}
