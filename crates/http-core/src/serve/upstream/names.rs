//! What the names of sessions upstream mean, for each path: the key of an open session, or a session that is over.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;

use super::super::limits::ENDED_KNOWN;

/// The names that the server of one path has given.
#[derive(Debug, Default)]
struct Given {
    open: BTreeMap<String, u64>,
    ended: BTreeSet<String>,
    /// The same in the order of their ends: the first is forgotten first.
    order: VecDeque<String>,
}

/// The names of all paths.
#[derive(Debug, Default)]
pub(super) struct Names {
    by_path: BTreeMap<u64, Given>,
}

impl Names {
    /// The open session of this name.
    pub fn key(&self, path: u64, name: &str) -> Option<u64> {
        self.by_path.get(&path)?.open.get(name).copied()
    }

    /// Whether the session of this name was ended here.
    pub fn has_ended(&self, path: u64, name: &str) -> bool {
        let given = self.by_path.get(&path);
        given.is_some_and(|given| given.ended.contains(name))
    }

    /// The server has given this name to a new session.
    pub fn open(&mut self, path: u64, name: &str, key: u64) {
        let given = self.by_path.entry(path).or_default();
        let old = given.open.insert(name.into(), key);
        debug_assert!(old.is_none(), "a name has two sessions");
        if given.ended.remove(name) {
            given.order.retain(|held| held != name);
        }
    }

    /// The session of this name is over.
    pub fn end(&mut self, path: u64, name: &str) {
        let given = self.by_path.entry(path).or_default();
        let open = given.open.remove(name);
        debug_assert!(open.is_some(), "a session is over that was not open");
        if given.ended.insert(name.into()) {
            given.order.push_back(name.into());
        }
        while given.order.len() > ENDED_KNOWN {
            if let Some(first) = given.order.pop_front() {
                given.ended.remove(&first);
            }
        }
    }

    /// How many names have an open session.
    pub fn len(&self) -> usize {
        self.by_path.values().map(|given| given.open.len()).sum()
    }

    /// States what holds after each step.
    pub fn check(&self) {
        for given in self.by_path.values() {
            debug_assert_eq!(
                given.ended.len(),
                given.order.len(),
                "a name that is over is forgotten once"
            );
            debug_assert!(
                given
                    .ended
                    .iter()
                    .all(|name| !given.open.contains_key(name)),
                "a session is open and over"
            );
        }
    }
}
