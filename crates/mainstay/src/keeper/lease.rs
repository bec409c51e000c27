//! The keeper as the warden of its lease: it watches owner, time and directory, and ends its server with the lease.
//!
//! It only finds out that the lease is over; the way down is the link's one stop ladder. A lease that is over, or was never
//! opened, starts no server: the keeper shows itself in the lease first and asks then whether it is open.

use mainstay_core::clock::Moment;
use mainstay_core::event::{Cause, LeaseEnded, Seen};
use mainstay_core::ids::Realm;
use mainstay_core::lease::{Over, Term};
use mainstay_core::limits::{LEASE_BUSY_MS, LEASE_LOOK_MS};
use mainstay_core::link::Input;
use mainstay_os::identity;
use mainstay_os::notice::Notice;

use super::Keeper;
use super::watch::Watch;
use crate::exit::Exit;
use crate::lease::close::end;
use crate::lease::member::{Member, Outcome, Tenant};
use crate::lease::open::not_open;
use crate::lease::place::TERM;
use crate::lease::{Place, State};
use crate::paths::Paths;
use crate::report::plain;

/// Between two tries to end a lease for its age while somebody is renewing it.
const AGAIN_MS: u64 = 20;

/// A keeper in its lease.
pub struct Tenancy {
    place: Place,
    term: Term,
    here: Realm,
    member: Member,
    owner: Watch,
    _notice: Option<Notice>,
    /// When to look without being told.
    look_at: Option<Moment>,
    /// Until when whoever renews the lease is waited for, and when to try again.
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

impl Tenancy {
    fn enter(paths: &Paths, name: &str, tenant: Tenant, now: Moment) -> Result<Self, Refusal> {
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
        let found = Place::find(paths, name).map_err(|error| failed(&error))?;
        let place = found.ok_or_else(unknown)?;
        let descriptor = place.descriptor().map_err(|error| failed(&error))?;
        // Where the kernel does not tell, looking must do.
        let notice = Notice::on(descriptor).ok();
        let mut member = Member::enter(&place, tenant).map_err(|error| {
            // It may have been removed since we found it.
            let gone = error.kind() == std::io::ErrorKind::NotFound;
            if gone { unknown() } else { failed(&error) }
        })?;
        let refused = match place.state(&here) {
            State::Open(term) if term.realm == here => {
                let owner = term.owner.as_ref();
                let owner = owner.map_or(Watch::Off, |seen| Watch::on(seen.who));
                let unwatched = term.owner.is_some() && matches!(owner, Watch::Off);
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
        // For somebody who waits for us by now.
        drop(member.tell(Outcome::none()));
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

    /// Whether it is over by a mark, or was removed; takes note of a renewal.
    fn look(&mut self) -> Option<Over> {
        if let Some(over) = self.place.mark() {
            return Some(over);
        }
        match self.place.term() {
            Some(term) if term.id == self.term.id => self.term = term,
            // Damaged: what was agreed last goes on.
            Some(_) | None => {
                let gone = !self.place.directory().has(TERM);
                return gone.then_some(Over::Removed);
            }
        }
        None
    }

    /// Ends the lease for its age, unless it was renewed; none if that must wait.
    fn expire(&mut self, paths: &Paths, now: Moment) -> Option<Over> {
        // Whoever renews it has been promised something.
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

    /// Marks it as over; why it is, by whoever was first.
    fn end(&self, paths: &Paths, over: Over) -> Over {
        match end(paths, &self.place, Some(&self.term), &over) {
            Ok(Some(_)) | Err(_) => over,
            Ok(None) => self.place.mark().unwrap_or(over),
        }
    }

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

    /// The last act.
    fn leave(mut self, outcome: Outcome) {
        let over = self.over.take().or_else(|| self.place.mark());
        if over.is_none() {
            self.member.leave(&self.place);
            return;
        }
        self.member.finish(&self.place, outcome);
    }
}

impl Outcome {
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

impl Keeper<'_> {
    /// Shows itself in the lease, if the server is to be in one. Without a lease that is open nothing is started.
    pub(super) fn enter_lease(&mut self) {
        let Some(name) = &self.plan.lease else {
            return;
        };
        let tenant = Tenant {
            id: self.plan.id,
            server: self.plan.name.clone(),
            keeper: self.me,
            guard: self.watcher.guard(),
            shim: self.plan.shim,
            ladder_ms: self.ladder_ms(),
            outcome: None,
        };
        match Tenancy::enter(&self.plan.paths, name, tenant, self.now) {
            Ok(tenancy) => self.tenancy = Some(tenancy),
            Err(Refusal { over, .. }) if self.relay.link().generation() > 0 => {
                let lease = name.clone();
                self.handle(Input::Stop(Cause::LeaseEnded(LeaseEnded { lease, over })));
            }
            Err(Refusal { problem, hint, .. }) => self.handle(Input::StartFailed {
                problem,
                hint,
                code: Exit::Failed.code(),
            }),
        }
    }

    /// Something in the lease's directory has changed.
    pub(super) fn look_at_lease(&mut self) {
        let over = self.tenancy.as_mut().and_then(|tenancy| {
            let going_on = tenancy.over.is_none();
            going_on.then(|| tenancy.look()).flatten()
        });
        self.lease_over(over);
    }

    /// A last look before a server is started; whether the lease is over, which the link knows by then.
    pub(super) fn lease_is_over(&mut self) -> bool {
        self.look_at_lease();
        let tenancy = self.tenancy.as_ref();
        tenancy.is_some_and(|tenancy| tenancy.over.is_some())
    }

    /// Looks at owner and time; whether the lease is over.
    pub(super) fn poll_lease(&mut self) -> bool {
        let Some(tenancy) = &mut self.tenancy else {
            return false;
        };
        let over = tenancy.poll(&self.plan.paths, self.now);
        self.lease_over(over)
    }

    /// When the lease must be looked at.
    pub(super) fn lease_due(&self) -> Option<Moment> {
        self.tenancy.as_ref().and_then(Tenancy::due)
    }

    fn lease_over(&mut self, over: Option<Over>) -> bool {
        let (Some(over), Some(tenancy)) = (over, &mut self.tenancy) else {
            return false;
        };
        let server = self.server.as_ref().filter(|server| server.exit.is_none());
        tenancy.up = server.map(|server| server.who.pid);
        tenancy.over = Some(over.clone());
        let lease = tenancy.term.name.clone();
        self.handle(Input::Stop(Cause::LeaseEnded(LeaseEnded { lease, over })));
        true
    }

    /// All is done: says what became of the server, or just goes.
    pub(super) fn leave_lease(&mut self) {
        let Some(tenancy) = self.tenancy.take() else {
            return;
        };
        let outcome = match (&self.teardown, tenancy.up) {
            (Some(told), pid @ Some(_)) => Outcome {
                pid,
                ended: told.ended,
                left: told.left.clone(),
                ms: told.ms,
            },
            (None, pid @ Some(_)) => Outcome {
                pid,
                ..Outcome::none()
            },
            (_, None) => Outcome::none(),
        };
        tenancy.leave(outcome);
    }
}
