//! The HTTP front as one machine: exchanges with clients, sessions, links to servers, and how each of them ends.
//!
//! Input and time go in by a few verbs; what is to be done comes out of [`Front::next_output`]. The caller owns sockets, pipes and
//! files, and performs outputs in their order. This file has the life of sessions and links and what servers say;
//! `front/asks.rs` has what clients ask.
//!
//! Invariants, walked by [`Front::check`]:
//! - A session has one name, one link and one end; its connections are the exchanges that name it.
//! - A link has one role. Without one it is closed, and nothing is sent on it.
//! - A client leaves in one way, [`Front::left`], whatever its exchange was waiting for.
//! - After the stop there is no session, and no link that is not closing.

mod asks;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::inlet::{Inlet, Next};
use super::joint::{Joint, To};
use super::limits::{STREAMS_KNOWN, ServeLimits};
use super::modern::{self, Fresh, Modern, Said, Speaks};
use super::outlet::Readers;
use super::session::{self, Keeps, Session};
use super::sessions::{Full, Over, Sessions};
use super::shared::Draw;
use super::words::{self, Code};
use crate::clock::Moment;
use crate::limits::HELD_LINE_BYTES;
use crate::message::frame::{Id, Kind};
use crate::message::lines::{Line, Lines};

pub use asks::{Get, Post, Read, Refused, Step};

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Start a link for this path; [`Front::started`] or [`Front::start_failed`] says what became of it.
    Start {
        /// The link.
        link: u64,
        /// The path whose server is started.
        path: u64,
    },
    /// This link has a line to write, or is to be closed: see [`Front::next_line`].
    Write(u64),
    /// This exchange is to be asked or read again.
    Wake(u64),
    /// A session began.
    Began {
        /// The session.
        session: u64,
        /// Where.
        path: u64,
    },
    /// A session is over.
    Over(Ended),
    /// A session upstream is over here.
    EndFar {
        /// The session.
        session: u64,
        /// Whether its server is still to be told; [`Front::paid`] says when it was.
        owed: bool,
    },
    /// Something is counted.
    Count(Count),
    /// Connections are to end as soon as they have sent what they have.
    LastOrders,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The session.
    pub session: u64,
    /// Where it was.
    pub path: u64,
    /// Why.
    pub why: Over,
    /// When it began.
    pub since: Moment,
    /// Its requests.
    pub requests: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// A request of the legacy era that a server got.
    Legacy,
    /// A request of the modern era that a server got.
    Modern,
    /// Requests that were answered because their server could not.
    Settled(usize),
    /// A message that was dropped because a client does not read.
    Dropped,
    /// A line of a server that belongs to no request.
    Stray,
    /// A request that was answered after this time.
    Answered(u64),
}

/// How far the stop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Serving,
    /// Nothing new is taken; what is in flight has until then.
    Draining(Moment),
    /// Every session is over.
    Closing,
}

/// The front.
pub struct Front {
    limits: ServeLimits,
    course: Course,
    table: Sessions,
    names: BTreeMap<String, u64>,
    sessions: BTreeMap<u64, Held>,
    exchanges: BTreeMap<u64, Exchange>,
    readers: Readers,
    links: BTreeMap<u64, Link>,
    /// The links whose servers are for all clients of the modern era.
    moderns: BTreeSet<u64>,
    paths: BTreeMap<u64, Path>,
    passing: Passing,
    out: VecDeque<Output>,
    draw: Draw,
    next: u64,
}

/// What servers upstream have not done yet.
#[derive(Clone, Debug, Default)]
struct Passing {
    /// Requests that they have not answered.
    requests: usize,
    /// Sessions whose end they have not confirmed.
    owed: BTreeSet<u64>,
}

/// What is behind one path.
#[derive(Debug)]
struct Path {
    url: String,
    share: bool,
    /// It is not in the config file any more: sessions go on, new ones are refused.
    retired: bool,
    /// The link that its sessions of the legacy era share.
    joint: Option<u64>,
    /// The link for all clients of the modern era.
    modern: Option<u64>,
    /// When its server said that it is of the legacy era.
    legacy: Option<Moment>,
}

/// A session.
enum Held {
    /// One of ours.
    Own(Box<Own>),
    /// One of a server upstream.
    Far {
        path: u64,
        since: Moment,
        requests: u64,
    },
}

/// A session of ours.
struct Own {
    name: String,
    path: u64,
    /// When its link was started.
    since: Option<Moment>,
    requests: u64,
    link: u64,
    /// Its part in a shared server.
    place: Option<u64>,
    session: Session,
}

/// A way to one server.
struct Link {
    inlet: Inlet,
    lines: Lines,
    role: Role,
    path: u64,
    /// Exchanges that wait for something of this link.
    waiting: BTreeSet<u64>,
}

/// Who hears what a server says.
enum Role {
    Session(u64),
    Joint(Box<Group>),
    Modern(Box<Modern>),
    /// Nothing does: it is closing.
    Unused,
}

/// A server for many sessions.
struct Group {
    joint: Joint,
    /// The session that each place belongs to; a place whose exchange still waits has none.
    members: BTreeMap<u64, u64>,
}

/// One HTTP request with its answer.
#[derive(Clone, Debug)]
struct Exchange {
    state: State,
    /// The session whose connection it is.
    session: Option<u64>,
    /// The link that it waits for.
    waits_on: Option<u64>,
    /// When its silence is to be broken.
    quiet: Moment,
    /// How many servers of the modern era were no use.
    tries: u8,
}

/// How far an exchange is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    New,
    /// It is in a session, and waits until the link takes another line.
    Admitted,
    /// It waits until this shared server is open.
    Joining(u64),
    /// It is to open a session with a server of its own.
    Alone,
    /// It waits until a server has said what it speaks.
    Speaking(Option<u64>),
    /// It waits for the tool list of this server.
    Comparing(u64, Fresh),
    /// It waits until this server takes another line.
    Sending(u64),
    /// `initialize` was sent; the client does not know its session yet.
    Opening(Source),
    /// It waits for the first message.
    Asked(Source),
    /// Events are read. The head is sent before them.
    Reading(Source, Option<Vec<u8>>),
    /// The server could not be started.
    Failed(String),
    /// It has been answered.
    Answered,
}

/// Where the messages of an exchange come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A request's stream of a session.
    Stream { session: u64, stream: u64 },
    /// The news of a session.
    News { session: u64 },
    /// A request to a server of the modern era.
    Modern { link: u64, number: u64 },
    /// What is kept of a stream that is over.
    Kept,
}

impl Front {
    /// A front with nothing open. `draw` gives bits that no client can guess.
    pub fn new(limits: ServeLimits, draw: Draw) -> Self {
        Self {
            course: Course::Serving,
            table: Sessions::new(limits.session_ttl_ms, limits.session_cap as usize),
            limits,
            names: BTreeMap::new(),
            sessions: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            readers: Readers::default(),
            links: BTreeMap::new(),
            moderns: BTreeSet::new(),
            paths: BTreeMap::new(),
            passing: Passing::default(),
            out: VecDeque::new(),
            draw,
            next: 1,
        }
    }

    /// What is to be done next.
    pub fn next_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When [`Front::tick`] is due.
    pub fn wake_at(&self) -> Option<Moment> {
        let ttl = self.limits.session_ttl_ms;
        let moderns = self.moderns.iter().filter_map(|link| self.modern(*link));
        let moderns = moderns.flat_map(|modern| {
            let unused = modern.unused_since().map(|since| since.after_ms(ttl));
            unused.into_iter().chain(modern.wake_at())
        });
        let draining = match self.course {
            Course::Draining(until) => Some(until),
            Course::Serving | Course::Closing => None,
        };
        moderns.chain(self.table.wake()).chain(draining).min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Moment) {
        for key in self.table.expire(now) {
            self.end(now, key, Over::Idle);
        }
        for link in self.moderns.clone() {
            self.tick_modern(now, link);
        }
        self.collect(now);
    }

    /// Other limits; they hold for what is open, too.
    pub fn limit(&mut self, limits: ServeLimits) {
        self.table
            .limit(limits.session_ttl_ms, limits.session_cap as usize);
        self.limits = limits;
    }

    /// A path: its number.
    pub fn add_path(&mut self, url: String, share: bool) -> u64 {
        let path = Path {
            url,
            share,
            retired: false,
            joint: None,
            modern: None,
            legacy: None,
        };
        let number = self.number();
        self.paths.insert(number, path);
        number
    }

    /// Nothing new is started at this path; what is in flight goes on.
    pub fn retire(&mut self, now: Moment, path: u64) {
        let Some(path) = self.paths.get_mut(&path) else {
            return;
        };
        path.retired = true;
        if let Some(link) = path.modern.take() {
            if let Some(modern) = self.modern_mut(link) {
                modern.retire();
            }
            self.close_if_done(link);
            self.wake_waiting(link);
        }
        self.collect(now);
    }

    /// From now on nothing new is taken; what is in flight has some time to be answered.
    pub fn stop(&mut self, now: Moment) {
        if self.course == Course::Serving {
            self.course = Course::Draining(now.after_ms(self.limits.stop_wait_ms));
        }
        self.collect(now);
    }

    /// Whether nothing new is taken.
    pub fn is_stopping(&self) -> bool {
        self.course != Course::Serving
    }

    /// Whether connections are to end.
    pub fn is_closing(&self) -> bool {
        self.course == Course::Closing
    }

    /// Sessions that are open.
    pub fn open_sessions(&self) -> usize {
        self.table.len()
    }

    /// Links that have not ended.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Sessions upstream whose end is not confirmed.
    pub fn owed(&self) -> usize {
        self.passing.owed.len()
    }

    /// Bytes that wait for clients and servers.
    pub fn waiting_bytes(&self) -> usize {
        let inlets = self.links.values().map(|link| link.inlet.bytes());
        self.readers.bytes() + inlets.sum::<usize>()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn count(&mut self, count: Count) {
        self.out.push_back(Output::Count(count));
    }

    /// What follows from any input: exchanges are woken, and a stop that has nothing to wait for ends everything.
    fn collect(&mut self, now: Moment) {
        if let Course::Draining(until) = self.course
            && (until <= now || self.is_idle())
        {
            self.end_all(now);
        }
        self.out.extend(self.readers.woken().map(Output::Wake));
    }

    /// Whether no client waits for an answer; those who only listen never stop.
    fn is_idle(&self) -> bool {
        let sessions = self.sessions.values().all(|held| match held {
            Held::Own(own) => !own.session.is_waited_for(),
            Held::Far { .. } => true,
        });
        let mut moderns = self.moderns.iter().filter_map(|link| self.modern(*link));
        sessions && moderns.all(Modern::is_idle) && self.passing.requests == 0
    }

    fn end_all(&mut self, now: Moment) {
        self.course = Course::Closing;
        for link in self.moderns.clone() {
            self.end_modern(link, "serve stops");
        }
        let keys: Vec<u64> = self.sessions.keys().copied().collect();
        for key in keys {
            self.end(now, key, Over::Shutdown);
        }
        let links: Vec<u64> = self.links.keys().copied().collect();
        for link in links {
            self.wake_waiting(link);
        }
        self.out.push_back(Output::LastOrders);
    }
}

/// Sessions: their places, their ends.
impl Front {
    /// A place for a session upstream, with its first connection there.
    pub fn reserve(&mut self, now: Moment) -> Result<u64, Full> {
        let (key, evicted) = self.table.open(now)?;
        for one in evicted {
            self.end(now, one, Over::Evicted);
        }
        self.collect(now);
        Ok(key)
    }

    /// The same if one is free: no other session makes room for it.
    pub fn reserve_beside(&mut self, now: Moment) -> Option<u64> {
        self.table.open_beside(now)
    }

    /// The place was not taken.
    pub fn release(&mut self, key: u64) {
        debug_assert!(
            !self.sessions.contains_key(&key),
            "a session has this place"
        );
        self.table.close(key);
    }

    /// A session upstream takes its place.
    pub fn begin_far(&mut self, now: Moment, key: u64, path: u64) {
        let far = Held::Far {
            path,
            since: now,
            requests: 0,
        };
        let old = self.sessions.insert(key, far);
        debug_assert!(old.is_none(), "a place has one session");
        self.out.push_back(Output::Began { session: key, path });
    }

    /// A request of a session upstream.
    pub fn far_request(&mut self, key: u64) {
        if let Some(Held::Far { requests, .. }) = self.sessions.get_mut(&key) {
            *requests += 1;
        }
    }

    /// Another connection of a session's client.
    pub fn enter(&mut self, key: u64) {
        self.table.enter(key);
    }

    /// A connection of a session's client has ended.
    pub fn leave(&mut self, now: Moment, key: u64) {
        self.table.leave(now, key);
        self.collect(now);
    }

    /// A request was passed on to a server upstream.
    pub fn pass_begins(&mut self) {
        self.passing.requests += 1;
    }

    /// It was answered to its end, or given up.
    pub fn pass_ends(&mut self, now: Moment) {
        debug_assert!(
            self.passing.requests > 0,
            "an answer that was not waited for"
        );
        self.passing.requests = self.passing.requests.saturating_sub(1);
        self.collect(now);
    }

    /// The end of a session upstream has been confirmed, or is written down for the next start.
    pub fn paid(&mut self, key: u64) {
        let owed = self.passing.owed.remove(&key);
        debug_assert!(owed, "an end that was not owed");
    }

    /// Ends a session: whatever is in flight is answered, its server is told that its client is gone.
    pub fn end_session(&mut self, now: Moment, key: u64, why: Over) {
        self.end(now, key, why);
        self.collect(now);
    }

    fn end(&mut self, now: Moment, key: u64, why: Over) {
        self.table.close(key);
        let Some(held) = self.sessions.remove(&key) else {
            return;
        };
        let ended = match held {
            Held::Far {
                path,
                since,
                requests,
            } => {
                let owed = match why {
                    Over::Deleted | Over::ServerGone => false,
                    Over::Idle | Over::Evicted | Over::OpeningFailed | Over::Shutdown => true,
                };
                // It counts from here on, and not from when the caller gets to it: a stop waits for it.
                if owed {
                    self.passing.owed.insert(key);
                }
                self.out.push_back(Output::EndFar { session: key, owed });
                Some((path, since, requests))
            }
            Held::Own(mut own) => {
                self.names.remove(&own.name);
                self.settle(&mut own, &format!("the session is over: {why}"));
                match own.place {
                    None => self.close_link(own.link),
                    Some(place) => {
                        self.wake_waiting(own.link);
                        self.leave_joint(now, own.link, place);
                    }
                }
                own.since.map(|since| (own.path, since, own.requests))
            }
        };
        // One whose link could not be started has not begun.
        if let Some((path, since, requests)) = ended {
            self.out.push_back(Output::Over(Ended {
                session: key,
                path,
                why,
                since,
                requests,
            }));
        }
    }

    fn settle(&mut self, own: &mut Own, why: &str) {
        let settled = own.session.settle(why, &mut self.readers);
        if settled > 0 {
            self.count(Count::Settled(settled));
        }
    }

    /// A session of ours begins at this link.
    fn begin_own(&mut self, key: u64, path: u64, link: u64, place: Option<u64>) -> &mut Own {
        let name = format!("{:032x}", (self.draw)());
        let keeps = Keeps {
            events: self.limits.resume_events as usize,
            bytes: self.limits.resume_bytes as usize,
            streams: STREAMS_KNOWN,
        };
        let old = self.names.insert(name.clone(), key);
        debug_assert!(old.is_none(), "a name is given once");
        let own = Own {
            name,
            path,
            since: None,
            requests: 0,
            link,
            place,
            session: Session::new(keeps),
        };
        debug_assert!(!self.sessions.contains_key(&key), "a place has one session");
        let held = self.sessions.entry(key).or_insert(Held::Own(Box::new(own)));
        match held {
            Held::Own(own) => own,
            Held::Far { .. } => unreachable!("the place was empty"),
        }
    }

    fn own(&self, key: u64) -> Option<&Own> {
        match self.sessions.get(&key)? {
            Held::Own(own) => Some(own),
            Held::Far { .. } => None,
        }
    }

    fn own_mut(&mut self, key: u64) -> Option<&mut Own> {
        match self.sessions.get_mut(&key)? {
            Held::Own(own) => Some(own),
            Held::Far { .. } => None,
        }
    }
}

/// Links: how they start, what they say, how they end.
impl Front {
    /// The link runs.
    pub fn started(&mut self, now: Moment, link: u64) {
        if let Some(Link {
            role: Role::Session(key),
            ..
        }) = self.links.get(&link)
        {
            let key = *key;
            self.has_begun(now, key);
        }
        self.collect(now);
    }

    /// The link could not be started.
    pub fn start_failed(&mut self, now: Moment, link: u64, why: &str) {
        let Some(failed) = self.links.remove(&link) else {
            return;
        };
        self.moderns.remove(&link);
        self.forget_link(failed.path, link);
        let mut waiting = failed.waiting;
        if let Role::Session(key) = failed.role {
            let theirs = self
                .exchanges
                .iter()
                .filter(|(_, one)| one.session == Some(key));
            waiting.extend(theirs.map(|(number, _)| *number));
            self.end(now, key, Over::OpeningFailed);
        }
        for number in waiting {
            if let Some(exchange) = self.exchanges.get_mut(&number) {
                exchange.state = State::Failed(why.into());
                exchange.waits_on = None;
                self.out.push_back(Output::Wake(number));
            }
        }
        self.collect(now);
    }

    /// The server's link said something.
    pub fn server_bytes(&mut self, now: Moment, link: u64, bytes: &[u8]) {
        let Some(held) = self.links.get_mut(&link) else {
            return;
        };
        let mut lines = core::mem::replace(&mut held.lines, no_lines());
        let mut piece = bytes;
        while let Some(line) = lines.next(&mut piece) {
            if let Some(line) = whole_or_answer(line) {
                self.hear(now, link, &line);
            }
        }
        if let Some(held) = self.links.get_mut(&link) {
            held.lines = lines;
        }
        self.collect(now);
    }

    /// The next line to write to this link. A link that is not known is closed.
    pub fn next_line(&mut self, link: u64) -> Next {
        let held = self.links.get_mut(&link);
        held.map_or(Next::Close, |held| held.inlet.next_line())
    }

    /// So many bytes of such a line were written.
    pub fn written(&mut self, link: u64, bytes: usize) {
        if let Some(held) = self.links.get_mut(&link) {
            let full = !held.inlet.has_room();
            held.inlet.written(bytes);
            if full && held.inlet.has_room() {
                self.wake_waiting(link);
            }
        }
    }

    /// The link reads no more; that it has ended is told by [`Front::link_over`].
    pub fn unwritable(&mut self, link: u64) {
        if let Some(held) = self.links.get_mut(&link) {
            held.inlet.abandon();
            self.out.push_back(Output::Write(link));
            self.wake_waiting(link);
        }
    }

    /// The link has ended, and how.
    pub fn link_over(&mut self, now: Moment, link: u64, how: &str) {
        self.wake_waiting(link);
        let Some(gone) = self.links.remove(&link) else {
            return;
        };
        self.moderns.remove(&link);
        self.forget_link(gone.path, link);
        let why = format!("the server's link has ended ({how})");
        match gone.role {
            Role::Session(key) => self.lose_server(now, key, &why),
            Role::Joint(group) => {
                for key in group.members.into_values() {
                    self.lose_server(now, key, &why);
                }
            }
            Role::Modern(mut modern) => self.settle_modern(&mut modern, &why),
            Role::Unused => {}
        }
        self.collect(now);
    }

    fn lose_server(&mut self, now: Moment, key: u64, why: &str) {
        let mut settled = 0;
        if let Some(Held::Own(own)) = self.sessions.get_mut(&key) {
            settled = own.session.settle(why, &mut self.readers);
        }
        if settled > 0 {
            self.count(Count::Settled(settled));
        }
        self.end(now, key, Over::ServerGone);
    }

    fn has_begun(&mut self, now: Moment, key: u64) {
        if let Some(own) = self.own_mut(key) {
            own.since = Some(now);
            let path = own.path;
            self.out.push_back(Output::Began { session: key, path });
        }
    }

    fn start(&mut self, path: u64, role: Role) -> u64 {
        let link = self.number();
        if matches!(role, Role::Modern(_)) {
            self.moderns.insert(link);
        }
        let held = Link {
            inlet: Inlet::new(),
            lines: no_lines(),
            role,
            path,
            waiting: BTreeSet::new(),
        };
        self.links.insert(link, held);
        self.out.push_back(Output::Start { link, path });
        link
    }

    fn send(&mut self, link: u64, line: Vec<u8>) {
        if let Some(held) = self.links.get_mut(&link)
            && held.inlet.send(line)
        {
            self.out.push_back(Output::Write(link));
        }
    }

    /// Its server is told that its client is gone, when everything has been written.
    fn close_link(&mut self, link: u64) {
        self.wake_waiting(link);
        self.moderns.remove(&link);
        let Some(held) = self.links.get_mut(&link) else {
            return;
        };
        held.role = Role::Unused;
        held.inlet.close();
        let path = held.path;
        self.forget_link(path, link);
        self.out.push_back(Output::Write(link));
    }

    fn forget_link(&mut self, path: u64, link: u64) {
        if let Some(path) = self.paths.get_mut(&path) {
            path.joint.take_if(|held| *held == link);
            path.modern.take_if(|held| *held == link);
        }
    }

    fn wake_waiting(&mut self, link: u64) {
        let Some(held) = self.links.get_mut(&link) else {
            return;
        };
        for number in core::mem::take(&mut held.waiting) {
            if let Some(exchange) = self.exchanges.get_mut(&number) {
                exchange.waits_on = None;
            }
            self.out.push_back(Output::Wake(number));
        }
    }

    /// A whole line of a server.
    fn hear(&mut self, now: Moment, link: u64, line: &[u8]) {
        let Some(held) = self.links.get_mut(&link) else {
            return;
        };
        match &mut held.role {
            Role::Session(key) => {
                let key = *key;
                self.hear_session(now, key, line);
            }
            Role::Joint(group) => {
                let before = group.joint.greeting().is_some();
                let told = group.joint.heard(line);
                let greeting = group.joint.greeting().map(|greeting| greeting.is_some());
                let path = held.path;
                if told.is_empty() {
                    self.count(Count::Stray);
                }
                if !before && let Some(opened) = greeting {
                    if !opened {
                        self.forget_link(path, link);
                    }
                    self.wake_waiting(link);
                }
                self.deliver(now, link, told);
            }
            Role::Modern(modern) => {
                let heard = modern.hear(now, line, &mut self.readers);
                self.heard_modern(now, link, heard);
            }
            Role::Unused => {}
        }
    }

    /// A line for a session, from its own server or from a shared one.
    fn hear_session(&mut self, now: Moment, key: u64, line: &[u8]) {
        let Some(Held::Own(own)) = self.sessions.get_mut(&key) else {
            return;
        };
        let heard = own.session.hear(now, line, &mut self.readers);
        let opened = own.session.version().is_some();
        self.counted(heard);
        if matches!(heard, session::Heard::Answered(_)) && !opened {
            self.end(now, key, Over::OpeningFailed);
        }
    }

    fn counted(&mut self, heard: session::Heard) {
        match heard {
            session::Heard::Answered(Some(ns)) => self.count(Count::Answered(ns)),
            session::Heard::Dropped => self.count(Count::Dropped),
            session::Heard::Stray => self.count(Count::Stray),
            session::Heard::Answered(None) | session::Heard::Passed => {}
        }
    }

    /// Lines from a shared server's table to those that they are for.
    fn deliver(&mut self, now: Moment, link: u64, told: Vec<To>) {
        for to in told {
            match to {
                To::Server(line) => self.send(link, line),
                To::Session(place, line) => {
                    let group = self.group(link);
                    let key = group.and_then(|group| group.members.get(&place).copied());
                    if let Some(key) = key {
                        self.hear_session(now, key, &line);
                    }
                }
            }
        }
    }

    /// A place in a shared server is given up; with the last one its server ends.
    fn leave_joint(&mut self, now: Moment, link: u64, place: u64) {
        let Some(group) = self.group_mut(link) else {
            return;
        };
        group.members.remove(&place);
        let told = group.joint.leave(place);
        let empty = group.joint.is_empty();
        self.deliver(now, link, told);
        if empty {
            self.close_link(link);
        }
    }

    fn heard_modern(&mut self, now: Moment, link: u64, heard: modern::Heard) {
        match heard {
            modern::Heard::Answered(ns) => {
                self.count(Count::Answered(ns));
                self.close_if_done(link);
            }
            modern::Heard::Passed => {}
            modern::Heard::Dropped => self.count(Count::Dropped),
            modern::Heard::Stray => self.count(Count::Stray),
            modern::Heard::Learned(line) => {
                if let Some(line) = line {
                    self.send(link, line);
                }
                self.wake_waiting(link);
                self.judge_era(now, link);
            }
        }
    }

    /// A server that is of the legacy era is ended again, and remembered as such if it said so.
    fn judge_era(&mut self, now: Moment, link: u64) {
        let Some(Link {
            role: Role::Modern(modern),
            path,
            ..
        }) = self.links.get(&link)
        else {
            return;
        };
        let Speaks::Legacy(said) = modern.speaks() else {
            return;
        };
        if let Some(path) = self.paths.get_mut(path) {
            path.legacy = match said {
                Said::Itself => Some(now),
                Said::Nothing => None,
            };
        }
        self.end_modern(link, "the server is of the legacy era");
    }

    fn tick_modern(&mut self, now: Moment, link: u64) {
        let ttl = self.limits.session_ttl_ms;
        let Some(modern) = self.modern_mut(link) else {
            return;
        };
        if let Some(line) = modern.tick(now) {
            self.send(link, line);
            self.wake_waiting(link);
            self.judge_era(now, link);
        }
        let unused = self.modern(link).and_then(Modern::unused_since);
        if unused.is_some_and(|since| since.after_ms(ttl) <= now) {
            self.end_modern(link, "nobody used it for a while");
        }
    }

    /// A server for many ends now: what is in flight is answered here.
    fn end_modern(&mut self, link: u64, why: &str) {
        let Some(held) = self.links.get_mut(&link) else {
            return;
        };
        if let Role::Modern(mut modern) = core::mem::replace(&mut held.role, Role::Unused) {
            self.settle_modern(&mut modern, why);
        }
        self.close_link(link);
    }

    fn settle_modern(&mut self, modern: &mut Modern, why: &str) {
        let settled = modern.settle(why, &mut self.readers);
        if settled > 0 {
            self.count(Count::Settled(settled));
        }
    }

    fn close_if_done(&mut self, link: u64) {
        if self.modern(link).is_some_and(Modern::is_done) {
            self.close_link(link);
        }
    }

    fn modern(&self, link: u64) -> Option<&Modern> {
        match &self.links.get(&link)?.role {
            Role::Modern(modern) => Some(modern),
            Role::Session(_) | Role::Joint(_) | Role::Unused => None,
        }
    }

    fn modern_mut(&mut self, link: u64) -> Option<&mut Modern> {
        match &mut self.links.get_mut(&link)?.role {
            Role::Modern(modern) => Some(modern),
            Role::Session(_) | Role::Joint(_) | Role::Unused => None,
        }
    }

    fn group(&self, link: u64) -> Option<&Group> {
        match &self.links.get(&link)?.role {
            Role::Joint(group) => Some(group),
            Role::Session(_) | Role::Modern(_) | Role::Unused => None,
        }
    }

    fn group_mut(&mut self, link: u64) -> Option<&mut Group> {
        match &mut self.links.get_mut(&link)?.role {
            Role::Joint(group) => Some(group),
            Role::Session(_) | Role::Modern(_) | Role::Unused => None,
        }
    }
}

/// What holds after each step.
impl Front {
    /// Walks all tables and states the invariants.
    pub fn check(&self) {
        self.readers.check();
        for (key, held) in &self.sessions {
            debug_assert!(
                self.table.connections(*key).is_some(),
                "a session has a place"
            );
            let Held::Own(own) = held else { continue };
            debug_assert_eq!(
                self.names.get(&own.name),
                Some(key),
                "a session has its name"
            );
            let connections = self
                .exchanges
                .values()
                .filter(|one| one.session == Some(*key));
            debug_assert_eq!(
                self.table.connections(*key),
                Some(connections.count()),
                "a session's connections are its exchanges"
            );
            self.check_link_of(*key, own);
            own.session.check();
        }
        let own = |held: &&Held| matches!(held, Held::Own(_));
        debug_assert_eq!(
            self.names.len(),
            self.sessions.values().filter(own).count(),
            "a name belongs to a session"
        );
        for (number, link) in &self.links {
            self.check_link(*number, link);
        }
        for (number, exchange) in &self.exchanges {
            self.check_exchange(*number, exchange);
        }
        if self.course == Course::Closing {
            debug_assert!(self.sessions.is_empty(), "a session after the stop");
            debug_assert!(self.moderns.is_empty(), "a modern server after the stop");
        }
    }

    fn check_link_of(&self, key: u64, own: &Own) {
        let Some(link) = self.links.get(&own.link) else {
            debug_assert!(false, "a session without a link");
            return;
        };
        debug_assert!(
            match (&link.role, own.place) {
                (Role::Session(held), None) => *held == key,
                (Role::Joint(group), Some(place)) => group.members.get(&place) == Some(&key),
                (Role::Session(_) | Role::Joint(_) | Role::Modern(_) | Role::Unused, _) => false,
            },
            "a session's link is another's"
        );
    }

    fn check_link(&self, number: u64, link: &Link) {
        link.inlet.check();
        debug_assert_eq!(
            matches!(link.role, Role::Modern(_)),
            self.moderns.contains(&number),
            "a modern server is in the list of those"
        );
        match &link.role {
            Role::Session(key) => {
                debug_assert!(self.own(*key).is_some(), "a link without its session");
            }
            Role::Joint(group) => {
                debug_assert!(!group.joint.is_empty(), "a shared server without a place");
                group.joint.check();
            }
            Role::Modern(modern) => modern.check(),
            Role::Unused => debug_assert!(!link.inlet.is_open(), "an unused link is open"),
        }
        for waiting in &link.waiting {
            let exchange = self.exchanges.get(waiting);
            debug_assert!(
                exchange.is_some_and(|exchange| exchange.waits_on == Some(number)),
                "an exchange waits for two links"
            );
        }
    }

    fn check_exchange(&self, number: u64, exchange: &Exchange) {
        if let Some(link) = exchange.waits_on {
            let link = self.links.get(&link);
            debug_assert!(
                link.is_some_and(|link| link.waiting.contains(&number)),
                "an exchange waits for a link that does not know of it"
            );
        }
    }
}

fn no_lines() -> Lines {
    Lines::new(HELD_LINE_BYTES)
}

/// The line, or what is said instead of an answer that is too long; other lines that are too long are dropped.
fn whole_or_answer(line: Line<'_>) -> Option<Cow<'_, [u8]>> {
    let long = match line {
        Line::Whole(line) => return Some(line),
        Line::TooLong(scanner) => scanner,
    };
    let frame = long.frame();
    match (frame.kind, frame.id) {
        (Kind::Response | Kind::Error, Id::Token(id)) => {
            let message =
                "the server's answer is larger than 16 MiB, which is more than can be passed on";
            let answer = words::error(Some(id), Code::Internal, message, None);
            Some(Cow::Owned(answer))
        }
        (
            Kind::Response
            | Kind::Error
            | Kind::Request
            | Kind::Notification
            | Kind::Batch
            | Kind::Blank
            | Kind::Junk,
            _,
        ) => None,
    }
}

#[cfg(test)]
#[path = "front/tests.rs"]
mod tests;
