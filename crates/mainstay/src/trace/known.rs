//! Who belongs to which link: the cards, read again whenever one changes.
//!
//! A killed process is gone, and its card says something else, before anybody can ask: so whoever a card has named stays
//! known for a while. A pid counts only with its start time, wherever that can still be read.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mainstay_core::event::{Seen, Target};
use mainstay_core::ids::{Identity, LinkId, TAG_VARIABLE, Tag};
use mainstay_core::limits::TRACE_KNOWN_MS as STAYS_MS;
use mainstay_os::{census, clock, identity};
use rustix::fs::inotify;

use super::home::Home;
use crate::registry::{self, Card};

/// A process of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// Who.
    pub who: Identity,
    /// Of which link.
    pub id: LinkId,
    /// Its server's name.
    pub server: String,
    /// What it is there.
    pub to: Target,
    /// Which generation, if it is the server.
    pub generation: Option<u32>,
}

/// Everybody who is known.
#[derive(Debug)]
pub struct Known {
    inotify: OwnedFd,
    watched: HashSet<LinkId>,
    names: HashMap<LinkId, String>,
    /// With the time at which a card named them last.
    people: HashMap<i32, Vec<(Person, u64)>>,
    read_ms: u64,
}

impl Known {
    /// Reads all cards, and begins to watch them.
    pub fn open(home: &Home) -> io::Result<Self> {
        let inotify =
            inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let links = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&inotify, home.paths.run().open()?.through(), links)?;
        let mut known = Self {
            inotify,
            watched: HashSet::new(),
            names: HashMap::new(),
            people: HashMap::new(),
            read_ms: 0,
        };
        known.refresh(home, true);
        Ok(known)
    }

    /// Reads the cards again, if one has changed.
    pub fn refresh(&mut self, home: &Home, changed: bool) {
        if !changed {
            return;
        }
        self.drain();
        let now = now_ms();
        self.read_ms = now;
        let Ok(listed) = registry::list(&home.paths) else {
            return;
        };
        let there: HashSet<LinkId> = listed.iter().map(|link| link.id).collect();
        self.watched.retain(|id| there.contains(id));
        for link in listed {
            let Ok(directory) = link.path.open() else {
                continue;
            };
            if self.watched.insert(link.id) {
                // Files are replaced by rename. One that was replaced before the watch is read below.
                let files = inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::CLOSE_WRITE;
                inotify::add_watch(&self.inotify, directory.through(), files).ok();
            }
            // Read behind the watch, so that nothing falls between.
            let card = registry::list::read_card(&directory).or(link.card);
            if let Some(card) = card {
                self.note(&card, now);
            }
        }
        for people in self.people.values_mut() {
            people.retain(|(_, seen)| seen + STAYS_MS >= now);
        }
        self.people.retain(|_, people| !people.is_empty());
    }

    /// The links' processes with this pid; with this start time, if it is known.
    pub fn find(&self, pid: i32, start: Option<u64>) -> Vec<Person> {
        let now = now_ms();
        let known: Vec<Person> = self.people.get(&pid).map_or_else(Vec::new, |people| {
            people
                .iter()
                .filter(|(_, seen)| *seen == self.read_ms || seen + STAYS_MS >= now)
                .map(|(person, _)| person.clone())
                .filter(|person| start.is_none_or(|start| start == person.who.start))
                .collect()
        });
        if !known.is_empty() {
            return known;
        }
        self.tagged(pid, start).into_iter().collect()
    }

    /// A process that no card has named yet, by the mark in its environment.
    fn tagged(&self, pid: i32, start: Option<u64>) -> Option<Person> {
        let tag: Tag = census::variable(pid, TAG_VARIABLE)?.parse().ok()?;
        let realm = identity::realm().ok()?;
        let server = self.names.get(&tag.link)?.clone();
        (tag.realm == realm).then_some(Person {
            who: Identity { pid, start: start? },
            id: tag.link,
            server,
            to: Target::Tree,
            generation: None,
        })
    }

    fn note(&mut self, card: &Card, now: u64) {
        self.names.insert(card.id, card.name.clone());
        let parts = [
            (&card.server, Target::Server),
            (&card.shim, Target::Shim),
            (&card.guard, Target::Guard),
            (&card.keeper, Target::Keeper),
            (&card.client, Target::Client),
        ];
        let named = parts.into_iter().filter_map(|(seen, to)| {
            let Seen { who, .. } = seen.as_ref()?;
            Some((*who, to))
        });
        let mut all: Vec<(Identity, Target)> = named.collect();
        for &who in &card.members {
            if all.iter().all(|(named, _)| *named != who) {
                all.push((who, Target::Tree));
            }
        }
        for (who, to) in all {
            let person = Person {
                who,
                id: card.id,
                server: card.name.clone(),
                to,
                generation: (to == Target::Server).then_some(card.generation),
            };
            let people = self.people.entry(who.pid).or_default();
            people.retain(|(old, _)| old.id != person.id || old.who != who);
            people.push((person, now));
        }
    }

    fn drain(&self) {
        let mut bytes = [0u8; 4096];
        while rustix::io::read(&self.inotify, &mut bytes).is_ok_and(|n| n > 0) {}
    }
}

impl AsFd for Known {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

fn now_ms() -> u64 {
    clock::now().0 / 1_000_000
}
