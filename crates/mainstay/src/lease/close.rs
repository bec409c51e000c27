//! Closing a lease: mark it, wait for its keepers, look after what killed ones left, take the directory away.
//!
//! The mark alone ends the servers: each keeper sees it and takes its server down. So whoever closes may be killed at any
//! point. What is left of the directory then goes with the last keeper, or with the next sweep.

use std::io;

use mainstay_core::clock::Moment;
use mainstay_core::event::{LeaseEnded, Seen, What};
use mainstay_core::ids::{Identity, LinkId};
use mainstay_core::lease::{Over, Term, name_trouble};
use mainstay_core::limits::{KEEPER_MARGIN_MS, LEASE_OURS_MS, STOP_PATIENCE_MS};
use mainstay_os::clock;
use mainstay_os::identity::Handle;
use serde::Serialize;

use super::member::{Outcome, Tenant, Visit};
use super::open::{nap, trouble};
use super::place::{Lock, Place, State};
use crate::exit::Exit;
use crate::ledger::append::Ledger;
use crate::paths::Paths;
use crate::report::Report;
use crate::sweeper;

/// A lease that is over, and what became of its servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Closed {
    /// Its name.
    pub lease: String,
    /// What it was before.
    pub was: Was,
    /// Its servers at that time.
    pub servers: Vec<EndedServer>,
}

impl Closed {
    /// There was nothing to close.
    pub(crate) fn unknown(name: &str) -> Self {
        Self {
            lease: name.into(),
            was: Was::Unknown,
            servers: Vec::new(),
        }
    }

    /// How many processes of its servers are left.
    pub fn left(&self) -> usize {
        self.servers.iter().map(|server| server.left.len()).sum()
    }

    /// Whether everything is confirmed: all servers are ended, and nobody is left.
    pub fn confirmed(&self) -> bool {
        self.left() == 0 && self.servers.iter().all(|server| server.error.is_none())
    }
}

/// What a lease was before it was closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Was {
    /// Open.
    Open,
    /// Over already, but still there.
    Over(Over),
    /// Not there: never opened, or closed before.
    Unknown,
}

/// A server whose lease is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndedServer {
    /// Its link.
    pub id: LinkId,
    /// Its name.
    pub server: String,
    /// Its process; none if none was running.
    pub pid: Option<i32>,
    /// How many processes were ended.
    pub ended: u32,
    /// Who is still there; empty means "0 left".
    pub left: Vec<Seen>,
    /// How long it took.
    pub ms: u64,
    /// Why the end is not confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Closes a lease and waits until nothing of its servers is left, or for so long. It is no error that it is closed already
/// or was never open.
pub fn close(
    paths: &Paths,
    name: &str,
    by: Option<Seen>,
    wait_ms: Option<u64>,
) -> Result<Closed, Report> {
    if let Some(problem) = name_trouble(name) {
        return Err(Report::new(Exit::Usage, problem));
    }
    let here = mainstay_os::identity::realm().map_err(|error| trouble(name, &error))?;
    let mut closed = Closed::unknown(name);
    let Some(place) = Place::find(paths, name).map_err(|error| trouble(name, &error))? else {
        return Ok(closed);
    };
    let (term, was, over) = match place.state(&here) {
        State::Open(term) => (Some(term), Was::Open, Over::Closed { by }),
        State::Over(term, over) => (term, Was::Over(over.clone()), over),
    };
    closed.was = was;
    if let Some(term) = &term
        && term.realm.boot == here.boot
        && term.realm != here
    {
        return Err(elsewhere(name));
    }
    let first = end(paths, &place, term.as_ref(), &over).map_err(|error| trouble(name, &error))?;
    if let (None, Was::Open, Some(over)) = (&first, &closed.was, place.mark()) {
        // Somebody else was faster.
        closed.was = Was::Over(over);
    }
    let Some(stay) = first.or_else(|| place.stay().ok()) else {
        // It was removed meanwhile, which happens only after the last server.
        return Ok(closed);
    };
    closed.servers =
        collect(paths, &place, stay, wait_ms).map_err(|error| trouble(name, &error))?;
    Ok(closed)
}

/// Marks a lease as over and tells of it, if nobody else has; then we stay.
pub(crate) fn end(
    paths: &Paths,
    place: &Place,
    term: Option<&Term>,
    over: &Over,
) -> io::Result<Option<Lock>> {
    let first = match place.end(over) {
        // The directory is being removed: it was over.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        result => result?,
    };
    if first.is_some() {
        let told = What::LeaseEnded(LeaseEnded {
            lease: place.name().into(),
            over: over.clone(),
        });
        let id = term.map_or(LinkId(0), |term| term.id);
        Ledger::open(paths).record(id, place.name(), told);
    }
    Ok(first)
}

/// A lease that is over makes room for the next of its name.
pub(super) fn finish(paths: &Paths, place: &Place) -> Result<(), Report> {
    let Closed { servers, .. } = close(paths, place.name(), None, None)?;
    match servers.iter().find_map(|server| server.error.as_ref()) {
        None => Ok(()),
        Some(error) => Err(Report::new(
            Exit::Stuck,
            format!(
                "the last lease `{}` is not at its end: {error}",
                place.name()
            ),
        )
        .hint("choose another name")),
    }
}

/// Waits for every server of a lease that is over, then takes the directory away.
fn collect(
    paths: &Paths,
    place: &Place,
    stay: Lock,
    wait_ms: Option<u64>,
) -> io::Result<Vec<EndedServer>> {
    let started = clock::now();
    let visits = Visit::all(place)?;
    let mut rows = Vec::with_capacity(visits.len());
    for visit in &visits {
        let row = Waiting {
            paths,
            visit,
            started,
            wait_ms,
        }
        .row();
        if row.error.is_none() {
            visit.remove(place);
        }
        rows.push(row);
    }
    drop(stay);
    if rows.iter().all(|row| row.error.is_none()) {
        place.remove()?;
    }
    Ok(rows)
}

/// One server that is waited for.
struct Waiting<'a> {
    paths: &'a Paths,
    visit: &'a Visit,
    started: Moment,
    wait_ms: Option<u64>,
}

impl Waiting<'_> {
    fn row(&self) -> EndedServer {
        let tenant = self.visit.tenant();
        let ladder_ms = tenant
            .as_ref()
            .map_or(STOP_PATIENCE_MS, |tenant| tenant.ladder_ms);
        let patience = self.wait_ms.unwrap_or(ladder_ms + KEEPER_MARGIN_MS);
        let until = self.started.after_ms(patience);
        let keeper = tenant.as_ref().map(|tenant| tenant.keeper);
        while self.visit.held() {
            if clock::now() >= until {
                return self.unconfirmed(tenant.as_ref(), patience);
            }
            match keeper.map(Handle::open) {
                Some(Ok(handle)) => {
                    handle.wait_ended((until - clock::now()).div_ceil(1_000_000));
                }
                // Its last descriptors are being closed.
                Some(Err(_)) | None => nap(),
            }
        }
        // What became of its server it has said last of all.
        let tenant = self.visit.tenant().or(tenant);
        let row = match tenant.as_ref().and_then(|tenant| tenant.outcome.clone()) {
            Some(outcome) => self.ended(tenant.as_ref(), outcome),
            None => self.hunted(tenant.as_ref()),
        };
        if let Some(tenant) = &tenant {
            see_off(tenant);
        }
        row
    }

    fn ended(&self, tenant: Option<&Tenant>, outcome: Outcome) -> EndedServer {
        let Outcome {
            pid,
            ended,
            left,
            ms,
        } = outcome;
        EndedServer {
            id: self.visit.id,
            server: tenant.map_or("?".into(), |tenant| tenant.server.clone()),
            pid,
            ended,
            left,
            ms,
            error: None,
        }
    }

    /// Its keeper was killed: whatever it left is ended here. Its guard may be at it, too, and that does no harm.
    fn hunted(&self, tenant: Option<&Tenant>) -> EndedServer {
        let server = tenant.map_or("?", |tenant| &tenant.server);
        let swept = sweeper::end_one(self.paths, self.visit.id, server);
        let outcome = Outcome {
            pid: swept.pid,
            ended: swept.ended,
            left: swept.left,
            ms: clock::now().ms_since(self.started),
        };
        self.ended(tenant, outcome)
    }

    fn unconfirmed(&self, tenant: Option<&Tenant>, patience: u64) -> EndedServer {
        let outcome = Outcome {
            pid: None,
            ended: 0,
            left: Vec::new(),
            ms: clock::now().ms_since(self.started),
        };
        let keeper = tenant.map_or(0, |tenant| tenant.keeper.pid);
        EndedServer {
            error: Some(match patience {
                0 => "not waited for".into(),
                ms => format!("its keeper (pid {keeper}) is not done after {ms} ms"),
            }),
            ..self.ended(tenant, outcome)
        }
    }
}

/// Guard and shim leave right behind the keeper; a stopped shim is not waited for any longer.
fn see_off(tenant: &Tenant) {
    let until = clock::now().after_ms(LEASE_OURS_MS);
    for who in [tenant.guard, tenant.shim] {
        wait_ended(who, until);
    }
}

fn wait_ended(who: Identity, until: Moment) {
    if let Ok(handle) = Handle::open(who) {
        handle.wait_ended((until - clock::now()).div_ceil(1_000_000));
    }
}

fn elsewhere(name: &str) -> Report {
    Report::new(
        Exit::Unhealthy,
        format!("the lease `{name}` belongs to another pid or time namespace"),
    )
    .hint("close it in the container where it was opened")
}
