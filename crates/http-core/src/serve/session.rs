//! One session of the legacy era: its requests, the streams that their answers go on, and what its client may come back for.
//!
//! A stream has a number. While a client reads it, it has a reader, which is the exchange that its messages go to. A stream
//! that has begun can be resumed, also when its answer came while no client read it.
//!
//! Invariants:
//! - A stream that is read waits for its answer: the answer takes the reader away.
//! - A stream that can be resumed never ends without an answer. If the answer is not kept any more, an error says so.
//! - Of the streams that are over, the one that ended first is forgotten first.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::message::envelope;

use super::client_queues::ClientQueues;
use super::is_error;
use super::posted::PRIMED_FROM;
use super::resume::Resume;
use super::routes::{Route, Routes};
use super::sse::EventId;
use super::words::{self, Code};

/// The stream of what belongs to no request.
const NEWS: u64 = 0;

/// How much one session keeps for a client that comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeps {
    /// Events.
    pub events: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Streams that are over.
    pub streams: usize,
}

/// What became of a line of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionLine {
    /// It answered a request, which had been read for this time, if it still was.
    Answered(Option<u64>),
    /// It was passed on or kept.
    Passed,
    /// It was dropped because the client does not read.
    Dropped,
    /// It belongs to no request of this session.
    Unexpected,
}

/// There is no such event, or it was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownEvent;

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    /// What was agreed on.
    version: Option<String>,
    routes: Routes,
    /// Streams that a client reads.
    streams: BTreeMap<u64, Reading>,
    news: News,
    /// Streams that a client can come back for.
    known: BTreeMap<u64, Known>,
    /// Those of them that are over, in the order of their ends.
    over: VecDeque<u64>,
    resume: Resume,
    streams_most: usize,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    reader: u64,
    since: Moment,
}

/// What belongs to no request.
#[derive(Clone, Debug, Default)]
struct News {
    /// The exchanges that read it, the newest last.
    readers: Vec<u64>,
    /// The number of the last piece.
    last: u64,
    /// The last piece that went to a reader.
    read: u64,
}

/// A stream that a client can come back for, with the number of its last event.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    /// It waits for its answer.
    Open { last: u64 },
    /// Its last event is the answer to the request with this id.
    Answered { last: u64, id: Vec<u8> },
}

impl Known {
    fn last(&self) -> u64 {
        match self {
            Self::Open { last } | Self::Answered { last, .. } => *last,
        }
    }
}

impl Session {
    /// A session that has just begun.
    pub fn new(keeps: Keeps) -> Self {
        Self {
            version: None,
            routes: Routes::default(),
            streams: BTreeMap::new(),
            news: News::default(),
            known: BTreeMap::new(),
            over: VecDeque::new(),
            resume: Resume::new(keeps.events, keeps.bytes),
            streams_most: keeps.streams,
            next: NEWS + 1,
        }
    }

    /// The version that was agreed on, once it was.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// It begins with what a shared server said once for all sessions.
    pub fn greeted(&mut self, version: &str) {
        self.version = Some(version.into());
    }

    /// Streams that are read.
    pub fn streams(&self) -> usize {
        self.streams.len() + self.news.readers.len()
    }

    /// Requests that are not answered.
    pub fn in_flight(&self) -> usize {
        self.routes.len()
    }

    /// Whether a client reads an answer that is still to come.
    pub fn is_waited_for(&self) -> bool {
        !self.streams.is_empty()
    }

    /// A request, whose messages go to this reader: the number of its stream. None if one with its id is not answered yet.
    pub fn ask(
        &mut self,
        now: Moment,
        id: &[u8],
        token: Option<&[u8]>,
        reader: u64,
    ) -> Option<u64> {
        let stream = self.next;
        if !self.routes.asked(id, token, stream) {
            return None;
        }
        self.next += 1;
        let old = self.streams.insert(stream, Reading { reader, since: now });
        debug_assert!(old.is_none(), "a stream has one request");
        Some(stream)
    }

    /// The id that a client may come back with at the beginning of a request's stream, if it knows what to do with it:
    /// that of nothing yet, because what makes the stream begin has its own id by now.
    pub fn priming(&mut self, stream: u64) -> Option<EventId> {
        debug_assert_ne!(stream, NEWS, "news have a priming of their own");
        if !self.primes() {
            return None;
        }
        if !self.known.contains_key(&stream) {
            if !self.routes.waits(stream) {
                return None;
            }
            self.known.insert(stream, Known::Open { last: 0 });
        }
        Some(EventId { stream, number: 0 })
    }

    /// The same for news; it is asked before they are read.
    pub fn news_priming(&self) -> Option<EventId> {
        self.primes().then_some(EventId {
            stream: NEWS,
            number: self.news.read,
        })
    }

    fn primes(&self) -> bool {
        self.version
            .as_deref()
            .is_some_and(|own| own >= PRIMED_FROM)
    }

    /// A client reads news, from after this piece on if it says so.
    pub fn read_news(&mut self, last: Option<u64>, reader: u64, readers: &mut ClientQueues) {
        let from = EventId {
            stream: NEWS,
            number: last.unwrap_or(self.news.read),
        };
        for (id, message) in self.resume.after(from) {
            if !readers.push(reader, Some(id), message) {
                // More than a reader may have waiting: the client comes back for the rest.
                return readers.end(reader);
            }
            self.news.read = self.news.read.max(id.number);
        }
        self.news.read = self.news.last;
        self.news.readers.push(reader);
    }

    /// A client comes back for the rest of a stream.
    pub fn resume(
        &mut self,
        now: Moment,
        last: EventId,
        reader: u64,
        readers: &mut ClientQueues,
    ) -> Result<Option<u64>, UnknownEvent> {
        if last.stream == NEWS {
            if last.number > self.news.last {
                return Err(UnknownEvent);
            }
            self.read_news(Some(last.number), reader, readers);
            return Ok(None);
        }
        // An id that was never given is of no event, also on a stream that will have it later.
        let known = self.known.get(&last.stream);
        let Some(known) = known.filter(|known| last.number <= known.last()) else {
            return Err(UnknownEvent);
        };
        if self.routes.waits(last.stream) {
            for (id, message) in self.resume.after(last) {
                if !readers.push(reader, Some(id), message) {
                    readers.end(reader);
                    return Ok(None);
                }
            }
            self.routes.read(last.stream, true);
            let reading = Reading { reader, since: now };
            if let Some(old) = self.streams.insert(last.stream, reading) {
                readers.end(old.reader);
            }
            return Ok(Some(last.stream));
        }
        let Known::Answered { last: end, id } = known else {
            debug_assert!(false, "a stream is open and waits for no answer");
            return Err(UnknownEvent);
        };
        let mut answered = last.number >= *end;
        for (event, message) in self.resume.after(last) {
            if event.number == *end {
                readers.finish(reader, without_error(event, message), message);
                answered = true;
            } else if !readers.push(reader, Some(event), message) {
                readers.end(reader);
                return Ok(None);
            }
        }
        if answered {
            readers.end(reader);
        } else {
            let message = "the answer came while the client was away, and it is not kept any more (--resume-bytes, --resume-events)";
            let answer = words::error(Some(id), Code::Internal, message, None);
            readers.finish(reader, None, &answer);
        }
        Ok(None)
    }

    /// The reader of a request's stream has left.
    pub fn left(&mut self, stream: u64, reader: u64) {
        let reading = self.streams.get(&stream);
        if reading.is_some_and(|reading| reading.reader == reader) {
            self.streams.remove(&stream);
            self.routes.read(stream, false);
        }
    }

    /// A reader of news has left.
    pub fn left_news(&mut self, reader: u64) {
        self.news.readers.retain(|held| *held != reader);
    }

    /// The client has no use for this answer any more. Its server need not give one, so it is given here.
    pub fn cancel(
        &mut self,
        now: Moment,
        id: &[u8],
        readers: &mut ClientQueues,
    ) -> Option<SessionLine> {
        let stream = self.routes.cancelled(id)?;
        let message = "the client cancelled the request";
        let answer = words::error(Some(id), Code::Request, message, None);
        Some(self.answer(now, stream, id.to_vec(), &answer, readers))
    }

    /// A line of the server.
    pub fn hear(&mut self, now: Moment, line: &[u8], readers: &mut ClientQueues) -> SessionLine {
        if self.version.is_none()
            && let Some(greeting) = envelope::greeting(line)
        {
            self.version = Some(greeting.version);
        }
        match self.routes.heard(line) {
            Route::Last(stream, id) => self.answer(now, stream, id, line, readers),
            Route::On(stream) => self.pass(stream, line, readers),
            Route::News => self.tell(line, readers),
            Route::Drop => SessionLine::Unexpected,
        }
    }

    /// Answers everything that is in flight and ends every stream; how many requests that were.
    pub fn settle(&mut self, why: &str, readers: &mut ClientQueues) -> usize {
        let waiting = self.routes.drain();
        for (id, stream) in &waiting {
            let message = format!("{why}; the request may or may not have taken effect");
            let answer = words::error(Some(id), Code::Internal, &message, None);
            if let Some(reading) = self.streams.remove(stream) {
                readers.finish(reading.reader, None, &answer);
            }
        }
        debug_assert!(
            self.streams.is_empty(),
            "a stream is read and waits for nothing"
        );
        for reader in core::mem::take(&mut self.news.readers) {
            readers.end(reader);
        }
        // No client comes back to a session that is over.
        self.known.clear();
        self.over.clear();
        waiting.len()
    }

    /// States what holds after each step.
    pub fn check(&self) {
        for stream in self.streams.keys() {
            debug_assert!(self.routes.waits(*stream), "an answered stream is read");
        }
        debug_assert!(
            self.over.len() <= self.streams_most.max(1),
            "too many streams are known"
        );
        let answered = |known: &&Known| matches!(known, Known::Answered { .. });
        debug_assert_eq!(
            self.over.len(),
            self.known.values().filter(answered).count(),
            "a stream that is over is never forgotten"
        );
        for (stream, known) in &self.known {
            debug_assert!(
                matches!(known, Known::Answered { .. }) || self.routes.waits(*stream),
                "a stream is open and waits for no answer"
            );
        }
        debug_assert!(
            self.news.read <= self.news.last,
            "news are read before they come"
        );
    }

    fn answer(
        &mut self,
        now: Moment,
        stream: u64,
        id: Vec<u8>,
        line: &[u8],
        readers: &mut ClientQueues,
    ) -> SessionLine {
        let reading = self.streams.remove(&stream);
        let resumable = match reading {
            Some(reading) => readers.has_begun(reading.reader),
            None => self.known.contains_key(&stream),
        };
        let event = resumable.then(|| {
            let event = self.numbered(stream, line);
            let last = event.number;
            self.known.insert(stream, Known::Answered { last, id });
            self.over.push_back(stream);
            event
        });
        self.prune();
        if let Some(reading) = reading {
            let event = event.and_then(|event| without_error(event, line));
            readers.finish(reading.reader, event, line);
        }
        SessionLine::Answered(reading.map(|reading| now - reading.since))
    }

    /// A message of a request's stream before its answer. With the first one, the stream begins.
    fn pass(&mut self, stream: u64, line: &[u8], readers: &mut ClientQueues) -> SessionLine {
        let Some(reading) = self.streams.get(&stream).copied() else {
            if self.known.contains_key(&stream) {
                self.numbered(stream, line);
            }
            return SessionLine::Passed;
        };
        let event = self.numbered(stream, line);
        if readers.push(reading.reader, Some(event), line) {
            SessionLine::Passed
        } else {
            SessionLine::Dropped
        }
    }

    fn tell(&mut self, line: &[u8], readers: &mut ClientQueues) -> SessionLine {
        self.news.last += 1;
        let event = EventId {
            stream: NEWS,
            number: self.news.last,
        };
        self.resume.keep(event, line);
        let Some(reader) = self.news.readers.last() else {
            return SessionLine::Passed;
        };
        self.news.read = event.number;
        if readers.push(*reader, Some(event), line) {
            SessionLine::Passed
        } else {
            SessionLine::Dropped
        }
    }

    /// Keeps a message of a request's stream and gives it its number.
    fn numbered(&mut self, stream: u64, line: &[u8]) -> EventId {
        let known = self.known.entry(stream).or_insert(Known::Open { last: 0 });
        let number = match known {
            Known::Open { last } => {
                *last += 1;
                *last
            }
            Known::Answered { last, .. } => {
                debug_assert!(false, "a message after the answer");
                *last
            }
        };
        let event = EventId { stream, number };
        self.resume.keep(event, line);
        event
    }

    /// Forgets the streams that ended first, so that a long session does not grow.
    fn prune(&mut self) {
        while self.over.len() > self.streams_most.max(1) {
            if let Some(first) = self.over.pop_front() {
                self.known.remove(&first);
                self.resume.forget(first);
            }
        }
    }
}

/// A client that gets an error with an id comes back for more, so it gets none.
fn without_error(event: EventId, message: &[u8]) -> Option<EventId> {
    (!is_error(message)).then_some(event)
}

#[cfg(test)]
#[path = "session/tests.rs"]
mod tests;
