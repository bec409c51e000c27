//! An HTTP/1.1 client for MCP: one request, one answer whose body is read as it comes.
//!
//! It has no tasks of its own: a connection is polled by the caller that waits for its answer, and rests in a small pool
//! between two requests. It does not know MCP, does not retry what a server may have seen, and follows a redirect only
//! within the same origin, so that no header reaches another host. HTTP/2 is not spoken.
//!
//! Invariant: the words of a [`Failure`] name host, port and cause, never a header, a query or a body.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{
    AUTHORIZATION, HOST, HeaderMap, HeaderValue, LOCATION, PROXY_AUTHORIZATION, USER_AGENT,
};
use hyper::rt::{Read, Write};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use mainstay_os::clock;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::limits;
use mainstay_report::plain;
use mainstay_store::config::target::Target;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::proxy::{self, Proxies};
use super::tls::TlsError;
use super::{resolve, tls};

/// Redirects that are followed.
const REDIRECTS_MOST: usize = 5;
/// Connections that rest at once.
const IDLE_MOST: usize = 16;
/// The most headers of one answer.
const HEADERS_MOST: usize = 128;
/// Room for the head of an answer, and for a chunk of its body.
const BUFFER_BYTES: usize = 64 * 1024;

/// A request.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its method.
    pub method: Method,
    /// Where it goes.
    pub target: Target,
    /// Its headers; `Host` and `User-Agent` are added.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The host's name was not found.
    Name,
    /// The connection was not accepted.
    Connect,
    /// TLS was not agreed upon.
    Tls,
    /// The connection was there, but nothing of the request was sent.
    Unsent,
    /// The server may have seen it; its answer did not come.
    Head,
    /// The answer broke off.
    Body,
}

/// Why there is no answer, or no more of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How far it came.
    pub stage: Stage,
    /// What went wrong, as a fragment.
    pub why: String,
}

impl Failure {
    fn new(stage: Stage, why: impl fmt::Display) -> Self {
        Self {
            stage,
            why: why.to_string(),
        }
    }

    /// True if the server has certainly not seen the request.
    pub fn unsent(&self) -> bool {
        match self.stage {
            Stage::Name | Stage::Connect | Stage::Tls | Stage::Unsent => true,
            Stage::Head | Stage::Body => false,
        }
    }
}

/// The client, with its resting connections.
#[derive(Default)]
pub struct Client {
    tls: OnceLock<Result<Arc<ClientConfig>, TlsError>>,
    idle: Arc<Mutex<Vec<Idle>>>,
    proxies: Proxies,
}

struct Idle {
    live: Live,
    since: Moment,
}

/// A connection, with what drives it.
struct Live {
    to: (bool, String, u16),
    sender: SendRequest<Full<Bytes>>,
    drive: Drive,
}

type Driving = Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>;

/// The connection's own work; none once it has ended.
struct Drive(Option<Driving>);

impl Drive {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Some(driving) = &mut self.0
            && driving.as_mut().poll(cx).is_ready()
        {
            self.0 = None;
        }
    }

    /// Waits for something that this connection brings.
    async fn until<F: Future + Unpin>(&mut self, mut waited: F) -> F::Output {
        poll_fn(|cx| {
            self.poll(cx);
            match Pin::new(&mut waited).poll(cx) {
                // What the connection has just been asked for is begun at once.
                Poll::Pending => {
                    self.poll(cx);
                    Pin::new(&mut waited).poll(cx)
                }
                ready @ Poll::Ready(_) => ready,
            }
        })
        .await
    }
}

/// The head of an answer, and its body as it comes.
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Where it came from, after redirects.
    pub target: Target,
    body: Incoming,
    live: Option<Live>,
    idle: Arc<Mutex<Vec<Idle>>>,
}

impl Answer {
    /// The next piece of the body; none at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let Some(live) = &mut self.live else {
                return Ok(None);
            };
            match live.drive.until(self.body.frame()).await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => {
                    self.live = None;
                    return Err(Failure::new(Stage::Body, broken(&error)));
                }
                None => {
                    if let Some(live) = self.live.take() {
                        rest(&self.idle, live);
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// The whole body, if it is not longer than this.
    pub async fn whole(&mut self, bytes_most: usize) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > bytes_most {
                self.live = None;
                let most = bytes_most >> 20;
                return Err(Failure::new(
                    Stage::Body,
                    format!("the answer is longer than {most} MiB"),
                ));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// A header's value, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Client {
    /// A client without any connection; the environment names its proxies.
    pub fn new() -> Self {
        Self {
            proxies: Proxies::from_env(),
            ..Self::default()
        }
    }

    /// Sends a request; the head of its answer. There is no limit to how long a server may think.
    pub async fn send(&self, outgoing: Outgoing) -> Result<Answer, Failure> {
        let mut outgoing = outgoing;
        for _ in 0..=REDIRECTS_MOST {
            let mut answer = self.send_once(&outgoing).await?;
            let Some(next) = followed(&outgoing, &answer) else {
                return Ok(answer);
            };
            // Its connection can be used again once it was read; a long one is not worth it.
            answer.whole(BUFFER_BYTES).await.ok();
            outgoing.target = next;
        }
        Err(Failure::new(
            Stage::Body,
            format!("more than {REDIRECTS_MOST} redirects in a row"),
        ))
    }

    async fn send_once(&self, outgoing: &Outgoing) -> Result<Answer, Failure> {
        let target = &outgoing.target;
        let through = self.proxies.of(target);
        let through = through.map_err(|why| Failure::new(Stage::Connect, why))?;
        let mut request = request(outgoing, through.filter(|_| !target.tls()))?;
        loop {
            let (mut live, rested) = match self.take(target) {
                Some(live) => (live, true),
                None => (self.connect(target, through).await?, false),
            };
            let Live { sender, drive, .. } = &mut live;
            let sent = Box::pin(sender.try_send_request(request));
            match drive.until(sent).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    return Ok(Answer {
                        status: head.status,
                        headers: head.headers,
                        target: target.clone(),
                        body,
                        live: Some(live),
                        idle: Arc::clone(&self.idle),
                    });
                }
                Err(mut error) => match error.take_message() {
                    // The server had closed a connection that rested: nothing was lost.
                    Some(unsent) if rested => request = unsent,
                    Some(_) => {
                        return Err(Failure::new(Stage::Unsent, broken(error.error())));
                    }
                    None => return Err(Failure::new(Stage::Head, broken(error.error()))),
                },
            }
        }
    }

    /// A connection that rests and is still there.
    fn take(&self, target: &Target) -> Option<Live> {
        let to = key(target);
        let now = clock::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|one| now - one.since < limits::HTTP_REST_MS * 1_000_000);
        while let Some(at) = idle.iter().rposition(|one| one.live.to == to) {
            let mut live = idle.remove(at).live;
            live.drive.poll(&mut Context::from_waker(Waker::noop()));
            if live.drive.0.is_some() && live.sender.is_ready() {
                return Some(live);
            }
        }
        None
    }

    async fn connect(&self, target: &Target, through: Option<&Target>) -> Result<Live, Failure> {
        let within = Duration::from_millis(limits::HTTP_CONNECT_MS);
        match timeout(within, self.connect_now(target, through)).await {
            Ok(connected) => connected,
            Err(_) => Err(Failure::new(
                Stage::Connect,
                format!(
                    "{} has not taken the connection within {} s",
                    through.unwrap_or(target).authority(),
                    within.as_secs()
                ),
            )),
        }
    }

    async fn connect_now(
        &self,
        target: &Target,
        through: Option<&Target>,
    ) -> Result<Live, Failure> {
        let first = through.unwrap_or(target);
        let addresses = resolve::addresses(first.host())
            .await
            .map_err(|why| Failure::new(Stage::Name, why))?;
        let mut stream = dial(&addresses, first).await?;
        if !target.tls() {
            return greet(target, TokioIo::new(stream)).await;
        }
        if let Some(proxy) = through {
            stream = proxy::open_way(stream, proxy, target)
                .await
                .map_err(|why| Failure::new(Stage::Connect, why))?;
        }
        let config = self
            .tls
            .get_or_init(tls::config)
            .clone()
            .map_err(|why| Failure::new(Stage::Tls, why))?;
        let name = ServerName::try_from(target.host().to_string()).map_err(|_| {
            let host = target.host();
            Failure::new(Stage::Tls, format!("`{host}` cannot be in a certificate"))
        })?;
        let stream = TlsConnector::from(config)
            .connect(name, stream)
            .await
            .map_err(|error| Failure::new(Stage::Tls, plain(&error)))?;
        greet(target, TokioIo::new(stream)).await
    }
}

fn key(target: &Target) -> (bool, String, u16) {
    (target.tls(), target.host().into(), target.port())
}

/// Connects to the first address that takes it.
async fn dial(addresses: &[std::net::IpAddr], target: &Target) -> Result<TcpStream, Failure> {
    let share = Duration::from_millis(limits::HTTP_CONNECT_MS) / (addresses.len().max(1) as u32);
    let mut why = "it has no address".to_string();
    for address in addresses {
        let at = SocketAddr::new(*address, target.port());
        match timeout(share, TcpStream::connect(at)).await {
            Ok(Ok(stream)) => {
                stay_watchful(&stream);
                return Ok(stream);
            }
            Ok(Err(error)) => why = plain(&error),
            Err(_) => why = "it does not answer".into(),
        }
    }
    Err(Failure::new(
        Stage::Connect,
        format!("{}: {why}", target.authority()),
    ))
}

/// A peer that vanished without a word is noticed by the kernel; without these settings it is noticed later.
fn stay_watchful(stream: &TcpStream) {
    use rustix::net::sockopt;
    let probe = Duration::from_millis(limits::HTTP_ALIVE_MS);
    stream.set_nodelay(true).ok();
    sockopt::set_socket_keepalive(stream, true).ok();
    sockopt::set_tcp_keepidle(stream, probe).ok();
    sockopt::set_tcp_keepintvl(stream, probe / 3).ok();
    sockopt::set_tcp_keepcnt(stream, 3).ok();
    sockopt::set_tcp_user_timeout(stream, 2 * limits::HTTP_ALIVE_MS as u32).ok();
}

async fn greet<T: Read + Write + Unpin + Send + 'static>(
    target: &Target,
    io: T,
) -> Result<Live, Failure> {
    let (sender, connection) = http1::Builder::new()
        .max_headers(HEADERS_MOST)
        .max_buf_size(BUFFER_BYTES)
        .handshake(io)
        .await
        .map_err(|error| Failure::new(Stage::Connect, broken(&error)))?;
    Ok(Live {
        to: key(target),
        sender,
        drive: Drive(Some(Box::pin(connection))),
    })
}

/// The request; to a proxy that is to pass it on, with the whole URL.
fn request(outgoing: &Outgoing, proxy: Option<&Target>) -> Result<Request<Full<Bytes>>, Failure> {
    let target = &outgoing.target;
    let mut request = Request::new(Full::new(outgoing.body.clone()));
    let unusable = |what: &str| Failure::new(Stage::Unsent, format!("{what} cannot be sent"));
    *request.method_mut() = outgoing.method.clone();
    let path = match proxy {
        Some(_) => format!("http://{}{}", target.authority(), target.path()),
        None => target.path().into(),
    };
    *request.uri_mut() = path.parse().map_err(|_| unusable("the path"))?;
    let headers = request.headers_mut();
    headers.clone_from(&outgoing.headers);
    if let Some(value) = proxy.and_then(proxy::credentials) {
        let mut value = HeaderValue::from_str(&value).map_err(|_| unusable("the proxy's user"))?;
        value.set_sensitive(true);
        headers.insert(PROXY_AUTHORIZATION, value);
    }
    let host = HeaderValue::from_str(&target.authority()).map_err(|_| unusable("the host"))?;
    headers.insert(HOST, host);
    headers
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!(
            "mainstay/",
            env!("CARGO_PKG_VERSION")
        )));
    if let Some(user) = target.user()
        && !headers.contains_key(AUTHORIZATION)
    {
        let value = format!(
            "Basic {}",
            mainstay_http_core::base64::encode(&decoded(user))
        );
        let mut value = HeaderValue::from_str(&value).map_err(|_| unusable("the user"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(request)
}

/// Percent-escapes, resolved.
pub(super) fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%')
            .then(|| std::str::from_utf8(after.get(..2)?).ok())
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = escaped {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    bytes
}

/// Where a redirect leads, if it is followed: to the same origin, with the same method.
fn followed(outgoing: &Outgoing, answer: &Answer) -> Option<Target> {
    let keeps_method = matches!(
        answer.status,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    );
    let moved = matches!(
        answer.status,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND
    );
    let followable = keeps_method || (moved && outgoing.method == Method::GET);
    if !followable {
        return None;
    }
    let location = answer.headers.get(LOCATION)?.to_str().ok()?;
    let next = outgoing.target.join(location).ok()?;
    next.same_origin(&outgoing.target).then_some(next)
}

/// Puts a connection whose answer has ended to rest.
fn rest(idle: &Mutex<Vec<Idle>>, mut live: Live) {
    live.drive.poll(&mut Context::from_waker(Waker::noop()));
    if live.drive.0.is_none() || !live.sender.is_ready() {
        return;
    }
    let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
    if idle.len() < IDLE_MOST {
        idle.push(Idle {
            live,
            since: clock::now(),
        });
    }
}

/// A text that says what broke.
fn broken(error: &hyper::Error) -> String {
    if error.is_incomplete_message() {
        return "the server closed the connection before its answer was complete".into();
    }
    if error.is_parse() {
        return "what came back is not HTTP".into();
    }
    let cause =
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let cause = cause.split(" (os error").next().unwrap_or(&cause);
    format!("the connection broke: {}", cause.to_lowercase())
}

#[cfg(test)]
mod tests;
