//! A stdio client in front of a streamable-HTTP server: everything that the bridge decides, as `(now, input) → outputs`.
//!
//! Each message of the client's becomes a POST; what comes back, as JSON or as events, becomes lines. The session that a
//! legacy server opens is a debt: it is [noted](Output::Note) before the client sees the answer that opened it, and
//! [paid](Output::Paid) by a DELETE, or by the server itself when it says that it does not know the session any more.
//! It does not know sockets, files, secrets or processes.
//!
//! Invariants:
//! - Each request of the client's gets exactly one answer: the server's, or one of ours that says why. A second answer,
//!   or one that nobody waits for, is dropped. What the client cancels needs none.
//! - Nothing that the server may have acted upon is sent again, unless the protocol or the user says that this does no
//!   harm, and then once.
//! - No session is shown to the client that is not noted; no session is left without a DELETE or a note.
//! - Every wait of ours has an end; [`Bridge::wake_at`] says when.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use super::headers::{self, Marks};
use super::lines::look;
use super::sse;
use crate::clock::Moment;
use crate::limits;
use crate::message::asked::Asked;
use crate::message::lists::Lists;
use crate::message::slot::Tracked;
use crate::policy::Retry;

pub mod close;
mod hear;
mod listen;
mod old;
mod reopen;
mod route;
mod settle;

/// What is known from the beginning.
#[derive(Clone, Debug)]
pub struct About {
    /// The server's name.
    pub name: String,
    /// Its URL, for people to read: without secrets.
    pub place: String,
    /// What may be sent again.
    pub retry: Retry,
    /// How long requests in flight may take after the client has gone.
    pub drain_ms: u64,
}

/// Names one HTTP exchange.
pub type ExchangeId = u64;

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A line of the client's, without its newline.
    Line(Vec<u8>),
    /// A line of the client's that is longer than we hold; its id token and method, as far as they were seen.
    LongLine(Option<Vec<u8>>, String),
    /// The client has gone.
    Eof,
    /// We are told to end.
    Term,
    /// The head of an answer.
    Head(ExchangeId, Head),
    /// An event of an answer that is a stream.
    Event(ExchangeId, sse::Event),
    /// The whole body of an answer that is none.
    Body(ExchangeId, Vec<u8>),
    /// The exchange is over.
    End(ExchangeId, End),
    /// A session that was to be noted is noted, or why not.
    Noted(String, Result<(), String>),
    /// It is the time that was asked for.
    Tick,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its status.
    pub status: u16,
    /// What follows.
    pub content: Content,
    /// The session that it opens.
    pub session: Option<String>,
    /// When to come back.
    pub retry_after_ms: Option<u64>,
}

impl Head {
    fn ok(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// What follows a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// JSON.
    Json,
    /// A stream of events.
    Events,
    /// Something else.
    Other(String),
}

/// How an exchange ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All of it came.
    Done,
    /// It broke.
    Failed {
        /// The server has certainly not seen the request.
        unsent: bool,
        /// What went wrong.
        why: String,
    },
    /// It is longer than we hold.
    TooLong,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a request.
    Send(Sending),
    /// Break an exchange off; nothing more of it is wanted.
    Close(ExchangeId),
    /// With this exchange, which is sent next, the server is asked for a session: write down that there may be one soon.
    Opening(ExchangeId),
    /// The opening need not be remembered any more.
    Opened {
        /// The exchange.
        exchange: ExchangeId,
        /// It is known what became of it: a session that was noted, or none. Else there may be one whose name nobody
        /// has heard.
        known: bool,
    },
    /// Write down that this session must be closed, then say so by [`Input::Noted`].
    Note {
        /// The session.
        session: String,
        /// The protocol version to close it with.
        version: Option<String>,
    },
    /// The session is closed: the note is not needed any more.
    Paid {
        /// The session.
        session: String,
        /// How.
        by: Closed,
    },
    /// The session could not be closed now; the note stays.
    Owed {
        /// The session.
        session: String,
        /// Why.
        why: String,
    },
    /// A line for the client, with its newline.
    Say(Vec<u8>),
    /// A fragment for the server's stderr, where people look.
    Tell(String),
    /// All is done.
    Done,
}

/// How a session was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// By our DELETE; its status.
    Delete(u16),
    /// The server has forgotten it by itself.
    Server,
}

/// A request to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Its name.
    pub exchange: ExchangeId,
    /// Its method.
    pub verb: Verb,
    /// Its headers, but for the user's.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
    /// Where it goes, if not to the URL: a reference that the server gave.
    pub to: Option<String>,
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A message of ours.
    Post,
    /// A stream of the server's.
    Get,
    /// The end of a session.
    Delete,
}

/// The bridge.
#[derive(Debug)]
pub struct Bridge {
    about: About,
    session: Session,
    /// The session's id, from its first appearance until it is closed.
    id: Option<String>,
    /// The version that is spoken in it.
    version: Option<String>,
    /// Counts sessions, from 1; a new one begins with the loss of the last.
    epoch: u32,
    /// The session is written down.
    noted: bool,
    /// The client's `initialize`, its `initialized`, its log level, and what it has subscribed to.
    initialize: Option<Vec<u8>>,
    initialized: Option<Vec<u8>>,
    level: Option<Vec<u8>>,
    subscriptions: BTreeMap<String, Vec<u8>>,
    /// The answer to `initialize`, while its session is not noted.
    held_answer: Option<Vec<u8>>,
    /// Lists that the server says it announces.
    announces: Vec<&'static str>,
    exchanges: BTreeMap<ExchangeId, Exchange>,
    next_exchange: ExchangeId,
    requests: BTreeMap<Vec<u8>, Request>,
    /// Messages that wait: for the session, or for room.
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Messages that need no answer and could not be delivered; they go out again at their time.
    later: Vec<(Moment, Delivery)>,
    listen: Listen,
    /// The last event of that stream, what the server said about coming back, and failures in a row.
    listen_last: Option<String>,
    listen_retry_ms: Option<u64>,
    listen_failures: u32,
    /// It was there in this session.
    listened: bool,
    /// The old transport, if the server speaks only that.
    old: Option<old::Old>,
    asked: Asked,
    lists: Lists,
    marks: Marks,
    own_ids: u64,
    /// The time of the last input.
    now: Moment,
    closing: Option<close::Closing>,
    outputs: VecDeque<Output>,
    done: bool,
}

/// How far the session is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Session {
    /// None was asked for.
    Closed,
    /// The client's `initialize` is on its way.
    Opening,
    /// It is there.
    Open,
    /// It was lost, and a new one is on its way.
    Reopening(reopen::Step),
    /// It was lost, and the next message opens a new one.
    Lost,
}

/// The stream for what the server says unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Listen {
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

/// One HTTP exchange.
#[derive(Clone, Debug)]
struct Exchange {
    purpose: Purpose,
    /// The session that it belongs to.
    epoch: u32,
    head: Option<Head>,
    /// When it was begun.
    at: Moment,
    /// When it had brought what it was for; a stream may stay open a little longer.
    spent: Option<Moment>,
    /// It asks for a session, and nobody knows yet what became of that.
    opening: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    /// The client's `initialize`.
    Initialize,
    /// A request of the client's, or the resumption of its answer.
    Request(Vec<u8>),
    /// A notification or an answer of the client's.
    Deliver(Delivery),
    /// The stream for what the server says unasked.
    Listen,
    /// A DELETE.
    Farewell(String),
    /// A step of opening a session again.
    Reopen,
    /// A question of ours on the way to a request of the client's that is sent again then.
    Refresh(Vec<u8>),
    /// The stream of the old transport.
    Old,
}

/// A message that waits.
#[derive(Clone, Debug)]
struct Waiting {
    line: Vec<u8>,
    /// How often it was sent before.
    sent: u8,
    /// It was refused because its session was gone.
    refused: bool,
}

/// A message that needs no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Delivery {
    line: Vec<u8>,
    /// How often nobody took it.
    tried: u8,
    /// It was refused because its session was gone.
    refused: bool,
}

/// A request of the client's that has no answer yet.
#[derive(Clone, Debug)]
struct Request {
    line: Vec<u8>,
    method: Tracked,
    /// The version that it names itself, in the modern era.
    modern: Option<String>,
    flight: Flight,
    /// How often it was sent, or could not be.
    sent: u8,
    unsent: u8,
    /// The last event of its answer, to resume after it, and the session that this event is of.
    last_event: Option<(String, u32)>,
    retry_ms: Option<u64>,
    /// Since when no resumption has brought anything; how many.
    stalled: Option<(Moment, u32)>,
    /// The server asked the client something on behalf of it.
    asked: bool,
    /// It was refused because its session was gone.
    refused: bool,
    /// The tool list was asked for because its headers did not match, or could not be known.
    refreshed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flight {
    /// On its way.
    Sent(ExchangeId),
    /// It goes out, or its answer is resumed, at this time.
    Resting(Moment),
    /// Its answer comes on the old transport's stream.
    Elsewhere,
}

impl Bridge {
    /// Nothing was said yet.
    pub fn new(about: About) -> Self {
        Self {
            about,
            session: Session::Closed,
            id: None,
            version: None,
            epoch: 0,
            noted: false,
            initialize: None,
            initialized: None,
            level: None,
            subscriptions: BTreeMap::new(),
            held_answer: None,
            announces: Vec::new(),
            exchanges: BTreeMap::new(),
            next_exchange: 1,
            requests: BTreeMap::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            later: Vec::new(),
            listen: Listen::Idle,
            listen_last: None,
            listen_retry_ms: None,
            listen_failures: 0,
            listened: false,
            old: None,
            asked: Asked::new(),
            lists: Lists::new(),
            marks: Marks::default(),
            own_ids: 0,
            now: Moment(0),
            closing: None,
            outputs: VecDeque::new(),
            done: false,
        }
    }

    /// Takes one input; then the outputs are to be drained.
    pub fn handle(&mut self, now: Moment, input: Input) {
        self.now = now;
        match input {
            Input::Line(line) => self.client_line(&line),
            Input::LongLine(id, method) => self.client_long_line(id, &method),
            Input::Eof => self.begin_closing(now, self.about.drain_ms),
            Input::Term => self.begin_closing(now, 0),
            Input::Head(exchange, head) => self.head(now, exchange, head),
            Input::Event(exchange, event) => self.event(now, exchange, &event),
            Input::Body(exchange, body) => self.body(now, exchange, &body),
            Input::End(exchange, end) => self.end(now, exchange, end),
            Input::Noted(session, result) => self.was_noted(&session, result),
            Input::Tick => {}
        }
        self.due(now);
        self.close_if_idle(now);
    }

    /// The next thing to be done.
    pub fn output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to come back.
    pub fn wake_at(&self) -> Option<Moment> {
        if self.done {
            return None;
        }
        let requests = self.requests.values().filter_map(|one| match one.flight {
            Flight::Resting(at) => Some(at),
            Flight::Sent(_) | Flight::Elsewhere => None,
        });
        let spent = self.exchanges.values().filter_map(|one| one.spent);
        let listen = match self.listen {
            Listen::Resting(at) => Some(at),
            Listen::Idle | Listen::Open(_) | Listen::NotHere | Listen::Never => None,
        };
        requests
            .chain(spent.map(|at| at.after_ms(limits::HTTP_SPENT_MS)))
            .chain(listen)
            .chain(self.later.iter().map(|(at, _)| *at))
            .chain(self.confirmed_by())
            .chain(self.closing.as_ref().map(close::Closing::wake_at))
            .min()
    }

    /// Requests of the client's that have no answer yet.
    pub fn in_flight(&self) -> usize {
        self.requests.len() + self.waiting.len()
    }

    /// Bytes that wait within: a reason not to read more of the client's.
    pub fn is_full(&self) -> bool {
        self.waiting_bytes > limits::HELD_LINE_BYTES || self.waiting.len() > limits::IN_FLIGHT_MAX
    }

    /// What is due by now.
    fn due(&mut self, now: Moment) {
        let due: Vec<Vec<u8>> = self
            .requests
            .iter()
            .filter(|(_, one)| matches!(one.flight, Flight::Resting(at) if at <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in due {
            self.go_on(&id);
        }
        if matches!(self.listen, Listen::Resting(at) if at <= now) {
            self.open_listen();
        }
        let spent: Vec<ExchangeId> = self
            .exchanges
            .iter()
            .filter(|(_, one)| {
                one.spent
                    .is_some_and(|at| at.after_ms(limits::HTTP_SPENT_MS) <= now)
            })
            .map(|(id, _)| *id)
            .collect();
        for exchange in spent {
            self.close(exchange);
        }
        self.deliver_due(now);
        self.flush();
    }

    fn say(&mut self, mut line: Vec<u8>) {
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        self.outputs.push_back(Output::Say(line));
    }

    fn own_id(&mut self) -> Vec<u8> {
        self.own_ids += 1;
        alloc::format!("\"ms:http:{}\"", self.own_ids).into_bytes()
    }

    /// Breaks an exchange off.
    fn close(&mut self, exchange: ExchangeId) {
        if let Some(one) = self.exchanges.remove(&exchange) {
            self.outputs.push_back(Output::Close(exchange));
            self.opened_by(exchange, one.opening, false);
        }
    }

    /// An exchange that may have asked for a session is over, as far as that is concerned.
    fn opened_by(&mut self, exchange: ExchangeId, opening: bool, known: bool) {
        if opening {
            self.outputs.push_back(Output::Opened { exchange, known });
        }
    }

    fn post(
        &mut self,
        purpose: Purpose,
        body: Vec<u8>,
        headers: Vec<(String, String)>,
    ) -> ExchangeId {
        let to = self.old.as_ref().and_then(|old| old.endpoint.clone());
        self.send(purpose, Verb::Post, headers, body, to)
    }

    fn send(
        &mut self,
        purpose: Purpose,
        verb: Verb,
        mut headers: Vec<(String, String)>,
        body: Vec<u8>,
        to: Option<String>,
    ) -> ExchangeId {
        let accept = match verb {
            Verb::Post => Some("application/json, text/event-stream"),
            Verb::Get => Some("text/event-stream"),
            Verb::Delete => None,
        };
        if let Some(accept) = accept {
            headers.push(("accept".into(), accept.into()));
        }
        if verb == Verb::Post {
            headers.push(("content-type".into(), "application/json".into()));
        }
        let exchange = self.next_exchange;
        self.next_exchange += 1;
        let opening = self.old.is_none() && look(&body).method == "initialize";
        if opening {
            self.outputs.push_back(Output::Opening(exchange));
        }
        self.exchanges.insert(
            exchange,
            Exchange {
                purpose,
                epoch: self.epoch,
                head: None,
                at: self.now,
                spent: None,
                opening,
            },
        );
        self.outputs.push_back(Output::Send(Sending {
            exchange,
            verb,
            headers,
            body,
            to,
        }));
        exchange
    }

    /// The headers of the session that is there.
    fn session_headers(&self) -> Vec<(String, String)> {
        let session = self.id.iter().map(|id| (headers::SESSION, id));
        let version = self
            .version
            .iter()
            .map(|version| (headers::VERSION, version));
        session
            .chain(version)
            .map(|(name, value)| (name.into(), value.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
