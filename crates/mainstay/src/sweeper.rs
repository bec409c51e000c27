//! Ending what was left behind: by earlier pairs, wholly killed, or by our own link's last one.

use mainstay_core::event::{Sweep, What};
use mainstay_core::ids::{Identity, LinkId, Tag};
use mainstay_core::limits;
use mainstay_os::sweep::{self, Outcome, Stray};

use crate::keeper::plan::Plan;
use crate::ledger::append::Ledger;
use crate::paths::Paths;
use crate::registry::entry::Entry;
use crate::registry::sweep::sweep_dead;

/// Sweeps for a starting link.
pub fn sweep(plan: &Plan) {
    let mut ledger = Ledger::open(&plan.paths);
    for swept in end_leftovers(&plan.paths, Some(plan.id)) {
        ledger.record(plan.id, &plan.name, What::Sweep(swept));
    }
}

/// Ends everything whose owners are dead, and takes their directories away; what was found. A link may be spared.
pub fn end_leftovers(paths: &Paths, spare: Option<LinkId>) -> Vec<Sweep> {
    let dead = sweep_dead(paths).unwrap_or_default();
    let recorded: Vec<(Tag, Vec<Identity>)> = dead
        .iter()
        .filter_map(|link| Some((link.tag.clone()?, link.members.clone())))
        .collect();
    let Ok(realm) = mainstay_os::identity::realm() else {
        return Vec::new();
    };
    let strays = sweep::find(&realm, &recorded, &|link| Some(link) == spare);
    let swept = strays.iter().map(end).collect();
    for link in dead {
        // A directory that cannot be removed now is found again by the next sweep.
        drop(link.remove());
    }
    crate::warm::sweep(paths);
    swept
}

/// Ends what is left of one link whose guard and keeper are dead and are not our children; how many.
pub fn end_link(plan: &Plan, entry: Option<&Entry>) -> u32 {
    let recorded: Vec<(Tag, Vec<Identity>)> = entry
        .and_then(Entry::read)
        .and_then(|card| Some((card.tag()?, card.members)))
        .into_iter()
        .collect();
    let strays = sweep::find(&plan.realm, &recorded, &|link| link != plan.id);
    strays
        .iter()
        .map(|stray| end(stray).ended.len() as u32)
        .sum()
}

fn end(stray: &Stray) -> Sweep {
    let Outcome { ended, left } = sweep::end(stray, limits::GUARD_KILL_MS);
    Sweep {
        of: stray.tag.link,
        owner: stray.tag.owner,
        by: stray.by.iter().map(ToString::to_string).collect(),
        ended,
        left,
    }
}
