//! A request for a server upstream: passed on, with its session counted.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Method, Request, StatusCode};
use mainstay_http_core::serve::posted::{Kind, Posted, Unread};
use mainstay_http_core::serve::upstream::{Pass, PassAnswer, PassKind};

use super::super::endpoint::Endpoint;
use super::super::front::Front;
use super::super::metrics::count;
use super::super::reply::{Refusal, Reply, SESSION_ID};
use super::super::upstream::{self, Handed, Passage, Passing, Upstream};
use super::collect;
use crate::client::{Answer, Failure, Stage};

/// Passes a request on.
pub async fn pass(
    front: &Rc<Front>,
    endpoint: &Rc<Endpoint>,
    upstream: &Rc<Upstream>,
    request: Request<Incoming>,
) -> Result<Reply, Refusal> {
    let (parts, mut body) = request.into_parts();
    let limits = front.limits();
    let read = collect(&mut body, limits.body_max_bytes as usize);
    let body = tokio::time::timeout(Duration::from_millis(limits.body_wait_ms), read);
    let body = body.await.unwrap_or_else(|_| Err(super::too_slow()))?;
    if parts.method == Method::POST
        && let Err(why @ Unread::Ambiguous) = Posted::read(&body).map(drop)
    {
        return Err(super::unread(why));
    }
    let ours = front.access().token.is_some();
    let id = parts.headers.get(SESSION_ID);
    let id = id.and_then(|value| value.to_str().ok()).map(String::from);
    let passing = Passing {
        headers: upstream::passed(&parts.headers, ours),
        method: parts.method,
        body,
    };
    let kind = kind(&passing);
    let pass = Pass {
        path: endpoint.number,
        session: id.as_deref(),
        kind,
        headers: upstream::listed(&passing.headers),
    };
    let passage = Passage::begin(front, pass)?;
    count(&front.metrics.legacy);
    if id.is_none() && kind == PassKind::Open {
        return opening(front, endpoint, upstream, passing, passage).await;
    }
    let (headers, body) = (passing.headers.clone(), passing.body.clone());
    let began = mainstay_os::clock::now();
    let answer = upstream.send(passing).await;
    let answer = answer.map_err(|failure| refused(&failure, &body))?;
    if id.is_some() {
        front.metrics.answered(mainstay_os::clock::now() - began);
    }
    answered(front, endpoint, upstream, passage.number, &answer, &headers);
    Ok(upstream::answer(front, answer, &body, passage))
}

fn kind(passing: &Passing) -> PassKind {
    let opens = || {
        let posted = Posted::read(&passing.body);
        posted.is_ok_and(|posted| posted.method == "initialize" && posted.version().is_none())
    };
    match passing.method {
        Method::POST if opens() => PassKind::Open,
        Method::POST => PassKind::Post,
        Method::DELETE => PassKind::Delete,
        _ => PassKind::Get,
    }
}

fn refused(failure: &Failure, body: &[u8]) -> Refusal {
    let id = match Posted::read(body).map(|posted| posted.kind) {
        Ok(Kind::Request(id)) => Some(id),
        Ok(Kind::Notification | Kind::Answer(_)) | Err(_) => None,
    };
    upstream::unreachable(failure).of(id)
}

/// Reports an answer to the machine, and writes the note of the session that it opened. True if the answer is passed on.
fn answered(
    front: &Rc<Front>,
    endpoint: &Endpoint,
    upstream: &Upstream,
    number: u64,
    answer: &Answer,
    headers: &HeaderMap,
) -> bool {
    let status = answer.status.as_u16();
    let given = answer.headers.get(SESSION_ID);
    let given = given.and_then(|value| value.to_str().ok());
    let said = front.with(|core, now| core.pass_answered(now, number, status, given));
    let PassAnswer::Note(session) = said else {
        return true;
    };
    let name = front.with(|core, _| core.upstream().name(session).map(String::from));
    let server = &endpoint.spec.name;
    let note = name.and_then(|name| upstream.note(&front.paths, server, &name, headers));
    let noted = note.is_some();
    front.keep_note(session, note);
    front.with(|core, now| core.pass_noted(now, number, noted))
}

/// An opening is completed even if its client leaves, because the server may have made a session by then.
async fn opening(
    front: &Rc<Front>,
    endpoint: &Rc<Endpoint>,
    upstream: &Rc<Upstream>,
    passing: Passing,
    passage: Passage,
) -> Result<Reply, Refusal> {
    let body = passing.body.clone();
    let within = Duration::from_millis(front.limits().session_ttl_ms);
    let handed: Rc<Handed> = Rc::default();
    let task = {
        let (front, endpoint) = (Rc::clone(front), Rc::clone(endpoint));
        let (upstream, handed) = (Rc::clone(upstream), Rc::clone(&handed));
        let (number, headers) = (passage.number, passing.headers.clone());
        async move {
            // An answer that never comes would hold a place for ever, also after its client has left.
            let sent = tokio::time::timeout(within, upstream.send(passing)).await;
            let sent = sent.unwrap_or_else(|_| Err(silent()));
            let passes = if let Ok(answer) = &sent {
                answered(&front, &endpoint, &upstream, number, answer, &headers)
            } else {
                front.with(|core, now| core.pass_failed(now, number));
                true
            };
            handed.fill(Rc::new(RefCell::new(passes.then_some(sent))));
        }
    };
    front.tasks.start(task);
    let answer = handed.filled().await.borrow_mut().take();
    match answer {
        Some(Ok(answer)) => Ok(upstream::answer(front, answer, &body, passage)),
        Some(Err(failure)) => Err(refused(&failure, &body)),
        None => Err(Refusal::later(
            StatusCode::SERVICE_UNAVAILABLE,
            "the session was opened and closed again, because it could not be written down; see mainstay doctor",
        )),
    }
}

fn silent() -> Failure {
    Failure {
        stage: Stage::Head,
        why: "it has not answered for as long as a session may be unused".into(),
    }
}
