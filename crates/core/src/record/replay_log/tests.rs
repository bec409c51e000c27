//! guards: A keeper that is killed while it writes leaves the old value or the new one.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// The memory as a successor finds it.
#[derive(Debug)]
pub(super) struct Image {
    in_force: u32,
    len: [u32; 2],
    bytes: Vec<u8>,
}

impl Image {
    pub(super) fn of(board: &Board, bytes: &[u8]) -> Self {
        Self {
            in_force: board.in_force.load(Ordering::Relaxed),
            len: [0, 1].map(|half: usize| board.len[half].load(Ordering::Relaxed)),
            bytes: bytes.to_vec(),
        }
    }

    fn board(&self) -> Board {
        Board {
            in_force: AtomicU32::new(self.in_force),
            len: self.len.map(AtomicU32::new),
        }
    }

    /// Spoils every byte that is not published, as if a keeper was killed while it wrote there.
    fn half_written(mut self, junk: u8) -> Self {
        let (half, room) = (self.in_force as usize, self.bytes.len() / 2);
        let published = half * room..half * room + self.len[half] as usize;
        for (at, byte) in self.bytes.iter_mut().enumerate() {
            if !published.contains(&at) {
                *byte = junk;
            }
        }
        self
    }
}

type Things = Vec<(EntryKind, Vec<u8>, Vec<u8>)>;

fn all(kept: &ReplayLog) -> Things {
    let of = |kind| {
        kept.each(kind)
            .map(move |(k, v)| (kind, k.into(), v.into()))
    };
    EntryKind::ALL.into_iter().flat_map(of).collect()
}

fn recovered(image: &Image) -> Things {
    let (board, mut bytes) = (image.board(), image.bytes.clone());
    all(&ReplayLog::over(&board, &mut bytes))
}

#[test]
fn an_entry_stays_until_it_is_removed_also_for_a_successor() {
    let (board, mut bytes) = (Board::new(), vec![0; 256]);
    let mut kept = ReplayLog::over(&board, &mut bytes);
    assert!(kept.put(EntryKind::Level, b"", b"info"));
    assert!(kept.put(EntryKind::Subscription, b"file:///a", b""));
    assert!(kept.put(EntryKind::Subscription, b"file:///b", b"1"));
    assert!(kept.put(EntryKind::Level, b"", b"debug"));
    assert!(!kept.remove(EntryKind::Listen, b"file:///a"));
    let mut kept = ReplayLog::over(&board, &mut bytes);
    assert_eq!(kept.get(EntryKind::Level, b""), Some(&b"debug"[..]));
    let subscriptions: Vec<_> = kept.each(EntryKind::Subscription).collect();
    assert_eq!(
        subscriptions,
        [(&b"file:///a"[..], &b""[..]), (b"file:///b", b"1")]
    );
    assert!(kept.remove(EntryKind::Subscription, b"file:///a"));
    assert_eq!(kept.get(EntryKind::Subscription, b"file:///a"), None);
    kept.clear(EntryKind::Subscription);
    assert_eq!(all(&kept), [(EntryKind::Level, vec![], b"debug".to_vec())]);
}

#[test]
fn without_room_the_old_one_stays() {
    let (board, mut bytes) = (Board::new(), vec![0; 2 * (ENTRY_BYTES + 10)]);
    let mut kept = ReplayLog::over(&board, &mut bytes);
    assert!(kept.put(EntryKind::Greeting, b"k", b"123456789"));
    assert!(!kept.put(EntryKind::Level, b"", b""));
    assert!(!kept.put(EntryKind::Greeting, b"k", b"1234567890"));
    assert_eq!(kept.get(EntryKind::Greeting, b"k"), Some(&b"123456789"[..]));
    // One of the same size takes its place, though both together would not fit.
    assert!(kept.put(EntryKind::Greeting, b"k", b"987654321"));
    assert_eq!(kept.get(EntryKind::Greeting, b"k"), Some(&b"987654321"[..]));
    assert!(kept.remove(EntryKind::Greeting, b"k"));
    assert!(kept.put(EntryKind::Level, b"", b""));
}

#[test]
fn memory_too_small_for_anything_keeps_nothing() {
    for len in 0..2 * ENTRY_BYTES {
        let (board, mut bytes) = (Board::new(), vec![0; len]);
        let mut kept = ReplayLog::over(&board, &mut bytes);
        assert!(!kept.put(EntryKind::Level, b"", b""));
        assert_eq!(all(&kept), []);
    }
}

#[test]
fn a_thousand_subscriptions_stay_in_their_order() {
    let (board, mut bytes) = (Board::new(), vec![0; 2 * 64 * 1024]);
    let uri = |n: u32| alloc::format!("file:///some/path/{n}").into_bytes();
    let mut kept = ReplayLog::over(&board, &mut bytes);
    for n in 0..1_000 {
        assert!(kept.put(EntryKind::Subscription, &uri(n), b"{}"));
    }
    for n in (0..1_000).step_by(2) {
        assert!(kept.remove(EntryKind::Subscription, &uri(n)));
    }
    // More than fits without giving back the room of what was removed.
    for n in 0..2_000 {
        assert!(kept.put(EntryKind::Asked, b"\"ms:2:1\"", &uri(n)));
    }
    let kept = ReplayLog::over(&board, &mut bytes);
    let odd: Vec<_> = (1..1_000).step_by(2).map(uri).collect();
    let found: Vec<_> = kept
        .each(EntryKind::Subscription)
        .map(|(key, _)| key)
        .collect();
    assert_eq!(found, odd);
}

#[derive(Clone, Debug)]
enum Op {
    Put(EntryKind, Vec<u8>, Vec<u8>),
    Remove(EntryKind, Vec<u8>),
    Clear(EntryKind),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let kind = || {
        prop::sample::select(
            &[
                EntryKind::Greeting,
                EntryKind::Subscription,
                EntryKind::Seen,
            ][..],
        )
    };
    let key = || prop::collection::vec(b'a'..b'd', 0..2);
    let value = prop::collection::vec(any::<u8>(), 0..24);
    let op = prop_oneof![
        6 => (kind(), key(), value).prop_map(|(kind, key, value)| Op::Put(kind, key, value)),
        3 => (kind(), key()).prop_map(|(kind, key)| Op::Remove(kind, key)),
        1 => kind().prop_map(Op::Clear),
    ];
    prop::collection::vec(op, 0..40)
}

/// What must be there after an operation that found room.
fn model(before: &Things, op: &Op) -> Things {
    let mut things = before.clone();
    match op {
        Op::Put(kind, key, value) => {
            let new = (*kind, key.clone(), value.clone());
            if !things.contains(&new) {
                things.retain(|(k, name, _)| (k, name) != (kind, key));
                things.push(new);
                things.sort_by_key(|(kind, _, _)| *kind as u8);
            }
        }
        Op::Remove(kind, key) => things.retain(|(k, name, _)| (k, name) != (kind, key)),
        Op::Clear(kind) => things.retain(|(k, _, _)| k != kind),
    }
    things
}

proptest! {
    #[test]
    fn a_killed_keeper_leaves_the_old_or_the_new(ops in ops(), room in 0..160usize, junk: u8) {
        let (board, mut bytes) = (Board::new(), vec![0; 2 * room]);
        let mut kept = ReplayLog::over(&board, &mut bytes);
        let mut before = Things::new();
        for op in ops {
            kept.trail = Some(Vec::new());
            kept.published();
            let after = model(&before, &op);
            let fits = match &op {
                Op::Put(kind, key, value) => kept.put(*kind, key, value),
                Op::Remove(kind, key) => {
                    prop_assert_eq!(kept.remove(*kind, key), before != after);
                    true
                }
                Op::Clear(kind) => {
                    kept.clear(*kind);
                    true
                }
            };
            let needed: usize = after.iter().map(|(_, k, v)| ENTRY_BYTES + k.len() + v.len()).sum();
            prop_assert_eq!(fits, needed <= room || before == after);
            let after = if fits { after } else { before.clone() };
            prop_assert_eq!(&all(&kept), &after);
            let mut turned = false;
            for image in kept.trail.take().unwrap_or_default() {
                let found = recovered(&image.half_written(junk));
                match &op {
                    Op::Clear(_) => {
                        prop_assert!(after.iter().all(|thing| found.contains(thing)));
                        prop_assert!(found.iter().all(|thing| before.contains(thing)));
                    }
                    Op::Put(..) | Op::Remove(..) => {
                        // Once the new one is there it never goes back.
                        turned |= found == after;
                        prop_assert_eq!(&found, if turned { &after } else { &before });
                    }
                }
            }
            before = after;
        }
    }

    #[test]
    fn any_bytes_are_safe(
        in_force: u32,
        len: [u32; 2],
        small in any::<bool>(),
        bytes in prop::collection::vec(prop_oneof![0..9u8, any::<u8>()], 0..400),
        ops in ops(),
    ) {
        let len = if small { len.map(|len| len % 256) } else { len };
        let board = Image { in_force, len, bytes: Vec::new() }.board();
        let mut bytes = bytes;
        let mut kept = ReplayLog::over(&board, &mut bytes);
        for op in ops {
            match op {
                Op::Put(kind, key, value) => {
                    if kept.put(kind, &key, &value) {
                        prop_assert_eq!(kept.get(kind, &key), Some(&value[..]));
                    }
                }
                Op::Remove(kind, key) => {
                    kept.remove(kind, &key);
                    prop_assert_eq!(kept.get(kind, &key), None);
                }
                Op::Clear(kind) => {
                    kept.clear(kind);
                    prop_assert_eq!(kept.each(kind).count(), 0);
                }
            }
        }
    }
}
