//! The paths that clients call: which of them are open, and which share one server among their sessions.

use alloc::collections::BTreeMap;
use alloc::string::String;

use super::requests::Refused;

#[derive(Debug)]
struct Path {
    url: String,
    share: bool,
    /// It is no longer in the config file: its sessions go on, new ones are refused.
    retired: bool,
}

/// All paths that there ever were, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Paths {
    known: BTreeMap<u64, Path>,
}

impl Paths {
    pub fn add(&mut self, number: u64, url: String, share: bool) {
        let path = Path {
            url,
            share,
            retired: false,
        };
        self.known.insert(number, path);
    }

    /// New sessions are refused from now on.
    pub fn retire(&mut self, number: u64) {
        if let Some(path) = self.known.get_mut(&number) {
            path.retired = true;
        }
    }

    /// Refuses what is new at a path that was retired.
    pub fn check_open(&self, number: u64) -> Result<(), Refused> {
        match self.known.get(&number) {
            Some(path) if !path.retired => Ok(()),
            Some(_) | None => Err(Refused::Retired),
        }
    }

    /// Whether the sessions of this path share one server.
    pub fn shares(&self, number: u64) -> bool {
        self.known.get(&number).is_some_and(|path| path.share)
    }

    /// Whether clients call both by the same address: a path that changed in the config file gets a new number.
    pub fn same_url(&self, one: u64, other: u64) -> bool {
        let url = |number: u64| self.known.get(&number).map(|path| &path.url);
        url(one) == url(other)
    }
}
