//! One session of the legacy era: a client with a server of its own, or with its part in a shared one, over connections
//! that come and go.
//!
//! The session's id stays the same whatever happens to the server behind it. An answer whose client left is kept
//! for a while, if the client has been told how to come back for it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use mainstay_core::clock::Moment;
use mainstay_core::message::envelope;
use mainstay_core::message::frame::{Kind, Scanner};
use mainstay_core::serve::framed;
use mainstay_core::serve::posted::{PRIMED_FROM, Posted};
use mainstay_core::serve::resume::Resume;
use mainstay_core::serve::routes::{Routes, Way};
use mainstay_core::serve::sessions::Over;
use mainstay_core::serve::sse::EventId;
use mainstay_core::serve::words::{self, Code};
use mainstay_os::clock;

use super::front::Front;
use super::joint::Place;
use super::link::{Link, Said};
use super::metrics::count;
use super::stream::{Seat, Stream};

/// The stream of what belongs to no request.
const NEWS: u64 = 0;
/// Streams that a client may come back to.
const STREAMS_KNOWN: usize = 256;

/// What is behind a session.
pub enum Behind {
    /// A server of its own.
    Own(Rc<Link>),
    /// Its part in a shared one.
    Shared(Place),
}

impl Behind {
    /// Passes a message on.
    pub fn send(&self, posted: &Posted<'_>, line: &[u8]) {
        match self {
            Self::Own(link) => link.send(line.to_vec()),
            Self::Shared(place) => place.send(posted, line),
        }
    }

    /// Waits until there is room for another message.
    pub async fn room(&self) {
        match self {
            Self::Own(link) => link.room().await,
            Self::Shared(place) => place.link().room().await,
        }
    }

    /// The session is over.
    pub fn close(&self) {
        match self {
            Self::Own(link) => link.close(),
            Self::Shared(place) => place.leave(),
        }
    }
}

/// A session.
pub struct Session {
    /// Its number.
    pub key: u64,
    /// Its name, which only its client knows.
    pub id: String,
    /// The path that it belongs to.
    pub path: String,
    /// The server's name.
    pub server: String,
    /// When it was opened.
    pub since: Moment,
    /// Requests so far.
    pub requests: Cell<u64>,
    /// Its server.
    pub behind: Behind,
    inside: RefCell<Inside>,
}

struct Inside {
    /// What was agreed on; empty before.
    version: String,
    routes: Routes,
    /// Streams that somebody reads, by number; those for news are apart.
    streams: BTreeMap<u64, Open>,
    /// Those who read news, the newest last.
    news: Vec<Rc<Stream>>,
    /// The last event of each stream that can be resumed.
    numbers: BTreeMap<u64, u64>,
    /// The last piece of news that somebody read.
    news_read: u64,
    resume: Resume,
    next: u64,
    over: bool,
}

struct Open {
    stream: Rc<Stream>,
    since: Moment,
}

impl Session {
    /// A session that has just begun.
    pub fn new(
        key: u64,
        id: String,
        path: String,
        server: String,
        behind: Behind,
        kept: (usize, usize),
    ) -> Self {
        Self {
            key,
            id,
            path,
            server,
            since: clock::now(),
            requests: Cell::new(0),
            behind,
            inside: RefCell::new(Inside {
                version: String::new(),
                routes: Routes::default(),
                streams: BTreeMap::new(),
                news: Vec::new(),
                numbers: BTreeMap::new(),
                news_read: 0,
                resume: Resume::new(kept.0, kept.1),
                next: NEWS + 1,
                over: false,
            }),
        }
    }

    /// The version that was agreed on; empty before.
    pub fn version(&self) -> String {
        self.inside.borrow().version.clone()
    }

    /// Streams that are open.
    pub fn streams(&self) -> usize {
        let inside = self.inside.borrow();
        inside.streams.len() + inside.news.len()
    }

    /// Requests that its server has not answered: of everybody, if it is shared.
    pub fn in_flight(&self) -> usize {
        match &self.behind {
            Behind::Own(_) => self.inside.borrow().routes.len(),
            Behind::Shared(place) => place.in_flight(),
        }
    }

    /// It begins with what a shared server said once for everybody.
    pub fn greeted(&self, version: &str) {
        self.inside.borrow_mut().version = version.into();
        self.requests.set(self.requests.get() + 1);
    }

    /// The client has no use for this answer any more. Its server need not give one, so it is given here.
    pub fn cancelled(&self, front: &Front, id: &[u8]) {
        let mut inside = self.inside.borrow_mut();
        if let Some(number) = inside.routes.cancelled(id) {
            let message = "the client cancelled the request";
            let answer = words::error(Some(id), Code::Request, message, None);
            inside.last(front, number, &answer);
        }
    }

    /// Whether anybody reads an answer that is still to come.
    pub fn is_waited_for(&self) -> bool {
        !self.inside.borrow().streams.is_empty()
    }

    /// Whether it is over: nothing that is asked now would ever be answered.
    pub fn is_over(&self) -> bool {
        self.inside.borrow().over
    }

    /// A request: its stream and its number. None if one with its id is not answered yet.
    pub fn ask(&self, id: &[u8], token: Option<&[u8]>) -> Option<(Rc<Stream>, u64)> {
        let mut inside = self.inside.borrow_mut();
        let number = inside.next;
        if !inside.routes.asked(id, token, number) {
            return None;
        }
        inside.next += 1;
        let stream = Rc::new(Stream::default());
        let open = Open {
            stream: Rc::clone(&stream),
            since: clock::now(),
        };
        inside.streams.insert(number, open);
        self.requests.set(self.requests.get() + 1);
        Some((stream, number))
    }

    /// The id that a client may come back with at the beginning of a stream, if it knows what to do with it: that of
    /// nothing yet, because what makes a stream begin has its own id by now. News are asked before they are read.
    pub fn priming(&self, number: u64) -> Option<EventId> {
        let mut inside = self.inside.borrow_mut();
        if inside.version.as_str() < PRIMED_FROM {
            return None;
        }
        inside.numbers.entry(number).or_default();
        Some(EventId {
            stream: number,
            number: if number == NEWS { inside.news_read } else { 0 },
        })
    }

    /// Somebody wants to read news, from after this event on if it says so.
    pub fn news(self: &Rc<Self>, front: &Rc<Front>, last: Option<u64>) -> (Rc<Stream>, Vec<Seat>) {
        let stream = Rc::new(Stream::default());
        let mut inside = self.inside.borrow_mut();
        let from = EventId {
            stream: NEWS,
            number: last.unwrap_or(inside.news_read),
        };
        for (id, message) in inside.resume.after(from) {
            stream.push(Some(id), message);
        }
        inside.news_read = inside.numbers.get(&NEWS).copied().unwrap_or(0);
        inside.news.push(Rc::clone(&stream));
        let (session, held) = (Rc::downgrade(self), Rc::downgrade(&stream));
        let seat = Seat::new(move || {
            if let (Some(session), Some(held)) = (session.upgrade(), held.upgrade()) {
                let mut inside = session.inside.borrow_mut();
                inside.news.retain(|one| !Rc::ptr_eq(one, &held));
            }
        });
        (stream, vec![front.seat(self.key), seat])
    }

    /// Somebody comes back for the rest of a stream: the stream, or none if there is nothing to come back for.
    pub fn again(
        self: &Rc<Self>,
        front: &Rc<Front>,
        last: EventId,
    ) -> Option<(Rc<Stream>, Vec<Seat>)> {
        if last.stream == NEWS {
            return Some(self.news(front, Some(last.number)));
        }
        let stream = Rc::new(Stream::default());
        let mut inside = self.inside.borrow_mut();
        let known = inside.numbers.contains_key(&last.stream);
        for (id, message) in inside.resume.after(last) {
            stream.push(Some(id), message);
        }
        if inside.routes.waits(last.stream) {
            inside.routes.read(last.stream, true);
            let open = Open {
                stream: Rc::clone(&stream),
                since: clock::now(),
            };
            if let Some(old) = inside.streams.insert(last.stream, open) {
                old.stream.end();
            }
        } else if known {
            stream.end();
        } else {
            return None;
        }
        drop(inside);
        let seats = vec![front.seat(self.key), self.seat(last.stream, &stream)];
        Some((stream, seats))
    }

    /// Somebody who reads this stream.
    pub fn seat(self: &Rc<Self>, number: u64, stream: &Rc<Stream>) -> Seat {
        let (session, held) = (Rc::downgrade(self), Rc::downgrade(stream));
        Seat::new(move || {
            let Some(session) = session.upgrade() else {
                return;
            };
            let mut inside = session.inside.borrow_mut();
            let same = |open: &Open| {
                held.upgrade()
                    .is_some_and(|held| Rc::ptr_eq(&open.stream, &held))
            };
            if inside.streams.get(&number).is_some_and(same) {
                inside.streams.remove(&number);
                inside.routes.read(number, false);
            }
        })
    }

    /// What the link says.
    pub fn hear(self: &Rc<Self>, front: &Rc<Front>, said: Said) {
        match said {
            Said::Line(line) => {
                if self.line(front, &line) {
                    front.end_session(self.key, Over::OpeningFailed);
                }
            }
            Said::Over(how) => {
                self.settle(front, &format!("the server's link has ended ({how})"));
                front.end_session(self.key, Over::ServerGone);
            }
        }
    }

    /// Answers everything that is in flight, and ends every stream.
    pub fn settle(&self, front: &Front, why: &str) {
        let mut inside = self.inside.borrow_mut();
        inside.over = true;
        for (id, number) in inside.routes.drain() {
            let message = format!("{why}; the request may or may not have taken effect");
            let answer = words::error(Some(&id), Code::Internal, &message, None);
            count(&front.metrics.settled);
            if let Some(open) = inside.streams.remove(&number) {
                open.stream.finish(None, &answer);
            }
        }
        for stream in std::mem::take(&mut inside.news) {
            stream.end();
        }
    }

    /// Takes a line; whether it says that the session cannot be opened.
    fn line(&self, front: &Front, line: &[u8]) -> bool {
        let mut inside = self.inside.borrow_mut();
        if inside.version.is_empty()
            && let Some(greeting) = envelope::greeting(line)
        {
            inside.version = greeting.version;
        }
        match inside.routes.heard(line) {
            Way::Last(number) => {
                inside.last(front, number, line);
                return inside.version.is_empty();
            }
            Way::On(number) => inside.on(front, number, line),
            Way::News => inside.news(front, line),
            Way::Nobody => count(&front.metrics.stray_lines),
        }
        false
    }
}

impl Inside {
    /// The answer that a stream waits for.
    fn last(&mut self, front: &Front, number: u64, line: &[u8]) {
        let id = self.keep(number, line);
        self.prune();
        if let Some(open) = self.streams.remove(&number) {
            front.metrics.answered(clock::now() - open.since);
            // A client that gets an error with an id comes back for more, so it gets none.
            open.stream.finish(id.filter(|_| !is_error(line)), line);
        }
    }

    /// Keeps a message of a stream whose client can come back for it: one that has begun, also if it was left since.
    fn keep(&mut self, stream: u64, line: &[u8]) -> Option<EventId> {
        let can = match self.streams.get(&stream) {
            Some(open) => open.stream.begun(),
            None => self.numbers.contains_key(&stream),
        };
        can.then(|| self.numbered(stream, line))
    }

    fn numbered(&mut self, stream: u64, line: &[u8]) -> EventId {
        let number = self.numbers.entry(stream).or_default();
        *number += 1;
        let id = EventId {
            stream,
            number: *number,
        };
        self.resume.keep(id, line);
        id
    }

    fn on(&mut self, front: &Front, number: u64, line: &[u8]) {
        let Some(open) = self.streams.get(&number) else {
            self.keep(number, line);
            return;
        };
        // With its first message that is no answer, a stream begins.
        let stream = Rc::clone(&open.stream);
        let id = self.numbered(number, line);
        if !stream.push(Some(id), line) {
            count(&front.metrics.dropped);
        }
    }

    fn news(&mut self, front: &Front, line: &[u8]) {
        let id = self.numbered(NEWS, line);
        if let Some(stream) = self.news.last() {
            self.news_read = id.number;
            if !stream.push(Some(id), line) {
                count(&front.metrics.dropped);
            }
        }
    }

    /// Forgets the oldest streams that are over, so that a long session does not grow.
    fn prune(&mut self) {
        while self.numbers.len() > STREAMS_KNOWN {
            let over = |number: &u64| *number != NEWS && !self.routes.waits(*number);
            let oldest = self.numbers.keys().copied().find(over);
            let Some(oldest) = oldest else {
                return;
            };
            self.numbers.remove(&oldest);
            self.resume.forget(oldest);
        }
    }
}

/// Whether a line is an answer with an error.
pub fn is_error(line: &[u8]) -> bool {
    framed(&mut Scanner::default(), line).kind == Kind::Error
}
