//! The exchanges: each is one HTTP request with its answer, from [`Exchanges::open`] to [`Exchanges::close`].
//!
//! This machine knows how far an exchange is, which session it is a connection of, which link it waits for, and which messages
//! wait for its client. It does not decide what an exchange does next: the front and the machines of both eras do.
//!
//! Invariants: an exchange waits for at most one link; the two tables of who waits for which link agree.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;

use super::client_queues::{ClientQueues, First, Taken};
use super::legacy_era;
use super::limits::RETRY_MS;
use super::modern_era;
use super::outputs::{Output, Outputs};
use super::requests::Read;
use super::sse::{self, EventId};

/// How far an exchange is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing is known about it.
    New,
    /// A message of the legacy era that no server has got.
    Legacy(legacy_era::Waits),
    /// A request of the modern era that no server has got.
    Modern(modern_era::Waits),
    /// `initialize` was sent; the client does not know its session yet.
    Opening(Source),
    /// It waits for the first message.
    Asked(Source),
    /// Events are read. The head is sent before them.
    Reading(Source, Option<Vec<u8>>),
    /// The server could not be started.
    Failed(String),
    /// It has been answered.
    Answered,
}

/// Where the messages of an exchange come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A request's stream of a session.
    Stream { session: u64, stream: u64 },
    /// The news of a session.
    News { session: u64 },
    /// A request to a server of the modern era.
    Modern { link: u64, number: u64 },
    /// What is kept of a stream that is over.
    Kept,
}

/// The first thing that shows how a client is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Nothing yet: ask again at this time.
    Nothing(Moment),
    /// One answer, and nothing else.
    Answer(Vec<u8>),
    /// A stream of events.
    Events,
}

/// An exchange that is over.
#[derive(Debug)]
pub(super) struct Closed {
    pub state: State,
    /// The session that it was a connection of.
    pub session: Option<u64>,
}

#[derive(Clone, Debug)]
struct Exchange {
    state: State,
    session: Option<u64>,
    /// The link that it waits for.
    waits_on: Option<u64>,
    /// When a comment is sent to a client that has got nothing else.
    comment_at: Moment,
    /// How many servers turned out not to be of the modern era.
    servers_tried: u8,
}

/// All exchanges, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    open: BTreeMap<u64, Exchange>,
    /// The exchanges that wait for something of a link, by link.
    waiting: BTreeMap<u64, BTreeSet<u64>>,
    queues: ClientQueues,
}

impl Exchanges {
    pub fn open(&mut self, number: u64) {
        let exchange = Exchange {
            state: State::New,
            session: None,
            waits_on: None,
            comment_at: Moment::default(),
            servers_tried: 0,
        };
        let old = self.open.insert(number, exchange);
        debug_assert!(old.is_none(), "an exchange is opened twice");
    }

    pub fn state(&self, number: u64) -> Option<&State> {
        Some(&self.open.get(&number)?.state)
    }

    pub fn set_state(&mut self, number: u64, state: State) {
        if let Some(exchange) = self.open.get_mut(&number) {
            exchange.state = state;
        }
    }

    /// The session that an exchange is a connection of.
    pub fn session(&self, number: u64) -> Option<u64> {
        self.open.get(&number)?.session
    }

    /// The exchange is a connection of this session from now on.
    pub fn set_session(&mut self, number: u64, session: u64) {
        if let Some(exchange) = self.open.get_mut(&number) {
            debug_assert!(exchange.session.is_none(), "an exchange has one session");
            exchange.session = Some(session);
        }
    }

    /// How many exchanges are connections of this session.
    pub fn connections(&self, session: u64) -> usize {
        let all = self.open.values();
        all.filter(|one| one.session == Some(session)).count()
    }

    /// Another server of the modern era was of no use: how many that were.
    pub fn count_server_tried(&mut self, number: u64) -> u8 {
        let Some(exchange) = self.open.get_mut(&number) else {
            return u8::MAX;
        };
        exchange.servers_tried += 1;
        exchange.servers_tried
    }

    /// The exchange is woken when something changes at this link.
    pub fn wait_for(&mut self, number: u64, link: u64) {
        if let Some(exchange) = self.open.get_mut(&number) {
            debug_assert!(
                exchange.waits_on.is_none_or(|waits_on| waits_on == link),
                "an exchange waits for two links"
            );
            exchange.waits_on = Some(link);
            self.waiting.entry(link).or_default().insert(number);
        }
    }

    /// Something has changed at this link: wakes the exchanges that wait for it.
    pub fn wake_waiting(&mut self, link: u64, out: &mut Outputs) {
        for number in self.waiting.remove(&link).unwrap_or_default() {
            if let Some(exchange) = self.open.get_mut(&number) {
                exchange.waits_on = None;
            }
            out.push(Output::Wake(number));
        }
    }

    /// A link could not be started: the exchanges that wait for it, and those of its session, are told why.
    pub fn fail(&mut self, link: u64, session: Option<u64>, why: &str, out: &mut Outputs) {
        let mut failed = self.waiting.remove(&link).unwrap_or_default();
        if session.is_some() {
            let theirs = self.open.iter().filter(|(_, one)| one.session == session);
            failed.extend(theirs.map(|(number, _)| *number));
        }
        for number in failed {
            if let Some(exchange) = self.open.get_mut(&number) {
                exchange.state = State::Failed(why.into());
                exchange.waits_on = None;
                out.push(Output::Wake(number));
            }
        }
    }

    /// The messages that wait for clients.
    pub fn queues(&mut self) -> &mut ClientQueues {
        &mut self.queues
    }

    /// The request was sent: messages for its client are taken, and a comment is sent if there is none until this time.
    pub fn expect_messages(&mut self, number: u64, comment_at: Moment) {
        self.queues.open(number);
        self.set_comment_at(number, comment_at);
    }

    /// The first message shows whether the client gets one answer or a stream; after some time without one it is a stream.
    pub fn first(&mut self, now: Moment, number: u64) -> Option<Shown> {
        let comment_at = self.open.get(&number)?.comment_at;
        Some(match self.queues.first(number) {
            First::Nothing if comment_at > now => Shown::Nothing(comment_at),
            First::Answer(message) => {
                self.queues.close(number);
                Shown::Answer(message)
            }
            First::Nothing => {
                self.queues.begin(number);
                Shown::Events
            }
            First::Events => Shown::Events,
        })
    }

    /// Events are read from now on. The head makes the headers go out at once, also through a proxy that waits for a body.
    pub fn begin_stream(
        &mut self,
        number: u64,
        source: Source,
        priming: Option<EventId>,
        comment_at: Moment,
    ) {
        let head = match priming {
            Some(id) => sse::priming(id, RETRY_MS),
            None => sse::COMMENT.to_vec(),
        };
        self.set_comment_at(number, comment_at);
        self.set_state(number, State::Reading(source, Some(head)));
    }

    /// The next piece of a stream of events. After it, the next comment is due at `comment_at`.
    pub fn read(&mut self, now: Moment, number: u64, comment_at: Moment) -> Read {
        let Some(exchange) = self.open.get_mut(&number) else {
            return Read::End;
        };
        let State::Reading(_, head) = &mut exchange.state else {
            debug_assert!(false, "an exchange is read that has no stream");
            return Read::End;
        };
        if let Some(head) = head.take() {
            return Read::Bytes(head);
        }
        match self.queues.take(number) {
            Taken::Event(event) => {
                exchange.comment_at = comment_at;
                Read::Bytes(event)
            }
            Taken::Nothing if exchange.comment_at <= now => {
                exchange.comment_at = comment_at;
                Read::Bytes(sse::COMMENT.to_vec())
            }
            Taken::Nothing => Read::Wait(exchange.comment_at),
            Taken::End => Read::End,
        }
    }

    /// The exchange is over: nothing waits for it, and it waits for nothing.
    pub fn close(&mut self, number: u64) -> Option<Closed> {
        let exchange = self.open.remove(&number)?;
        self.queues.close(number);
        if let Some(link) = exchange.waits_on
            && let Some(waiting) = self.waiting.get_mut(&link)
        {
            waiting.remove(&number);
            if waiting.is_empty() {
                self.waiting.remove(&link);
            }
        }
        Some(Closed {
            state: exchange.state,
            session: exchange.session,
        })
    }

    /// The links that exchanges wait for.
    pub fn awaited_links(&self) -> impl Iterator<Item = u64> {
        self.waiting.keys().copied()
    }

    /// Bytes that wait for clients.
    pub fn bytes(&self) -> usize {
        self.queues.bytes()
    }

    /// States what holds after each step.
    pub fn check(&self) {
        self.queues.check();
        for (link, waiting) in &self.waiting {
            for number in waiting {
                let exchange = self.open.get(number);
                debug_assert!(
                    exchange.is_some_and(|exchange| exchange.waits_on == Some(*link)),
                    "an exchange waits for two links"
                );
            }
        }
        for (number, exchange) in &self.open {
            let Some(link) = exchange.waits_on else {
                continue;
            };
            let waiting = self.waiting.get(&link);
            debug_assert!(
                waiting.is_some_and(|waiting| waiting.contains(number)),
                "an exchange waits for a link and is never woken"
            );
        }
    }

    fn set_comment_at(&mut self, number: u64, comment_at: Moment) {
        if let Some(exchange) = self.open.get_mut(&number) {
            exchange.comment_at = comment_at;
        }
    }
}
