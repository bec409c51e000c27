//! The servers of the legacy era that sessions share, one [`SharedServer`] for each link.
//!
//! A client that wants to join holds a place from its `initialize` on, so that the server does not end meanwhile. The place
//! belongs to a session from [`SharedServers::admit`] on. With its last place a server ends.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::links::Role;
use super::outputs::Count;
use super::requests::Post;
use super::shared_server::{Greeting, SharedServer, To};
use super::traffic::Traffic;

/// A line for a session, as if its own server had said it.
pub(super) type Delivery = (u64, Vec<u8>);

/// How far the opening of a shared server is.
#[derive(Debug)]
pub(super) enum Opened<'s> {
    NotYet,
    /// It answered `initialize` with this.
    Greeted(&'s Greeting),
    /// It cannot be shared: its opening failed, or it is gone.
    Unusable,
}

#[derive(Debug)]
struct Group {
    server: SharedServer,
    /// The session that each place belongs to; a place whose client still waits belongs to none.
    members: BTreeMap<u64, u64>,
}

/// All shared servers, by their links.
#[derive(Debug, Default)]
pub(super) struct SharedServers {
    groups: BTreeMap<u64, Group>,
    /// The server that new sessions of a path join.
    of_path: BTreeMap<u64, u64>,
}

impl SharedServers {
    /// A client takes a place in the server of this path, which is started if there is none: the link.
    pub fn join(&mut self, path: u64, place: u64, traffic: &mut Traffic) -> u64 {
        let link = match self.of_path.get(&path) {
            Some(link) => *link,
            None => self.start(path, traffic),
        };
        if let Some(group) = self.groups.get_mut(&link) {
            group.server.join(place);
        }
        link
    }

    fn start(&mut self, path: u64, traffic: &mut Traffic) -> u64 {
        let mut server = SharedServer::new(traffic.draw);
        let line = server.open(env!("CARGO_PKG_VERSION"));
        let link = traffic.start_link(path, Role::Shared);
        traffic.send(link, line);
        let members = BTreeMap::new();
        self.groups.insert(link, Group { server, members });
        self.of_path.insert(path, link);
        link
    }

    pub fn opened(&self, link: u64, traffic: &Traffic) -> Opened<'_> {
        let group = self.groups.get(&link);
        let group = group.filter(|_| traffic.links.is_open(link));
        match group.map(|group| group.server.greeting()) {
            Some(None) => Opened::NotYet,
            Some(Some(Some(greeting))) => Opened::Greeted(greeting),
            Some(Some(None)) | None => Opened::Unusable,
        }
    }

    /// The place belongs to this session from now on.
    pub fn admit(&mut self, link: u64, place: u64, session: u64) {
        if let Some(group) = self.groups.get_mut(&link) {
            group.members.insert(place, session);
        }
    }

    /// Requests of all its sessions that are not answered.
    pub fn in_flight(&self, link: u64) -> usize {
        let group = self.groups.get(&link);
        group.map_or(0, |group| group.server.in_flight())
    }

    /// A session says something.
    pub fn say(
        &mut self,
        link: u64,
        place: u64,
        post: &Post<'_>,
        traffic: &mut Traffic,
    ) -> Vec<Delivery> {
        let Some(group) = self.groups.get_mut(&link) else {
            return Vec::new();
        };
        let said = group.server.said(place, post.posted, post.line);
        group.deliver(link, said, traffic)
    }

    /// A line of the server.
    pub fn hear(&mut self, link: u64, line: &[u8], traffic: &mut Traffic) -> Vec<Delivery> {
        let Some(group) = self.groups.get_mut(&link) else {
            return Vec::new();
        };
        let before = group.server.greeting().is_some();
        let heard = group.server.heard(line);
        if heard.is_empty() {
            traffic.out.count(Count::Unexpected);
        }
        if let Some(greeting) = group.server.greeting().filter(|_| !before) {
            if greeting.is_none() {
                self.of_path.retain(|_, held| *held != link);
            }
            traffic.wake_waiting(link);
        }
        group.deliver(link, heard, traffic)
    }

    /// A place is given up. With the last one the server ends.
    pub fn leave(&mut self, link: u64, place: u64, traffic: &mut Traffic) {
        let Some(group) = self.groups.get_mut(&link) else {
            return;
        };
        group.members.remove(&place);
        for line in group.server.leave(place) {
            traffic.send(link, line);
        }
        if group.server.is_empty() {
            self.remove(link);
            traffic.close_link(link);
        }
    }

    /// The link is gone: the sessions that had its server.
    pub fn remove(&mut self, link: u64) -> Vec<u64> {
        self.of_path.retain(|_, held| *held != link);
        let group = self.groups.remove(&link);
        group.map_or_else(Vec::new, |group| group.members.into_values().collect())
    }

    /// Whether this place of this link belongs to this session.
    pub fn has_member(&self, link: u64, place: u64, session: u64) -> bool {
        let group = self.groups.get(&link);
        group.is_some_and(|group| group.members.get(&place) == Some(&session))
    }

    /// States what holds after each step.
    pub fn check(&self, traffic: &Traffic) {
        for (link, group) in &self.groups {
            debug_assert_eq!(
                traffic.links.role(*link),
                Some(Role::Shared),
                "the link of a shared server has another use"
            );
            debug_assert!(!group.server.is_empty(), "a shared server without a place");
            group.server.check();
        }
        for link in self.of_path.values() {
            debug_assert!(
                self.groups.contains_key(link),
                "clients join a server that is gone"
            );
        }
    }
}

impl Group {
    /// Sends what is for the server; the rest is for sessions.
    fn deliver(&self, link: u64, said: Vec<To>, traffic: &mut Traffic) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        for to in said {
            match to {
                To::Server(line) => traffic.send(link, line),
                To::Session(place, line) => {
                    let session = self.members.get(&place);
                    deliveries.extend(session.map(|session| (*session, line)));
                }
            }
        }
        deliveries
    }
}
