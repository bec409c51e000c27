//! Paying: a DELETE for every debt whose owner is dead.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use mainstay_core::event::{DebtGivenUp, DebtPaid, What};
use mainstay_core::http::bridge::close::{is_paid, is_unknown};
use mainstay_core::http::headers;
use mainstay_core::limits;
use mainstay_os::clock;
use tokio::time::timeout;

use super::list;
use super::note::{Held, Note, Tried};
use super::secret::{self, Keyring, Opened};
use crate::http::client::{Client, Outgoing};
use crate::http::target;
use crate::ledger::append::Ledger;
use crate::paths::Paths;
use crate::state::Location;

/// The longest body of an answer to DELETE that is looked at.
const BODY_BYTES: usize = 64 * 1024;

/// What can be said of a session that was asked for and has no name.
pub const UNNAMED: &str = "the server was asked for a session, and nobody learned whether it opened one; only its own idle limit can end that";

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paid {
    /// Debts that were paid.
    pub paid: u32,
    /// Debts that were given up.
    pub given_up: u32,
    /// Debts that are owed still.
    pub left: u32,
    /// Debts that somebody else holds: whoever uses the session, or another payer.
    pub held: u32,
}

/// How eager a payer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeal {
    /// Only debts whose time has come, for as long as a sweep may take.
    Sweep,
    /// Every debt, at once.
    Asked,
}

/// Pays what is owed, as far as it can be paid from here.
pub async fn pay(paths: &Paths, keyring: &Keyring, zeal: Zeal) -> Paid {
    let mut done = Paid::default();
    let place = paths.debts();
    let Ok(debts) = place.open() else {
        return done;
    };
    if zeal == Zeal::Sweep {
        list::tidy(&debts);
    }
    let (files, openings) = (list::files(&debts), list::openings(&debts));
    drop(debts);
    if files.is_empty() && openings.is_empty() {
        return done;
    }
    let client = Client::new();
    let mut ledger = Ledger::open(paths);
    for name in openings {
        if give_up_opening(&place, &name, &mut ledger) {
            done.given_up += 1;
        }
    }
    let began = clock::now();
    // Where nobody could be reached, the next debt need not knock again.
    let mut dead: BTreeMap<String, String> = BTreeMap::new();
    for name in files {
        let late = clock::now().ms_since(began) > limits::DEBT_SWEEP_MS;
        if zeal == Zeal::Sweep && late {
            break;
        }
        let Some(held) = Held::claim(&place, &name) else {
            done.held += 1;
            continue;
        };
        match pay_one(&client, held, keyring, zeal, &mut dead, &mut ledger).await {
            Outcome::Paid => done.paid += 1,
            Outcome::GivenUp => done.given_up += 1,
            Outcome::Left => done.left += 1,
        }
    }
    done
}

/// An opening whose owner is dead: the server may have opened a session, and nobody knows its name.
fn give_up_opening(place: &Location, name: &str, ledger: &mut Ledger) -> bool {
    let Some(held) = Held::claim(place, name) else {
        return false;
    };
    let note = held.note.clone();
    let struck_out = held.strike_out().is_ok();
    if struck_out {
        let why = UNNAMED.into();
        let what = What::DebtGivenUp(DebtGivenUp {
            url: target::shown(&note.url),
            since: note.since,
            why,
            attempts: 0,
        });
        ledger.record(note.link, &note.server, what);
    }
    struck_out
}

enum Outcome {
    Paid,
    GivenUp,
    Left,
}

async fn pay_one(
    client: &Client,
    held: Held,
    keyring: &Keyring,
    zeal: Zeal,
    dead: &mut BTreeMap<String, String>,
    ledger: &mut Ledger,
) -> Outcome {
    let tried = held.tried();
    let now = clock::wall_ms();
    if zeal == Zeal::Sweep && tried.rests(now) {
        return Outcome::Left;
    }
    let note = held.note.clone();
    let (result, counts) = match (request(&note, keyring), dead.get(&note.url)) {
        // Somebody else may have the secret: what is missing here keeps nobody from trying.
        (Err(missing), _) => (Err(missing), false),
        (Ok(_), Some(why)) => (Err(why.clone()), true),
        (Ok((outgoing, proven)), None) => match delete(client, &note.url, outgoing, dead).await {
            Ok((status, body)) => (judge(status, &body, proven), proven),
            Err(why) => (Err(why), true),
        },
    };
    match result {
        Ok(status) => {
            // Told before it is struck out: a death in between has it told twice, and not never.
            let what = What::DebtPaid(DebtPaid {
                url: target::shown(&note.url),
                since: note.since,
                status,
                attempts: tried.attempts + 1,
            });
            ledger.record(note.link, &note.server, what);
            if held.strike_out().is_err() {
                return Outcome::Left;
            }
            Outcome::Paid
        }
        Err(why) => {
            let attempts = tried.attempts.saturating_add(u32::from(counts));
            let age = now.saturating_sub(note.since_ms);
            let waited_ms = tried.waited_until(now);
            // A machine that has slept for days has no network yet when it wakes, and one whose clock was wrong has not
            // tried for as long as it seems.
            let soon =
                counts && attempts < limits::DEBT_TRIES_LEAST || waited_ms < limits::DEBT_KEPT_MS;
            if age <= limits::DEBT_KEPT_MS || soon {
                let rest = if counts { rest_ms(attempts) } else { 0 };
                held.note_attempt(&Tried {
                    attempts,
                    why,
                    next_ms: now.saturating_add(rest),
                    last_ms: now,
                    waited_ms,
                });
                return Outcome::Left;
            }
            if held.strike_out().is_err() {
                return Outcome::Left;
            }
            let what = What::DebtGivenUp(DebtGivenUp {
                url: target::shown(&note.url),
                since: note.since,
                why,
                attempts,
            });
            ledger.record(note.link, &note.server, what);
            Outcome::GivenUp
        }
    }
}

/// How long a debt rests after so many attempts.
fn rest_ms(attempts: u32) -> u64 {
    let grown = limits::DEBT_RETRY_MS.saturating_mul(1 << attempts.min(12).saturating_sub(1));
    grown.min(limits::DEBT_RETRY_MOST_MS)
}

/// The DELETE, and whether it is asked with what opened the session; or which secret is missing.
fn request(note: &Note, keyring: &Keyring) -> Result<(Outgoing, bool), String> {
    let Opened {
        target,
        headers: mut all,
        proven,
    } = keyring.find(note)?;
    secret::insert(&mut all, headers::SESSION, &note.session)?;
    if let Some(version) = &note.version {
        secret::insert(&mut all, headers::VERSION, version)?;
    }
    let outgoing = Outgoing {
        method: Method::DELETE,
        target,
        headers: all,
        body: Bytes::new(),
    };
    Ok((outgoing, proven))
}

/// The status, if it says that the session is closed now; else why not.
fn judge(status: u16, body: &[u8], proven: bool) -> Result<u16, String> {
    if is_paid(status, body) && (proven || !is_unknown(status)) {
        Ok(status)
    } else if proven {
        Err(format!("the server answered with HTTP {status}"))
    } else {
        Err(format!(
            "the server answered with HTTP {status} to credentials that may not be those of the session"
        ))
    }
}

/// Sends the DELETE; what the server says to it, or why it says nothing.
async fn delete(
    client: &Client,
    url: &str,
    outgoing: Outgoing,
    dead: &mut BTreeMap<String, String>,
) -> Result<(u16, Vec<u8>), String> {
    let within = Duration::from_millis(limits::DEBT_PAY_MS);
    let sent = timeout(within, async {
        let mut answer = client.send(outgoing).await?;
        let body = answer.whole(BODY_BYTES).await.unwrap_or_default();
        Ok((answer.status.as_u16(), body))
    })
    .await;
    match sent {
        Ok(Ok(answered)) => Ok(answered),
        Ok(Err(failure)) => {
            let failure: crate::http::client::Failure = failure;
            if failure.unsent() {
                dead.insert(url.into(), failure.why.clone());
            }
            Err(failure.why)
        }
        Err(_) => {
            let why = format!("the server has not answered within {} s", within.as_secs());
            dead.insert(url.into(), why.clone());
            Err(why)
        }
    }
}
