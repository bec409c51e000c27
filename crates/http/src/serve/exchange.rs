//! One HTTP request with its answer, as its connection's task waits for it. Its drop is how the machine learns that the
//! client has left.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use mainstay_http_core::serve::front::{Get, Post, Read, Step};
use mainstay_os::clock;
use mainstay_protocol::clock::Moment;
use tokio::time::{Instant, Sleep};

use super::front::Front;
use super::upstream::Rest;

/// An exchange.
pub struct Exchange {
    front: Rc<Front>,
    number: u64,
}

impl Exchange {
    /// A request has come.
    pub fn open(front: &Rc<Front>) -> Self {
        Self {
            front: Rc::clone(front),
            number: front.with(|core, _| core.open()),
        }
    }

    /// Waits until it shows how a posted message is answered.
    pub async fn post(&self, post: &Post<'_>) -> Step {
        let mut timer = Timer::default();
        poll_fn(|cx| {
            self.front.wake_by(self.number, cx.waker());
            loop {
                let step = self
                    .front
                    .with(|core, now| core.post(now, self.number, post));
                let Step::Wait(until) = step else {
                    return Poll::Ready(step);
                };
                if !until.is_some_and(|until| timer.is_over(until, cx)) {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// The stream that a client asks for.
    pub fn get(&self, get: Get<'_>) -> Step {
        self.front.with(|core, now| core.get(now, self.number, get))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.front.forget_waker(self.number);
        self.front.with(|core, now| core.left(now, self.number));
    }
}

/// Waits until a moment that may change.
#[derive(Default)]
struct Timer {
    sleep: Option<(Moment, Pin<Box<Sleep>>)>,
}

impl Timer {
    /// True if this moment has come; if not, the task is woken then.
    fn is_over(&mut self, until: Moment, cx: &mut Context<'_>) -> bool {
        let deadline = || Instant::now() + Duration::from_nanos(until - clock::now());
        let (armed, sleep) = self
            .sleep
            .get_or_insert_with(|| (until, Box::pin(tokio::time::sleep_until(deadline()))));
        if *armed != until {
            *armed = until;
            sleep.as_mut().reset(deadline());
        }
        sleep.as_mut().poll(cx).is_ready()
    }
}

/// What is sent back.
pub enum Body {
    /// All of it.
    Whole(Option<Bytes>),
    /// Events, as they come.
    Events(Box<Events>),
    /// The answer of a server upstream.
    Passed(Box<Rest>),
}

/// Events, as they come, with comments when nothing does.
pub struct Events {
    exchange: Exchange,
    timer: Timer,
}

impl Body {
    /// All of it.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::Whole((!bytes.is_empty()).then_some(bytes))
    }

    /// The events of an exchange.
    pub fn events(exchange: Exchange) -> Self {
        Self::Events(Box::new(Events {
            exchange,
            timer: Timer::default(),
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
        let Exchange { front, number } = &self.exchange;
        front.wake_by(*number, cx.waker());
        loop {
            match front.with(|core, now| core.read(now, *number)) {
                Read::Bytes(bytes) => return Poll::Ready(Some(bytes)),
                Read::End => return Poll::Ready(None),
                Read::Wait(until) => {
                    if !self.timer.is_over(until, cx) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}
