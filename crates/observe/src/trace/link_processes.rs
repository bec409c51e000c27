//! Which process belongs to which link: read from the links' cards, again whenever a card changes.
//!
//! When a traced signal is read, the killed process may be gone and its card rewritten. So a process that a card has named
//! stays known for a while. A pid counts only together with its start time, if that can still be read.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mainstay_os::{census, clock, identity};
use mainstay_protocol::event::{Seen, Target};
use mainstay_protocol::ids::{Identity, LinkId, TAG_VARIABLE, Tag};
use mainstay_protocol::limits::TRACE_KNOWN_MS as STAYS_MS;
use mainstay_store::registry::{self, Card};
use rustix::fs::inotify;

use super::home::Home;

/// A process of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkProcess {
    pub who: Identity,
    /// The id of the link.
    pub id: LinkId,
    /// The name of the link's server.
    pub server: String,
    /// The role of the process in the link.
    pub to: Target,
    /// The generation, if the process is the server.
    pub generation: Option<u32>,
}

/// The processes of all links.
#[derive(Debug)]
pub struct LinkProcesses {
    inotify: OwnedFd,
    watched: HashSet<LinkId>,
    names: HashMap<LinkId, String>,
    /// By pid; each with the time at which a card named it last.
    by_pid: HashMap<i32, Vec<(LinkProcess, u64)>>,
    read_ms: u64,
}

impl LinkProcesses {
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
            by_pid: HashMap::new(),
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
                // Cards are replaced by rename. A card that was replaced before the watch is read below.
                let files = inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::CLOSE_WRITE;
                inotify::add_watch(&self.inotify, directory.through(), files).ok();
            }
            // Read after the watch was set, so that no change is missed.
            let card = registry::list::read_card(&directory).or(link.card);
            if let Some(card) = card {
                self.note(&card, now);
            }
        }
        for processes in self.by_pid.values_mut() {
            processes.retain(|(_, seen)| seen + STAYS_MS >= now);
        }
        self.by_pid.retain(|_, processes| !processes.is_empty());
    }

    /// The processes of links with this pid and, if it is known, this start time.
    pub fn find(&self, pid: i32, start: Option<u64>) -> Vec<LinkProcess> {
        let now = now_ms();
        let known: Vec<LinkProcess> = self.by_pid.get(&pid).map_or_else(Vec::new, |processes| {
            processes
                .iter()
                .filter(|(_, seen)| *seen == self.read_ms || seen + STAYS_MS >= now)
                .map(|(process, _)| process.clone())
                .filter(|process| start.is_none_or(|start| start == process.who.start))
                .collect()
        });
        if !known.is_empty() {
            return known;
        }
        self.tagged(pid, start).into_iter().collect()
    }

    /// A process that no card has named yet, found by the tag in its environment.
    fn tagged(&self, pid: i32, start: Option<u64>) -> Option<LinkProcess> {
        let tag: Tag = census::variable(pid, TAG_VARIABLE)?.parse().ok()?;
        let realm = identity::realm().ok()?;
        let server = self.names.get(&tag.link)?.clone();
        (tag.realm == realm).then_some(LinkProcess {
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
            let process = LinkProcess {
                who,
                id: card.id,
                server: card.name.clone(),
                to,
                generation: (to == Target::Server).then_some(card.generation),
            };
            let processes = self.by_pid.entry(who.pid).or_default();
            processes.retain(|(old, _)| old.id != process.id || old.who != who);
            processes.push((process, now));
        }
    }

    fn drain(&self) {
        let mut bytes = [0u8; 4096];
        while rustix::io::read(&self.inotify, &mut bytes).is_ok_and(|n| n > 0) {}
    }
}

impl AsFd for LinkProcesses {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

fn now_ms() -> u64 {
    clock::now().0 / 1_000_000
}
