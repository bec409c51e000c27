//! Sends DELETE for each session whose owner is dead.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use mainstay_http_core::bridge::close::{is_closed, is_unknown};
use mainstay_http_core::headers;
use mainstay_os::clock;
use mainstay_os::identity::Handle;
use mainstay_protocol::event::{SessionClosedLate, SessionGivenUp, What};
use mainstay_protocol::limits;
use mainstay_store::config::target;
use mainstay_store::ledger::append::Ledger;
use mainstay_store::paths::Paths;
use mainstay_store::state::{Directory, Location};
use tokio::time::{sleep, timeout};

use super::credentials::{self, CredentialError, Credentials, Keyring};
use super::list;
use super::note::{self, Attempts, LockedNote, Note};
use crate::client::{Client, Failure, Outgoing};

/// How much is read of the body of an answer to DELETE.
const BODY_BYTES: usize = 64 * 1024;
/// How long to wait before the next try to lock a note that another closing process has locked.
const LOCK_AGAIN: Duration = Duration::from_millis(20);

/// What is said of a session that the server was asked for and whose id never arrived.
pub const UNNAMED: &str = "the server was asked for a session, and its answer never arrived; if it opened one, only its own idle limit can end it";

/// What was done, in numbers of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloseSummary {
    /// The server confirmed the DELETE, or does not know the session.
    pub closed: u32,
    /// Too old, so that their note was removed without a DELETE that succeeded.
    pub given_up: u32,
    /// Still open: the attempt failed, or it was too early for one.
    pub left: u32,
    /// In use, or being closed by another process.
    pub locked: u32,
}

/// Which sessions are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// Those whose next attempt is due, and for a limited time.
    Due,
    /// All, now: the user asked for it.
    All,
}

/// Closes the sessions whose owners are dead, as far as their secrets are known here.
pub async fn close_all(paths: &Paths, keyring: &Keyring, mode: CloseMode) -> CloseSummary {
    let mut done = CloseSummary::default();
    let mut files: Vec<(Location, String)> = Vec::new();
    let mut openings = Vec::new();
    for place in list::directories(paths) {
        let Ok(notes) = place.open() else {
            continue;
        };
        if mode == CloseMode::Due {
            list::tidy(&notes);
        }
        let at = |names: fn(&Directory) -> Vec<String>| {
            let names = names(&notes).into_iter();
            names.map(|name| (place.clone(), name)).collect::<Vec<_>>()
        };
        files.extend(at(list::files));
        openings.extend(at(list::openings));
    }
    if files.is_empty() && openings.is_empty() {
        return done;
    }
    let client = Client::new();
    let mut ledger = Ledger::open(paths);
    for (place, name) in openings {
        if give_up_opening(&place, &name, &mut ledger) {
            done.given_up += 1;
        }
    }
    let began = clock::now();
    let mut unreachable = Unreachable::new();
    for (place, name) in files {
        let late = clock::now().ms_since(began) > limits::CLOSE_SWEEP_MS;
        if mode == CloseMode::Due && late {
            break;
        }
        let Some(locked) = lock(&place, &name, mode).await else {
            done.locked += 1;
            continue;
        };
        match close_one(
            &client,
            locked,
            keyring,
            mode,
            &mut unreachable,
            &mut ledger,
        )
        .await
        {
            Outcome::Closed => done.closed += 1,
            Outcome::GivenUp => done.given_up += 1,
            Outcome::Left => done.left += 1,
        }
    }
    done
}

/// Servers that could not be reached, by URL, with the reason. Their other sessions are not tried again in this run.
type Unreachable = BTreeMap<String, NotClosed>;

/// Why a session is still open.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NotClosed {
    /// The secrets for it are not known here.
    Credentials(CredentialError),
    /// The server answered with this status; `proven` says that it was sent the credentials of the session.
    Status { status: u16, proven: bool },
    /// There was no answer.
    Failed(Failure),
    /// There was no answer in time.
    Late { within: Duration },
}

impl fmt::Display for NotClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials(error) => error.fmt(f),
            Self::Status {
                status,
                proven: true,
            } => write!(f, "the server answered with HTTP {status}"),
            Self::Status {
                status,
                proven: false,
            } => write!(
                f,
                "the server answered with HTTP {status} to credentials that may not be those of the session"
            ),
            Self::Failed(failure) => f.write_str(&failure.why),
            Self::Late { within } => {
                write!(
                    f,
                    "the server has not answered within {} s",
                    within.as_secs()
                )
            }
        }
    }
}

impl Error for NotClosed {}

/// Locks a note. If the user asked and another process is closing the session at this moment, this waits: the attempt of
/// that process may fail. An owner that still uses its session is not waited for.
async fn lock(place: &Location, name: &str, mode: CloseMode) -> Option<LockedNote> {
    let until = clock::now().after_ms(limits::CLOSE_MS);
    loop {
        let locked = LockedNote::lock(place, name);
        let waits = mode == CloseMode::All && clock::now() < until;
        if locked.is_some() || !waits || !is_being_closed(place, name) {
            return locked;
        }
        sleep(LOCK_AGAIN).await;
    }
}

/// True if the note exists and the process that opened the session is dead.
fn is_being_closed(place: &Location, name: &str) -> bool {
    let note = place.open().and_then(|notes| note::read(&notes, name));
    note.is_ok_and(|note| Handle::open(note.owner).map_or(true, |owner| owner.ended()))
}

/// Removes the note of an opening whose owner is dead, and reports it: if the server opened a session, its id is lost.
fn give_up_opening(place: &Location, name: &str, ledger: &mut Ledger) -> bool {
    let Some(locked) = LockedNote::lock(place, name) else {
        return false;
    };
    let note = locked.note.clone();
    let removed = locked.remove().is_ok();
    if removed {
        let why = UNNAMED.into();
        let what = What::SessionGivenUp(SessionGivenUp {
            url: target::shown(&note.url),
            since: note.since,
            why,
            attempts: 0,
        });
        ledger.record(note.link, &note.server, what);
    }
    removed
}

enum Outcome {
    Closed,
    GivenUp,
    Left,
}

async fn close_one(
    client: &Client,
    locked: LockedNote,
    keyring: &Keyring,
    mode: CloseMode,
    unreachable: &mut Unreachable,
    ledger: &mut Ledger,
) -> Outcome {
    let attempts = locked.attempts();
    let now = clock::wall_ms();
    if mode == CloseMode::Due && attempts.must_wait(now) {
        return Outcome::Left;
    }
    let note = locked.note.clone();
    let (result, counts) = match (request(&note, keyring), unreachable.get(&note.url)) {
        // Not counted as an attempt: another process may have the secret, and need not wait for us.
        (Err(missing), _) => (Err(NotClosed::Credentials(missing)), false),
        (Ok(_), Some(why)) => (Err(why.clone()), true),
        (Ok((outgoing, proven)), None) => {
            match delete(client, &note.url, outgoing, unreachable).await {
                Ok((status, body)) => (judge(status, &body, proven), proven),
                Err(why) => (Err(why), true),
            }
        }
    };
    match result {
        Ok(status) => {
            // The event comes before the removal: a kill between the two reports the session twice, not never.
            let what = What::SessionClosedLate(SessionClosedLate {
                url: target::shown(&note.url),
                since: note.since,
                status,
                attempts: attempts.count + 1,
            });
            ledger.record(note.link, &note.server, what);
            if locked.remove().is_err() {
                return Outcome::Left;
            }
            Outcome::Closed
        }
        Err(why) => {
            let why = why.to_string();
            let count = attempts.count.saturating_add(u32::from(counts));
            let age = now.saturating_sub(note.since_ms);
            let waited_ms = attempts.waited_until(now);
            // The age alone is not enough. A machine that slept for days has no network yet when it wakes, and a wrong clock
            // makes a note look old.
            let soon =
                counts && count < limits::CLOSE_TRIES_LEAST || waited_ms < limits::UNCLOSED_KEPT_MS;
            if age <= limits::UNCLOSED_KEPT_MS || soon {
                let wait = if counts { wait_ms(count) } else { 0 };
                locked.write_attempts(&Attempts {
                    count,
                    why,
                    next_ms: now.saturating_add(wait),
                    last_ms: now,
                    waited_ms,
                });
                return Outcome::Left;
            }
            if locked.remove().is_err() {
                return Outcome::Left;
            }
            let what = What::SessionGivenUp(SessionGivenUp {
                url: target::shown(&note.url),
                since: note.since,
                why,
                attempts: count,
            });
            ledger.record(note.link, &note.server, what);
            Outcome::GivenUp
        }
    }
}

/// How long to wait after this number of attempts.
fn wait_ms(attempts: u32) -> u64 {
    let grown = limits::CLOSE_RETRY_MS.saturating_mul(1 << attempts.min(12).saturating_sub(1));
    grown.min(limits::CLOSE_RETRY_MOST_MS)
}

/// The DELETE, and whether it has the credentials that opened the session.
fn request(note: &Note, keyring: &Keyring) -> Result<(Outgoing, bool), CredentialError> {
    let Credentials {
        target,
        headers: mut all,
        proven,
    } = keyring.find(note)?;
    credentials::insert(&mut all, headers::SESSION, &note.session)?;
    if let Some(version) = &note.version {
        credentials::insert(&mut all, headers::VERSION, version)?;
    }
    let outgoing = Outgoing {
        method: Method::DELETE,
        target,
        headers: all,
        body: Bytes::new(),
    };
    Ok((outgoing, proven))
}

/// The status if it means that the session is closed, else the reason why it is not.
fn judge(status: u16, body: &[u8], proven: bool) -> Result<u16, NotClosed> {
    if is_closed(status, body) && (proven || !is_unknown(status)) {
        Ok(status)
    } else {
        Err(NotClosed::Status { status, proven })
    }
}

/// Sends the DELETE. Returns status and body of the answer, or the reason why there is none.
async fn delete(
    client: &Client,
    url: &str,
    outgoing: Outgoing,
    unreachable: &mut Unreachable,
) -> Result<(u16, Vec<u8>), NotClosed> {
    let within = Duration::from_millis(limits::CLOSE_MS);
    let sent = timeout(within, async {
        let mut answer = client.send(outgoing).await?;
        let body = answer.whole(BODY_BYTES).await.unwrap_or_default();
        Ok((answer.status.as_u16(), body))
    })
    .await;
    match sent {
        Ok(Ok(answered)) => Ok(answered),
        Ok(Err(failure)) => {
            let failure: Failure = failure;
            let unsent = failure.unsent();
            let why = NotClosed::Failed(failure);
            if unsent {
                unreachable.insert(url.into(), why.clone());
            }
            Err(why)
        }
        Err(_) => {
            let why = NotClosed::Late { within };
            unreachable.insert(url.into(), why.clone());
            Err(why)
        }
    }
}
