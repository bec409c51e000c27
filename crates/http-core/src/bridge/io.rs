//! Inputs and outputs of the bridge.

use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::policy::Retry;

use crate::sse;

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
    /// The bridge must end.
    Term,
    /// The head of an answer.
    Head(ExchangeId, Head),
    /// An event of an answer that is a stream.
    Event(ExchangeId, sse::Event),
    /// The whole body of an answer that is none.
    Body(ExchangeId, Vec<u8>),
    /// The exchange is over.
    End(ExchangeId, End),
    /// What became of the note of a session.
    Noted(String, Noted),
    /// It is the time that was asked for.
    Tick,
}

/// What became of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It is on the disk.
    Written,
    /// It is not.
    Failed {
        /// What the kernel said.
        why: String,
    },
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
    pub(super) fn ok(&self) -> bool {
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
    /// The note of the opening is no longer needed.
    Opened {
        /// The exchange.
        exchange: ExchangeId,
        /// It is known what became of it: a session that was noted, or none. Else there may be one whose name
        /// is not known to us.
        known: bool,
    },
    /// Write down that this session must be closed, then say so by [`Input::Noted`].
    Note {
        /// The session.
        session: String,
        /// The protocol version to close it with.
        version: Option<String>,
    },
    /// The session is closed: its note can be removed.
    SessionClosed {
        /// The session.
        session: String,
        /// How.
        by: Closed,
    },
    /// The session could not be closed now; the note stays.
    SessionUnclosed {
        /// The session.
        session: String,
        /// Why.
        why: String,
    },
    /// A line for the client, with its newline.
    Say(Vec<u8>),
    /// A message for people, written to stderr.
    Tell(String),
    /// The bridge can exit.
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
    /// The target if it is not the URL: a reference that the server gave.
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
