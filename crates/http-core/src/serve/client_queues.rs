//! Messages on their way to a client: one plain answer, or a stream of events that ends with it.
//!
//! Which of the two it is shows with the first message. A client that reads slowly costs bounded memory: beyond the limit,
//! what is no answer is dropped. [`ClientQueues`] owns the queues of all exchanges and remembers which of them changed.
//!
//! Invariant: a queue holds at most [`CLIENT_QUEUE_BYTES`], one message above that, and the last message.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::limits::CLIENT_QUEUE_BYTES;
use super::sse::{self, EventId};

/// How far a client has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client has been told nothing.
    Silent,
    /// It gets events, and more may come.
    Events,
    /// It gets one answer, which is its only message.
    Answer,
    /// It gets the events that wait, and nothing after them.
    Ended,
}

/// What shows how a client is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// Nothing yet.
    Nothing,
    /// One answer, and nothing else.
    Answer(Vec<u8>),
    /// A stream of events.
    Events,
}

/// The next piece of a stream of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// An event, as it is sent.
    Event(Vec<u8>),
    /// Nothing now.
    Nothing,
    /// Nothing more will come.
    End,
}

#[derive(Clone, Debug)]
struct Message {
    id: Option<EventId>,
    bytes: Vec<u8>,
}

/// The messages that wait for one client.
#[derive(Clone, Debug)]
struct ClientQueue {
    waiting: VecDeque<Message>,
    bytes: usize,
    state: State,
}

impl ClientQueue {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
            state: State::Silent,
        }
    }

    /// Adds a message that is not the last one; false if it was dropped because the client does not read.
    fn push(&mut self, id: Option<EventId>, message: &[u8]) -> bool {
        debug_assert!(
            matches!(self.state, State::Silent | State::Events),
            "a message after the last one"
        );
        // Only the last message can be a plain answer, so this one makes a stream, which the client can come back for.
        self.state = State::Events;
        if self.bytes > CLIENT_QUEUE_BYTES {
            return false;
        }
        self.add(id, message);
        true
    }

    /// Adds the last message.
    fn finish(&mut self, id: Option<EventId>, message: &[u8]) {
        debug_assert!(
            matches!(self.state, State::Silent | State::Events),
            "a second answer"
        );
        self.state = match self.state {
            State::Silent => State::Answer,
            State::Events | State::Answer | State::Ended => State::Ended,
        };
        self.add(id, message);
    }

    fn end(&mut self) {
        self.state = match self.state {
            State::Answer => State::Answer,
            State::Silent | State::Events | State::Ended => State::Ended,
        };
    }

    fn begin(&mut self) {
        if self.state == State::Silent {
            self.state = State::Events;
        }
    }

    fn first(&mut self) -> First {
        match self.state {
            State::Silent => First::Nothing,
            State::Events | State::Ended => First::Events,
            State::Answer => {
                debug_assert_eq!(self.waiting.len(), 1, "a plain answer is alone");
                self.state = State::Ended;
                let answer = self.pop().map_or_else(Vec::new, |message| message.bytes);
                First::Answer(answer)
            }
        }
    }

    fn take(&mut self) -> Taken {
        match (self.pop(), self.state) {
            (Some(message), _) => Taken::Event(sse::event(message.id, &message.bytes)),
            (None, State::Ended | State::Answer) => Taken::End,
            (None, State::Silent | State::Events) => Taken::Nothing,
        }
    }

    fn add(&mut self, id: Option<EventId>, message: &[u8]) {
        self.bytes += message.len();
        let bytes = message.to_vec();
        self.waiting.push_back(Message { id, bytes });
    }

    fn pop(&mut self) -> Option<Message> {
        let message = self.waiting.pop_front()?;
        self.bytes -= message.bytes.len();
        Some(message)
    }

    /// What waits is counted, and only the last two messages may go beyond the limit.
    fn check(&self) {
        let sizes = || self.waiting.iter().map(|message| message.bytes.len());
        debug_assert_eq!(self.bytes, sizes().sum::<usize>(), "bytes are miscounted");
        let before_last_two: usize = sizes().rev().skip(2).sum();
        debug_assert!(before_last_two <= CLIENT_QUEUE_BYTES, "a queue is too full");
    }
}

/// The queues of all exchanges, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct ClientQueues {
    open: BTreeMap<u64, ClientQueue>,
    woken: Vec<u64>,
}

impl ClientQueues {
    /// A client waits for messages from now on.
    pub fn open(&mut self, reader: u64) {
        let old = self.open.insert(reader, ClientQueue::new());
        debug_assert!(old.is_none(), "an exchange has one queue");
    }

    /// The client has left, or has been sent everything.
    pub fn close(&mut self, reader: u64) {
        self.open.remove(&reader);
    }

    /// Adds a message that is not the last one; false if it was dropped, because the client does not read or has left.
    pub fn push(&mut self, reader: u64, id: Option<EventId>, message: &[u8]) -> bool {
        self.of(reader).is_some_and(|queue| queue.push(id, message))
    }

    /// Adds the last message.
    pub fn finish(&mut self, reader: u64, id: Option<EventId>, message: &[u8]) {
        if let Some(queue) = self.of(reader) {
            queue.finish(id, message);
        }
    }

    /// Ends it without another message.
    pub fn end(&mut self, reader: u64) {
        if let Some(queue) = self.of(reader) {
            queue.end();
        }
    }

    /// The client is sent the beginning of a stream, whatever comes first.
    pub fn begin(&mut self, reader: u64) {
        if let Some(queue) = self.open.get_mut(&reader) {
            queue.begin();
        }
    }

    /// Whether the client is sent a stream of events, which it can come back for.
    pub fn has_begun(&self, reader: u64) -> bool {
        let state = self.open.get(&reader).map(|queue| queue.state);
        matches!(state, Some(State::Events | State::Ended))
    }

    /// How the client is answered, as soon as it shows.
    pub fn first(&mut self, reader: u64) -> First {
        let queue = self.open.get_mut(&reader);
        queue.map_or(First::Events, ClientQueue::first)
    }

    /// The next event.
    pub fn take(&mut self, reader: u64) -> Taken {
        self.open
            .get_mut(&reader)
            .map_or(Taken::End, ClientQueue::take)
    }

    /// The exchanges that something has changed for since the last call.
    pub fn woken(&mut self) -> impl Iterator<Item = u64> {
        self.woken.drain(..)
    }

    /// Bytes that wait for all clients.
    pub fn bytes(&self) -> usize {
        self.open.values().map(|queue| queue.bytes).sum()
    }

    /// States what holds after each step.
    pub fn check(&self) {
        self.open.values().for_each(ClientQueue::check);
    }

    fn of(&mut self, reader: u64) -> Option<&mut ClientQueue> {
        let queue = self.open.get_mut(&reader)?;
        self.woken.push(reader);
        Some(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers() -> ClientQueues {
        let mut readers = ClientQueues::default();
        readers.open(1);
        readers
    }

    fn event(text: &str) -> Taken {
        Taken::Event(sse::event(None, text.as_bytes()))
    }

    #[test]
    fn an_answer_that_comes_first_is_plain() {
        let mut readers = readers();
        assert_eq!(readers.first(1), First::Nothing);
        readers.finish(1, None, b"{}");
        assert!(!readers.has_begun(1));
        assert_eq!(readers.first(1), First::Answer(b"{}".to_vec()));
        assert_eq!(readers.take(1), Taken::End);
        assert_eq!(readers.woken().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn anything_before_the_answer_makes_a_stream() {
        let mut readers = readers();
        assert!(readers.push(1, None, b"1"));
        assert_eq!(readers.first(1), First::Events);
        readers.finish(1, None, b"2");
        readers.check();
        assert_eq!(readers.take(1), event("1"));
        assert_eq!(readers.take(1), event("2"));
        assert_eq!(readers.take(1), Taken::End);
    }

    #[test]
    fn one_message_without_an_answer_is_no_answer() {
        let mut readers = readers();
        assert!(readers.push(1, None, b"1"));
        readers.end(1);
        assert_eq!(readers.first(1), First::Events);
        assert_eq!(readers.take(1), event("1"));
        assert_eq!(readers.take(1), Taken::End);
    }

    #[test]
    fn a_client_that_does_not_read_costs_bounded_memory_and_gets_its_answer() {
        let mut readers = readers();
        let large = alloc::vec![b'x'; CLIENT_QUEUE_BYTES / 2];
        let taken = (0..6).filter(|_| readers.push(1, None, &large)).count();
        assert_eq!(taken, 3);
        readers.finish(1, None, b"last");
        readers.check();
        for _ in 0..3 {
            assert!(matches!(readers.take(1), Taken::Event(_)));
        }
        assert_eq!(readers.take(1), event("last"));
    }

    #[test]
    fn nothing_reaches_a_client_that_has_left() {
        let mut readers = readers();
        readers.close(1);
        assert!(!readers.push(1, None, b"1"));
        readers.finish(1, None, b"2");
        assert_eq!(readers.take(1), Taken::End);
        assert_eq!(readers.woken().count(), 0);
        assert_eq!(readers.bytes(), 0);
    }
}
