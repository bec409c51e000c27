//! The legacy era: sessions with names, each with a server of its own or with a place in a shared one.
//!
//! This machine finds the session of a message, sends messages to its server and gives each line of a server to its session. How
//! long a session lives is decided by the front, which calls [`LegacyEra::end`].
//!
//! Invariants: a session has one name and one link; the link is used for that session, or the session has a place in it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::SessionEnd;
use mainstay_protocol::message::envelope;

use super::exchanges::{Source, State};
use super::limits::STREAMS_KNOWN;
use super::links::Role;
use super::modern_era::names_modern_version;
use super::outputs::{Count, Ended, Output};
use super::paths::Paths;
use super::posted::{Kind, LEGACY};
use super::requests::{Get, Post, Refused, Step};
use super::session::{Keeps, Session, SessionLine};
use super::shared_servers::{Opened, SharedServers};
use super::sse::EventId;
use super::traffic::{Next, Progress, Traffic};
use super::words;
use crate::headers::text;

/// What a message of the legacy era waits for before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// It is in a session, and waits until the link takes another line.
    InSession,
    /// It waits until this shared server is open.
    Joining(u64),
    /// It is to open a session with a server of its own.
    OwnServer,
}

/// What became of a client that wants to join a shared server.
#[derive(Debug)]
pub(super) enum Joined {
    NotYet,
    /// It needs a server of its own.
    Alone,
    /// It may begin a session.
    Greeted {
        /// The version that the server speaks.
        version: String,
        /// The answer to the client's `initialize`.
        answer: Vec<u8>,
    },
}

/// A session of ours.
#[derive(Debug)]
struct Own {
    name: String,
    path: u64,
    /// When its link was started.
    since: Option<Moment>,
    requests: u64,
    link: u64,
    /// Its place in a shared server.
    place: Option<u64>,
    session: Session,
}

/// The sessions of the legacy era.
#[derive(Debug, Default)]
pub(super) struct LegacyEra {
    names: BTreeMap<String, u64>,
    sessions: BTreeMap<u64, Box<Own>>,
    shared: SharedServers,
}

/// What clients ask.
impl LegacyEra {
    /// The session of this name at this path.
    pub fn find(&self, get: Get<'_>, paths: &Paths) -> Result<Option<u64>, Refused> {
        let Some(&key) = get.session.and_then(|name| self.names.get(name)) else {
            return Ok(None);
        };
        let own = self.sessions.get(&key);
        let Some(own) = own.filter(|own| paths.same_url(own.path, get.path)) else {
            return Ok(None);
        };
        let Some(version) = get.version else {
            return Ok(Some(key));
        };
        let told = text(version).unwrap_or("");
        if LEGACY.contains(&told) || own.session.version() == Some(told) {
            return Ok(Some(key));
        }
        Err(Refused::OtherVersion)
    }

    /// The session that a GET or DELETE is about. The modern era has neither.
    pub fn find_required(&self, get: Get<'_>, paths: &Paths) -> Result<u64, Refused> {
        if let Some(key) = self.find(get, paths)? {
            return Ok(key);
        }
        if names_modern_version(get.version) {
            return Err(Refused::OnlyPost);
        }
        Err(if get.session.is_some() {
            Refused::NoSession
        } else {
            Refused::SessionMissing
        })
    }

    /// A message without a session that is open. Only `initialize` may be one.
    pub fn admit(
        &mut self,
        number: u64,
        post: &Post<'_>,
        paths: &Paths,
        traffic: &mut Traffic,
    ) -> Next {
        if post.session.is_some() {
            return Err(Refused::NoSession);
        }
        if post.posted.method != "initialize" {
            return Err(Refused::SessionMissing);
        }
        if !matches!(post.posted.kind, Kind::Request(_)) {
            return Err(Refused::NoId);
        }
        paths.check_open(post.path)?;
        let waits = if paths.shares(post.path) {
            Waits::Joining(self.shared.join(post.path, number, traffic))
        } else {
            Waits::OwnServer
        };
        Ok(Progress::Becomes(State::Legacy(waits)))
    }

    /// A client wants a place in a shared server. A server that cannot be opened, or speaks another version than the client
    /// asks for, is not shared with it.
    pub fn join(
        &mut self,
        number: u64,
        link: u64,
        post: &Post<'_>,
        traffic: &mut Traffic,
    ) -> Result<Joined, Refused> {
        let Kind::Request(id) = post.posted.kind else {
            return Err(Refused::NoId);
        };
        let wanted = post.posted.asked_version();
        match self.shared.opened(link, traffic) {
            Opened::NotYet => return Ok(Joined::NotYet),
            Opened::Greeted(greeting) if wanted.as_deref() == Some(&greeting.version) => {
                return Ok(Joined::Greeted {
                    version: greeting.version.clone(),
                    answer: words::answer(id, &greeting.result),
                });
            }
            Opened::Greeted(_) | Opened::Unusable => {}
        }
        self.shared.leave(link, number, traffic);
        Ok(Joined::Alone)
    }

    /// A client that waited for a shared server does so no more.
    pub fn leave_shared(&mut self, number: u64, link: u64, traffic: &mut Traffic) {
        self.shared.leave(link, number, traffic);
    }

    /// A session begins with a place in a shared server, which was opened before: its name.
    pub fn begin_shared(
        &mut self,
        now: Moment,
        number: u64,
        key: u64,
        link: u64,
        (path, version): (u64, &str),
        traffic: &mut Traffic,
    ) -> String {
        let own = self.begin(key, path, link, Some(number), traffic);
        own.session.greeted(version);
        own.requests = 1;
        let name = own.name.clone();
        self.shared.admit(link, number, key);
        traffic.exchanges.set_session(number, key);
        self.started(now, key, traffic);
        traffic.out.count(Count::Legacy);
        name
    }

    /// A session begins with a server of its own, which gets the client's `initialize`.
    pub fn begin_own(
        &mut self,
        now: Moment,
        number: u64,
        key: u64,
        post: &Post<'_>,
        traffic: &mut Traffic,
    ) -> Next {
        let Kind::Request(id) = post.posted.kind else {
            return Err(Refused::NoId);
        };
        let link = traffic.start_link(post.path, Role::Session(key));
        self.begin(key, post.path, link, None, traffic);
        traffic.exchanges.set_session(number, key);
        let source = self.ask(now, number, key, id, post, traffic)?;
        Ok(Progress::Becomes(State::Opening(source)))
    }

    fn begin(
        &mut self,
        key: u64,
        path: u64,
        link: u64,
        place: Option<u64>,
        traffic: &Traffic,
    ) -> &mut Own {
        let name = format!("{:032x}", (traffic.draw)());
        let keeps = Keeps {
            events: traffic.limits.resume_events as usize,
            bytes: traffic.limits.resume_bytes as usize,
            streams: STREAMS_KNOWN,
        };
        let old = self.names.insert(name.clone(), key);
        debug_assert!(old.is_none(), "a name is given once");
        debug_assert!(!self.sessions.contains_key(&key), "a key has one session");
        let own = Own {
            name,
            path,
            since: None,
            requests: 0,
            link,
            place,
            session: Session::new(keeps),
        };
        self.sessions.entry(key).or_insert(Box::new(own))
    }

    /// A message in a session, as soon as its link takes another line.
    pub fn say(
        &mut self,
        now: Moment,
        number: u64,
        key: Option<u64>,
        post: &Post<'_>,
        traffic: &mut Traffic,
    ) -> Next {
        let Some((key, own)) = key.and_then(|key| Some((key, self.sessions.get(&key)?))) else {
            return Err(Refused::NoSession);
        };
        if traffic.links.is_full(own.link) {
            return Ok(Progress::WaitsFor(own.link));
        }
        let Kind::Request(id) = post.posted.kind else {
            self.send(now, key, post, traffic);
            if post.posted.method == "notifications/cancelled" {
                self.cancel(now, key, post, traffic);
            }
            return Ok(Progress::Is(Step::Accepted));
        };
        let in_flight = match own.place {
            None => own.session.in_flight(),
            Some(_) => self.shared.in_flight(own.link),
        };
        if in_flight as u64 >= traffic.limits.requests_max {
            return Err(Refused::Requests);
        }
        check_streams(&own.session, traffic)?;
        let source = self.ask(now, number, key, id, post, traffic)?;
        Ok(Progress::Becomes(State::Asked(source)))
    }

    fn cancel(&mut self, now: Moment, key: u64, post: &Post<'_>, traffic: &mut Traffic) {
        if let Some(id) = envelope::cancelled_id(post.line)
            && let Some(own) = self.sessions.get_mut(&key)
            && let Some(heard) = own.session.cancel(now, id, traffic.exchanges.queues())
        {
            count(heard, traffic);
        }
    }

    fn ask(
        &mut self,
        now: Moment,
        number: u64,
        key: u64,
        id: &[u8],
        post: &Post<'_>,
        traffic: &mut Traffic,
    ) -> Result<Source, Refused> {
        let own = self.sessions.get_mut(&key).ok_or(Refused::NoSession)?;
        let token = post.posted.progress_token();
        let stream = own.session.ask(now, id, token, number);
        let stream = stream.ok_or(Refused::IdInFlight)?;
        own.requests += 1;
        traffic.expect_messages(now, number);
        traffic.out.count(Count::Legacy);
        self.send(now, key, post, traffic);
        Ok(Source::Stream {
            session: key,
            stream,
        })
    }

    fn send(&mut self, now: Moment, key: u64, post: &Post<'_>, traffic: &mut Traffic) {
        let Some(own) = self.sessions.get(&key) else {
            return;
        };
        let Some(place) = own.place else {
            return traffic.send(own.link, post.line.to_vec());
        };
        for (key, line) in self.shared.say(own.link, place, post, traffic) {
            self.hear_in(now, key, &line, traffic);
        }
    }

    /// A client reads news, or comes back for the rest of a stream: where its messages come from, and the first event id.
    pub fn read(
        &mut self,
        now: Moment,
        number: u64,
        key: u64,
        last: Option<&[u8]>,
        traffic: &mut Traffic,
    ) -> Result<(Source, Option<EventId>), Refused> {
        let own = self.sessions.get_mut(&key).ok_or(Refused::NoSession)?;
        check_streams(&own.session, traffic)?;
        let last = match last {
            None => None,
            Some(raw) => {
                let last = text(raw).and_then(EventId::parse);
                Some(last.ok_or(Refused::UnknownEvent)?)
            }
        };
        let queues = traffic.exchanges.queues();
        queues.open(number);
        queues.begin(number);
        let Some(last) = last else {
            let priming = own.session.news_priming();
            own.session.read_news(None, number, queues);
            return Ok((Source::News { session: key }, priming));
        };
        let source = match own.session.resume(now, last, number, queues)? {
            Some(stream) => Source::Stream {
                session: key,
                stream,
            },
            None if last.stream == 0 => Source::News { session: key },
            None => Source::Kept,
        };
        Ok((source, None))
    }

    /// The client of an exchange reads its stream no more.
    pub fn left_stream(&mut self, key: u64, stream: u64, number: u64) {
        if let Some(own) = self.sessions.get_mut(&key) {
            own.session.left(stream, number);
        }
    }

    /// The client of an exchange reads the news no more.
    pub fn left_news(&mut self, key: u64, number: u64) {
        if let Some(own) = self.sessions.get_mut(&key) {
            own.session.left_news(number);
        }
    }

    /// The name that a client calls its session by.
    pub fn name(&self, key: u64) -> Option<String> {
        Some(self.sessions.get(&key)?.name.clone())
    }

    /// The event id that the stream of a request begins with.
    pub fn priming(&mut self, key: u64, stream: u64) -> Option<EventId> {
        self.sessions.get_mut(&key)?.session.priming(stream)
    }

    /// Whether a client waits for an answer. One that only reads news does not.
    pub fn is_waited_for(&self) -> bool {
        self.sessions
            .values()
            .any(|own| own.session.is_waited_for())
    }
}

/// What servers say, and how sessions end.
impl LegacyEra {
    /// The link of a session was started.
    pub fn started(&mut self, now: Moment, key: u64, traffic: &mut Traffic) {
        if let Some(own) = self.sessions.get_mut(&key) {
            own.since = Some(now);
            let path = own.path;
            traffic.out.push(Output::Began { session: key, path });
        }
    }

    /// A line of the server of one session; false if its opening has failed.
    pub fn hear_own(&mut self, now: Moment, key: u64, line: &[u8], traffic: &mut Traffic) -> bool {
        let heard = self.hear_in(now, key, line, traffic);
        let own = self.sessions.get(&key);
        let opened = own.is_none_or(|own| own.session.version().is_some());
        opened || !matches!(heard, Some(SessionLine::Answered(_)))
    }

    /// A line of a server that sessions share.
    pub fn hear_shared(&mut self, now: Moment, link: u64, line: &[u8], traffic: &mut Traffic) {
        for (key, line) in self.shared.hear(link, line, traffic) {
            self.hear_in(now, key, &line, traffic);
        }
    }

    fn hear_in(
        &mut self,
        now: Moment,
        key: u64,
        line: &[u8],
        traffic: &mut Traffic,
    ) -> Option<SessionLine> {
        let own = self.sessions.get_mut(&key)?;
        let heard = own.session.hear(now, line, traffic.exchanges.queues());
        count(heard, traffic);
        Some(heard)
    }

    /// A shared server is gone: the sessions that had it.
    pub fn lose_shared(&mut self, link: u64) -> Vec<u64> {
        self.shared.remove(link)
    }

    /// Answers everything that is in flight in a session.
    pub fn settle(&mut self, key: u64, why: &str, traffic: &mut Traffic) {
        if let Some(own) = self.sessions.get_mut(&key) {
            let settled = own.session.settle(why, traffic.exchanges.queues());
            traffic.out.count_settled(settled);
        }
    }

    /// Ends a session: what is in flight is answered, and its server learns that its client is gone.
    pub fn end(&mut self, key: u64, why: SessionEnd, traffic: &mut Traffic) {
        self.settle(key, &format!("the session is over: {why}"), traffic);
        let Some(own) = self.sessions.remove(&key) else {
            return;
        };
        self.names.remove(&own.name);
        match own.place {
            None => traffic.close_link(own.link),
            Some(place) => {
                traffic.wake_waiting(own.link);
                self.shared.leave(own.link, place, traffic);
            }
        }
        // A session whose link could not be started has not begun.
        if let Some(since) = own.since {
            traffic.out.push(Output::Over(Ended {
                session: key,
                path: own.path,
                why,
                since,
                requests: own.requests,
            }));
        }
    }

    /// All sessions.
    pub fn keys(&self) -> Vec<u64> {
        self.sessions.keys().copied().collect()
    }

    /// States what holds after each step.
    pub fn check(&self, traffic: &Traffic) {
        self.shared.check(traffic);
        debug_assert_eq!(
            self.names.len(),
            self.sessions.len(),
            "a name belongs to a session"
        );
        for (key, own) in &self.sessions {
            let named = self.names.get(&own.name);
            debug_assert_eq!(named, Some(key), "a session has its name");
            debug_assert!(
                match own.place {
                    None => traffic.links.role(own.link) == Some(Role::Session(*key)),
                    Some(place) => self.shared.has_member(own.link, place, *key),
                },
                "a session's link is another's"
            );
            own.session.check();
        }
        for (_, role) in traffic.links.roles() {
            if let Role::Session(key) = role {
                debug_assert!(
                    self.sessions.contains_key(&key),
                    "a link without its session"
                );
            }
        }
    }
}

fn check_streams(session: &Session, traffic: &Traffic) -> Result<(), Refused> {
    if session.streams() as u64 >= traffic.limits.streams_max {
        return Err(Refused::Streams);
    }
    Ok(())
}

fn count(heard: SessionLine, traffic: &mut Traffic) {
    match heard {
        SessionLine::Answered(Some(ns)) => traffic.out.count(Count::Answered(ns)),
        SessionLine::Dropped => traffic.out.count(Count::Dropped),
        SessionLine::Unexpected => traffic.out.count(Count::Unexpected),
        SessionLine::Answered(None) | SessionLine::Passed => {}
    }
}
