//! A request for a server upstream: passed on, with its session counted.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Method, Request, StatusCode};
use mainstay_core::serve::front as core;
use mainstay_core::serve::posted::{Kind, Posted, Unread};
use mainstay_core::serve::sessions::Over;

use super::super::endpoint::Endpoint;
use super::super::front::Front;
use super::super::metrics::count;
use super::super::reply::{Refusal, Reply, SESSION_ID};
use super::super::seat::Seat;
use super::super::upstream::{self, Handed, Opening, Passing, Place, Upstream};
use super::collect;
use super::refused::{full, retired, unknown_session};
use crate::http::client::{Answer, Failure, Stage};

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
    if front.stopping() {
        return Err(Refusal::later(
            StatusCode::SERVICE_UNAVAILABLE,
            "serve is stopping",
        ));
    }
    if parts.method == Method::POST
        && let Err(why @ Unread::Ambiguous) = Posted::read(&body).map(drop)
    {
        return Err(super::unread(why));
    }
    let ours = front.door().token.is_some();
    let id = parts
        .headers
        .get(SESSION_ID)
        .and_then(|value| value.to_str().ok());
    let id = id.map(String::from);
    let passing = Passing {
        headers: upstream::passed(&parts.headers, ours),
        method: parts.method,
        body,
    };
    count(&front.metrics.legacy);
    match id {
        Some(id) if upstream.has_ended(&id) => Err(unknown_session()),
        Some(id) => in_session(front, endpoint, upstream, passing, id).await,
        None if opens(&passing) => opening(front, endpoint, upstream, passing).await,
        None => {
            let body = passing.body.clone();
            let seats = asking(front, &passing);
            let answer = upstream.send(passing).await;
            answer
                .map(|answer| upstream::answer(front, answer, &body, seats))
                .map_err(|failure| refused(&failure, &body))
        }
    }
}

/// What is posted is waited for when we stop; who only reads news never ends.
fn asking(front: &Rc<Front>, passing: &Passing) -> Vec<Seat> {
    let posted = passing.method == Method::POST;
    posted.then(|| Upstream::ask(front)).into_iter().collect()
}

fn opens(passing: &Passing) -> bool {
    let posted = Posted::read(&passing.body);
    passing.method == Method::POST
        && posted.is_ok_and(|posted| posted.method == "initialize" && posted.version().is_none())
}

fn refused(failure: &Failure, body: &[u8]) -> Refusal {
    let id = match Posted::read(body).map(|posted| posted.kind) {
        Ok(Kind::Request(id)) => Some(id),
        Ok(Kind::Notification | Kind::Answer(_)) | Err(_) => None,
    };
    upstream::unreachable(failure).of(id)
}

async fn in_session(
    front: &Rc<Front>,
    endpoint: &Rc<Endpoint>,
    upstream: &Rc<Upstream>,
    passing: Passing,
    id: String,
) -> Result<Reply, Refusal> {
    let Some(key) = upstream.key(&id) else {
        return in_strange(front, endpoint, upstream, passing, id).await;
    };
    let seat = front.seat(key);
    front.far_request(key, &passing.headers);
    let ends = passing.method == Method::DELETE;
    let asked = passing.headers.clone();
    let (answer, body, mut seats) = timed(front, upstream, passing).await?;
    seats.push(seat);
    let own = front.far_answered(key, &asked, answer.status.is_success());
    match answer.status {
        StatusCode::NOT_FOUND if !own => {}
        StatusCode::NOT_FOUND if ends => end(front, key, Over::Deleted),
        StatusCode::NOT_FOUND => end(front, key, Over::ServerGone),
        status if ends && status.is_success() => end(front, key, Over::Deleted),
        _ => {}
    }
    Ok(upstream::answer(front, answer, &body, seats))
}

/// It was opened before our time, or somebody made its name up: the server knows. What it knows is counted from then
/// on as any other, as long as there is room; a name that anybody can send takes nobody's place.
async fn in_strange(
    front: &Rc<Front>,
    endpoint: &Rc<Endpoint>,
    upstream: &Rc<Upstream>,
    passing: Passing,
    id: String,
) -> Result<Reply, Refusal> {
    still_there(endpoint)?;
    let waits = upstream.wait_in(&id);
    let headers = passing.headers.clone();
    let ends = passing.method == Method::DELETE;
    let (answer, body, mut seats) = timed(front, upstream, passing).await?;
    let known = answer.status.is_success() && !ends;
    // Others may have adopted it meanwhile, or ended it; and who stops begins nothing.
    if known && upstream.key(&id).is_none() && !upstream.has_ended(&id) && !front.stopping() {
        adopt(front, endpoint, upstream, &id, &headers);
    }
    match upstream.key(&id) {
        Some(key) if known => front.far_request(key, &headers),
        Some(key) if ends && answer.status.is_success() => end(front, key, Over::Deleted),
        Some(_) | None => {}
    }
    seats.extend(waits.take());
    Ok(upstream::answer(front, answer, &body, seats))
}

/// Counts a session that others have opened, if there is room; whoever waits in it uses it.
fn adopt(
    front: &Rc<Front>,
    endpoint: &Rc<Endpoint>,
    upstream: &Rc<Upstream>,
    id: &str,
    headers: &HeaderMap,
) {
    let Some(key) = front.with(core::Front::reserve_beside) else {
        return;
    };
    let place = Place::of(endpoint, key);
    let far = upstream.open(&front.paths, place, id.into(), headers);
    let first = front.open_far(far);
    for stranger in upstream.waiting_in(id) {
        stranger.replace(Some(front.seat(key)));
    }
    // Its place was reserved for one of those.
    drop(first);
}

/// Passes a request of a session on.
async fn timed(
    front: &Rc<Front>,
    upstream: &Rc<Upstream>,
    passing: Passing,
) -> Result<(Answer, Vec<u8>, Vec<Seat>), Refusal> {
    let seats = asking(front, &passing);
    let body = passing.body.clone();
    let began = mainstay_os::clock::now();
    let answer = upstream
        .send(passing)
        .await
        .map_err(|failure| refused(&failure, &body))?;
    front.metrics.answered(mainstay_os::clock::now() - began);
    Ok((answer, body, seats))
}

/// An opening goes to its end even if its client leaves: the server may have made a session by then, which is owed.
async fn opening(
    front: &Rc<Front>,
    endpoint: &Rc<Endpoint>,
    upstream: &Rc<Upstream>,
    passing: Passing,
) -> Result<Reply, Refusal> {
    still_there(endpoint)?;
    let key = front.with(core::Front::reserve);
    let key = key.map_err(|_| full())?;
    let body = passing.body.clone();
    let within = Duration::from_millis(front.limits().session_ttl_ms);
    let (opening, waits) = Opening::new();
    let handed: Rc<Handed> = Rc::default();
    let seat: Rc<RefCell<Vec<Seat>>> = Rc::new(RefCell::new(vec![Upstream::ask(front)]));
    let task = {
        let (front, upstream, handed, seat) = (
            Rc::clone(front),
            Rc::clone(upstream),
            Rc::clone(&handed),
            Rc::clone(&seat),
        );
        let (place, headers) = (Place::of(endpoint, key), passing.headers.clone());
        async move {
            // An answer that never comes would hold a place for ever, also after its client has left.
            let sent = tokio::time::timeout(within, upstream.send(passing)).await;
            let mut answer = Some(sent.unwrap_or_else(|_| Err(silent())));
            let opened = answer
                .as_ref()
                .and_then(|answer| session_of(answer.as_ref().ok()?));
            match opened {
                Some(id) => {
                    // A server that gives a name again does not have the older session any more: nothing is owed for it.
                    if let Some(older) = upstream.key(&id) {
                        end(&front, older, Over::ServerGone);
                    }
                    let far = upstream.open(&front.paths, place, id, &headers);
                    let noted = far.is_noted();
                    let first = front.open_far(far);
                    if noted && opening.is_awaited() {
                        front.far_request(key, &headers);
                        seat.borrow_mut().push(first);
                    } else {
                        end(&front, key, Over::OpeningFailed);
                    }
                    // What we could forget is not passed on.
                    answer = answer.filter(|_| noted);
                }
                None => front.with(|core, _| core.release(key)),
            }
            handed.fill(Rc::new(RefCell::new(answer)));
        }
    };
    front.tasks.start(task);
    let answer = handed.filled().await.borrow_mut().take();
    drop(waits);
    let seats = std::mem::take(&mut *seat.borrow_mut());
    match answer {
        Some(Ok(answer)) => Ok(upstream::answer(front, answer, &body, seats)),
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

fn session_of(answer: &Answer) -> Option<String> {
    let id = answer.headers.get(SESSION_ID)?.to_str().ok()?;
    answer.status.is_success().then(|| id.to_owned())
}

fn end(front: &Rc<Front>, key: u64, why: Over) {
    front.with(|core, now| core.end_session(now, key, why));
}

fn still_there(endpoint: &Endpoint) -> Result<(), Refusal> {
    if endpoint.retired.get() {
        Err(retired())
    } else {
        Ok(())
    }
}
