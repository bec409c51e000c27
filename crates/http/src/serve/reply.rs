//! Responses: a status, a few headers, a body. What is refused is refused in the words of JSON-RPC.

use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use mainstay_http_core::headers;
use mainstay_http_core::serve::words::{self, Code};

use super::exchange::{Body, Exchange};

/// The header that names a session.
pub const SESSION_ID: HeaderName = HeaderName::from_static(headers::SESSION);
/// Asks a proxy not to hold events back.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A response.
pub type Reply = Response<Body>;

/// A status and nothing else.
pub fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Body::whole(Vec::new()));
    *reply.status_mut() = status;
    reply
}

/// A message.
pub fn json(status: StatusCode, message: Vec<u8>) -> Reply {
    typed(status, "application/json", message)
}

/// Plain text.
pub fn text(status: StatusCode, text: impl Into<Vec<u8>>) -> Reply {
    typed(
        status,
        "text/plain; version=0.0.4; charset=utf-8",
        text.into(),
    )
}

/// Events, as they come.
pub fn events(exchange: Exchange) -> Reply {
    let mut reply = Response::new(Body::events(exchange));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    reply
}

/// Why a request is refused, before any server has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(Box<Why>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Why {
    status: StatusCode,
    code: Code,
    message: String,
    id: Option<Vec<u8>>,
    data: Option<Vec<u8>>,
    extra: Option<(HeaderName, &'static str)>,
}

impl Refusal {
    /// A refusal.
    pub fn new(status: StatusCode, code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Why {
            status,
            code,
            message: message.into(),
            id: None,
            data: None,
            extra: None,
        }))
    }

    /// Of this request.
    #[must_use]
    pub fn of(mut self, id: Option<&[u8]>) -> Self {
        self.0.id = id.map(<[u8]>::to_vec);
        self
    }

    /// With this data.
    #[must_use]
    pub fn with(mut self, data: Vec<u8>) -> Self {
        self.0.data = Some(data);
        self
    }

    /// A method that this path does not have.
    pub fn method(allow: &'static str) -> Self {
        let mut refusal = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            Code::Request,
            "this path does not have that method",
        );
        refusal.0.extra = Some((ALLOW, allow));
        refusal
    }

    /// A user that may not connect at all: the connection is closed after this answer.
    pub fn stranger(message: impl Into<String>) -> Self {
        let mut refusal = Self::new(StatusCode::FORBIDDEN, Code::Request, message);
        refusal.0.extra = Some((CONNECTION, "close"));
        refusal
    }

    /// Without the token.
    pub fn token() -> Self {
        let mut refusal = Self::new(
            StatusCode::UNAUTHORIZED,
            Code::Request,
            "a token is needed: Authorization: Bearer …",
        );
        refusal.0.extra = Some((WWW_AUTHENTICATE, "Bearer realm=\"mainstay\""));
        refusal
    }

    /// Not now.
    pub fn later(status: StatusCode, message: impl Into<String>) -> Self {
        let mut refusal = Self::new(status, Code::Internal, message);
        refusal.0.extra = Some((RETRY_AFTER, "1"));
        refusal
    }

    /// As it is sent.
    pub fn reply(&self) -> Reply {
        let message = words::error(
            self.0.id.as_deref(),
            self.0.code,
            &self.0.message,
            self.0.data.as_deref(),
        );
        let mut reply = json(self.0.status, message);
        if let Some((name, value)) = &self.0.extra {
            reply
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        reply
    }
}

fn typed(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Reply {
    let mut reply = Response::new(Body::whole(body));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}
