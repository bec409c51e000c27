//! Opening and renewing a lease.

use std::io;

use mainstay_core::clock::Moment;
use mainstay_core::event::{LeaseOpened, Seen, What};
use mainstay_core::ids::{LinkId, Realm};
use mainstay_core::lease::{Term, VERSION, name_trouble, ttl_trouble};
use mainstay_core::limits::{LEASE_BUSY_MS, LEASE_OURS_MS, LEASE_TTL_MS, LEASES_MAX};
use mainstay_os::{clock, identity};

use super::close::finish;
use super::place::{Place, State, names};
use crate::exit::Exit;
use crate::ledger::append::Ledger;
use crate::ledger::time::rfc3339;
use crate::paths::Paths;
use crate::report::{Report, plain};

/// Between two looks at a lock.
const NAP_MS: u32 = 5;

/// What a lease is to be bound by. Without both it lasts for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// How long it lasts without being renewed.
    pub ttl_ms: Option<u64>,
    /// The process whose end is its end.
    pub owner: Option<Seen>,
    /// Who asks for it.
    pub by: Option<Seen>,
}

/// A lease that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Since now.
    New(Term),
    /// It was open already, by the same owner, and was renewed.
    Again(Term),
}

impl Opened {
    /// What was agreed.
    pub fn term(&self) -> &Term {
        match self {
            Self::New(term) | Self::Again(term) => term,
        }
    }
}

/// Opens a lease. One of the same owner that is open is renewed; one that is over makes room, with all its servers.
pub fn open(paths: &Paths, name: &str, wish: &Wish) -> Result<Opened, Report> {
    let usage = |problem: String| Report::new(Exit::Usage, problem);
    if let Some(problem) = name_trouble(name) {
        return Err(usage(problem).hint("such as `job-17`"));
    }
    if let Some(problem) = wish.ttl_ms.and_then(ttl_trouble) {
        return Err(usage(problem));
    }
    paths.make()?;
    let here = identity::realm().map_err(|error| trouble(name, &error))?;
    let until = clock::now().after_ms(LEASE_BUSY_MS + LEASE_OURS_MS);
    loop {
        let found = Place::find(paths, name).map_err(|error| trouble(name, &error))?;
        let Some(place) = found else {
            match create(paths, name, wish, &here) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    wait_for_name(name, until)?;
                    continue;
                }
                result => return Ok(Opened::New(result.map_err(|error| trouble(name, &error))?)),
            }
        };
        match place.state(&here) {
            State::Open(term) => match again(&place, &term, wish, &here) {
                // It was closed before it could be renewed: now it is over.
                Err(report) if report.exit() == Exit::NotFound => wait_for_name(name, until)?,
                result => return result,
            },
            State::Over(..) => {
                finish(paths, &place)?;
                // Another one who closed it may have to leave before its directory goes.
                wait_for_name(name, until)?;
            }
        }
    }
}

fn wait_for_name(name: &str, until: Moment) -> Result<(), Report> {
    if clock::now() < until {
        nap();
        return Ok(());
    }
    Err(Report::new(
        Exit::Stuck,
        format!("the lease `{name}` cannot be opened: something else has its name"),
    )
    .hint("choose another name"))
}

fn create(paths: &Paths, name: &str, wish: &Wish, here: &Realm) -> io::Result<Term> {
    let Wish { ttl_ms, owner, by } = wish.clone();
    if names(paths)?.len() >= LEASES_MAX {
        return Err(io::Error::other(format!(
            "{LEASES_MAX} leases are there already; `mainstay lease list` shows them"
        )));
    }
    let mut bytes = [0u8; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    let term = Term {
        v: VERSION,
        id: LinkId(u32::from_ne_bytes(bytes)),
        name: name.into(),
        opened_at: rfc3339(clock::wall_ms()),
        realm: here.clone(),
        // A lease is never bound by nothing.
        ttl_ms: ttl_ms.or(owner.is_none().then_some(LEASE_TTL_MS)),
        owner,
        expires_ms: None,
    };
    let term = term.renewed(clock::now(), None);
    Place::create(paths, &term)?;
    let told = What::LeaseOpened(LeaseOpened {
        lease: name.into(),
        owner: term.owner.clone(),
        ttl_ms: term.ttl_ms,
        by,
    });
    Ledger::open(paths).record(term.id, name, told);
    Ok(term)
}

/// The name is taken by a lease that is open.
fn again(place: &Place, term: &Term, wish: &Wish, here: &Realm) -> Result<Opened, Report> {
    let owner = |seen: &Option<Seen>| seen.as_ref().map(|seen| seen.who);
    if term.realm == *here && term.owner.is_some() && owner(&term.owner) == owner(&wish.owner) {
        return renew_in(place, wish.ttl_ms, here).map(Opened::Again);
    }
    let whose = match &term.owner {
        Some(Seen { who, comm }) => format!(", owned by {comm} (pid {who})"),
        None => String::new(),
    };
    let name = place.name();
    Err(Report::new(
        Exit::Unhealthy,
        format!(
            "the lease `{name}` is open already{whose}, since {}",
            term.opened_at
        ),
    )
    .hint(format!(
        "close it with `mainstay lease close {name}`, or choose another name"
    )))
}

/// Renews a lease that is open: from now on for this long, or for as long as it was given before.
pub fn renew(paths: &Paths, name: &str, ttl_ms: Option<u64>) -> Result<Term, Report> {
    if let Some(problem) = ttl_ms.and_then(ttl_trouble) {
        return Err(Report::new(Exit::Usage, problem));
    }
    let here = identity::realm().map_err(|error| trouble(name, &error))?;
    let found = Place::find(paths, name).map_err(|error| trouble(name, &error))?;
    let Some(place) = found else {
        return Err(not_open(name));
    };
    renew_in(&place, ttl_ms, &here)
}

fn renew_in(place: &Place, ttl_ms: Option<u64>, here: &Realm) -> Result<Term, Report> {
    let name = place.name();
    let _lock = place.turn().map_err(|error| trouble(name, &error))?;
    let term = match place.state(here) {
        State::Open(term) => term,
        State::Over(_, over) => {
            return Err(
                Report::new(Exit::NotFound, format!("the lease `{name}` {over}"))
                    .hint(format!("open it again: `mainstay lease open {name}`")),
            );
        }
    };
    if term.realm.timens != here.timens {
        return Err(Report::new(
            Exit::Unhealthy,
            format!("the lease `{name}` belongs to another time namespace, with another clock"),
        )
        .hint("renew it in the container where it was opened"));
    }
    let term = term.renewed(clock::now(), ttl_ms);
    // Closing takes no lock, and may take the directory away.
    match place.agree(&term) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_open(name)),
        result => result.map_err(|error| trouble(name, &error))?,
    }
    match place.mark() {
        Some(over) => Err(Report::new(
            Exit::NotFound,
            format!("the lease `{name}` {over}"),
        )),
        None => Ok(term),
    }
}

/// Lets a moment pass where no descriptor tells when it is worth a look.
pub(super) fn nap() {
    clock::nap(NAP_MS);
}

/// Nobody has such a lease.
pub(crate) fn not_open(name: &str) -> Report {
    Report::new(Exit::NotFound, format!("no lease `{name}` is open"))
        .hint(format!("open it: `mainstay lease open {name}`"))
}

pub(super) fn trouble(name: &str, error: &io::Error) -> Report {
    Report::new(Exit::State, format!("the lease `{name}` cannot be used"))
        .because(plain(error))
        .hint("`mainstay doctor` looks at the state directory")
}
