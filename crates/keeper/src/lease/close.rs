//! Closes a lease: marks it, waits for its keepers, ends what killed keepers left, removes the directory.
//!
//! The mark alone ends the servers, because each keeper sees it and ends its server. So the closing process may be killed at
//! any point. Then the last keeper or the next sweep removes the directory.

use std::io;

use mainstay_os::identity::Handle;
use mainstay_os::{clock, identity};
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{LeaseEnded, Seen, What};
use mainstay_protocol::ids::{Identity, LinkId};
use mainstay_protocol::lease::{Over, Term, name_trouble};
use mainstay_protocol::limits::{KEEPER_MARGIN_MS, LEASE_OURS_MS, STOP_PATIENCE_MS};
use mainstay_report::{Exit, Report};
use mainstay_store::ledger::append::Ledger;
use mainstay_store::paths::Paths;
use serde::Serialize;

use super::directory::{LeaseDirectory, Lock, State};
use super::member::{MemberFile, MemberInfo, ServerOutcome};
use super::open::{nap, trouble};
use crate::leftovers;

/// A closed lease, with the ends of its servers.
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
    /// There is no lease of this name.
    #[doc(hidden)]
    pub fn unknown(name: &str) -> Self {
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

    /// True if the end of each server is confirmed and no process is left.
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
    /// Missing: never opened, or closed before.
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
    /// The processes that are left; empty means "0 left".
    pub left: Vec<Seen>,
    /// How long it took.
    pub ms: u64,
    /// Why the end is not confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Closes a lease and waits until nothing of its servers is left, at most for the given time. A lease that is closed already
/// or was never open is no error.
pub fn close(
    paths: &Paths,
    name: &str,
    by: Option<Seen>,
    wait_ms: Option<u64>,
) -> Result<Closed, Report> {
    if let Some(problem) = name_trouble(name) {
        return Err(Report::new(Exit::Usage, problem.to_string()));
    }
    let here = mainstay_os::identity::realm().map_err(|error| trouble(name, &error))?;
    let mut closed = Closed::unknown(name);
    let Some(place) = LeaseDirectory::find(paths, name).map_err(|error| trouble(name, &error))?
    else {
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
        // Another process was faster.
        closed.was = Was::Over(over);
    }
    let Some(stay) = first.or_else(|| place.stay().ok()) else {
        // It was removed in the meantime, which happens only after its last server ended.
        return Ok(closed);
    };
    closed.servers =
        collect(paths, &place, stay, wait_ms).map_err(|error| trouble(name, &error))?;
    Ok(closed)
}

/// Marks a lease as over and writes the event, unless another process did. Then the directory is kept for us.
pub fn end(
    paths: &Paths,
    place: &LeaseDirectory,
    term: Option<&Term>,
    over: &Over,
) -> io::Result<Option<Lock>> {
    let first = match place.end(over) {
        // The directory is being removed, so the lease was over.
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

/// Removes a lease that is over, so that its name can be used again.
pub(super) fn finish(paths: &Paths, place: &LeaseDirectory) -> Result<(), Report> {
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

/// Waits for each server of a lease that is over, then removes the directory.
fn collect(
    paths: &Paths,
    place: &LeaseDirectory,
    stay: Lock,
    wait_ms: Option<u64>,
) -> io::Result<Vec<EndedServer>> {
    let started = clock::now();
    let files = MemberFile::all(place)?;
    let mut rows = Vec::with_capacity(files.len());
    for file in &files {
        let row = Waiting {
            paths,
            file,
            started,
            wait_ms,
        }
        .row();
        if row.error.is_none() {
            file.remove(place);
        }
        rows.push(row);
    }
    drop(stay);
    if rows.iter().all(|row| row.error.is_none()) {
        place.remove()?;
    }
    Ok(rows)
}

/// A server whose end is awaited.
struct Waiting<'a> {
    paths: &'a Paths,
    file: &'a MemberFile,
    started: Moment,
    wait_ms: Option<u64>,
}

impl Waiting<'_> {
    fn row(&self) -> EndedServer {
        let info = self.file.info();
        let ladder_ms = info
            .as_ref()
            .map_or(STOP_PATIENCE_MS, |info| info.ladder_ms);
        let patience = self.wait_ms.unwrap_or(ladder_ms + KEEPER_MARGIN_MS);
        let until = self.started.after_ms(patience);
        let keeper = info.as_ref().map(|info| info.keeper);
        while self.file.held() {
            if clock::now() >= until {
                return self.unconfirmed(info.as_ref(), patience);
            }
            match keeper.map(Handle::open) {
                Some(Ok(handle)) => {
                    handle.wait_ended((until - clock::now()).div_ceil(1_000_000));
                }
                // The keeper is closing its last descriptors.
                Some(Err(_)) | None => nap(),
            }
        }
        // The keeper writes the outcome last, so it is complete now.
        let info = self.file.info().or(info);
        let row = match info.as_ref().and_then(|info| info.outcome.clone()) {
            Some(outcome) => self.ended(info.as_ref(), outcome),
            // The kernel frees the lock of an exiting process before the process is dead, and a living keeper's tree is spared.
            None if keeper.is_some_and(|keeper| !wait_ended(keeper, until)) => {
                self.unconfirmed(info.as_ref(), patience)
            }
            None => self.end_leftovers(info.as_ref()),
        };
        if let Some(info) = &info {
            wait_for_guard_and_shim(info);
        }
        row
    }

    fn ended(&self, info: Option<&MemberInfo>, outcome: ServerOutcome) -> EndedServer {
        let ServerOutcome {
            pid,
            ended,
            left,
            ms,
        } = outcome;
        EndedServer {
            id: self.file.id,
            server: info.map_or("?".into(), |info| info.server.clone()),
            pid,
            ended,
            left,
            ms,
            error: None,
        }
    }

    /// The keeper was killed: what it left is ended here. Its guard may do the same, which does no harm.
    fn end_leftovers(&self, info: Option<&MemberInfo>) -> EndedServer {
        let server = info.map_or("?", |info| &info.server);
        let swept = leftovers::end_one(self.paths, self.file.id, server);
        let outcome = ServerOutcome {
            pid: swept.pid,
            ended: swept.ended,
            left: swept.left,
            ms: clock::now().ms_since(self.started),
        };
        EndedServer {
            error: (!swept.complete).then(|| "not all processes could be looked at".into()),
            ..self.ended(info, outcome)
        }
    }

    fn unconfirmed(&self, info: Option<&MemberInfo>, patience: u64) -> EndedServer {
        let outcome = ServerOutcome {
            pid: None,
            ended: 0,
            left: Vec::new(),
            ms: clock::now().ms_since(self.started),
        };
        let keeper = info.map_or(0, |info| info.keeper.pid);
        EndedServer {
            error: Some(match patience {
                0 => "not waited for".into(),
                ms => format!("its keeper (pid {keeper}) is not done after {ms} ms"),
            }),
            ..self.ended(info, outcome)
        }
    }
}

/// Waits for guard and shim, which exit after the keeper; for a stopped shim only for a limited time.
fn wait_for_guard_and_shim(info: &MemberInfo) {
    let until = clock::now().after_ms(LEASE_OURS_MS);
    for who in [info.keeper, info.guard, info.shim] {
        wait_ended(who, until);
    }
}

/// Waits for the end of a process. True if it has ended.
fn wait_ended(who: Identity, until: Moment) -> bool {
    if let Ok(handle) = Handle::open(who) {
        handle.wait_ended((until - clock::now()).div_ceil(1_000_000));
    }
    !identity::alive(who)
}

fn elsewhere(name: &str) -> Report {
    Report::new(
        Exit::Unhealthy,
        format!("the lease `{name}` belongs to another pid or time namespace"),
    )
    .hint("close it in the container where it was opened")
}
