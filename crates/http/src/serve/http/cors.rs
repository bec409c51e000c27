//! Pages in a browser: what it asks before a page of an allowed site may call us, and what makes it show our answers there.
//!
//! Whether a site is allowed is checked before, by `AccessRules`.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use hyper::{Method, StatusCode};

use super::super::reply::{Reply, empty};

/// Headers of ours that a page may read.
const EXPOSED: &str = "mcp-session-id, www-authenticate, retry-after";
/// How long a browser need not ask again, in seconds.
const ASK_AGAIN_S: &str = "600";

/// Whether a browser asks on behalf of a page. It bears no token then.
pub fn asks(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The reply to it: it may ask. All headers that it names are allowed.
pub fn may(asked: &HeaderMap) -> Reply {
    let mut reply = empty(StatusCode::NO_CONTENT);
    let headers = reply.headers_mut();
    headers.insert(
        ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, POST, DELETE"),
    );
    if let Some(wanted) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    headers.insert(
        ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static(ASK_AGAIN_S),
    );
    reply
}

/// Lets a page of this site read the reply. A server upstream may have set the header already.
pub fn show(reply: &mut Reply, origin: HeaderValue) {
    let headers = reply.headers_mut();
    if headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
        return;
    }
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(VARY, HeaderValue::from_static("origin"));
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(EXPOSED),
    );
}
