//! Removes the directories of leases that are over and have no server.
//!
//! For leases that ended without a closing process, and for what a killed command left. No process is ended here: the sweep
//! and the keepers do that.
//!
//! Invariant: the file of a member that was killed is removed only if a sweep that began after the keeper's death has proved
//! that nothing of its link is left. Until then `lease close` must find the file, because it would report a server as ended
//! that it has never looked for.

use std::io;

use mainstay_os::{clock, identity};
use mainstay_protocol::ids::{Identity, LinkId, Realm};
use mainstay_protocol::lease::Term;
use mainstay_protocol::limits::{ENTRY_KEPT_DAYS, LEASE_OURS_MS};
use mainstay_protocol::time::DAY_MS;
use mainstay_store::paths::Paths;

use super::close::end;
use super::directory::{GONE, LeaseDirectory, NEW, State, names};
use super::member::{MemberFile, MemberInfo};

/// A member whose keeper died before it wrote the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadMember {
    /// Its link.
    pub link: LinkId,
    /// The keeper, if its file can be read.
    keeper: Option<Identity>,
}

impl DeadMember {
    fn of(file: &MemberFile, info: Option<&MemberInfo>) -> Self {
        Self {
            link: file.id,
            keeper: info.map(|info| info.keeper),
        }
    }
}

/// The dead members of all leases.
pub fn dead_members(paths: &Paths) -> Vec<DeadMember> {
    let mut dead = Vec::new();
    for name in names(paths).unwrap_or_default() {
        let Ok(Some(place)) = LeaseDirectory::find(paths, &name) else {
            continue;
        };
        for file in MemberFile::all(&place).unwrap_or_default() {
            if file.held() {
                continue;
            }
            let member = DeadMember::of(&file, file.info().as_ref());
            // The kernel frees the lock of an exiting process before the process is dead.
            if !member.keeper.is_some_and(identity::alive) {
                dead.push(member);
            }
        }
    }
    dead
}

/// Tidies up after all leases. `gone`: the dead members of which a sweep has proved since that nothing is left.
pub fn tidy(paths: &Paths, gone: &[DeadMember]) {
    remove_half_made(paths).ok();
    for name in names(paths).unwrap_or_default() {
        if let Ok(Some(place)) = LeaseDirectory::find(paths, &name) {
            tidy_one(paths, &place, gone);
        }
    }
}

/// Removes a lease's directory if it is over and each member is settled; else the files of settled members that have no
/// successor.
fn tidy_one(paths: &Paths, place: &LeaseDirectory, gone: &[DeadMember]) {
    let Ok(here) = identity::realm() else {
        return;
    };
    match place.state(&here) {
        State::Over(term, over) => {
            if end(paths, place, term.as_ref(), &over).is_err() {
                return;
            }
            let _turn = place.turn();
            let beyond_proof = || term.is_some_and(|term| is_beyond_proof(place, &term, &here));
            // Not before it is marked: a keeper may have entered until then, and started its server.
            let files = MemberFile::all(place);
            if files.is_ok_and(|files| {
                files.iter().all(|file| is_settled(file, gone))
                    || (beyond_proof() && !files.iter().any(MemberFile::held))
            }) {
                // Another process may be removing it.
                place.remove().ok();
            }
        }
        State::Open(term) if term.realm == here => {
            for file in MemberFile::all(place).unwrap_or_default() {
                // The guard of a killed keeper starts the next one, the shim of a killed guard the next guard.
                let has_successor = file
                    .info()
                    .is_none_or(|info| identity::alive(info.guard) || identity::alive(info.shim));
                if !has_successor && is_settled(&file, gone) {
                    file.remove(place);
                }
            }
        }
        State::Open(_) => {}
    }
}

/// Whether nothing of a member is left: its keeper has said so, or a sweep has proved it.
fn is_settled(file: &MemberFile, gone: &[DeadMember]) -> bool {
    if file.held() {
        return false;
    }
    let info = file.info();
    let has_outcome = info.as_ref().is_some_and(|info| info.outcome.is_some());
    has_outcome || gone.contains(&DeadMember::of(file, info.as_ref()))
}

/// Whether no sweep from here can say anything about the members: they ran before the machine was started again, or in another
/// namespace, where no process has come back for them for a long time.
fn is_beyond_proof(place: &LeaseDirectory, term: &Term, here: &Realm) -> bool {
    if term.realm.boot != here.boot {
        return true;
    }
    term.realm != *here
        && place.directory().look_at_itself().is_ok_and(|found| {
            clock::wall_ms().saturating_sub(found.changed_ms) > ENTRY_KEPT_DAYS * DAY_MS
        })
}

/// Removes what a process left that was killed while it made or removed a directory.
fn remove_half_made(paths: &Paths) -> io::Result<()> {
    let leases = paths.lease().open()?;
    for name in leases.names()? {
        // A young one may still be in use.
        let old = || {
            let found = leases.look(&name);
            found.is_ok_and(|found| found.changed_ms + LEASE_OURS_MS <= clock::wall_ms())
        };
        if name.starts_with(GONE) || (name.starts_with(NEW) && old()) {
            leases.remove_all(&name).ok();
        }
    }
    Ok(())
}
