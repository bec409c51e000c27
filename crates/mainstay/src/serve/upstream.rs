//! In front of somebody else's HTTP server: requests and answers pass as they are; sessions are counted, and end.
//!
//! That server gets what it lacks: a session that nobody uses is ended there by DELETE, and so is the oldest idle one
//! when all places are taken, one whose client left in the middle of its opening, and every one when we stop. A session
//! that was ended is 404 from then on, whatever the server thinks of DELETE, until the server gives its name anew. One that
//! we have not heard of is asked for upstream first, and counts from the moment that its server knows it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
};
use hyper::{Method, Response, StatusCode};
use mainstay_core::http::bridge::close::is_paid;
use mainstay_core::http::headers;
use mainstay_core::ids::LinkId;
use mainstay_core::redact;
use mainstay_core::serve::front as core;
use mainstay_core::serve::limits::{ENDED_KNOWN, PAY_TRIES, PAY_WAIT_MS};
use mainstay_core::serve::posted::{Kind, Posted};
use mainstay_core::serve::sse;
use mainstay_core::serve::words::{self, Code};

use super::bell::Slot;
use super::endpoint::Endpoint;
use super::exchange::Body;
use super::front::Front;
use super::reply::{Refusal, Reply, SESSION_ID};
use super::seat::Seat;
use crate::debts::seal::Seal;
use crate::debts::secret::Named;
use crate::debts::{Held, Note, Source};
use crate::http::client::{Answer, Client, Failure, Outgoing};
use crate::http::target::Target;
use crate::paths::Paths;
use crate::report::{plain, talk};

/// The header with the version that was agreed on.
const VERSION: HeaderName = HeaderName::from_static(headers::VERSION);
/// How much of an answer to DELETE is read.
const PAID_BYTES: usize = 64 * 1024;

/// The server upstream.
pub struct Upstream {
    target: Target,
    link: LinkId,
    client: Client,
    sessions: RefCell<BTreeMap<String, u64>>,
    ended: RefCell<Ended>,
    /// Requests that wait in sessions that we have not heard of.
    strangers: RefCell<Vec<(String, Weak<Stranger>)>>,
}

/// Sessions that we have ended, as many as are remembered.
#[derive(Default)]
struct Ended {
    order: VecDeque<String>,
    names: BTreeSet<String>,
}

/// The seat of a request whose session we have not heard of; empty until the session is adopted.
pub type Stranger = RefCell<Option<Seat>>;

/// A session upstream.
pub struct Far {
    /// Its number.
    pub key: u64,
    /// The number of its path.
    pub path: u64,
    /// The server's name.
    pub server: String,
    /// Where it is.
    pub upstream: Rc<Upstream>,
    id: String,
    /// What it is ended with: the headers that it was opened with, and the version that was agreed on.
    headers: RefCell<HeaderMap>,
    /// It is written down, so that no death of ours forgets it.
    note: RefCell<Option<Held>>,
}

/// Where a session upstream is counted.
pub struct Place {
    key: u64,
    path: u64,
    server: String,
}

impl Place {
    /// The place with this number, at this path.
    pub fn of(endpoint: &Endpoint, key: u64) -> Self {
        Self {
            key,
            path: endpoint.number,
            server: endpoint.spec.name.clone(),
        }
    }
}

/// What one sends to the server upstream.
pub struct Passing {
    /// Its method.
    pub method: Method,
    /// Its headers, as the client sent them.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
}

impl Upstream {
    /// A server that nobody has asked anything yet.
    pub fn new(target: Target, link: LinkId) -> Rc<Self> {
        Rc::new(Self {
            target,
            link,
            client: Client::new(),
            sessions: RefCell::default(),
            ended: RefCell::default(),
            strangers: RefCell::default(),
        })
    }

    /// A request is in flight until what this returns is dropped.
    pub fn ask(front: &Rc<Front>) -> Seat {
        front.with(|core, _| core.pass_begins());
        let front = Rc::downgrade(front);
        Seat::new(move || {
            if let Some(front) = front.upgrade() {
                front.with(core::Front::pass_ends);
            }
        })
    }

    /// The number of a session that is open.
    pub fn key(&self, id: &str) -> Option<u64> {
        self.sessions.borrow().get(id).copied()
    }

    /// Whether we have ended this session.
    pub fn has_ended(&self, id: &str) -> bool {
        self.ended.borrow().names.contains(id)
    }

    /// A request comes in a session that we have not heard of. If that is adopted while it waits, it is in use by it.
    pub fn wait_in(&self, id: &str) -> Rc<Stranger> {
        let stranger: Rc<Stranger> = Rc::default();
        let mut strangers = self.strangers.borrow_mut();
        strangers.retain(|(_, one)| one.strong_count() > 0);
        strangers.push((id.into(), Rc::downgrade(&stranger)));
        stranger
    }

    /// Those who wait in a session that is adopted now.
    pub fn waiting_in(&self, id: &str) -> Vec<Rc<Stranger>> {
        let mut strangers = self.strangers.borrow_mut();
        let those = strangers.extract_if(.., |(held, _)| held == id);
        those.filter_map(|(_, one)| one.upgrade()).collect()
    }

    /// A session that we have just heard of. Whoever had its name before must be over by now.
    pub fn open(
        self: &Rc<Self>,
        paths: &Paths,
        place: Place,
        id: String,
        headers: &HeaderMap,
    ) -> Far {
        let Place { key, path, server } = place;
        self.sessions.borrow_mut().insert(id.clone(), key);
        self.ended.borrow_mut().remove(&id);
        let note = Held::write(paths, self.note(&server, &id, headers));
        if let Err(error) = &note {
            let why = plain(error);
            talk(&format!(
                "warning: a session of {server} cannot be written down: {why}\n"
            ));
        }
        Far {
            key,
            path,
            server,
            upstream: Rc::clone(self),
            id,
            headers: RefCell::new(headers.clone()),
            note: RefCell::new(note.ok()),
        }
    }

    fn note(&self, server: &str, session: &str, headers: &HeaderMap) -> Note {
        let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
        // Others are no secret, and nothing that its end would need.
        let secret = credentials(headers);
        let named = secret.keys().map(|name| Named {
            name: name.as_str().into(),
            from: Source::Client,
        });
        Note {
            url_secret: self.target.has_secret().then_some(Source::Flag),
            version: text(VERSION.as_str()),
            headers: named.collect(),
            seal: Seal::of(&self.target, &secret),
            ..Note::of_ours(server, self.link, self.target.plain(), session)
        }
    }

    /// Sends something on, with the headers of the message and not of the connection.
    pub async fn send(&self, passing: Passing) -> Result<Answer, Failure> {
        let outgoing = Outgoing {
            method: passing.method,
            target: self.target.clone(),
            headers: passing.headers,
            body: passing.body.into(),
        };
        self.client.send(outgoing).await
    }
}

impl Ended {
    fn insert(&mut self, id: &str) {
        if self.names.insert(id.into()) {
            self.order.push_back(id.into());
        }
        while self.order.len() > ENDED_KNOWN {
            if let Some(oldest) = self.order.pop_front() {
                self.names.remove(&oldest);
            }
        }
    }

    fn remove(&mut self, id: &str) {
        if self.names.remove(id) {
            self.order.retain(|held| held != id);
        }
    }
}

impl Far {
    /// Nothing is owed any more. What cannot be struck out is ended once more by the next start, which does no harm.
    pub fn strike_out(&self) {
        if let Some(held) = self.note.take() {
            held.strike_out().ok();
        }
    }

    /// A request in it.
    pub fn asked(&self, headers: &HeaderMap) {
        if let Some(version) = headers.get(VERSION) {
            self.headers.borrow_mut().insert(VERSION, version.clone());
        }
    }

    /// Whether a request has the credentials that it is ended with: what the server says to others is about others.
    pub fn is_of(&self, headers: &HeaderMap) -> bool {
        credentials(&self.headers.borrow()) == credentials(headers)
    }

    /// The server took a request in it: with these credentials it is ended, the first ones may be of no use by then.
    pub fn taken(&self, headers: &HeaderMap) {
        let mut ours = self.headers.borrow_mut();
        for name in credentials(&ours).keys() {
            ours.remove(name);
        }
        ours.extend(credentials(headers));
    }

    /// Whether it is written down.
    pub fn is_noted(&self) -> bool {
        self.note.borrow().is_some()
    }

    /// It is over here: its name is 404 from now on.
    pub fn forget(&self) {
        self.upstream.sessions.borrow_mut().remove(&self.id);
        self.upstream.ended.borrow_mut().insert(&self.id);
    }

    /// Ends it upstream; what went wrong, if it cannot be done.
    pub async fn pay(&self) -> Result<(), String> {
        let mut headers = self.headers.borrow().clone();
        headers.remove(CONTENT_TYPE);
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        let Ok(id) = HeaderValue::from_str(&self.id) else {
            return Ok(());
        };
        headers.insert(SESSION_ID, id);
        let mut why = String::new();
        for attempt in 0..PAY_TRIES {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_millis(250 << attempt)).await;
            }
            // The server has given its name to another one meanwhile, so it does not have this one any more.
            if self.upstream.key(&self.id).is_some() {
                return Ok(());
            }
            let passing = Passing {
                method: Method::DELETE,
                headers: headers.clone(),
                body: Vec::new(),
            };
            let sent = async {
                let mut answer = self.upstream.send(passing).await?;
                let body = answer.whole(PAID_BYTES).await.unwrap_or_default();
                Ok::<_, Failure>((answer.status, body))
            };
            match tokio::time::timeout(Duration::from_millis(PAY_WAIT_MS), sent).await {
                Ok(Ok((status, body))) if is_paid(status.as_u16(), &body) => return Ok(()),
                Ok(Ok((status, _))) => why = format!("its server said {status}"),
                Ok(Err(failure)) => why = failure.why,
                Err(_) => why = "its server did not answer".into(),
            }
        }
        if let Some(held) = &*self.note.borrow() {
            held.note_failure(PAY_TRIES, why.clone());
        }
        Err(why)
    }
}

/// The headers of a message that say on whose behalf it comes.
fn credentials(headers: &HeaderMap) -> HeaderMap {
    let all = headers.iter();
    all.filter(|(name, _)| redact::speaks(name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The headers of a message without those of its connection: the known ones, and those that it names itself.
fn beyond_connection(headers: &HeaderMap) -> HeaderMap {
    let mut beyond = headers.clone();
    for named in headers.get_all(CONNECTION) {
        for name in named.to_str().unwrap_or("").split(',') {
            beyond.remove(name.trim());
        }
    }
    for name in headers::HOP {
        beyond.remove(name);
    }
    beyond
}

/// The headers of a message, without those of its connection. Nor does anybody ask for compression: what we may have to
/// add to a stream is plain text.
pub fn passed(headers: &HeaderMap, without_token: bool) -> HeaderMap {
    let mut passed = beyond_connection(headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT, ACCEPT_ENCODING] {
        passed.remove(name);
    }
    if without_token {
        passed.remove(AUTHORIZATION);
    }
    passed
}

/// The answer of the server upstream, passed on. A stream that breaks off, or has to end because we do, ends with an
/// answer of ours.
pub fn answer(front: &Rc<Front>, answer: Answer, body: &[u8], seats: Vec<Seat>) -> Reply {
    let id = match Posted::read(body).map(|posted| posted.kind) {
        Ok(Kind::Request(id)) => Some(id.to_vec()),
        Ok(Kind::Notification | Kind::Answer(_)) | Err(_) => None,
    };
    let events = answer
        .header("content-type")
        .is_some_and(|kind| kind.starts_with("text/event-stream"));
    // What is compressed all the same takes no word of ours.
    let speaks = events && !answer.headers.contains_key(CONTENT_ENCODING);
    let status = answer.status;
    let headers = beyond_connection(&answer.headers);
    let closing: Closing = if events {
        let front = Rc::clone(front);
        Box::pin(async move {
            front
                .last_orders
                .until(|| front.closing().then_some(()))
                .await;
        })
    } else {
        // What is no stream has its end near.
        Box::pin(std::future::pending())
    };
    let rest = Rest {
        next: next(answer),
        closing,
        broken: id.filter(|_| speaks),
        seats,
    };
    let mut reply = Response::new(Body::Passed(Box::new(rest)));
    *reply.status_mut() = status;
    *reply.headers_mut() = headers;
    // Its length is known only if nothing can be added.
    reply.headers_mut().remove(CONTENT_LENGTH);
    reply
}

/// There is no answer.
pub fn unreachable(failure: &Failure) -> Refusal {
    let message = format!("the server upstream gave no answer: {}", failure.why);
    Refusal::new(StatusCode::BAD_GATEWAY, Code::Internal, message)
}

/// Somebody who waits for an opening; whoever is gone when it is there has no use for the session.
pub struct Opening(Weak<()>);

impl Opening {
    /// The opening, and the one who waits.
    pub fn new() -> (Self, Rc<()>) {
        let waits = Rc::new(());
        (Self(Rc::downgrade(&waits)), waits)
    }

    /// Whether anybody still waits.
    pub fn is_awaited(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// An answer that is handed from the task that sent a request to the one who asked.
pub type Handed = Slot<Rc<RefCell<Option<Result<Answer, Failure>>>>>;

type Closing = Pin<Box<dyn Future<Output = ()>>>;
type Next = Pin<Box<dyn Future<Output = (Answer, Result<Option<Bytes>, Failure>)>>>;

/// The rest of a body that is passed on.
pub struct Rest {
    next: Next,
    /// Ready when streams are to end.
    closing: Closing,
    broken: Option<Vec<u8>>,
    seats: Vec<Seat>,
}

fn next(mut answer: Answer) -> Next {
    Box::pin(async move {
        let chunk = answer.chunk().await;
        (answer, chunk)
    })
}

impl Rest {
    /// The next piece.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Poll::Ready((answer, chunk)) = self.next.as_mut().poll(cx) else {
            return match self.closing.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(self.cut("serve stops")),
                Poll::Pending => Poll::Pending,
            };
        };
        match chunk {
            Ok(Some(bytes)) => {
                self.next = next(answer);
                Poll::Ready(Some(bytes))
            }
            Ok(None) => {
                self.over();
                Poll::Ready(None)
            }
            Err(_) => {
                Poll::Ready(self.cut("the server upstream broke off in the middle of its answer"))
            }
        }
    }

    /// Ends it before its end: the last piece, if somebody waits for an answer.
    fn cut(&mut self, why: &str) -> Option<Bytes> {
        let last = self.broken.take().map(|id| {
            let answer = words::error(Some(&id), Code::Internal, why, None);
            // What broke off may be half an event; a blank line ends it.
            let mut last = b"\n\n".to_vec();
            last.extend(sse::event(None, &answer));
            Bytes::from(last)
        });
        self.over();
        last
    }

    fn over(&mut self) {
        self.seats.clear();
        self.next = Box::pin(std::future::pending());
        // Whoever asks again is told at once that nothing more comes.
        self.closing = Box::pin(std::future::ready(()));
        self.broken = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_a_connection_and_of_its_proxy_are_not_passed_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("proxy-authorization", "Basic c2VjcmV0"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAA"),
            ("host", "localhost"),
            ("accept-encoding", "gzip"),
            ("authorization", "Bearer x"),
            ("x-api-key", "y"),
            ("accept", "application/json"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let names = |headers: &HeaderMap| -> BTreeSet<String> {
            headers.keys().map(ToString::to_string).collect()
        };
        let with = ["accept", "authorization", "x-api-key"].map(String::from);
        assert_eq!(names(&passed(&headers, false)), BTreeSet::from(with));
        let without = ["accept", "x-api-key"].map(String::from);
        assert_eq!(names(&passed(&headers, true)), BTreeSet::from(without));
    }
}
