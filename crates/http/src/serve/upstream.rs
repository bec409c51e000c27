//! In front of another HTTP server: the way there, and the answers that are passed on.
//!
//! Requests and answers pass as they are. What becomes of the sessions of that server is decided by
//! `mainstay_http_core::serve::upstream`; here the note of a session is written, and its end is sent to the server with DELETE.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, HOST,
    HeaderMap, HeaderName, HeaderValue,
};
use hyper::{Method, Response, StatusCode};
use mainstay_http_core::bridge::close::is_closed;
use mainstay_http_core::headers;
use mainstay_http_core::serve::limits::{CLOSE_TRIES, CLOSE_WAIT_MS};
use mainstay_http_core::serve::posted::{Kind, Posted};
use mainstay_http_core::serve::sse;
use mainstay_http_core::serve::upstream::{EndAttempt, Headers, Pass};
use mainstay_http_core::serve::words::{self, Code};
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::redact;
use mainstay_report::{plain, talk};
use mainstay_store::config::target::Target;
use mainstay_store::paths::Paths;

use super::bell::Slot;
use super::exchange::Body;
use super::front::Front;
use super::http::refusal;
use super::reply::{Refusal, Reply};
use crate::client::{Answer, Client, Failure, Outgoing};
use crate::unclosed::credentials::NamedHeader;
use crate::unclosed::fingerprint::Fingerprint;
use crate::unclosed::{LockedNote, Note, Source};

/// How much of an answer to DELETE is read.
const DELETE_ANSWER_BYTES: usize = 64 * 1024;

/// The server upstream.
pub struct Upstream {
    target: Target,
    link: LinkId,
    client: Client,
}

/// What is sent to the server upstream.
pub struct Passing {
    /// Its method.
    pub method: Method,
    /// Its headers, as the client sent them.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
}

/// One request that is passed on. Its drop is how the machine learns that everything was sent, or that the client has left.
pub struct Passage {
    front: Rc<Front>,
    /// Its number in the machine.
    pub number: u64,
}

impl Passage {
    /// Begins, if the machine does not refuse it.
    pub fn begin(front: &Rc<Front>, pass: Pass<'_>) -> Result<Self, Refusal> {
        let number = front.with(|core, now| core.pass(now, pass));
        Ok(Self {
            front: Rc::clone(front),
            number: number.map_err(refusal)?,
        })
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let number = self.number;
        self.front.with(|core, now| core.pass_left(now, number));
    }
}

impl Upstream {
    /// A server that was asked nothing yet.
    pub fn new(target: Target, link: LinkId) -> Rc<Self> {
        Rc::new(Self {
            target,
            link,
            client: Client::new(),
        })
    }

    /// Writes the note of a session, so that it is closed even if we are killed. A failure is printed.
    pub fn note(
        &self,
        paths: &Paths,
        server: &str,
        session: &str,
        headers: &HeaderMap,
    ) -> Option<LockedNote> {
        let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
        // The other headers are no secrets, and the DELETE does not need them.
        let secret = credentials(headers);
        let named = secret.keys().map(|name| NamedHeader {
            name: name.as_str().into(),
            from: Source::Client,
        });
        let note = Note {
            url_secret: self.target.has_secret().then_some(Source::Flag),
            version: text(headers::VERSION),
            headers: named.collect(),
            fingerprint: Fingerprint::of(&self.target, &secret),
            ..Note::of_ours(server, self.link, self.target.plain(), session)
        };
        let written = LockedNote::write(paths, note);
        if let Err(error) = &written {
            let why = plain(error);
            talk(&format!(
                "warning: a session of {server} cannot be written down: {why}\n"
            ));
        }
        written.ok()
    }

    /// Passes a request on. Its headers are those of the message, without those of the connection.
    pub async fn send(&self, passing: Passing) -> Result<Answer, Failure> {
        let outgoing = Outgoing {
            method: passing.method,
            target: self.target.clone(),
            headers: passing.headers,
            body: passing.body.into(),
        };
        self.client.send(outgoing).await
    }

    /// Sends DELETE for a session, several times if needed. The error is that of the last attempt.
    pub async fn end(&self, front: &Rc<Front>, session: u64) -> Result<(), NotEnded> {
        let mut why = NotEnded::Untried;
        while let EndAttempt::After(ms) = front.with(|core, _| core.upstream().end_attempt(session))
        {
            if ms > 0 {
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            let Some(headers) = front.with(|core, _| core.upstream().delete_headers(session))
            else {
                return Ok(());
            };
            let passing = Passing {
                method: Method::DELETE,
                headers: header_map(headers),
                body: Vec::new(),
            };
            let sent = async {
                let mut answer = self.send(passing).await?;
                let body = answer.whole(DELETE_ANSWER_BYTES).await.unwrap_or_default();
                Ok::<_, Failure>((answer.status, body))
            };
            match tokio::time::timeout(Duration::from_millis(CLOSE_WAIT_MS), sent).await {
                Ok(Ok((status, body))) if is_closed(status.as_u16(), &body) => return Ok(()),
                Ok(Ok((status, _))) => why = NotEnded::Status(status),
                Ok(Err(failure)) => why = NotEnded::Failed(failure),
                Err(_) => why = NotEnded::Silent,
            }
        }
        Err(why)
    }
}

/// Why a session of the server upstream is still open.
#[derive(Debug)]
pub enum NotEnded {
    /// There was no time for an attempt.
    Untried,
    /// The server answered with this status.
    Status(StatusCode),
    /// There was no answer.
    Failed(Failure),
    /// There was no answer in time.
    Silent,
}

impl fmt::Display for NotEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untried => f.write_str("there was no time for an attempt"),
            Self::Status(status) => write!(f, "its server said {status}"),
            Self::Failed(failure) => f.write_str(&failure.why),
            Self::Silent => f.write_str("its server did not answer"),
        }
    }
}

impl Error for NotEnded {}

/// Closes a session that is over here, and removes its note when the server has confirmed it. If the note cannot be removed, the next
/// start sends one more DELETE, which does no harm.
pub async fn end(front: Rc<Front>, session: u64, path: u64, note: Option<LockedNote>) {
    let endpoint = front.endpoint_of(path);
    let upstream = endpoint.as_ref().and_then(|one| one.upstream.as_ref());
    if let (Some(endpoint), Some(upstream)) = (&endpoint, upstream) {
        match (upstream.end(&front, session).await, note) {
            (Ok(()), Some(note)) => drop(note.remove()),
            (Ok(()), None) => {}
            (Err(why), note) => {
                // It stays written down: the next start of any command tries again.
                if let Some(note) = &note {
                    note.note_failure(CLOSE_TRIES, why.to_string());
                }
                let server = &endpoint.spec.name;
                talk(&format!(
                    "warning: a session of {server} could not be ended now: {why}\n"
                ));
            }
        }
    }
    front.with(|core, _| core.upstream().told(session));
    front.bell.ring();
}

/// Headers as the machine reads them.
pub fn listed(headers: &HeaderMap) -> Headers {
    let each = headers.iter();
    each.map(|(name, value)| (name.as_str().into(), value.as_bytes().to_vec()))
        .collect()
}

fn header_map(headers: Headers) -> HeaderMap {
    let each = headers.into_iter();
    each.filter_map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(&value).ok()?))
    })
    .fold(HeaderMap::new(), |mut map, (name, value)| {
        map.append(name, value);
        map
    })
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

/// The headers of a message, without those of its connection. Compression is not asked for, because what we may have to add to a
/// stream is plain text.
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
pub fn answer(front: &Rc<Front>, answer: Answer, body: &[u8], passage: Passage) -> Reply {
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
                .closing_bell
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
        passage: Some(passage),
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

/// An answer that is handed from the task that sent a request to the task of the connection; none if it is not passed on.
pub type Handed = Slot<Rc<RefCell<Option<Result<Answer, Failure>>>>>;

type Closing = Pin<Box<dyn Future<Output = ()>>>;
type Next = Pin<Box<dyn Future<Output = (Answer, Result<Option<Bytes>, Failure>)>>>;

/// The rest of a body that is passed on.
pub struct Rest {
    next: Next,
    /// Ready when streams are to end.
    closing: Closing,
    broken: Option<Vec<u8>>,
    passage: Option<Passage>,
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

    /// Ends it before its end: the last piece, if a client waits for an answer.
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
        self.passage = None;
        self.next = Box::pin(std::future::pending());
        // A later poll returns at once that the body has ended.
        self.closing = Box::pin(std::future::ready(()));
        self.broken = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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
