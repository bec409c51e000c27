//! What clients ask: an exchange step by step, from the request to the end of its answer.
//!
//! [`Front::post`] is asked again after each [`Output::Wake`](super::Output::Wake) until its step is not
//! [`Step::Wait`]. Only the state of the exchange is kept meanwhile; the request stays with the caller.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{
    Count, Course, Exchange, Fresh, Front, Group, Held, Modern, Role, Said, Source, Speaks, State,
};
use crate::clock::Moment;
use crate::http::headers::text;
use crate::message::envelope;
use crate::serve::headers::{self, Lookup};
use crate::serve::joint::Joint;
use crate::serve::limits::{LEGACY_KNOWN_MS, RETRY_MS};
use crate::serve::modern::Listed;
use crate::serve::outlet::{First, Taken};
use crate::serve::posted::{Kind, LEGACY, Posted};
use crate::serve::session::UnknownEvent;
use crate::serve::sessions::Over;
use crate::serve::sse::{self, EventId};
use crate::serve::words;

/// How many servers of the modern era may turn out to be none before a client is told so.
const TRIES: u8 = 2;

/// A message that was posted.
pub struct Post<'a> {
    /// The path that it was posted to.
    pub path: u64,
    /// The session that it names; a name that is no text is an empty one.
    pub session: Option<&'a str>,
    /// The header with the version, raw.
    pub version: Option<&'a [u8]>,
    /// The message.
    pub posted: &'a Posted<'a>,
    /// The same as a line, with its newline.
    pub line: &'a [u8],
    /// All headers.
    pub header: Lookup<'a, 'a>,
}

/// A request for a stream.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// The path.
    pub path: u64,
    /// The session that it names; a name that is no text is an empty one.
    pub session: Option<&'a str>,
    /// The header with the version, raw.
    pub version: Option<&'a [u8]>,
    /// The last event that the client has, raw.
    pub last: Option<&'a [u8]>,
}

/// How far a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It waits: it is to be asked again when it is woken, or at this time.
    Wait(Option<Moment>),
    /// It is refused; no server has seen it.
    Refuse(Refused),
    /// It was passed on and has no answer.
    Accepted,
    /// One answer, and the name of the session that it opened.
    Answer {
        /// The message.
        message: Vec<u8>,
        /// The session that it opened.
        session: Option<String>,
        /// Whether it is of the modern era, where some errors have a status of their own.
        modern: bool,
    },
    /// A stream of events, which [`Front::read`] gives.
    Events {
        /// The session that it opened.
        session: Option<String>,
    },
}

/// The next piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Nothing until it is woken, or until this time.
    Wait(Moment),
    /// Nothing more.
    End,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Nothing new is taken.
    Stopping,
    /// It names a session that is not there, or not any more.
    NoSession,
    /// It names no session.
    SessionMissing,
    /// Its header names a version that the session does not speak.
    OtherVersion,
    /// The modern era has no such method.
    OnlyPost,
    /// `initialize` without an id.
    NoId,
    /// The path is not in the config file any more.
    Retired,
    /// Every session is in use.
    Full,
    /// The server could not be started.
    CannotStart(String),
    /// A request with its id is in flight.
    IdInFlight,
    /// Too many requests are in flight.
    Requests,
    /// Too many streams are open.
    Streams,
    /// It comes back for an event that is not known.
    UnknownEvent,
    /// Its `_meta` names no version.
    VersionMissing,
    /// Its `_meta` does not say what the client can do.
    CapabilitiesMissing,
    /// A header says something else than the body.
    Mismatch(String),
    /// The server is of the legacy era; whether it was asked for its discovery.
    LegacyOnly {
        /// Whether the request was `server/discover`.
        discover: bool,
    },
    /// The server does not speak that version.
    Version {
        /// What it speaks.
        supported: Vec<String>,
        /// What was asked for.
        requested: String,
    },
    /// The modern era has no `initialize`.
    NoInitialize,
    /// The request could not be read.
    Unreadable,
}

impl From<UnknownEvent> for Refused {
    fn from(UnknownEvent: UnknownEvent) -> Self {
        Self::UnknownEvent
    }
}

/// What a step comes to.
enum Progress {
    /// The exchange is in another state, and goes on.
    Becomes(State),
    /// It waits until something changes at this link.
    WaitsFor(u64),
    /// It waits for time or messages, or has been answered.
    Is(Step),
}

type Next = Result<Progress, Refused>;

impl Front {
    /// A request has come: the number of its exchange. [`Front::left`] ends it.
    pub fn open(&mut self) -> u64 {
        let number = self.number();
        let exchange = Exchange {
            state: State::New,
            session: None,
            waits_on: None,
            quiet: Moment::default(),
            tries: 0,
        };
        self.exchanges.insert(number, exchange);
        number
    }

    /// A message was posted, or its exchange is asked again.
    pub fn post(&mut self, now: Moment, number: u64, post: &Post<'_>) -> Step {
        let step = loop {
            match self.step(now, number, post) {
                Ok(Progress::Becomes(state)) => self.becomes(number, state),
                Ok(Progress::WaitsFor(link)) => {
                    self.wait_for(number, link);
                    break Step::Wait(None);
                }
                Ok(Progress::Is(step)) => break step,
                Err(refused) => break Step::Refuse(refused),
            }
        };
        if matches!(step, Step::Accepted | Step::Answer { .. }) {
            self.becomes(number, State::Answered);
        }
        self.collect(now);
        step
    }

    /// A client reads news, or comes back for the rest of a stream.
    pub fn get(&mut self, now: Moment, number: u64, get: Get<'_>) -> Step {
        let step = self.stream(now, number, get);
        self.collect(now);
        step.unwrap_or_else(Step::Refuse)
    }

    /// A client ends its session.
    pub fn delete(&mut self, now: Moment, get: Get<'_>) -> Result<(), Refused> {
        let key = self.required(get)?;
        self.end(now, key, Over::Deleted);
        self.collect(now);
        Ok(())
    }

    /// The next piece of a stream of events.
    pub fn read(&mut self, now: Moment, number: u64) -> Read {
        let Some(exchange) = self.exchanges.get_mut(&number) else {
            return Read::End;
        };
        let State::Reading(_, head) = &mut exchange.state else {
            debug_assert!(false, "an exchange is read that has no stream");
            return Read::End;
        };
        if let Some(head) = head.take() {
            return Read::Bytes(head);
        }
        let again = now.after_ms(self.limits.sse_keep_alive_ms);
        match self.readers.take(number) {
            Taken::Event(event) => {
                exchange.quiet = again;
                Read::Bytes(event)
            }
            Taken::Nothing if exchange.quiet <= now => {
                exchange.quiet = again;
                Read::Bytes(sse::COMMENT.to_vec())
            }
            Taken::Nothing => Read::Wait(exchange.quiet),
            Taken::End => {
                // The client may take its time to close; its place is free from here on.
                self.left(now, number);
                Read::End
            }
        }
    }

    /// The exchange is over: it was answered, or its client has left.
    pub fn left(&mut self, now: Moment, number: u64) {
        let Some(exchange) = self.exchanges.remove(&number) else {
            return;
        };
        self.readers.close(number);
        if let Some(link) = exchange.waits_on
            && let Some(link) = self.links.get_mut(&link)
        {
            link.waiting.remove(&number);
        }
        match exchange.state {
            State::Joining(link) => self.leave_joint(now, link, number),
            State::Opening(source) => {
                self.release_source(now, number, source);
                // It does not know its session, and no other client does.
                if let Some(key) = exchange.session {
                    self.end(now, key, Over::OpeningFailed);
                }
            }
            State::Asked(source) | State::Reading(source, _) => {
                self.release_source(now, number, source);
            }
            State::New
            | State::Admitted
            | State::Alone
            | State::Speaking(_)
            | State::Comparing(..)
            | State::Sending(_)
            | State::Failed(_)
            | State::Answered => {}
        }
        if let Some(key) = exchange.session {
            self.table.leave(now, key);
        }
        self.collect(now);
    }

    fn release_source(&mut self, now: Moment, number: u64, source: Source) {
        match source {
            Source::Stream { session, stream } => {
                if let Some(own) = self.own_mut(session) {
                    own.session.left(stream, number);
                }
            }
            Source::News { session } => {
                if let Some(own) = self.own_mut(session) {
                    own.session.left_news(number);
                }
            }
            Source::Modern { link, number } => {
                let told = self
                    .modern_mut(link)
                    .and_then(|modern| modern.left(now, number));
                if let Some(line) = told {
                    self.send(link, line);
                }
                self.close_if_done(link);
            }
            Source::Kept => {}
        }
    }

    fn step(&mut self, now: Moment, number: u64, post: &Post<'_>) -> Next {
        let Some(exchange) = self.exchanges.get(&number) else {
            debug_assert!(false, "an exchange is asked that is over");
            return Err(Refused::NoSession);
        };
        let state = exchange.state.clone();
        let waits = !matches!(state, State::Opening(_) | State::Asked(_));
        if waits && self.course == Course::Closing {
            return Err(Refused::Stopping);
        }
        match state {
            State::New => self.admit(number, post),
            State::Admitted => self.in_session(now, number, post),
            State::Joining(link) => self.join(now, number, link, post),
            State::Alone => self.open_own(now, number, post),
            State::Speaking(link) => self.speak(now, number, link, post),
            State::Comparing(link, fresh) => self.compare(now, number, link, fresh, post),
            State::Sending(link) => self.pass(now, number, link, post),
            State::Opening(source) => Ok(Progress::Is(self.first(now, number, source, true))),
            State::Asked(source) => Ok(Progress::Is(self.first(now, number, source, false))),
            State::Failed(why) => Err(Refused::CannotStart(why)),
            State::Reading(..) | State::Answered => {
                debug_assert!(false, "an answered exchange is asked again");
                Err(Refused::NoSession)
            }
        }
    }

    fn becomes(&mut self, number: u64, state: State) {
        if let Some(exchange) = self.exchanges.get_mut(&number) {
            exchange.state = state;
        }
    }

    fn wait_for(&mut self, number: u64, link: u64) {
        let exchange = self.exchanges.get_mut(&number);
        let held = self.links.get_mut(&link);
        debug_assert!(held.is_some(), "an exchange waits for a link that is gone");
        if let (Some(exchange), Some(held)) = (exchange, held) {
            debug_assert!(
                exchange.waits_on.is_none_or(|waits_on| waits_on == link),
                "an exchange waits for two links"
            );
            exchange.waits_on = Some(link);
            held.waiting.insert(number);
        }
    }

    fn enter_with(&mut self, number: u64, key: u64) {
        self.table.enter(key);
        self.belongs(number, key);
    }

    fn belongs(&mut self, number: u64, key: u64) {
        if let Some(exchange) = self.exchanges.get_mut(&number) {
            debug_assert!(exchange.session.is_none(), "an exchange has one session");
            exchange.session = Some(key);
        }
    }

    fn admit(&mut self, number: u64, post: &Post<'_>) -> Next {
        if self.is_stopping() {
            return Err(Refused::Stopping);
        }
        if let Some(key) = self.named(post.path, post.session, post.version)? {
            self.enter_with(number, key);
            return Ok(Progress::Becomes(State::Admitted));
        }
        if is_modern(post) {
            return self.admit_modern(post);
        }
        if post.session.is_some() {
            return Err(Refused::NoSession);
        }
        if post.posted.method != "initialize" {
            return Err(Refused::SessionMissing);
        }
        if !matches!(post.posted.kind, Kind::Request(_)) {
            return Err(Refused::NoId);
        }
        self.not_retired(post.path)?;
        let shared = self.paths.get(&post.path).filter(|path| path.share);
        match shared.map(|path| path.joint) {
            Some(joint) => {
                let link = joint.unwrap_or_else(|| self.start_joint(post.path));
                if let Some(group) = self.group_mut(link) {
                    group.joint.join(number);
                }
                Ok(Progress::Becomes(State::Joining(link)))
            }
            None => Ok(Progress::Becomes(State::Alone)),
        }
    }

    fn start_joint(&mut self, path: u64) -> u64 {
        let mut joint = Joint::new(self.draw);
        let line = joint.open(env!("CARGO_PKG_VERSION"));
        let members = BTreeMap::new();
        let group = Group { joint, members };
        let link = self.start(path, Role::Joint(group.into()));
        self.send(link, line);
        if let Some(path) = self.paths.get_mut(&path) {
            path.joint = Some(link);
        }
        link
    }

    fn not_retired(&self, path: u64) -> Result<(), Refused> {
        match self.paths.get(&path) {
            Some(path) if !path.retired => Ok(()),
            Some(_) | None => Err(Refused::Retired),
        }
    }

    /// The session of this name at this path.
    fn named(
        &self,
        path: u64,
        name: Option<&str>,
        version: Option<&[u8]>,
    ) -> Result<Option<u64>, Refused> {
        let Some(&key) = name.and_then(|name| self.names.get(name)) else {
            return Ok(None);
        };
        let url = |path: u64| self.paths.get(&path).map(|path| &path.url);
        let Some(own) = self.own(key).filter(|own| url(own.path) == url(path)) else {
            return Ok(None);
        };
        let Some(version) = version else {
            return Ok(Some(key));
        };
        let told = text(version).unwrap_or("");
        if LEGACY.contains(&told) || own.session.version() == Some(told) {
            return Ok(Some(key));
        }
        Err(Refused::OtherVersion)
    }

    /// Opens a session with a server of its own.
    fn open_own(&mut self, now: Moment, number: u64, post: &Post<'_>) -> Next {
        let Kind::Request(id) = post.posted.kind else {
            return Err(Refused::NoId);
        };
        let key = self.reserve(now).map_err(|_| Refused::Full)?;
        let link = self.start(post.path, Role::Session(key));
        self.begin_own(key, post.path, link, None);
        self.belongs(number, key);
        let stream = self.ask_in(now, number, key, id, post)?;
        let source = Source::Stream {
            session: key,
            stream,
        };
        Ok(Progress::Becomes(State::Opening(source)))
    }

    /// Takes part in the server that sessions share. One that cannot be opened, or speaks another version than the client
    /// asks for, is not shared: the client gets a server of its own.
    fn join(&mut self, now: Moment, number: u64, link: u64, post: &Post<'_>) -> Next {
        let Kind::Request(id) = post.posted.kind else {
            return Err(Refused::NoId);
        };
        let open = self
            .links
            .get(&link)
            .is_some_and(|link| link.inlet.is_open());
        let greeting = self
            .group(link)
            .filter(|_| open)
            .map(|group| group.joint.greeting());
        let greeting = match greeting {
            Some(None) => return Ok(Progress::WaitsFor(link)),
            Some(Some(greeting)) => greeting,
            None => None,
        };
        let wanted = post.posted.asked_version();
        let Some(greeting) = greeting.filter(|own| wanted.as_deref() == Some(&own.version)) else {
            self.leave_joint(now, link, number);
            return Ok(Progress::Becomes(State::Alone));
        };
        let (version, answer) = (
            greeting.version.clone(),
            words::answer(id, &greeting.result),
        );
        let key = self.reserve(now).map_err(|_| Refused::Full)?;
        let own = self.begin_own(key, post.path, link, Some(number));
        own.session.greeted(&version);
        own.requests = 1;
        let name = own.name.clone();
        if let Some(group) = self.group_mut(link) {
            group.members.insert(number, key);
        }
        self.belongs(number, key);
        self.has_begun(now, key);
        self.count(Count::Legacy);
        Ok(Progress::Is(Step::Answer {
            message: answer,
            session: Some(name),
            modern: false,
        }))
    }

    /// A message in a session.
    fn in_session(&mut self, now: Moment, number: u64, post: &Post<'_>) -> Next {
        let key = self.exchanges.get(&number).and_then(|one| one.session);
        let Some((key, own)) = key.and_then(|key| Some((key, self.own(key)?))) else {
            return Err(Refused::NoSession);
        };
        let (link, place) = (own.link, own.place);
        let (streams, waiting) = (own.session.streams(), own.session.in_flight());
        if self
            .links
            .get(&link)
            .is_some_and(|link| !link.inlet.has_room())
        {
            return Ok(Progress::WaitsFor(link));
        }
        let Kind::Request(id) = post.posted.kind else {
            self.send_in(now, key, post);
            if post.posted.method == "notifications/cancelled"
                && let Some(id) = envelope::cancelled_id(post.line)
                && let Some(Held::Own(own)) = self.sessions.get_mut(&key)
                && let Some(heard) = own.session.cancel(now, id, &mut self.readers)
            {
                self.counted(heard);
            }
            return Ok(Progress::Is(Step::Accepted));
        };
        let in_flight = match place {
            None => waiting,
            Some(_) => self.group(link).map_or(0, |group| group.joint.in_flight()),
        };
        self.has_place(in_flight, streams)?;
        let stream = self.ask_in(now, number, key, id, post)?;
        let source = Source::Stream {
            session: key,
            stream,
        };
        Ok(Progress::Becomes(State::Asked(source)))
    }

    fn has_place(&self, in_flight: usize, streams: usize) -> Result<(), Refused> {
        if in_flight as u64 >= self.limits.requests_max {
            return Err(Refused::Requests);
        }
        if streams as u64 >= self.limits.streams_max {
            return Err(Refused::Streams);
        }
        Ok(())
    }

    /// A request in a session: its stream.
    fn ask_in(
        &mut self,
        now: Moment,
        number: u64,
        key: u64,
        id: &[u8],
        post: &Post<'_>,
    ) -> Result<u64, Refused> {
        let own = self.own_mut(key).ok_or(Refused::NoSession)?;
        let token = post.posted.progress_token();
        let stream = own.session.ask(now, id, token, number);
        let stream = stream.ok_or(Refused::IdInFlight)?;
        own.requests += 1;
        self.readers.open(number);
        self.stay_quiet(now, number);
        self.count(Count::Legacy);
        self.send_in(now, key, post);
        Ok(stream)
    }

    fn send_in(&mut self, now: Moment, key: u64, post: &Post<'_>) {
        let Some(own) = self.own(key) else {
            return;
        };
        let link = own.link;
        let Some(place) = own.place else {
            return self.send(link, post.line.to_vec());
        };
        let told = self
            .group_mut(link)
            .map(|group| group.joint.said(place, post.posted, post.line));
        self.deliver(now, link, told.unwrap_or_default());
    }

    fn stay_quiet(&mut self, now: Moment, number: u64) {
        let quiet = now.after_ms(self.limits.sse_keep_alive_ms);
        if let Some(exchange) = self.exchanges.get_mut(&number) {
            exchange.quiet = quiet;
        }
    }

    /// Waits for what shows how the client is answered; after some time it is a stream.
    fn first(&mut self, now: Moment, number: u64, source: Source, opens: bool) -> Step {
        let Some(exchange) = self.exchanges.get_mut(&number) else {
            return Step::Refuse(Refused::NoSession);
        };
        let key = exchange.session.filter(|_| opens);
        match self.readers.first(number) {
            First::Nothing if exchange.quiet > now => {
                return Step::Wait(Some(exchange.quiet));
            }
            First::Answer(message) => {
                self.readers.close(number);
                let session = key.and_then(|key| self.own(key));
                let session = session.map(|own| own.name.clone());
                let modern = matches!(source, Source::Modern { .. });
                return Step::Answer {
                    message,
                    session,
                    modern,
                };
            }
            First::Nothing => self.readers.begin(number),
            First::Events => {}
        }
        let own = key.and_then(|key| self.own(key));
        let session = own.map(|own| own.name.clone());
        let priming = match source {
            Source::Stream { session, stream } if !opens => self
                .own_mut(session)
                .and_then(|own| own.session.priming(stream)),
            Source::Stream { .. } | Source::News { .. } | Source::Modern { .. } | Source::Kept => {
                None
            }
        };
        self.begin_stream(now, number, source, priming);
        Step::Events { session }
    }

    /// A first comment makes the headers go out at once, also through a proxy that waits for a body.
    fn begin_stream(&mut self, now: Moment, number: u64, source: Source, priming: Option<EventId>) {
        let head = match priming {
            Some(id) => sse::priming(id, RETRY_MS),
            None => sse::COMMENT.to_vec(),
        };
        self.stay_quiet(now, number);
        if let Some(exchange) = self.exchanges.get_mut(&number) {
            exchange.state = State::Reading(source, Some(head));
        }
    }

    fn stream(&mut self, now: Moment, number: u64, get: Get<'_>) -> Result<Step, Refused> {
        let key = self.required(get)?;
        if self.is_stopping() {
            return Err(Refused::Stopping);
        }
        let streams = self.own(key).map_or(0, |own| own.session.streams());
        self.has_place(0, streams)?;
        let last = match get.last {
            None => None,
            Some(raw) => {
                let last = text(raw).and_then(EventId::parse);
                Some(last.ok_or(Refused::UnknownEvent)?)
            }
        };
        let Some(Held::Own(own)) = self.sessions.get_mut(&key) else {
            return Err(Refused::NoSession);
        };
        self.readers.open(number);
        self.readers.begin(number);
        let (source, priming) = match last {
            None => {
                let priming = own.session.news_priming();
                own.session.read_news(None, number, &mut self.readers);
                (Source::News { session: key }, priming)
            }
            Some(last) => {
                let resumed = own.session.resume(now, last, number, &mut self.readers)?;
                let source = match resumed {
                    Some(stream) => Source::Stream {
                        session: key,
                        stream,
                    },
                    None if last.stream == 0 => Source::News { session: key },
                    None => Source::Kept,
                };
                (source, None)
            }
        };
        self.enter_with(number, key);
        self.begin_stream(now, number, source, priming);
        Ok(Step::Events { session: None })
    }

    /// The session that a GET or DELETE is about. The modern era has neither.
    fn required(&self, get: Get<'_>) -> Result<u64, Refused> {
        if let Some(key) = self.named(get.path, get.session, get.version)? {
            return Ok(key);
        }
        if is_no_legacy_version(get.version) {
            return Err(Refused::OnlyPost);
        }
        Err(if get.session.is_some() {
            Refused::NoSession
        } else {
            Refused::SessionMissing
        })
    }
}

/// Requests of the modern era.
impl Front {
    fn admit_modern(&mut self, post: &Post<'_>) -> Next {
        if !matches!(post.posted.kind, Kind::Request(_)) {
            // The modern era has no notification of a client over HTTP, and no answer.
            return Ok(Progress::Is(Step::Accepted));
        }
        let version = post.posted.version().ok_or(Refused::VersionMissing)?;
        headers::standard(post.posted, &version, post.header).map_err(Refused::Mismatch)?;
        self.not_retired(post.path)?;
        Ok(Progress::Becomes(State::Speaking(None)))
    }

    /// Waits until a server has said what it speaks. One that ended meanwhile is followed by another.
    fn speak(&mut self, now: Moment, number: u64, asked: Option<u64>, post: &Post<'_>) -> Next {
        let Some(link) = asked else {
            let link = self.modern_link(now, post)?;
            return Ok(Progress::Becomes(State::Speaking(Some(link))));
        };
        let versions = match self.modern(link).map(Modern::speaks) {
            Some(Speaks::Asked(..)) => {
                return Ok(Progress::WaitsFor(link));
            }
            Some(Speaks::Modern(versions)) => versions,
            Some(Speaks::Legacy(Said::Itself | Said::Nothing)) | None => {
                return self.try_next(number, post);
            }
        };
        let version = post.posted.version().ok_or(Refused::VersionMissing)?;
        if !versions.iter().any(|known| *known == version) {
            return Err(Refused::Version {
                supported: versions.clone(),
                requested: version.to_string(),
            });
        }
        if !post.posted.tells_capabilities() {
            return Err(Refused::CapabilitiesMissing);
        }
        // Any other method is the server's affair; this one could make it take us for a client of the legacy era.
        if post.posted.method == "initialize" {
            return Err(Refused::NoInitialize);
        }
        Ok(Progress::Becomes(State::Comparing(
            link,
            Fresh::Recent(now),
        )))
    }

    /// The server was no use: another one is tried, a few times.
    fn try_next(&mut self, number: u64, post: &Post<'_>) -> Next {
        let Some(exchange) = self.exchanges.get_mut(&number) else {
            return Err(legacy_only(post));
        };
        exchange.tries += 1;
        if exchange.tries >= TRIES {
            return Err(legacy_only(post));
        }
        Ok(Progress::Becomes(State::Speaking(None)))
    }

    /// The server for all clients behind a path; the first one that asks has it started.
    fn modern_link(&mut self, now: Moment, post: &Post<'_>) -> Result<u64, Refused> {
        let Some(path) = self.paths.get(&post.path) else {
            return Err(Refused::Retired);
        };
        if let Some(since) = path.legacy
            && now.ms_since(since) < LEGACY_KNOWN_MS
        {
            return Err(legacy_only(post));
        }
        if let Some(link) = path.modern
            && self.modern(link).is_some_and(Modern::is_open)
        {
            return Ok(link);
        }
        let (modern, line) = Modern::new(now, self.draw);
        let link = self.start(post.path, Role::Modern(modern.into()));
        self.send(link, line);
        if let Some(path) = self.paths.get_mut(&post.path) {
            path.modern = Some(link);
        }
        Ok(link)
    }

    /// Compares a call with the headers that repeat its arguments.
    fn compare(
        &mut self,
        now: Moment,
        number: u64,
        link: u64,
        fresh: Fresh,
        post: &Post<'_>,
    ) -> Next {
        let tool = (post.posted.method == "tools/call").then(|| post.posted.param("name"));
        let Some(tool) = tool.flatten() else {
            return Ok(Progress::Becomes(State::Sending(link)));
        };
        let Some(modern) = self.modern_mut(link) else {
            return self.try_next(number, post);
        };
        match modern.tools(now, fresh) {
            Listed::Known(mirrors) => {
                let judged = mirrors.judge(&tool, post.posted.arguments(), post.header);
                match (judged, fresh) {
                    (Ok(()), _) => Ok(Progress::Becomes(State::Sending(link))),
                    (Err(message), Fresh::Since(_)) => Err(Refused::Mismatch(message)),
                    // An old list is good enough to let a call through, but not to refuse one.
                    (Err(_), Fresh::Recent(_)) => {
                        let fresh = Fresh::Since(now);
                        Ok(Progress::Becomes(State::Comparing(link, fresh)))
                    }
                }
            }
            Listed::Unanswered => Ok(Progress::Becomes(State::Sending(link))),
            Listed::Wait => Ok(Progress::WaitsFor(link)),
            Listed::Ask(line) => {
                self.send(link, line);
                Ok(Progress::WaitsFor(link))
            }
        }
    }

    /// Passes a request on, as soon as its server takes another line.
    fn pass(&mut self, now: Moment, number: u64, link: u64, post: &Post<'_>) -> Next {
        let Some(held) = self.links.get_mut(&link) else {
            return self.try_next(number, post);
        };
        if !held.inlet.has_room() {
            return Ok(Progress::WaitsFor(link));
        }
        let most = self.limits.requests_max;
        let Some(modern) = self.modern_mut(link).filter(|modern| modern.is_open()) else {
            return self.try_next(number, post);
        };
        if modern.in_flight() as u64 >= most {
            return Err(Refused::Requests);
        }
        let asked = modern.ask(now, post.posted, post.line, number);
        let (request, line) = asked.ok_or(Refused::Unreadable)?;
        self.readers.open(number);
        self.stay_quiet(now, number);
        self.send(link, line);
        self.count(Count::Modern);
        let source = Source::Modern {
            link,
            number: request,
        };
        Ok(Progress::Becomes(State::Asked(source)))
    }
}

fn legacy_only(post: &Post<'_>) -> Refused {
    Refused::LegacyOnly {
        discover: post.posted.method == "server/discover",
    }
}

/// Whether a request is of the modern era: it says so in its body, or names a version that no legacy client knows.
fn is_modern(post: &Post<'_>) -> bool {
    post.posted.version().is_some() || is_no_legacy_version(post.version)
}

fn is_no_legacy_version(version: Option<&[u8]>) -> bool {
    let told = version.and_then(text);
    told.is_some_and(|told| !LEGACY.contains(&told))
}
