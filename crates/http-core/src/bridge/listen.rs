//! The stream for messages that the server sends on its own. It is kept open if the server has one.

use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::limits;

use super::close::speaks_of_session;
use super::io::{Content, ExchangeId, Head};
use super::wire::{Purpose, Wire};
use crate::{headers, sse};

/// The stream.
#[derive(Debug)]
pub(super) struct Listen {
    state: State,
    /// The last event, to go on after it.
    last: Option<String>,
    /// The retry time that the server gave.
    retry_ms: Option<u64>,
    /// In a row.
    failures: u32,
    /// It was there in this session.
    was_there: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It is not open.
    Idle,
    /// It is open, or on its way.
    Open(ExchangeId),
    /// It is opened again at this time.
    Resting(Moment),
    /// The server has none for this session, or says so in a way that is not sure.
    NotHere,
    /// The server has none.
    Never,
}

/// What an answer means for the session.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// Nothing.
    Nothing,
    /// The server no longer knows the session.
    SessionGone,
}

impl Listen {
    pub fn new() -> Self {
        Self {
            state: State::Idle,
            last: None,
            retry_ms: None,
            failures: 0,
            was_there: false,
        }
    }

    /// When it is opened again.
    pub fn wake_at(&self) -> Option<Moment> {
        match self.state {
            State::Resting(at) => Some(at),
            State::Idle | State::Open(_) | State::NotHere | State::Never => None,
        }
    }

    /// Opens it in a session with these headers; none if there is no session that could have it. Whether the server has such
    /// a stream is seen from its answer.
    pub fn open(&mut self, wire: &mut Wire, session: Option<Vec<(String, String)>>) {
        let Some(mut headers) = session else {
            if matches!(self.state, State::Resting(_)) {
                self.state = State::Idle;
            }
            return;
        };
        match self.state {
            State::Idle | State::Resting(_) => {}
            State::Open(_) | State::NotHere | State::Never => return,
        }
        let last = self.last.clone();
        headers.extend(last.map(|last| (headers::LAST_EVENT.into(), last)));
        self.state = State::Open(wire.get(Purpose::Listen, headers));
    }

    /// Its session is over; a server that has no such stream has none in the next one either.
    pub fn close(&mut self, wire: &mut Wire) {
        if let State::Open(exchange) = self.state {
            wire.close(exchange);
        }
        if self.state != State::Never {
            self.state = State::Idle;
        }
        self.last = None;
        self.was_there = false;
    }

    /// The client begins anew: the server may be another one.
    pub fn reset(&mut self, wire: &mut Wire) {
        self.close(wire);
        self.state = State::Idle;
    }

    pub fn head(&mut self, wire: &mut Wire, exchange: ExchangeId, head: &Head) -> Means {
        if head.ok() && head.content == Content::Events {
            self.was_there = true;
            return Means::Nothing;
        }
        let mut means = Means::Nothing;
        match head.status {
            // What it means is in its body.
            400 if self.was_there => return Means::Nothing,
            404 if self.was_there => {
                self.state = State::Idle;
                means = Means::SessionGone;
            }
            200..=299 | 405 | 501 => self.state = State::Never,
            408 | 409 | 425 | 429 | 500..=599 => self.rest(wire.now(), limits::HTTP_RETRY_MS),
            // Many servers know no GET at all, and say so in their own way.
            _ if !self.was_there => self.state = State::NotHere,
            _ => self.rest(wire.now(), limits::HTTP_RETRY_MS),
        }
        wire.close(exchange);
        means
    }

    pub fn event(&mut self, event: &sse::Event) {
        if let Some(id) = &event.id {
            self.last = sse::resumable(id);
        }
        self.retry_ms = event.retry_ms.or(self.retry_ms);
        self.failures = 0;
    }

    /// The stream was there, and is refused now.
    pub fn refused(
        &mut self,
        wire: &mut Wire,
        exchange: ExchangeId,
        body: &[u8],
        in_session: bool,
    ) -> Means {
        wire.close(exchange);
        if speaks_of_session(body) && in_session {
            self.state = State::Idle;
            Means::SessionGone
        } else {
            self.rest(wire.now(), limits::HTTP_RETRY_MS);
            Means::Nothing
        }
    }

    pub fn ended(&mut self, now: Moment, exchange: ExchangeId, begun: Moment, head: Option<&Head>) {
        if self.state != State::Open(exchange) {
            return;
        }
        // A gateway that ends every stream after a while is not in trouble.
        if now.ms_since(begun) >= limits::HTTP_LISTENED_MS {
            self.failures = 0;
        }
        let least = if head.is_some_and(Head::ok) {
            limits::HTTP_RETRY_LEAST_MS
        } else {
            limits::HTTP_RETRY_MS
        };
        self.rest(now, least);
    }

    /// The server may choose the wait, but not that there is none: no wait at all does not grow either.
    fn rest(&mut self, now: Moment, least_ms: u64) {
        self.failures = self.failures.saturating_add(1);
        let wait = self
            .retry_ms
            .unwrap_or(limits::HTTP_RETRY_MS)
            .clamp(least_ms, limits::HTTP_RETRY_MOST_MS);
        let grown = wait
            .saturating_mul(1 << self.failures.min(16).saturating_sub(1))
            .min(limits::HTTP_RETRY_MOST_MS);
        self.state = State::Resting(now.after_ms(grown.max(wait)));
    }
}
