//! A connection with one exchange: what its task polls, the bytes in its socket, and what the client has read of them.

use std::collections::VecDeque;

use mainstay_http_core::serve::front::{Front, Post, Step};
use mainstay_http_core::serve::posted::Posted;
use mainstay_http_core::serve::sse::EventId;
use mainstay_protocol::clock::Moment;

use super::client::{Streaming, Wish};

/// Bytes that a socket takes while its client does not read.
const SOCKET_BYTES: usize = 300;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It waits until it shows how it is answered.
    Asking,
    /// Events are read.
    Reading,
    /// Nothing more is put into its socket.
    Ended,
}

/// A connection.
#[derive(Debug)]
pub struct Conn {
    pub client: usize,
    pub phase: Phase,
    /// The request whose answer it brings.
    pub request: Option<usize>,
    /// What it was opened with.
    pub resumes: Option<EventId>,
    /// The client has lost it, and the front does not know.
    pub ghost: bool,
    /// Its task is to run.
    pub woken: bool,
    /// Its task is to run at this time.
    pub until: Option<Moment>,
    /// The last event that arrived whole.
    pub last: Option<EventId>,
    /// The answer has arrived.
    pub answered: bool,
    wish: Wish,
    socket: VecDeque<u8>,
    /// The beginning of an event.
    half: Vec<u8>,
}

/// An event that arrived whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub id: Option<EventId>,
    pub data: String,
}

impl Conn {
    pub fn new(client: usize, wish: Wish) -> Self {
        let (request, resumes) = match &wish {
            Wish::Post(posting) => (posting.request, None),
            Wish::Stream(Streaming { request, last, .. }) => {
                let last = last.as_deref().and_then(EventId::parse);
                (*request, last)
            }
            Wish::Delete(_) => (None, None),
        };
        Self {
            client,
            phase: Phase::Asking,
            request,
            resumes,
            ghost: false,
            woken: true,
            until: None,
            last: resumes,
            answered: false,
            wish,
            socket: VecDeque::new(),
            half: Vec::new(),
        }
    }

    /// Whether its task has a reason to run.
    pub fn is_ready(&self, now: Moment) -> bool {
        let due = self.until.is_some_and(|until| until <= now);
        (self.woken || due) && self.phase != Phase::Ended && self.has_room()
    }

    /// Whether the front has not seen its request for a stream.
    pub fn is_unasked_stream(&self) -> bool {
        self.phase == Phase::Asking && matches!(self.wish, Wish::Stream(_))
    }

    /// Asks the machine.
    pub fn ask(&mut self, front: &mut Front, now: Moment, number: u64) -> Step {
        self.until = None;
        match &self.wish {
            Wish::Post(posting) => {
                let posted = Posted::read(&posting.line);
                let posted = posted.unwrap_or_else(|why| {
                    panic!("{why:?}: {}", String::from_utf8_lossy(&posting.line))
                });
                let header = |name: &str| -> Vec<&[u8]> {
                    let all = posting.headers.iter().filter(|(held, _)| held == name);
                    all.map(|(_, value)| value.as_bytes()).collect()
                };
                let version = posting.headers.iter();
                let version = version
                    .filter(|(name, _)| name == "mcp-protocol-version")
                    .map(|(_, value)| value.as_bytes())
                    .next();
                let post = Post {
                    path: posting.path,
                    session: posting.session.as_deref(),
                    version,
                    posted: &posted,
                    line: &posting.line,
                    header: &header,
                };
                front.post(now, number, &post)
            }
            Wish::Stream(streaming) => front.get(now, number, streaming.as_get()),
            Wish::Delete(_) => unreachable!("DELETE has no exchange"),
        }
    }

    /// Whether the socket takes another piece.
    pub fn has_room(&self) -> bool {
        self.socket.len() < SOCKET_BYTES
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.extend(bytes);
    }

    /// Whether the client has read everything.
    pub fn is_read(&self) -> bool {
        self.socket.is_empty()
    }

    /// So many bytes reach the client: the events that are whole by then.
    pub fn arrive(&mut self, count: usize) -> Vec<Event> {
        let count = count.min(self.socket.len());
        self.half.extend(self.socket.drain(..count));
        let mut events = Vec::new();
        let mut from = self.half.len().saturating_sub(count + 1);
        while let Some(end) = end_of_event(&self.half, from) {
            from = 0;
            let block: Vec<u8> = self.half.drain(..end + 2).collect();
            events.extend(read(&String::from_utf8_lossy(&block)));
        }
        events
    }
}

/// Where an event ends, not before this place.
fn end_of_event(half: &[u8], from: usize) -> Option<usize> {
    let end = half[from..].windows(2).position(|two| two == b"\n\n")?;
    Some(from + end)
}

/// One block of a stream; none if it is a comment.
fn read(block: &str) -> Option<Event> {
    let mut id = None;
    let mut data = None;
    for line in block.lines() {
        if let Some(value) = line.strip_prefix("id: ") {
            id = EventId::parse(value);
        } else if let Some(value) = line.strip_prefix("data: ") {
            data = Some(value.to_owned());
        }
    }
    (id.is_some() || data.is_some()).then(|| Event {
        id,
        data: data.unwrap_or_default(),
    })
}
