//! The keeper's membership in a lease: it watches the lease's owner, time and directory.
//!
//! It only finds out that the lease is over; the server is ended by the link's one stop ladder. In a lease that is over, or was
//! never opened, no server is started: the keeper enters the lease first and asks then whether it is open.

use mainstay_core::link::Input;
use mainstay_os::identity;
use mainstay_os::notice::Notice;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Cause, LeaseEnded, Seen, Teardown};
use mainstay_protocol::ids::Realm;
use mainstay_protocol::lease::{Over, Term};
use mainstay_protocol::limits::{LEASE_BUSY_MS, LEASE_LOOK_MS};
use mainstay_report::Exit;
use mainstay_report::plain;
use mainstay_store::paths::Paths;

use super::watched::DeathWatch;
use crate::lease::close::end;
use crate::lease::directory::TERM;
use crate::lease::member::{Member, MemberInfo, ServerOutcome};
use crate::lease::open::not_open;
use crate::lease::{LeaseDirectory, State};

/// Between two tries to end a lease for its age while a process is renewing it.
const AGAIN_MS: u64 = 20;

/// The lease that the server is in, if it is in one. What the relay must be told is returned.
#[derive(Default)]
pub struct Lease {
    tenancy: Option<Tenancy>,
}

/// A keeper in its lease.
struct Tenancy {
    place: LeaseDirectory,
    term: Term,
    here: Realm,
    member: Member,
    owner: DeathWatch,
    _notice: Option<Notice>,
    /// When to look without being told.
    look_at: Option<Moment>,
    /// Until when a renewal in progress is waited for, and when to try again.
    busy: Option<(Moment, Moment)>,
    over: Option<Over>,
    /// The server process when the lease ended.
    up: Option<i32>,
}

/// Why a server is not started.
struct Refusal {
    over: Over,
    problem: String,
    hint: String,
}

impl Lease {
    /// Enters the lease of this name. In a lease that is not open no server is started; one that runs is stopped.
    pub fn enter(
        &mut self,
        paths: &Paths,
        name: &str,
        info: MemberInfo,
        generation: u32,
        now: Moment,
    ) -> Option<Input> {
        match Tenancy::enter(paths, name, info, now) {
            Ok(tenancy) => {
                self.tenancy = Some(tenancy);
                None
            }
            Err(Refusal { over, .. }) if generation > 0 => {
                let lease = name.into();
                Some(Input::Stop(Cause::LeaseEnded(LeaseEnded { lease, over })))
            }
            Err(Refusal { problem, hint, .. }) => Some(Input::StartFailed {
                problem,
                hint,
                code: Exit::Failed.code(),
            }),
        }
    }

    /// Whether the relay was told that it is over.
    pub fn is_over(&self) -> bool {
        let tenancy = self.tenancy.as_ref();
        tenancy.is_some_and(|tenancy| tenancy.over.is_some())
    }

    /// Something in the lease's directory has changed. `server`: the server process, if it lives.
    pub fn look_at_directory(&mut self, server: Option<i32>) -> Option<Input> {
        let tenancy = self.tenancy.as_mut()?;
        if tenancy.over.is_some() {
            return None;
        }
        let over = tenancy.look()?;
        Some(tenancy.stop(over, server))
    }

    /// Looks at owner and time.
    pub fn poll(&mut self, paths: &Paths, now: Moment, server: Option<i32>) -> Option<Input> {
        let tenancy = self.tenancy.as_mut()?;
        let over = tenancy.poll(paths, now)?;
        Some(tenancy.stop(over, server))
    }

    pub fn due(&self) -> Option<Moment> {
        self.tenancy.as_ref()?.due()
    }

    /// All is done: says what became of the server, or just leaves.
    pub fn leave(&mut self, teardown: Option<&Teardown>) {
        if let Some(tenancy) = self.tenancy.take() {
            tenancy.leave(teardown);
        }
    }
}

impl Tenancy {
    /// Enters the lease, and asks then whether it is open.
    fn enter(paths: &Paths, name: &str, info: MemberInfo, now: Moment) -> Result<Self, Refusal> {
        let failed = |error: &std::io::Error| Refusal {
            over: Over::Removed,
            problem: format!("its lease `{name}` cannot be used: {}", plain(error)),
            hint: "`mainstay doctor` looks at the state directory".into(),
        };
        let here = identity::realm().map_err(|error| failed(&error))?;
        let unknown = || {
            let report = not_open(name);
            Refusal {
                over: Over::Removed,
                problem: report.problem(),
                hint: report.advice().unwrap_or_default().into(),
            }
        };
        let found = LeaseDirectory::find(paths, name).map_err(|error| failed(&error))?;
        let place = found.ok_or_else(unknown)?;
        let descriptor = place.descriptor().map_err(|error| failed(&error))?;
        // Where the kernel does not tell, looking must do.
        let notice = Notice::on(descriptor).ok();
        let mut member = Member::enter(&place, info).map_err(|error| {
            // It may have been removed since we found it.
            let gone = error.kind() == std::io::ErrorKind::NotFound;
            if gone { unknown() } else { failed(&error) }
        })?;
        let refused = match place.state(&here) {
            State::Open(term) if term.realm == here => {
                let owner = term.owner.as_ref();
                let owner = owner.map_or(DeathWatch::Off, |seen| DeathWatch::on(seen.who));
                let unwatched = term.owner.is_some() && matches!(owner, DeathWatch::Off);
                return Ok(Self {
                    look_at: (notice.is_none() || unwatched).then(|| now.after_ms(LEASE_LOOK_MS)),
                    _notice: notice,
                    place,
                    term,
                    here,
                    member,
                    owner,
                    busy: None,
                    over: None,
                    up: None,
                });
            }
            State::Open(_) => Refusal {
                over: Over::Removed,
                problem: format!("the lease `{name}` belongs to another pid or time namespace"),
                hint: "open one here, under another name".into(),
            },
            State::Over(_, over) => Refusal {
                problem: format!("the lease `{name}` {over}"),
                over,
                hint: format!("open it again: `mainstay lease open {name}`"),
            },
        };
        // A process that closes the lease may wait for us by now.
        drop(member.tell(ServerOutcome::none()));
        member.leave(&place);
        Err(refused)
    }

    fn due(&self) -> Option<Moment> {
        if self.over.is_some() {
            return None;
        }
        let expires = self.term.expires_ms.map(|ms| Moment(0).after_ms(ms));
        let expires = self.busy.map(|(_, again)| again).or(expires);
        expires.into_iter().chain(self.look_at).min()
    }

    /// The lease is over, and this server process lives: it is to be stopped.
    fn stop(&mut self, over: Over, server: Option<i32>) -> Input {
        self.up = server;
        self.over = Some(over.clone());
        let lease = self.term.name.clone();
        Input::Stop(Cause::LeaseEnded(LeaseEnded { lease, over }))
    }

    /// Whether it is over by a mark, or was removed; takes note of a renewal.
    fn look(&mut self) -> Option<Over> {
        if let Some(over) = self.place.mark() {
            return Some(over);
        }
        match self.place.term() {
            Some(term) if term.id == self.term.id => self.term = term,
            // Damaged: the last valid owner and time stay in force.
            Some(_) | None => {
                let gone = !self.place.directory().has(TERM);
                return gone.then_some(Over::Removed);
            }
        }
        None
    }

    /// Ends the lease for its age, unless it was renewed; none if that must wait.
    fn expire(&mut self, paths: &Paths, now: Moment) -> Option<Over> {
        // A process that renews it right now was promised more time.
        let lock = self.place.try_lock().ok().flatten();
        let (until, _) = *self
            .busy
            .get_or_insert((now.after_ms(LEASE_BUSY_MS), Moment(0)));
        if lock.is_none() && now < until {
            self.busy = Some((until, now.after_ms(AGAIN_MS)));
            return None;
        }
        self.busy = None;
        if let Some(over) = self.look() {
            return Some(over);
        }
        if self.term.left_ms(now) != Some(0) {
            return None;
        }
        let ttl_ms = self.term.ttl_ms.unwrap_or_default();
        Some(self.end(paths, Over::Expired { ttl_ms }))
    }

    /// Marks it as over; the reason is that of the first process that did so.
    fn end(&self, paths: &Paths, over: Over) -> Over {
        match end(paths, &self.place, Some(&self.term), &over) {
            Ok(Some(_)) | Err(_) => over,
            Ok(None) => self.place.mark().unwrap_or(over),
        }
    }

    /// Looks at owner and time; why the lease is over, once.
    fn poll(&mut self, paths: &Paths, now: Moment) -> Option<Over> {
        if self.over.is_some() {
            return None;
        }
        if let Some(owner) = self.term.owner.clone()
            && self.owner.poll().is_some()
        {
            return Some(self.end(paths, Over::OwnerGone { owner }));
        }
        if self.look_at.is_some_and(|at| now >= at) {
            self.look_at = Some(now.after_ms(LEASE_LOOK_MS));
            if let State::Over(_, over) = self.place.state(&self.here) {
                return Some(self.end(paths, over));
            }
        }
        let waits = self.busy.is_some_and(|(_, again)| now < again);
        if self.term.left_ms(now) == Some(0) && !waits {
            return self.expire(paths, now);
        }
        None
    }

    fn leave(mut self, teardown: Option<&Teardown>) {
        let outcome = match (teardown, self.up) {
            (Some(told), pid @ Some(_)) => ServerOutcome {
                pid,
                ended: told.ended,
                left: told.left.clone(),
                ms: told.ms,
            },
            (None, pid @ Some(_)) => ServerOutcome {
                pid,
                ..ServerOutcome::none()
            },
            (_, None) => ServerOutcome::none(),
        };
        let over = self.over.take().or_else(|| self.place.mark());
        if over.is_none() {
            self.member.leave(&self.place);
            return;
        }
        self.member.finish(&self.place, outcome);
    }
}

impl ServerOutcome {
    /// There was no server.
    fn none() -> Self {
        Self {
            pid: None,
            ended: 0,
            left: Vec::<Seen>::new(),
            ms: 0,
        }
    }
}
