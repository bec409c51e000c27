//! Messages of the client's that cannot go out now: they wait for the session or for room, or rest after a failure.
//!
//! Invariant: messages that were refused with their session are sent before later ones; otherwise the order stays.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::limits::{self, HELD_LINE_BYTES};
use mainstay_protocol::message::token;

use super::io::{End, Head};
use crate::lines::look;

/// The messages.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Messages that need no answer and could not be delivered; they go out again at their time.
    resting: Vec<(Moment, Delivery)>,
}

/// A message that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub line: Vec<u8>,
    /// How often it was sent before.
    pub sent: u8,
    /// It was refused because its session was gone.
    pub refused: bool,
}

impl Waiting {
    pub fn new(line: Vec<u8>) -> Self {
        Self {
            line,
            sent: 0,
            refused: false,
        }
    }
}

/// A message that needs no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    line: Vec<u8>,
    /// How often no server took it.
    tried: u8,
    /// It was refused because its session was gone.
    refused: bool,
    confirms: bool,
}

/// What became of a delivery.
pub(super) enum Delivered {
    /// It has reached the server, or nothing more can be done and nothing need be told.
    Over,
    /// It goes out again after this time.
    Again(u64),
    /// It did not reach the server.
    Lost(String),
}

impl Queue {
    pub fn push(&mut self, waiting: Waiting) {
        self.waiting_bytes += waiting.line.len();
        self.waiting.push_back(waiting);
    }

    /// Puts messages that were refused with their session before later ones.
    pub fn push_refused(&mut self, line: Vec<u8>) {
        self.waiting_bytes += line.len();
        let before = self.waiting.iter().take_while(|one| one.refused).count();
        let refused = Waiting {
            refused: true,
            ..Waiting::new(line)
        };
        self.waiting.insert(before, refused);
    }

    pub fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.waiting_bytes -= waiting.line.len();
        Some(waiting)
    }

    /// The client cancels a request. True if it waited here.
    pub fn cancel(&mut self, id: &[u8]) -> bool {
        let waited = self.waiting.len();
        self.waiting.retain(|held| {
            let held = look(&held.line).id;
            !held.is_some_and(|held| token::same(&held, id))
        });
        self.waiting_bytes = self.waiting.iter().map(|one| one.line.len()).sum();
        self.waiting.len() < waited
    }

    /// A delivery goes out again at this time.
    pub fn rest(&mut self, until: Moment, mut delivery: Delivery) {
        delivery.tried = delivery.tried.saturating_add(1);
        self.resting.push((until, delivery));
    }

    /// A delivery whose time has come.
    pub fn rested(&mut self, now: Moment) -> Option<Delivery> {
        let at = self.resting.iter().position(|(at, _)| *at <= now)?;
        Some(self.resting.remove(at).1)
    }

    /// When the client's `initialized` goes out again.
    pub fn confirming_at(&self) -> Option<Moment> {
        let mut resting = self.resting.iter();
        resting.find(|(_, one)| one.confirms()).map(|(at, _)| *at)
    }

    pub fn forget_resting(&mut self) {
        self.resting.clear();
    }

    pub fn has_resting(&self) -> bool {
        !self.resting.is_empty()
    }

    pub fn wake_at(&self) -> Option<Moment> {
        self.resting.iter().map(|(at, _)| *at).min()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A reason not to read more of the client's.
    pub fn is_full(&self) -> bool {
        self.waiting_bytes > HELD_LINE_BYTES || self.waiting.len() > limits::IN_FLIGHT_MAX
    }
}

impl Delivery {
    pub fn new(line: Vec<u8>) -> Self {
        let confirms = look(&line).method == "notifications/initialized";
        Self {
            line,
            tried: 0,
            refused: false,
            confirms,
        }
    }

    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// It is the client's `initialized`.
    pub fn confirms(&self) -> bool {
        self.confirms
    }

    /// It was refused once because its session was gone.
    pub fn was_refused(&self) -> bool {
        self.refused
    }

    /// The exchange that it went out with is over.
    pub fn ended(&self, head: Option<&Head>, end: &End, closing: bool) -> Delivered {
        let wait = limits::HTTP_AGAIN_MS.get(usize::from(self.tried));
        let again = match (head, end) {
            (None, End::Failed { unsent: true, .. }) => wait.copied(),
            (Some(head), _) if matches!(head.status, 429 | 503) => wait.and_then(|wait| {
                let asked = head.retry_after_ms.unwrap_or(*wait);
                (asked <= limits::HTTP_RETRY_AFTER_MS).then_some(asked)
            }),
            (_, End::Done | End::TooLong | End::Failed { .. }) => None,
        };
        if let Some(wait) = again.filter(|_| !closing) {
            return Delivered::Again(wait);
        }
        let trouble = match (head, end) {
            (Some(head), _) if !head.ok() => format!("HTTP {}", head.status),
            (_, End::Failed { why, .. }) => why.clone(),
            (_, End::Done | End::TooLong) => return Delivered::Over,
        };
        let method = look(&self.line).method;
        let what = if method.is_empty() {
            "an answer of the client's"
        } else {
            &method
        };
        Delivered::Lost(format!("{what} did not reach the server: {trouble}"))
    }
}

impl From<Waiting> for Delivery {
    fn from(waiting: Waiting) -> Self {
        Self {
            refused: waiting.refused,
            ..Self::new(waiting.line)
        }
    }
}

impl From<Delivery> for Waiting {
    fn from(delivery: Delivery) -> Self {
        Self {
            refused: delivery.refused,
            ..Self::new(delivery.line)
        }
    }
}
