//! What clients may get, and what always holds.

use std::collections::BTreeSet;

use mainstay_http_core::serve::front::Refused;
use mainstay_http_core::serve::limits::{CLIENT_QUEUE_BYTES, SERVER_QUEUE_BYTES, ServeLimits};
use mainstay_http_core::serve::sse::EventId;
use serde_json::Value;

use super::client::{Client, State};
use super::conn::{Conn, Event};
use super::{FrontCounts, Held};

/// Bytes that may wait for one connection or one server of a world whose messages are small.
const SMALL_BYTES: usize = 256 * 1024;
/// No message of a world of large messages is larger.
const LARGE_BYTES: usize = 1_600_000;

/// The watch over one world.
#[derive(Debug)]
pub struct Watch {
    pub told: FrontCounts,
    /// The front has stopped.
    pub stopped: bool,
    /// Messages are so large that queues are full at times.
    pub fat: bool,
    /// Everything that clients may come back for is kept.
    roomy: bool,
    limits: ServeLimits,
    /// Sessions that have begun and are not over.
    open: BTreeSet<u64>,
    /// Sessions that are over.
    over: BTreeSet<u64>,
}

impl Watch {
    pub fn new(roomy: bool, fat: bool, limits: ServeLimits) -> Self {
        Self {
            told: FrontCounts::default(),
            stopped: false,
            fat,
            roomy,
            limits,
            open: BTreeSet::new(),
            over: BTreeSet::new(),
        }
    }

    pub fn began(&mut self, session: u64) -> Held {
        self.told.sessions += 1;
        if self.over.contains(&session) || !self.open.insert(session) {
            return Err(format!("session {session} begins twice"));
        }
        Ok(())
    }

    pub fn over(&mut self, session: u64) -> Held {
        if !self.open.remove(&session) {
            return Err(format!("session {session} is over and was not open"));
        }
        self.over.insert(session);
        Ok(())
    }

    /// Sessions that began = over + open. `places` counts also those whose opening is not answered.
    pub fn sessions_add_up(&self, open: usize, places: usize) -> Held {
        if open != self.open.len() {
            return Err(format!(
                "{open} sessions are open, {} began",
                self.open.len()
            ));
        }
        if places as u64 > self.limits.session_cap {
            return Err(format!("{places} sessions are too many"));
        }
        Ok(())
    }

    pub fn queues_are_bounded(&self, bytes: usize, conns: usize, links: usize) -> Held {
        let most = if self.fat {
            // The limit of a queue, and what may lie above it: a message and an answer.
            (CLIENT_QUEUE_BYTES + 2 * LARGE_BYTES) * conns
                + (SERVER_QUEUE_BYTES + 2 * LARGE_BYTES) * links
        } else {
            SMALL_BYTES * (conns + links)
        };
        if bytes <= most {
            return Ok(());
        }
        Err(format!(
            "{bytes} bytes wait for {conns} clients and {links} servers"
        ))
    }

    /// A request, or a client that comes back, is refused.
    pub fn refused(
        &mut self,
        clients: &mut [Client],
        number: u64,
        conn: &Conn,
        refused: &Refused,
    ) -> Held {
        let client = &mut clients[conn.client];
        if *refused == Refused::NoSession {
            client.forget_session();
        }
        let honest = !client.attacks;
        let Some(request) = conn.request else {
            return Ok(());
        };
        let one = &mut client.requests[request];
        if one.state != State::On(number) {
            return Err(format!("a second answer: {refused:?} for {one:?}"));
        }
        one.state = State::Done;
        match (refused, conn.resumes) {
            (Refused::UnknownEvent, Some(last)) if honest => {
                return Err(format!("event {last} is forgotten: {one:?}"));
            }
            // Too many streams: the client waits and tries again.
            (Refused::Streams, Some(last)) => one.state = State::Lost(last),
            (_, Some(_)) => self.told.abandoned += 1,
            (Refused::IdInFlight | Refused::Unreadable | Refused::NoId, None) if honest => {
                return Err(format!("an honest client is refused: {refused:?} {one:?}"));
            }
            (Refused::Mismatch(why), None) if honest => {
                return Err(format!("an honest client is refused: {why} {one:?}"));
            }
            (_, None) => self.told.refused += 1,
        }
        Ok(())
    }

    /// A connection was cut after this event.
    pub fn lost(
        &mut self,
        clients: &mut [Client],
        number: u64,
        conn: &Conn,
        last: Option<EventId>,
    ) {
        let Some(request) = conn.request else {
            return;
        };
        let one = &mut clients[conn.client].requests[request];
        if one.state != State::On(number) {
            return;
        }
        if let Some(last) = last.filter(|_| !one.opens) {
            one.state = State::Lost(last);
        } else {
            one.state = State::Done;
            self.told.abandoned += 1;
        }
    }

    /// A stream has come to its end, and everything of it has arrived.
    pub fn ended(&mut self, clients: &mut [Client], number: u64, conn: &Conn) -> Held {
        let Some(request) = conn.request else {
            return Ok(());
        };
        let client = &mut clients[conn.client];
        let one = &mut client.requests[request];
        if one.state != State::On(number) {
            return Ok(());
        }
        if client.attacks {
            // It may have read the rest on another connection of its own.
            one.state = State::Done;
            return Ok(());
        }
        // What is kept may be more than one connection takes: then the client comes back for the rest.
        let more = conn
            .last
            .filter(|last| conn.resumes.is_some_and(|from| from < *last));
        if let Some(last) = more.filter(|_| self.fat) {
            one.state = State::Lost(last);
            return Ok(());
        }
        Err(format!("a stream ends without its answer: {one:?}"))
    }

    /// An event has arrived whole.
    pub fn event(
        &mut self,
        clients: &mut [Client],
        number: u64,
        conn: &mut Conn,
        event: &Event,
    ) -> Held {
        if conn.answered {
            return Err(format!("a message after the answer: {event:?}"));
        }
        if let Some(id) = event.id {
            self.in_place(clients, conn, id, event.data.is_empty())?;
            conn.last = Some(id);
        }
        if event.data.is_empty() {
            return Ok(());
        }
        let message = event.data.as_bytes();
        conn.answered = self.message(clients, number, conn, event.id, message)?;
        Ok(())
    }

    /// An event comes once, in its order, and where everything is kept none is missing.
    fn in_place(&self, clients: &mut [Client], conn: &Conn, id: EventId, priming: bool) -> Held {
        if let Some(last) = conn.last {
            if id.stream != last.stream || id.number <= last.number {
                return Err(format!("event {id} comes after {last}"));
            }
            let gap = id.number != last.number + 1;
            let live = conn.resumes.is_none();
            if gap && conn.request.is_some() && (self.roomy || live) && !self.fat {
                return Err(format!("event {id} comes after {last}: one is missing"));
            }
        } else if conn.request.is_some() && id.number != u64::from(!priming) {
            return Err(format!("a stream begins with event {id}"));
        }
        let Some(request) = conn.request else {
            return Ok(());
        };
        let one = &mut clients[conn.client].requests[request];
        if one.stream.is_some_and(|stream| stream != id.stream) {
            return Err(format!("event {id} is of another stream: {one:?}"));
        }
        one.stream = Some(id.stream);
        if priming || one.arrived.insert(id.number) {
            return Ok(());
        }
        Err(format!("event {id} arrives twice: {one:?}"))
    }

    /// A message has arrived whole; whether it is the answer that its connection waits for.
    pub fn message(
        &mut self,
        clients: &mut [Client],
        number: u64,
        conn: &Conn,
        id: Option<EventId>,
        message: &[u8],
    ) -> Held<bool> {
        let text = String::from_utf8_lossy(message).into_owned();
        let client = &mut clients[conn.client];
        belongs(client, &text)?;
        let Ok(value) = serde_json::from_slice::<Value>(message) else {
            return Err(format!("a client gets what is no message: {text}"));
        };
        if let Some(method) = value.get("method").and_then(Value::as_str) {
            if id.is_none() && conn.resumes.is_some() {
                return Err(format!("an event without an id: {text}"));
            }
            if method == "notifications/progress" {
                progress(client, conn, &value["params"], &text)?;
            }
            return Ok(false);
        }
        let Some(request) = conn.request else {
            if client.attacks {
                return Ok(true);
            }
            return Err(format!("an answer that was not asked for: {text}"));
        };
        let attacks = client.attacks;
        let one = &mut client.requests[request];
        if value["id"] != one.id {
            return Err(format!("an answer to another request than {one:?}: {text}"));
        }
        if one.state != State::On(number) {
            return Err(format!("a second answer for {one:?}: {text}"));
        }
        one.state = State::Done;
        let mark = value["result"].get("mark").and_then(Value::as_str);
        let repeats = one.repeats && value.get("error").is_none() && !attacks;
        let other = match mark {
            Some(mark) => mark != one.mark,
            None => repeats,
        };
        if other {
            return Err(format!(
                "the answer of another request than {one:?}: {text}"
            ));
        }
        if value.get("error").is_some() {
            self.told.failed += 1;
        } else {
            self.told.answered += 1;
        }
        Ok(true)
    }

    /// Nothing waits.
    pub fn all_answered(&self, clients: &[Client]) -> Held {
        for client in clients {
            for one in &client.requests {
                if let State::On(exchange) = one.state {
                    return Err(format!("no answer on exchange {exchange}: {one:?}"));
                }
            }
        }
        if !self.open.is_empty() {
            return Err(format!("sessions that never ended: {:?}", self.open));
        }
        Ok(())
    }
}

/// Nothing of another client, and no id of ours.
fn belongs(client: &Client, text: &str) -> Held {
    let own = format!("mark-c{}-", client.number);
    for (at, _) in text.match_indices("mark-c") {
        if !text[at..].starts_with(&own) {
            return Err(format!(
                "client {} gets what is another's: {text}",
                client.number
            ));
        }
    }
    let label = |piece: &str| {
        let digits = piece.split('-').next().unwrap_or("");
        !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && piece
                .get(digits.len() + 1..digits.len() + 33)
                .is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let ours = text
        .match_indices("\"h")
        .any(|(at, _)| label(&text[at + 2..]));
    if ours && !client.attacks {
        return Err(format!(
            "client {} gets an id of ours: {text}",
            client.number
        ));
    }
    Ok(())
}

/// Progress names the token of its request, and rises.
fn progress(client: &mut Client, conn: &Conn, params: &Value, text: &str) -> Held {
    if client.attacks {
        return Ok(());
    }
    let Some(request) = conn.request else {
        return Err(format!("progress of no request: {text}"));
    };
    let one = &mut client.requests[request];
    if params.get("progressToken") != one.token.as_ref() {
        return Err(format!("progress of another request than {one:?}: {text}"));
    }
    let value = params["progress"].as_u64().unwrap_or(0);
    if value <= one.progress {
        return Err(format!("progress goes back at {one:?}: {text}"));
    }
    one.progress = value;
    Ok(())
}
