//! Sentences about HTTP sessions (the front's, those with servers, and those that were left open) and about leases.

use mainstay_protocol::event::{
    ClientSessionClosed, LeaseOpened, ServeStopped, SessionClosed, SessionClosedLate,
    SessionGivenUp, signal_word,
};

use super::{DETAIL_CHARS, seen};
use crate::measure::{count, fine};
use crate::paint::Tone;
use crate::safe::one_line;

pub fn stopped(stopped: &ServeStopped) -> (Tone, String) {
    let signal = signal_word(stopped.number).unwrap_or("a signal");
    let sessions = count(stopped.sessions, "session");
    let (tone, left) = match stopped.left {
        0 => (Tone::Plain, "0 left".into()),
        left => {
            let left = count(left, "server");
            (Tone::Bad, format!("{left} had not ended in time"))
        }
    };
    let text = format!("by {signal}, after {sessions}: {left}");
    (tone, text)
}

pub fn client_closed(closed: &ClientSessionClosed) -> String {
    format!(
        "session {} after {} and {}: {}",
        closed.session,
        fine(closed.ms),
        count(closed.requests, "request"),
        closed.why
    )
}

pub fn closed(closed: &SessionClosed) -> String {
    let url = one_line(&closed.url, DETAIL_CHARS);
    let by = match closed.status {
        Some(status) => format!("by our DELETE (HTTP {status})"),
        None => "by the server itself".into(),
    };
    format!("at {url}, {by}")
}

pub fn closed_late(closed: &SessionClosedLate) -> String {
    let url = one_line(&closed.url, DETAIL_CHARS);
    let tries = count(closed.attempts, "attempt");
    let (since, status) = (&closed.since, closed.status);
    format!("the session at {url}, open since {since}, was closed (HTTP {status}, {tries})")
}

pub fn given_up(given_up: &SessionGivenUp) -> String {
    let url = one_line(&given_up.url, DETAIL_CHARS);
    let tries = count(given_up.attempts, "attempt");
    let why = one_line(&given_up.why, DETAIL_CHARS);
    let since = &given_up.since;
    format!("the session at {url}, open since {since}, was never closed ({tries}): {why}")
}

pub fn lease(opened: &LeaseOpened) -> String {
    let owner = opened.owner.as_ref();
    let owner = owner.map(|owner| format!("until {} ends", seen(owner)));
    let ttl = opened
        .ttl_ms
        .map(|ttl| format!("for {} if not renewed", fine(ttl)));
    let bounds: Vec<String> = owner.into_iter().chain(ttl).collect();
    let by = opened.by.as_ref();
    let by = by.map_or_else(String::new, |by| format!(" by {}", seen(by)));
    format!(
        "the lease `{}` was opened{by}: {}",
        one_line(&opened.lease, DETAIL_CHARS),
        bounds.join(", ")
    )
}
