//! In which slot an id may be: chains of slots with the same hash.
//!
//! A map would keep its own memory and its own idea of where things are; here every slot has a place anyway, so that to
//! put one in and to take one out is a store or two. It knows slots and hashes, not ids.
//!
//! Invariant: a slot is in at most one chain, and the chains are as many as the slots or more, so they are short.

use alloc::vec;
use alloc::vec::Vec;

/// No slot.
const NONE: u32 = u32::MAX;

/// The fewest chains, which is enough for most links.
const FEWEST: usize = 64;

/// The slots that are in use, by hash.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// The first slot of each chain; a power of two, or none at all.
    chains: Vec<u32>,
    /// By slot.
    places: Vec<Place>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    hash: u32,
    /// The next slot of its chain.
    next: u32,
}

impl Index {
    /// How many slots are in it.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The slot with this hash that is the one.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut slot = *self.chains.get(self.chain(hash as u32))?;
        while let Some(place) = self.places.get(slot as usize) {
            if place.hash == hash as u32 && is(slot) {
                return Some(slot);
            }
            slot = place.next;
        }
        None
    }

    /// Puts a slot in that is not there yet.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64, slot: u32) {
        debug_assert!(
            self.find(hash, |other| other == slot).is_none(),
            "a slot is in one chain once"
        );
        if slot as usize >= self.places.len() || self.len >= self.chains.len() {
            self.grow(slot);
        }
        let hash = hash as u32;
        let chain = self.chain(hash);
        let next = core::mem::replace(&mut self.chains[chain], slot);
        self.places[slot as usize] = Place { hash, next };
        self.len += 1;
    }

    /// Takes a slot out that is there.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        let Place { hash, next } = self.places[slot as usize];
        let chain = self.chain(hash);
        let mut before = self.chains[chain];
        let mut found = before == slot;
        if found {
            self.chains[chain] = next;
        } else {
            while let Some(place) = self.places.get_mut(before as usize) {
                if place.next == slot {
                    place.next = next;
                    found = true;
                    break;
                }
                before = place.next;
            }
        }
        debug_assert!(found, "a slot is taken out once");
        self.len -= 1;
    }

    #[inline]
    fn chain(&self, hash: u32) -> usize {
        // A hash is well mixed: any of its bits will do.
        hash as usize & self.chains.len().wrapping_sub(1)
    }

    /// Room for this slot, and for one more in the chains.
    #[cold]
    fn grow(&mut self, slot: u32) {
        let unused = Place {
            hash: 0,
            next: NONE,
        };
        self.places
            .resize(self.places.len().max(slot as usize + 1), unused);
        if self.len < self.chains.len() {
            return;
        }
        let more = (2 * self.chains.len()).max(FEWEST);
        let before = core::mem::replace(&mut self.chains, vec![NONE; more]);
        for mut slot in before {
            while let Some(&Place { hash, next }) = self.places.get(slot as usize) {
                let chain = self.chain(hash);
                self.places[slot as usize].next = core::mem::replace(&mut self.chains[chain], slot);
                slot = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_index_behaves_like_a_map(steps in proptest::collection::vec((any::<bool>(), 0..200_u32, 0..20_u64), 0..600)) {
            let mut index = Index::default();
            let mut model = BTreeMap::new();
            for (put, slot, hash) in steps {
                match (put, model.contains_key(&slot)) {
                    (true, false) => {
                        index.insert(hash, slot);
                        model.insert(slot, hash);
                    }
                    (false, true) => {
                        index.remove(slot);
                        model.remove(&slot);
                    }
                    (true, true) | (false, false) => {}
                }
                prop_assert_eq!(index.len(), model.len());
            }
            for slot in 0..200 {
                for hash in 0..20 {
                    let there = model.get(&slot) == Some(&hash);
                    let found = index.find(hash, |other| other == slot);
                    prop_assert_eq!(found, there.then_some(slot));
                }
            }
        }
    }
}
