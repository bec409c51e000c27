//! How a session is closed: by DELETE, judged by the answer of the server.

use alloc::string::{String, ToString};

use super::io::{Closed, End, ExchangeId, Head, Output};
use super::wire::Wire;
use crate::headers;

/// True if an answer to DELETE means that the session is closed.
pub fn is_closed(status: u16, body: &[u8]) -> bool {
    match status {
        200..=299 | 404 | 405 | 410 | 501 => true,
        400 => speaks_of_session(body),
        _ => false,
    }
}

/// True if an answer to DELETE only says that there is no such session: a server may say that of a session that
/// is there, if the credentials are not those that it was opened with.
pub fn is_unknown(status: u16) -> bool {
    matches!(status, 400 | 404 | 410)
}

/// How a session was closed, by the status of the answer to our DELETE.
fn closed_by(status: u16) -> Closed {
    if is_unknown(status) {
        Closed::Server
    } else {
        Closed::Delete(status)
    }
}

/// True if the body of a 400 is about the session: some servers answer an unknown session that way.
pub(super) fn speaks_of_session(body: &[u8]) -> bool {
    let body = body.to_ascii_lowercase();
    body.windows(7).any(|word| word == b"session")
}

/// Closes a session.
pub(super) fn farewell(wire: &mut Wire, session: String, version: Option<String>) {
    let mut headers = alloc::vec![(headers::SESSION.to_string(), session.clone())];
    headers.extend(version.map(|version| (headers::VERSION.to_string(), version)));
    wire.delete(session, headers);
}

/// The head of the answer to a DELETE.
pub(super) fn answered(wire: &mut Wire, exchange: ExchangeId, session: String, head: &Head) {
    // What a 400 means is in its body.
    if head.status != 400 && is_closed(head.status, &[]) {
        wire.close(exchange);
        let by = closed_by(head.status);
        wire.put(Output::SessionClosed { session, by });
    }
}

/// Its body.
pub(super) fn explained(
    wire: &mut Wire,
    exchange: ExchangeId,
    session: String,
    head: &Head,
    body: &[u8],
) {
    wire.close(exchange);
    wire.put(if is_closed(head.status, body) {
        let by = closed_by(head.status);
        Output::SessionClosed { session, by }
    } else {
        let why = alloc::format!("the server answered with HTTP {}", head.status);
        Output::SessionUnclosed { session, why }
    });
}

/// It has ended without saying that the session is closed.
pub(super) fn unanswered(wire: &mut Wire, session: String, head: Option<&Head>, end: &End) {
    let why = match (head, end) {
        (_, End::Failed { why, .. }) => why.clone(),
        (Some(head), End::Done | End::TooLong) => {
            alloc::format!("the server answered with HTTP {}", head.status)
        }
        (None, End::Done | End::TooLong) => "the server did not answer".to_string(),
    };
    wire.put(Output::SessionUnclosed { session, why });
}
