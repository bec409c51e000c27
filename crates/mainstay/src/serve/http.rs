//! One HTTP request: who may come in, what it is, which of the two eras answers it.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use http_body::Body as _;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::{Method, Request, StatusCode};
use mainstay_core::limits::ID_BYTES;
use mainstay_core::serve::door::Refused;
use mainstay_core::serve::headers;
use mainstay_core::serve::limits::TOOLS_KNOWN_MS;
use mainstay_core::serve::posted::{self, Kind, LEGACY, Posted, REMOVED, Unread};
use mainstay_core::serve::sessions::Over;
use mainstay_core::serve::sse::EventId;
use mainstay_core::serve::words::Code;

use super::endpoint::Endpoint;
use super::front::Front;
use super::metrics::count;
use super::modern::Modern;
use super::reply::{Refusal, Reply, SESSION_ID, empty, events, json, text};
use super::session::Session;
use super::stream::{First, Seat};
use super::{page, stream::Stream};

const VERSION: &str = "mcp-protocol-version";
const LAST_EVENT: &str = "last-event-id";

/// Answers a request.
pub async fn answer(front: Rc<Front>, request: Request<Incoming>) -> Reply {
    match answered(&front, request).await {
        Ok(reply) => reply,
        Err(refusal) => {
            count(&front.metrics.refused);
            refusal.reply()
        }
    }
}

async fn answered(front: &Rc<Front>, request: Request<Incoming>) -> Result<Reply, Refusal> {
    let path = request.uri().path().to_owned();
    judge(front, request.headers(), path == "/healthz")?;
    match path.as_str() {
        "/healthz" => return only_get(request.method(), || page::health(front)),
        "/metrics" => {
            return only_get(request.method(), || {
                text(StatusCode::OK, page::metrics(front))
            });
        }
        _ => {}
    }
    let Some(endpoint) = front.endpoint(&path) else {
        let message = "there is no server at this path";
        return Err(Refusal::new(StatusCode::NOT_FOUND, Code::Request, message));
    };
    match *request.method() {
        Method::POST => post(front, &endpoint, request).await,
        Method::GET => get(front, &endpoint, request.headers()),
        Method::DELETE => delete(front, &endpoint, request.headers()),
        _ => Err(Refusal::method("GET, POST, DELETE")),
    }
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
    match front.door().judge(host, origin, token) {
        Ok(()) => Ok(()),
        Err(Refused::Token) if open => Ok(()),
        Err(Refused::Token) => Err(Refusal::token()),
        Err(Refused::NoHost) => Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            Code::Request,
            "the header Host is missing, or it names no host",
        )),
        Err(Refused::Host) => Err(forbidden(
            "the header Host names another host; allow it with --allow-host",
        )),
        Err(Refused::Origin) => Err(forbidden(
            "the header Origin names another site; allow it with --allow-origin",
        )),
    }
}

fn only_get(method: &Method, reply: impl FnOnce() -> Reply) -> Result<Reply, Refusal> {
    if *method == Method::GET {
        Ok(reply())
    } else {
        Err(Refusal::method("GET"))
    }
}

fn bad(message: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, Code::Request, message)
}

/// Whether an Accept header takes this type. None at all takes everything.
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
    let body = read.await.unwrap_or_else(|_| {
        let message = "the body took too long";
        Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            Code::Request,
            message,
        ))
    })?;
    // It is read as it came, because a line end inside of a text is a mistake, and again as the line that goes on.
    Posted::read(&body).map_err(unread)?;
    let line = posted::line(&body);
    drop(body);
    let posted = Posted::read(&line).map_err(unread)?;
    let id = match posted.kind {
        Kind::Request(id) => Some(id),
        Kind::Notification | Kind::Answer(_) => None,
    };
    if front.stopping() {
        let refusal = Refusal::later(StatusCode::SERVICE_UNAVAILABLE, "serve is stopping");
        return Err(refusal.of(id));
    }
    let reply = match session(front, endpoint, &headers)? {
        Some(session) => in_session(front, &session, &headers, &posted, &line).await,
        None if is_modern(&headers, &posted) => {
            modern(front, endpoint, &headers, &posted, &line).await
        }
        None if headers.contains_key(SESSION_ID) => Err(unknown_session()),
        None if posted.method == "initialize" => initialize(front, endpoint, &posted, &line).await,
        None => Err(bad(
            "the header Mcp-Session-Id is missing: a session begins with initialize",
        )),
    };
    reply.map_err(|refusal| refusal.of(id))
}

fn unread(why: Unread) -> Refusal {
    match why {
        Unread::NotJson => {
            Refusal::new(StatusCode::BAD_REQUEST, Code::Parse, "the body is not JSON")
        }
        Unread::Batch => bad("batches are not taken: post each message for itself"),
        Unread::NoMessage => bad(&format!(
            "the body is no JSON-RPC message (an id is a number or a text of at most {ID_BYTES} bytes)"
        )),
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

/// Whether a request is of the modern era: it says so in its body, or names a version that no legacy client knows.
fn is_modern(headers: &HeaderMap, posted: &Posted<'_>) -> bool {
    let told = headers.get(VERSION).and_then(|value| value.to_str().ok());
    posted.version().is_some() || told.is_some_and(|told| !LEGACY.contains(&told.trim()))
}

fn session(
    front: &Front,
    endpoint: &Endpoint,
    headers: &HeaderMap,
) -> Result<Option<Rc<Session>>, Refusal> {
    let Some(id) = headers
        .get(SESSION_ID)
        .and_then(|value| value.to_str().ok())
    else {
        return Ok(None);
    };
    let Some(session) = front.session(id, &endpoint.path) else {
        return Ok(None);
    };
    let agreed = session.version();
    match headers
        .get(VERSION)
        .map(|value| value.to_str().unwrap_or("").trim())
    {
        Some(told) if !LEGACY.contains(&told) && told != agreed => Err(bad(
            "the header MCP-Protocol-Version names a version that this session does not speak",
        )),
        Some(_) | None => Ok(Some(session)),
    }
}

fn unknown_session() -> Refusal {
    let message = "there is no such session (any more): begin one with initialize";
    Refusal::new(StatusCode::NOT_FOUND, Code::Request, message)
}

/// A session whose opening is not over yet: if its client leaves before it knows the session, the session is over.
struct Opening<'f> {
    front: &'f Front,
    key: Option<u64>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.front.end_session(key, Over::OpeningFailed);
        }
    }
}

async fn initialize(
    front: &Rc<Front>,
    endpoint: &Rc<Endpoint>,
    posted: &Posted<'_>,
    line: &[u8],
) -> Result<Reply, Refusal> {
    let Kind::Request(id) = posted.kind else {
        return Err(bad("initialize is a request and needs an id"));
    };
    if endpoint.retired.get() {
        let message = "this server is not in the config file any more";
        return Err(Refusal::new(StatusCode::NOT_FOUND, Code::Request, message));
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
    session.link.send(line.to_vec());
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
    if let Ok(name) = HeaderValue::from_str(&session.id) {
        reply.headers_mut().insert(SESSION_ID, name);
    }
    Ok(reply)
}

async fn in_session(
    front: &Rc<Front>,
    session: &Rc<Session>,
    _headers: &HeaderMap,
    posted: &Posted<'_>,
    line: &[u8],
) -> Result<Reply, Refusal> {
    let seat = front.seat(session.key);
    session.link.room().await;
    let Kind::Request(id) = posted.kind else {
        session.link.send(line.to_vec());
        return Ok(empty(StatusCode::ACCEPTED));
    };
    room(front, session.in_flight(), session.streams())?;
    let Some((stream, number)) = session.ask(id, posted.progress_token()) else {
        return Err(bad("a request with this id is in flight"));
    };
    count(&front.metrics.legacy);
    session.link.send(line.to_vec());
    let seats = vec![session.seat(number, &stream), seat];
    Ok(match stream.first(front.keep_alive()).await {
        First::Answer(answer) => json(StatusCode::OK, answer),
        First::Events => {
            let priming = session.priming(number);
            events(stream, priming, front.keep_alive(), seats)
        }
    })
}

fn room(front: &Front, in_flight: usize, streams: usize) -> Result<(), Refusal> {
    let limits = front.limits();
    let too_many = |message| Refusal::later(StatusCode::TOO_MANY_REQUESTS, message);
    if in_flight as u64 >= limits.requests_max {
        return Err(too_many("too many requests are in flight (--requests-max)"));
    }
    if streams as u64 >= limits.streams_max {
        return Err(too_many("too many streams are open (--streams-max)"));
    }
    Ok(())
}

async fn modern(
    front: &Rc<Front>,
    endpoint: &Rc<Endpoint>,
    headers: &HeaderMap,
    posted: &Posted<'_>,
    line: &[u8],
) -> Result<Reply, Refusal> {
    let Kind::Request(_) = posted.kind else {
        // The modern era has no notification of a client over HTTP, and no answer.
        return Ok(empty(StatusCode::ACCEPTED));
    };
    let params = |message| Refusal::new(StatusCode::BAD_REQUEST, Code::Params, message);
    let Some(version) = posted.version() else {
        return Err(params(
            "params._meta lacks io.modelcontextprotocol/protocolVersion",
        ));
    };
    let find = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    headers::standard(posted, &version, &find).map_err(mismatch)?;
    if endpoint.retired.get() {
        let message = "this server is not in the config file any more";
        return Err(Refusal::new(StatusCode::NOT_FOUND, Code::Request, message));
    }
    let Some((server, versions)) = speaking(front, endpoint).await? else {
        return Err(legacy_only(posted));
    };
    if !versions.iter().any(|known| *known == version) {
        let data = serde_json::json!({"supported": *versions, "requested": version});
        let refusal = Refusal::new(
            StatusCode::BAD_REQUEST,
            Code::Version,
            "this server does not speak that version",
        );
        return Err(refusal.with(data.to_string().into_bytes()));
    }
    if !posted.tells_capabilities() {
        return Err(params(
            "params._meta lacks io.modelcontextprotocol/clientCapabilities",
        ));
    }
    if REMOVED.contains(&&*posted.method) {
        let message = "the modern era does not have this method";
        return Err(Refusal::new(StatusCode::NOT_FOUND, Code::Method, message));
    }
    compare(&server, posted, &find).await?;
    server.room().await;
    room(front, server.in_flight(), 0)?;
    let Some((stream, seat)) = server.ask(posted, line) else {
        return Err(bad("the request could not be read"));
    };
    count(&front.metrics.modern);
    Ok(match stream.first(front.keep_alive()).await {
        First::Answer(answer) => {
            drop(seat);
            json(status(&answer), answer)
        }
        First::Events => events(stream, None, front.keep_alive(), vec![seat]),
    })
}

/// The server and what it speaks; none if it is of the legacy era. One that ended meanwhile is followed by another.
async fn speaking(
    front: &Rc<Front>,
    endpoint: &Rc<Endpoint>,
) -> Result<Option<(Rc<Modern>, Rc<Vec<String>>)>, Refusal> {
    for _ in 0..2 {
        let Some(server) = front.modern(endpoint)? else {
            return Ok(None);
        };
        if let Some(versions) = server.speaks().await {
            return Ok(Some((server, versions)));
        }
    }
    Ok(None)
}

fn legacy_only(posted: &Posted<'_>) -> Refusal {
    if posted.method == "server/discover" {
        let message = "this server does not have server/discover: it is of the legacy era";
        return Refusal::new(StatusCode::NOT_FOUND, Code::Method, message);
    }
    bad("this server is of the legacy era: begin with initialize")
}

async fn compare(
    server: &Modern,
    posted: &Posted<'_>,
    find: headers::Lookup<'_, '_>,
) -> Result<(), Refusal> {
    if posted.method != "tools/call" {
        return Ok(());
    }
    let Some(tool) = posted.param("name") else {
        return Ok(());
    };
    // An old list is good enough to let a call through, but not to refuse one.
    for not_older_ms in [TOOLS_KNOWN_MS, 0] {
        let Some(mirrors) = server.tools(not_older_ms).await else {
            return Ok(());
        };
        match mirrors.judge(&tool, posted.arguments(), find) {
            Ok(()) => return Ok(()),
            Err(message) if not_older_ms == 0 => return Err(mismatch(message)),
            Err(_) => {}
        }
    }
    Ok(())
}

fn mismatch(message: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, Code::HeaderMismatch, message)
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

fn is_error(line: &[u8]) -> bool {
    super::session::is_error(line)
}

fn get(front: &Rc<Front>, endpoint: &Endpoint, headers: &HeaderMap) -> Result<Reply, Refusal> {
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
            let (stream, seats) = session.news(front, None);
            (stream, seats, session.priming(0))
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

fn delete(front: &Front, endpoint: &Endpoint, headers: &HeaderMap) -> Result<Reply, Refusal> {
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
