//! The way of messages to one waiting client: one JSON answer, or a stream of events that ends with it.
//!
//! Which of the two it is shows with the first message. A client that reads slowly costs bounded memory: beyond that,
//! what is no answer is dropped. Whoever reads holds a [`Seat`]; its drop is how we learn that the client left.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use mainstay_core::serve::limits::{OUTLET_BYTES, RETRY_MS};
use mainstay_core::serve::sse::{self, EventId};
use tokio::time::{Instant, Sleep};

use super::upstream::Rest;

/// One message on its way to a client.
#[derive(Clone, Debug)]
struct Message {
    id: Option<EventId>,
    bytes: Vec<u8>,
}

/// The messages that wait for a client.
#[derive(Debug, Default)]
pub struct Stream {
    waiting: RefCell<VecDeque<Message>>,
    bytes: Cell<usize>,
    /// Nothing more will come.
    over: Cell<bool>,
    /// A stream of events has begun: the client can come back for the rest.
    begun: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// What the client gets.
#[derive(Debug, PartialEq, Eq)]
pub enum First {
    /// One answer, and nothing else.
    Answer(Vec<u8>),
    /// Events.
    Events,
}

impl Stream {
    /// Adds a message; false if it was dropped because the client does not read.
    pub fn push(&self, id: Option<EventId>, message: &[u8]) -> bool {
        if self.bytes.get() > OUTLET_BYTES {
            return false;
        }
        // What is not the last message makes it a stream, which a client can come back for.
        self.begun.set(true);
        self.add(id, message);
        true
    }

    /// Adds the last message.
    pub fn finish(&self, id: Option<EventId>, message: &[u8]) {
        self.over.set(true);
        self.add(id, message);
    }

    /// Ends it without another message.
    pub fn end(&self) {
        self.over.set(true);
        self.wake();
    }

    /// Whether the client has been sent the beginning of a stream.
    pub fn begun(&self) -> bool {
        self.begun.get()
    }

    /// Waits for what shows how the client is answered; after the given time it is a stream.
    pub async fn first(&self, at_most: Duration) -> First {
        let mut timer = std::pin::pin!(tokio::time::sleep(at_most));
        std::future::poll_fn(|cx| {
            let waiting = self.waiting.borrow().len();
            if waiting == 1 && self.over.get() {
                let message = self.take();
                return Poll::Ready(message.map_or(First::Events, |one| First::Answer(one.bytes)));
            }
            if waiting > 0 || self.over.get() || timer.as_mut().poll(cx).is_ready() {
                self.begun.set(true);
                return Poll::Ready(First::Events);
            }
            self.waker.borrow_mut().replace(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn add(&self, id: Option<EventId>, message: &[u8]) {
        self.bytes.set(self.bytes.get() + message.len());
        let bytes = message.to_vec();
        self.waiting.borrow_mut().push_back(Message { id, bytes });
        self.wake();
    }

    fn take(&self) -> Option<Message> {
        let message = self.waiting.borrow_mut().pop_front()?;
        self.bytes.set(self.bytes.get() - message.bytes.len());
        Some(message)
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// Somebody who reads a stream. What is to happen when it leaves happens when this is dropped.
pub struct Seat(Option<Box<dyn FnOnce()>>);

impl Seat {
    /// A seat; `left` is called when it is empty again.
    pub fn new(left: impl FnOnce() + 'static) -> Self {
        Self(Some(Box::new(left)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(left) = self.0.take() {
            left();
        }
    }
}

/// What is sent back.
pub enum Body {
    /// All of it.
    Whole(Option<Bytes>),
    /// Events, as they come.
    Events(Box<Events>),
    /// What a server upstream says.
    Passed(Box<Rest>),
}

/// Events, as they come, with comments when nothing does.
pub struct Events {
    stream: Rc<Stream>,
    head: Option<Vec<u8>>,
    every: Duration,
    timer: Pin<Box<Sleep>>,
    seats: Vec<Seat>,
}

impl Body {
    /// All of it.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::Whole((!bytes.is_empty()).then_some(bytes))
    }

    /// The events of a stream. `priming` is the id that the client may come back with before the first one.
    pub fn events(
        stream: Rc<Stream>,
        priming: Option<EventId>,
        every: Duration,
        seats: Vec<Seat>,
    ) -> Self {
        stream.begun.set(true);
        // A first comment makes the headers go out at once, also through a proxy that waits for a body.
        let head = match priming {
            Some(id) => sse::priming(id, RETRY_MS),
            None => sse::COMMENT.to_vec(),
        };
        Self::Events(Box::new(Events {
            stream,
            head: Some(head),
            every,
            timer: Box::pin(tokio::time::sleep(every)),
            seats,
        }))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.get_mut() {
            Self::Whole(bytes) => bytes.take(),
            Self::Events(events) => match events.poll(cx) {
                Poll::Ready(bytes) => bytes.map(Bytes::from),
                Poll::Pending => return Poll::Pending,
            },
            Self::Passed(rest) => match rest.poll(cx) {
                Poll::Ready(bytes) => bytes,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Self::Events(_) | Self::Passed(_) => SizeHint::default(),
        }
    }
}

impl Events {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Some(head));
        }
        if let Some(message) = self.stream.take() {
            self.timer.as_mut().reset(Instant::now() + self.every);
            return Poll::Ready(Some(sse::event(message.id, &message.bytes)));
        }
        if self.stream.over.get() {
            // The client may take its time to close; its place is free from here on.
            self.seats.clear();
            return Poll::Ready(None);
        }
        self.stream.waker.borrow_mut().replace(cx.waker().clone());
        if self.timer.as_mut().poll(cx).is_ready() {
            self.timer.as_mut().reset(Instant::now() + self.every);
            return Poll::Ready(Some(sse::COMMENT.to_vec()));
        }
        Poll::Pending
    }
}
