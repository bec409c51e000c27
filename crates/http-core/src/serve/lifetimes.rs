//! How long a session lives: opened, used, idle, over. One owner of that decision, with every end and its cause.
//!
//! A session is *in use* while a connection of its client is there, and idle from the moment the last one left. Idle for
//! longer than its time, it is over; when all places are taken, the one that has been idle for longest makes room; one
//! in use never does. What a server still works on for a client that left holds nothing: else a vanished client could
//! hold a session for ever.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;

/// All places are taken by sessions in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The sessions that are open, by a number that is never given twice.
#[derive(Clone, Debug)]
pub struct Lifetimes {
    ttl_ms: u64,
    cap: usize,
    next: u64,
    open: BTreeMap<u64, Use>,
    /// The idle ones, the one that has been idle for longest first.
    idle: BTreeSet<(Moment, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Use {
    /// Connections that are there.
    connections: u32,
    /// When the last one left.
    since: Moment,
}

impl Lifetimes {
    /// None yet.
    pub fn new(ttl_ms: u64, cap: usize) -> Self {
        Self {
            ttl_ms,
            cap,
            next: 1,
            open: BTreeMap::new(),
            idle: BTreeSet::new(),
        }
    }

    /// Other limits; they hold for the sessions that are there, too.
    pub fn limit(&mut self, ttl_ms: u64, cap: usize) {
        self.ttl_ms = ttl_ms;
        self.cap = cap;
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Opens a session with its first connection there. The sessions that are returned with it were ended to make room.
    pub fn open(&mut self, now: Moment) -> Result<(u64, Vec<u64>), Full> {
        let mut evicted = Vec::new();
        while self.open.len() >= self.cap {
            let Some(&(_, oldest)) = self.idle.first() else {
                return Err(Full);
            };
            self.close(oldest);
            evicted.push(oldest);
        }
        let key = self.begin(now);
        debug_assert!(self.open.len() <= self.cap, "more sessions than places");
        Ok((key, evicted))
    }

    /// The same, but only where there is room: no session is evicted for it.
    pub fn open_beside(&mut self, now: Moment) -> Option<u64> {
        (self.open.len() < self.cap).then(|| self.begin(now))
    }

    fn begin(&mut self, now: Moment) -> u64 {
        let key = self.next;
        self.next += 1;
        self.open.insert(
            key,
            Use {
                connections: 1,
                since: now,
            },
        );
        key
    }

    /// How many connections of its client are there; none if it is not open.
    pub fn connections(&self, key: u64) -> Option<usize> {
        Some(self.open.get(&key)?.connections as usize)
    }

    /// A connection of its client came.
    pub fn enter(&mut self, key: u64) {
        if let Some(one) = self.open.get_mut(&key) {
            if one.connections == 0 {
                self.idle.remove(&(one.since, key));
            }
            one.connections += 1;
        }
    }

    /// A connection of its client left.
    pub fn leave(&mut self, now: Moment, key: u64) {
        if let Some(one) = self.open.get_mut(&key) {
            debug_assert!(one.connections > 0, "a connection left that was not there");
            one.connections = one.connections.saturating_sub(1);
            if one.connections == 0 {
                one.since = now;
                self.idle.insert((now, key));
            }
        }
    }

    /// It is over; whether it was there at all.
    pub fn close(&mut self, key: u64) -> bool {
        let Some(one) = self.open.remove(&key) else {
            return false;
        };
        self.idle.remove(&(one.since, key));
        true
    }

    /// Those that have been idle for their whole time; they are closed.
    pub fn expire(&mut self, now: Moment) -> Vec<u64> {
        let mut over = Vec::new();
        while let Some(&(since, key)) = self.idle.first() {
            if since.after_ms(self.ttl_ms) > now {
                break;
            }
            debug_assert_eq!(self.connections(key), Some(0), "a session in use expires");
            self.close(key);
            over.push(key);
        }
        over
    }

    /// When the next one may have been idle for its whole time.
    pub fn wake(&self) -> Option<Moment> {
        let (since, _) = self.idle.first()?;
        Some(since.after_ms(self.ttl_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Moment {
        Moment::default().after_ms(ms)
    }

    #[test]
    fn idle_begins_when_the_last_connection_leaves() {
        let mut sessions = Lifetimes::new(1_000, 10);
        let (key, _) = sessions.open(at(0)).unwrap();
        assert_eq!(sessions.wake(), None, "in use");
        sessions.enter(key);
        sessions.leave(at(5), key);
        assert_eq!(sessions.wake(), None, "one is still there");
        sessions.leave(at(10), key);
        assert_eq!(sessions.wake(), Some(at(1_010)));
        assert!(sessions.expire(at(1_009)).is_empty());
        sessions.enter(key);
        assert!(sessions.expire(at(5_000)).is_empty());
        sessions.leave(at(5_000), key);
        assert_eq!(sessions.expire(at(6_000)), [key]);
        assert!(!sessions.close(key), "over is over");
    }

    #[test]
    fn the_one_unused_for_longest_makes_room_and_one_in_use_never() {
        let mut sessions = Lifetimes::new(1_000, 2);
        let (first, _) = sessions.open(at(0)).unwrap();
        let (second, _) = sessions.open(at(1)).unwrap();
        assert_eq!(sessions.open(at(2)), Err(Full));
        sessions.leave(at(3), second);
        assert_eq!(sessions.open_beside(at(3)), None, "not even an idle one");
        sessions.leave(at(4), first);
        let (third, evicted) = sessions.open(at(5)).unwrap();
        assert_eq!(evicted, [second]);
        sessions.enter(first);
        assert_eq!(sessions.open(at(6)), Err(Full));
        assert!(sessions.close(third));
        let fourth = sessions.open_beside(at(6)).unwrap();
        assert_eq!(sessions.open(at(6)), Err(Full), "it is in use as any other");
        assert!(sessions.close(fourth));
        sessions.limit(1_000, 1);
        assert_eq!(sessions.open(at(7)), Err(Full));
    }

    #[derive(Clone, Debug)]
    enum Do {
        Open,
        Enter(usize),
        Leave(usize),
        Close(usize),
        Expire,
    }

    proptest! {
        #[test]
        fn sessions_are_open_or_closed_and_none_in_use_is_ended(
            steps in proptest::collection::vec(
                prop_oneof![
                    Just(Do::Open),
                    (0usize..8).prop_map(Do::Enter),
                    (0usize..8).prop_map(Do::Leave),
                    (0usize..8).prop_map(Do::Close),
                    Just(Do::Expire),
                ],
                0..200,
            )
        ) {
            let mut sessions = Lifetimes::new(10, 4);
            // What a caller knows: key and connections of each.
            let mut known: Vec<(u64, u32)> = Vec::new();
            let (mut opened, mut ended) = (0, 0);
            for (now, step) in steps.into_iter().enumerate() {
                let now = at(now as u64);
                let over = match step {
                    Do::Open => {
                        if let Ok((key, evicted)) = sessions.open(now) {
                            opened += 1;
                            known.push((key, 1));
                            evicted
                        } else {
                            prop_assert!(known.iter().all(|(_, connections)| *connections > 0));
                            Vec::new()
                        }
                    }
                    Do::Enter(n) => {
                        if let Some((key, connections)) = known.get_mut(n) {
                            sessions.enter(*key);
                            *connections += 1;
                        }
                        Vec::new()
                    }
                    Do::Leave(n) => {
                        if let Some((key, connections)) = known.get_mut(n)
                            && *connections > 0
                        {
                            sessions.leave(now, *key);
                            *connections -= 1;
                        }
                        Vec::new()
                    }
                    Do::Close(n) => {
                        if n < known.len() {
                            let (key, _) = known.remove(n);
                            prop_assert!(sessions.close(key));
                            ended += 1;
                        }
                        Vec::new()
                    }
                    Do::Expire => sessions.expire(now),
                };
                for key in over {
                    let place = known.iter().position(|(held, _)| *held == key).unwrap();
                    prop_assert_eq!(known.remove(place).1, 0, "no session in use");
                    ended += 1;
                }
                prop_assert_eq!(sessions.len(), known.len());
                prop_assert_eq!(opened, ended + known.len());
                prop_assert!(sessions.len() <= 4);
                let idle = known.iter().any(|(_, connections)| *connections == 0);
                prop_assert_eq!(sessions.wake().is_some(), idle);
            }
        }
    }
}
