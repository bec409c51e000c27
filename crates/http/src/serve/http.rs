//! One HTTP request: access, parsing, and the decision of the machine as an HTTP reply.

mod cors;
mod pass;
mod refused;
mod stranger;

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use http_body::Body as _;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN,
};
use hyper::{Method, Request, StatusCode};
use mainstay_http_core::headers::{LAST_EVENT, VERSION};
use mainstay_http_core::serve::access::Denied;
use mainstay_http_core::serve::front::{Get, Post, Step};
use mainstay_http_core::serve::is_error;
use mainstay_http_core::serve::posted::{self, Kind, Posted, Unread};
use mainstay_http_core::serve::words::Code;
use mainstay_protocol::limits::LONG_ID_BYTES;

use super::endpoint::Endpoint;
use super::exchange::Exchange;
use super::front::Front;
use super::metrics::count;
use super::page;
use super::reply::{Refusal, Reply, SESSION_ID, empty, events, json, text};
pub use refused::refusal;
pub use stranger::Owner;

/// Answers a request on a connection of this owner.
pub async fn answer(front: Rc<Front>, owner: Owner, request: Request<Incoming>) -> Reply {
    let preflight = cors::asks(request.method(), request.headers());
    let open = preflight || matches!(request.uri().path(), "/healthz" | "/readyz");
    let known = stranger::judge(&front, owner).and_then(|()| head_fits(&front, &request));
    if let Err(refusal) = known.and_then(|()| judge(&front, request.headers(), open)) {
        count(&front.metrics.refused);
        return refusal.reply();
    }
    let origin = request.headers().get(ORIGIN).cloned();
    let mut reply = if preflight {
        cors::may(request.headers())
    } else {
        answered(&front, request).await.unwrap_or_else(|refusal| {
            count(&front.metrics.refused);
            refusal.reply()
        })
    };
    if let Some(origin) = origin {
        cors::show(&mut reply, origin);
    }
    if front.leaving() {
        // A connection that is kept would bring more requests.
        let headers = reply.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    reply
}

async fn answered(front: &Rc<Front>, request: Request<Incoming>) -> Result<Reply, Refusal> {
    let path = request.uri().path().to_owned();
    match path.as_str() {
        "/healthz" => return only_get(request.method(), || page::health(front)),
        "/readyz" => return only_get(request.method(), || page::ready(front)),
        "/metrics" => {
            return only_get(request.method(), || {
                text(StatusCode::OK, page::metrics(front))
            });
        }
        _ => {}
    }
    let Some(endpoint) = front.endpoint(&path) else {
        // Only a caller that may use the servers gets here, so it may know their paths.
        let endpoints = front.endpoints();
        let offered = endpoints.iter().filter(|(_, one)| !one.retired.get());
        let paths: Vec<&str> = offered.map(|(path, _)| path.as_str()).collect();
        let paths = paths.join(", ");
        let message = format!("there is no server at this path; servers are at {paths}");
        return Err(Refusal::new(StatusCode::NOT_FOUND, Code::Request, message));
    };
    if let Some(upstream) = &endpoint.upstream {
        return pass::pass(front, &endpoint, upstream, request).await;
    }
    match *request.method() {
        Method::POST => post(front, &endpoint, request).await,
        Method::GET => stream(front, &endpoint, request.headers()),
        Method::DELETE => {
            let get = asked(&endpoint, request.headers());
            let ended = front.with(|core, now| core.delete(now, get));
            ended.map_err(refusal)?;
            Ok(empty(StatusCode::OK))
        }
        _ => Err(Refusal::method("GET, POST, DELETE")),
    }
}

/// Refuses a head that is larger than the limit. hyper measures its buffer between two reads, so that the last read may
/// bring it any amount beyond.
fn head_fits(front: &Front, request: &Request<Incoming>) -> Result<(), Refusal> {
    let target = request.uri().path_and_query();
    let target = target.map_or(0, |target| target.as_str().len());
    let each = request.headers().iter();
    let lines = each.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    let most = front.limits().header_max_bytes;
    if (target + lines.sum::<usize>()) as u64 <= most {
        return Ok(());
    }
    Err(Refusal::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Code::Request,
        format!("the headers are larger than {most} bytes (--header-max)"),
    ))
}

fn judge(front: &Front, headers: &HeaderMap, open: bool) -> Result<(), Refusal> {
    let word = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    // A header that is there twice, or is no text, is none that we know.
    let host = (headers.get_all(HOST).iter().count() == 1)
        .then(|| word(HOST))
        .flatten();
    let origin = headers
        .contains_key(ORIGIN)
        .then(|| word(ORIGIN).unwrap_or(""));
    let token = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let forbidden = |message: &str| Refusal::new(StatusCode::FORBIDDEN, Code::Request, message);
    match front.access().judge(host, origin, token) {
        Ok(()) => Ok(()),
        Err(Denied::Token) if open => Ok(()),
        Err(Denied::Token) => Err(Refusal::token()),
        Err(Denied::NoHost) => Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            Code::Request,
            "the header Host is missing, or it names no host",
        )),
        Err(Denied::Host) => Err(forbidden(
            "the header Host names another host; allow it with --allow-host",
        )),
        Err(Denied::Origin) => Err(forbidden(
            "the header Origin names another site; allow it with --allow-origin",
        )),
    }
}

fn only_get(method: &Method, reply: impl FnOnce() -> Reply) -> Result<Reply, Refusal> {
    if matches!(*method, Method::GET | Method::HEAD) {
        Ok(reply())
    } else {
        Err(Refusal::method("GET, HEAD"))
    }
}

fn bad(message: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, Code::Request, message)
}

/// True if an Accept header allows this type. Without the header, all types are allowed.
fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    if !headers.contains_key(ACCEPT) {
        return true;
    }
    let family = wanted.split('/').next().unwrap_or("");
    let each = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    each.flat_map(|value| value.split(',')).any(|one| {
        let kind = one
            .split(';')
            .next()
            .unwrap_or("")
            .trim()
            .to_ascii_lowercase();
        kind == wanted || kind == "*/*" || kind.strip_suffix("/*") == Some(family)
    })
}

async fn post(
    front: &Rc<Front>,
    endpoint: &Rc<Endpoint>,
    request: Request<Incoming>,
) -> Result<Reply, Refusal> {
    let (parts, mut body) = request.into_parts();
    let headers = parts.headers;
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let kind = kind
        .and_then(|kind| kind.split(';').next())
        .unwrap_or("")
        .trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = "the header Content-Type must be application/json";
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Code::Request,
            message,
        ));
    }
    if !(accepts(&headers, "application/json") && accepts(&headers, "text/event-stream")) {
        let message = "the header Accept must have application/json and text/event-stream";
        return Err(Refusal::new(
            StatusCode::NOT_ACCEPTABLE,
            Code::Request,
            message,
        ));
    }
    let limits = front.limits();
    let within = Duration::from_millis(limits.body_wait_ms);
    let read = tokio::time::timeout(within, collect(&mut body, limits.body_max_bytes as usize));
    let body = read.await.unwrap_or_else(|_| Err(too_slow()))?;
    let line = posted::line(&body).map_err(unread)?;
    drop(body);
    let posted = Posted::read(&line).map_err(|why| {
        let id = posted::id_of(&line).filter(|_| why == Unread::LongId);
        unread(why).of(id)
    })?;
    let id = match posted.kind {
        Kind::Request(id) => Some(id),
        Kind::Notification | Kind::Answer(_) => None,
    };
    let find = |name: &str| {
        let all = headers.get_all(name).iter();
        all.map(HeaderValue::as_bytes).collect()
    };
    let post = Post {
        path: endpoint.number,
        session: named(&headers),
        version: headers.get(VERSION).map(HeaderValue::as_bytes),
        posted: &posted,
        line: &line,
        header: &find,
    };
    let exchange = Exchange::open(front);
    let step = exchange.post(&post).await;
    reply(exchange, step).map_err(|refusal| refusal.of(id))
}

/// The decision of the machine about a request.
fn reply(exchange: Exchange, step: Step) -> Result<Reply, Refusal> {
    let (mut reply, session) = match step {
        Step::Accepted => (empty(StatusCode::ACCEPTED), None),
        Step::Answer {
            message,
            session,
            modern,
        } => {
            let status = if modern {
                status(&message)
            } else {
                StatusCode::OK
            };
            (json(status, message), session)
        }
        Step::Events { session } => (events(exchange), session),
        Step::Refuse(refused) => return Err(refusal(refused)),
        Step::Wait(_) => unreachable!("an exchange is asked until it waits no more"),
    };
    if let Some(name) = session.and_then(|name| HeaderValue::from_str(&name).ok()) {
        reply.headers_mut().insert(SESSION_ID, name);
    }
    Ok(reply)
}

/// The status of a modern answer: some errors have one of their own.
fn status(answer: &[u8]) -> StatusCode {
    #[derive(serde::Deserialize)]
    struct Answer {
        error: Option<Problem>,
    }
    #[derive(serde::Deserialize)]
    struct Problem {
        code: Option<i64>,
    }
    if !is_error(answer) {
        return StatusCode::OK;
    }
    let answer: Option<Answer> = serde_json::from_slice(answer).ok();
    match answer.and_then(|answer| answer.error?.code) {
        Some(-32_601) => StatusCode::NOT_FOUND,
        Some(-32_022..=-32_020) => StatusCode::BAD_REQUEST,
        Some(_) | None => StatusCode::OK,
    }
}

/// A client reads news, or comes back for the rest of a stream.
fn stream(front: &Rc<Front>, endpoint: &Endpoint, headers: &HeaderMap) -> Result<Reply, Refusal> {
    if !accepts(headers, "text/event-stream") {
        let message = "the header Accept must have text/event-stream";
        return Err(Refusal::new(
            StatusCode::NOT_ACCEPTABLE,
            Code::Request,
            message,
        ));
    }
    let exchange = Exchange::open(front);
    let step = exchange.get(asked(endpoint, headers));
    reply(exchange, step)
}

fn asked<'h>(endpoint: &Endpoint, headers: &'h HeaderMap) -> Get<'h> {
    Get {
        path: endpoint.number,
        session: named(headers),
        version: headers.get(VERSION).map(HeaderValue::as_bytes),
        last: headers.get(LAST_EVENT).map(HeaderValue::as_bytes),
    }
}

/// The session that a request names; a name that is no text is that of no session.
fn named(headers: &HeaderMap) -> Option<&str> {
    let name = headers.get(SESSION_ID)?;
    Some(name.to_str().unwrap_or(""))
}

fn too_slow() -> Refusal {
    let message = "the body took too long";
    Refusal::new(StatusCode::REQUEST_TIMEOUT, Code::Request, message)
}

fn unread(why: Unread) -> Refusal {
    match why {
        Unread::NotJson => {
            Refusal::new(StatusCode::BAD_REQUEST, Code::Parse, "the body is not JSON")
        }
        Unread::Batch => bad("batches are not taken: post each message for itself"),
        Unread::NoMessage => bad(&format!(
            "the body is no JSON-RPC message (an id is a number or a text of at most {LONG_ID_BYTES} bytes)"
        )),
        Unread::LongId => bad(&format!(
            "the id is longer than {LONG_ID_BYTES} bytes; use a shorter one"
        )),
        Unread::Ambiguous => bad(
            "the body has a key twice in one object, or a key of the protocol in another spelling such as \"ID\"; programs disagree about which one counts, so it was not passed on. Send each key once, spelled as in the protocol",
        ),
    }
}

async fn collect(body: &mut Incoming, most: usize) -> Result<Vec<u8>, Refusal> {
    let too_large = || {
        let message = format!("the body is larger than {most} bytes (--body-max)");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, Code::Request, message)
    };
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let mut whole = Vec::with_capacity(body.size_hint().lower() as usize);
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
        let frame = frame.map_err(|_| bad("the body broke off"))?;
        if let Some(data) = frame.data_ref() {
            if whole.len() + data.len() > most {
                return Err(too_large());
            }
            whole.extend_from_slice(data);
        }
    }
    Ok(whole)
}
