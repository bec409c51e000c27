//! Opening and renewing a lease.

use std::io;

use mainstay_os::{clock, identity};
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{LeaseOpened, Seen, What};
use mainstay_protocol::ids::{LinkId, Realm};
use mainstay_protocol::lease::{Term, VERSION, name_trouble, ttl_trouble};
use mainstay_protocol::limits::{LEASE_BUSY_MS, LEASE_OURS_MS, LEASE_TTL_MS, LEASES_MAX};
use mainstay_protocol::time::rfc3339;
use mainstay_report::{Exit, Report, plain};
use mainstay_store::ledger::append::Ledger;
use mainstay_store::paths::Paths;

use super::close::finish;
use super::directory::{LeaseDirectory, State, names};

/// Time between two tries to get a lock.
const NAP_MS: u32 = 5;

/// What ends a lease. Without time and owner, it gets a default time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// How long it lasts if it is not renewed.
    pub ttl_ms: Option<u64>,
    /// The lease ends with this process.
    pub owner: Option<Seen>,
    /// The process that asks for it.
    pub by: Option<Seen>,
}

/// A lease that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Opened now.
    New(Term),
    /// It was open already, by the same owner, and was renewed.
    Again(Term),
}

impl Opened {
    /// Its owner and time.
    pub fn term(&self) -> &Term {
        match self {
            Self::New(term) | Self::Again(term) => term,
        }
    }
}

/// Opens a lease. If the same owner has it open, it is renewed. If it is over, it is removed first, when its servers have ended.
pub fn open(paths: &Paths, name: &str, wish: &Wish) -> Result<Opened, Report> {
    let usage = |problem: String| Report::new(Exit::Usage, problem);
    if let Some(problem) = name_trouble(name) {
        return Err(usage(problem.to_string()).hint("such as `job-17`"));
    }
    if let Some(problem) = wish.ttl_ms.and_then(ttl_trouble) {
        return Err(usage(problem));
    }
    paths.make()?;
    let here = identity::realm().map_err(|error| trouble(name, &error))?;
    let until = clock::now().after_ms(LEASE_BUSY_MS + LEASE_OURS_MS);
    loop {
        let found = LeaseDirectory::find(paths, name).map_err(|error| trouble(name, &error))?;
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
                // It was closed before it could be renewed, so it is over now.
                Err(report) if report.exit() == Exit::NotFound => wait_for_name(name, until)?,
                result => return result,
            },
            State::Over(..) => {
                finish(paths, &place)?;
                // Another closing process may still read in the directory.
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
        // A lease must end at some time.
        ttl_ms: ttl_ms.or(owner.is_none().then_some(LEASE_TTL_MS)),
        owner,
        expires_ms: None,
    };
    let term = term.renewed(clock::now(), None);
    LeaseDirectory::create(paths, &term)?;
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
fn again(place: &LeaseDirectory, term: &Term, wish: &Wish, here: &Realm) -> Result<Opened, Report> {
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

/// Renews an open lease: from now on for this time, or for the time that it had before.
pub fn renew(paths: &Paths, name: &str, ttl_ms: Option<u64>) -> Result<Term, Report> {
    if let Some(problem) = ttl_ms.and_then(ttl_trouble) {
        return Err(Report::new(Exit::Usage, problem));
    }
    let here = identity::realm().map_err(|error| trouble(name, &error))?;
    let found = LeaseDirectory::find(paths, name).map_err(|error| trouble(name, &error))?;
    let Some(place) = found else {
        return Err(not_open(name));
    };
    renew_in(&place, ttl_ms, &here)
}

fn renew_in(place: &LeaseDirectory, ttl_ms: Option<u64>, here: &Realm) -> Result<Term, Report> {
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
    // A closing process takes no lock, and may remove the directory.
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

/// Waits a moment, where no descriptor can be waited for.
pub(super) fn nap() {
    clock::nap(NAP_MS);
}

/// There is no lease of this name.
pub(crate) fn not_open(name: &str) -> Report {
    Report::new(Exit::NotFound, format!("no lease `{name}` is open"))
        .hint(format!("open it: `mainstay lease open {name}`"))
}

pub(super) fn trouble(name: &str, error: &io::Error) -> Report {
    Report::new(Exit::State, format!("the lease `{name}` cannot be used"))
        .because(plain(error))
        .hint("`mainstay doctor` looks at the state directory")
}
