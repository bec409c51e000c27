//! The modern era: each request stands for itself, and headers repeat what the body says.

use std::rc::Rc;

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderValue};
use mainstay_core::serve::headers;
use mainstay_core::serve::limits::TOOLS_KNOWN_MS;
use mainstay_core::serve::posted::{Kind, Posted};
use mainstay_core::serve::words::Code;

use super::super::endpoint::Endpoint;
use super::super::front::Front;
use super::super::metrics::count;
use super::super::modern::Modern;
use super::super::reply::{Refusal, Reply, empty, events, json};
use super::super::session::is_error;
use super::super::stream::First;
use super::{bad, retired, room};

/// A message of the modern era.
pub async fn modern(
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
    let find = |name: &str| {
        let all = headers.get_all(name).iter();
        all.map(HeaderValue::as_bytes).collect()
    };
    headers::standard(posted, &version, &find).map_err(mismatch)?;
    retired(endpoint)?;
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
    // Any other method is the server's affair; this one could make it take us for somebody of the legacy era.
    if posted.method == "initialize" {
        let message = "the modern era does not have this method";
        return Err(Refusal::new(StatusCode::NOT_FOUND, Code::Method, message));
    }
    compare(&server, posted, &find).await?;
    server.room().await;
    // One that ended meanwhile is followed by another, which is of the same configuration.
    let server = if server.is_over() {
        let next = speaking(front, endpoint).await?;
        next.ok_or_else(|| legacy_only(posted))?.0
    } else {
        server
    };
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
