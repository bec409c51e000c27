//! HTTP sessions: those of our front's clients, and those that we owe to servers.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::SessionEnd;

/// The HTTP front listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServeStarted {
    /// Address and port.
    pub listen: String,
    /// The servers behind it.
    pub servers: Vec<String>,
}

/// The HTTP front has stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServeStopped {
    /// The signal that it stopped by.
    pub number: i32,
    /// Sessions that were opened while it ran.
    pub sessions: u64,
    /// Servers that had not ended when its time was up.
    pub left: u32,
}

/// An HTTP client opened a session. Its name is the client's secret; this is its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSessionOpened {
    /// Its number, counted from 1 for each front; its name is the client's secret.
    pub session: u64,
}

/// A session of an HTTP client is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSessionClosed {
    /// Its number.
    pub session: u64,
    /// `deleted` (by the client), `idle`, `evicted` (it made room), `server_gone`, `opening_failed` or `shutdown`.
    pub why: SessionEnd,
    /// How long it was open.
    pub ms: u64,
    /// Requests that its client made.
    pub requests: u64,
}

/// An HTTP server opened a session, which mainstay must close.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// The server's URL, without user, password and query.
    pub url: String,
    /// The protocol version, as far as it is known.
    pub version: Option<String>,
}

/// An HTTP session was closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionClosed {
    /// The server's URL, without user, password and query.
    pub url: String,
    /// `delete` (ours) or `server` (it had forgotten it by itself).
    pub by: String,
    /// The status of our DELETE.
    pub status: Option<u16>,
}

/// A session that a dead process of ours had opened was closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionClosedLate {
    /// The server's URL, without user, password and query.
    pub url: String,
    /// When the session was opened.
    pub since: String,
    /// The status of our DELETE.
    pub status: u16,
    /// How many it took.
    pub attempts: u32,
}

/// A session that a dead process of ours had opened could not be closed in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionGivenUp {
    /// The server's URL, without user, password and query.
    pub url: String,
    /// When the session was opened.
    pub since: String,
    /// Why the last attempt was in vain.
    pub why: String,
    /// How many there were.
    pub attempts: u32,
}
