//! What clients ask of the front, and how the front answers: plain data without decisions.

use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;

use super::headers::{Lookup, Mismatch};
use super::posted::Posted;
use super::session::UnknownEvent;

/// A message that was posted.
pub struct Post<'a> {
    /// The path that it was posted to.
    pub path: u64,
    /// The session that it names; a name that is no text is an empty one.
    pub session: Option<&'a str>,
    /// The header with the version, raw.
    pub version: Option<&'a [u8]>,
    /// The message.
    pub posted: &'a Posted<'a>,
    /// The same as a line, with its newline.
    pub line: &'a [u8],
    /// All headers.
    pub header: Lookup<'a, 'a>,
}

/// A request for a stream.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// The path.
    pub path: u64,
    /// The session that it names; a name that is no text is an empty one.
    pub session: Option<&'a str>,
    /// The header with the version, raw.
    pub version: Option<&'a [u8]>,
    /// The last event that the client has, raw.
    pub last: Option<&'a [u8]>,
}

impl<'a> From<&Post<'a>> for Get<'a> {
    fn from(post: &Post<'a>) -> Self {
        Self {
            path: post.path,
            session: post.session,
            version: post.version,
            last: None,
        }
    }
}

/// How far a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It waits. Ask again after [`Output::Wake`](super::outputs::Output::Wake), or at this time.
    Wait(Option<Moment>),
    /// It is refused; no server has seen it.
    Refuse(Refused),
    /// It was passed on and has no answer.
    Accepted,
    /// One answer, and the name of the session that it opened.
    Answer {
        /// The message.
        message: Vec<u8>,
        /// The session that it opened.
        session: Option<String>,
        /// Whether it is of the modern era, where some errors have a status of their own.
        modern: bool,
    },
    /// A stream of events, which [`Front::read`](super::front::Front::read) gives.
    Events {
        /// The session that it opened.
        session: Option<String>,
    },
}

/// The next piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Nothing until it is woken, or until this time.
    Wait(Moment),
    /// Nothing more.
    End,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Serve is stopping and takes no new request.
    Stopping,
    /// It names a session that is not open.
    NoSession,
    /// It names no session.
    SessionMissing,
    /// Its header names a version that the session does not speak.
    OtherVersion,
    /// The modern era has no such method.
    OnlyPost,
    /// `initialize` without an id.
    NoId,
    /// The path is no longer in the config file.
    Retired,
    /// Every session is in use.
    Full,
    /// The server could not be started.
    CannotStart(String),
    /// A request with its id is in flight.
    IdInFlight,
    /// Too many requests are in flight.
    Requests,
    /// Too many streams are open.
    Streams,
    /// It comes back for an event that is not known.
    UnknownEvent,
    /// Its `_meta` names no version.
    VersionMissing,
    /// Its `_meta` does not say what the client can do.
    CapabilitiesMissing,
    /// A header says something else than the body.
    Mismatch(Mismatch),
    /// The server is of the legacy era; whether it was asked for its discovery.
    LegacyOnly {
        /// Whether the request was `server/discover`.
        discover: bool,
    },
    /// The server does not speak that version.
    Version {
        /// What it speaks.
        supported: Vec<String>,
        /// What was asked for.
        requested: String,
    },
    /// The modern era has no `initialize`.
    NoInitialize,
    /// The request could not be read.
    Unreadable,
}

impl From<UnknownEvent> for Refused {
    fn from(UnknownEvent: UnknownEvent) -> Self {
        Self::UnknownEvent
    }
}
