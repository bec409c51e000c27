//! Leases that are over and have no server any more: their directories go.
//!
//! For those that ended without anybody who closed them, and for what a killed command left. Nobody is ended here: that is
//! the sweep's part, and the keepers' own; a file that nobody holds names a tree to be looked for, so the sweep comes first.

use std::io;

use mainstay_core::limits::LEASE_OURS_MS;
use mainstay_os::{clock, identity};

use super::close::end;
use super::member::Visit;
use super::place::{GONE, NEW, Place, State, names};
use crate::paths::Paths;

/// Tidies up after all leases. Only after a sweep.
pub fn tidy(paths: &Paths) {
    remove_half_made(paths).ok();
    for name in names(paths).unwrap_or_default() {
        if let Ok(Some(place)) = Place::find(paths, &name) {
            tidy_one(paths, &place);
        }
    }
}

/// Removes a lease's directory if it is over and nobody is in it; else the files of those who are dead with all of theirs.
fn tidy_one(paths: &Paths, place: &Place) {
    let Ok(here) = identity::realm() else {
        return;
    };
    match place.state(&here) {
        State::Over(term, over) => {
            if end(paths, place, term.as_ref(), &over).is_err() {
                return;
            }
            let _turn = place.turn();
            // Not before it is marked: somebody may have shown itself until then, and gone on.
            if Visit::all(place).is_ok_and(|visits| !visits.iter().any(Visit::held)) {
                // Another one may be at it.
                place.remove().ok();
            }
        }
        State::Open(term) if term.realm == here => {
            for visit in Visit::all(place).unwrap_or_default() {
                // The guard of a killed keeper starts the next one, which shows itself again.
                let dead = !visit.held()
                    && visit
                        .tenant()
                        .is_some_and(|tenant| !identity::alive(tenant.guard));
                if dead {
                    visit.remove(place);
                }
            }
        }
        State::Open(_) => {}
    }
}

/// What was left by somebody who was killed while making or removing a directory.
fn remove_half_made(paths: &Paths) -> io::Result<()> {
    let leases = paths.lease().open()?;
    for name in leases.names()? {
        // A young one may still be in the making.
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
