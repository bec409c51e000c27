//! The legacy era: a session begins with `initialize`, and its client says when it is over.

use std::rc::Rc;

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderValue};
use mainstay_core::http::headers::{LAST_EVENT, VERSION};
use mainstay_core::message::envelope;
use mainstay_core::serve::posted::{Kind, LEGACY, Posted};
use mainstay_core::serve::sessions::Over;
use mainstay_core::serve::sse::EventId;
use mainstay_core::serve::words::{self, Code};

use super::super::endpoint::Endpoint;
use super::super::front::Front;
use super::super::metrics::count;
use super::super::reply::{Refusal, Reply, SESSION_ID, empty, events, json};
use super::super::session::Session;
use super::super::stream::{First, Seat, Stream};
use super::{accepts, bad, retired, room, session};

/// A session that is not there, or not any more.
pub fn unknown_session() -> Refusal {
    let message = "there is no such session (any more): begin one with initialize";
    Refusal::new(StatusCode::NOT_FOUND, Code::Request, message)
}

/// A session whose opening is not over yet: if its client leaves before it knows the session, the session is over.
struct Opening<'f> {
    front: &'f Rc<Front>,
    key: Option<u64>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.front.end_session(key, Over::OpeningFailed);
        }
    }
}

/// Opens a session.
pub async fn initialize(
    front: &Rc<Front>,
    endpoint: &Rc<Endpoint>,
    posted: &Posted<'_>,
    line: &[u8],
) -> Result<Reply, Refusal> {
    let Kind::Request(id) = posted.kind else {
        return Err(bad("initialize is a request and needs an id"));
    };
    retired(endpoint)?;
    if endpoint.share
        && let Some(reply) = join(front, endpoint, posted, id).await?
    {
        return Ok(reply);
    }
    let (session, seat) = front.open_session(endpoint)?;
    let mut opening = Opening {
        front,
        key: Some(session.key),
    };
    let Some((stream, number)) = session.ask(id, posted.progress_token()) else {
        return Err(bad("a request with this id is in flight"));
    };
    count(&front.metrics.legacy);
    session.behind.send(posted, line);
    let seats = vec![session.seat(number, &stream), seat];
    let mut reply = match stream.first(front.keep_alive()).await {
        First::Answer(answer) if session.version().is_empty() => {
            return Ok(json(StatusCode::OK, answer));
        }
        First::Answer(answer) => {
            drop(seats);
            json(StatusCode::OK, answer)
        }
        First::Events => events(stream, None, front.keep_alive(), seats),
    };
    opening.key = None;
    name(&mut reply, &session);
    Ok(reply)
}

fn name(reply: &mut Reply, session: &Session) {
    if let Ok(name) = HeaderValue::from_str(&session.id) {
        reply.headers_mut().insert(SESSION_ID, name);
    }
}

/// Takes part in the server that sessions share. None if this one is to have its own: the server cannot be opened, so
/// that its own words are heard, or speaks another version than the client asks for.
async fn join(
    front: &Rc<Front>,
    endpoint: &Rc<Endpoint>,
    posted: &Posted<'_>,
    id: &[u8],
) -> Result<Option<Reply>, Refusal> {
    let place = front.joint(endpoint)?.join();
    let Some(greeting) = place.greeting().await else {
        return Ok(None);
    };
    if posted.asked_version().as_deref() != Some(&*greeting.version) {
        return Ok(None);
    }
    let (session, _seat) = front.open_shared(endpoint, place)?;
    session.greeted(&greeting.version);
    count(&front.metrics.legacy);
    let mut reply = json(StatusCode::OK, words::answer(id, &greeting.result));
    name(&mut reply, &session);
    Ok(Some(reply))
}

/// A message in a session.
pub async fn in_session(
    front: &Rc<Front>,
    session: &Rc<Session>,
    posted: &Posted<'_>,
    line: &[u8],
) -> Result<Reply, Refusal> {
    let seat = front.seat(session.key);
    session.behind.room().await;
    if session.is_over() {
        return Err(unknown_session());
    }
    let Kind::Request(id) = posted.kind else {
        session.behind.send(posted, line);
        if posted.method == "notifications/cancelled"
            && let Some(id) = envelope::cancelled_id(line)
        {
            session.cancelled(front, id);
        }
        return Ok(empty(StatusCode::ACCEPTED));
    };
    room(front, session.in_flight(), session.streams())?;
    let Some((stream, number)) = session.ask(id, posted.progress_token()) else {
        return Err(bad("a request with this id is in flight"));
    };
    count(&front.metrics.legacy);
    session.behind.send(posted, line);
    let seats = vec![session.seat(number, &stream), seat];
    Ok(match stream.first(front.keep_alive()).await {
        First::Answer(answer) => json(StatusCode::OK, answer),
        First::Events => {
            let priming = session.priming(number);
            events(stream, priming, front.keep_alive(), seats)
        }
    })
}

/// Somebody reads news, or comes back for the rest of a stream.
pub fn get(front: &Rc<Front>, endpoint: &Endpoint, headers: &HeaderMap) -> Result<Reply, Refusal> {
    if !accepts(headers, "text/event-stream") {
        let message = "the header Accept must have text/event-stream";
        return Err(Refusal::new(
            StatusCode::NOT_ACCEPTABLE,
            Code::Request,
            message,
        ));
    }
    let session = required(front, endpoint, headers)?;
    if front.stopping() {
        return Err(Refusal::later(
            StatusCode::SERVICE_UNAVAILABLE,
            "serve is stopping",
        ));
    }
    room(front, 0, session.streams())?;
    let last = headers
        .get(LAST_EVENT)
        .and_then(|value| value.to_str().ok());
    let (stream, seats, priming): (Rc<Stream>, Vec<Seat>, _) = match last {
        None => {
            let priming = session.priming(0);
            let (stream, seats) = session.news(front, None);
            (stream, seats, priming)
        }
        Some(last) => {
            let again = EventId::parse(last).and_then(|last| session.again(front, last));
            let Some((stream, seats)) = again else {
                return Err(bad(
                    "the header Last-Event-ID names no event of this session",
                ));
            };
            (stream, seats, None)
        }
    };
    Ok(events(stream, priming, front.keep_alive(), seats))
}

/// The client ends its session.
pub fn delete(
    front: &Rc<Front>,
    endpoint: &Endpoint,
    headers: &HeaderMap,
) -> Result<Reply, Refusal> {
    let session = required(front, endpoint, headers)?;
    front.end_session(session.key, Over::Deleted);
    Ok(empty(StatusCode::OK))
}

/// The session that a GET or DELETE is about. The modern era has neither.
fn required(
    front: &Front,
    endpoint: &Endpoint,
    headers: &HeaderMap,
) -> Result<Rc<Session>, Refusal> {
    if let Some(session) = session(front, endpoint, headers)? {
        return Ok(session);
    }
    let told = headers.get(VERSION).and_then(|value| value.to_str().ok());
    if told.is_some_and(|told| !LEGACY.contains(&told.trim())) {
        return Err(Refusal::method("POST"));
    }
    if headers.contains_key(SESSION_ID) {
        return Err(unknown_session());
    }
    Err(bad("the header Mcp-Session-Id is missing"))
}
