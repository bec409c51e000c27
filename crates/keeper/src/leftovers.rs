//! Ending what was left behind: by earlier pairs, wholly killed, or by our own link's last one.

use mainstay_os::sweep::{self, Outcome, Stray};
use mainstay_os::{clock, identity};
use mainstay_protocol::event::{LeftoversEnded, Seen, What};
use mainstay_protocol::ids::{Identity, LinkId, Tag};
use mainstay_protocol::limits;
use mainstay_store::ledger::append::Ledger;
use mainstay_store::logs;
use mainstay_store::paths::Paths;
use mainstay_store::registry::entry::Entry;
use mainstay_store::registry::list;
use mainstay_store::registry::sweep::{Dead, Remains, remains, sweep_dead};
use mainstay_store::state::Location;

use crate::container::engine::Fate;
use crate::container::note;
use crate::lease::tidy::{dead_members, tidy};
use crate::plan::Plan;

/// Between two looks at a lock that another process has.
const HELD_NAP_MS: u32 = 1;

/// Sweeps for a starting link.
pub fn sweep(plan: &Plan) {
    let paths = &plan.paths;
    // Before the search: it proves nothing about a link that was killed after it.
    let mut dead = dead_members(paths);
    let Leftovers { swept, complete } = end_leftovers(paths, Some(plan.id));
    // A link has its directory until its containers are ended too.
    dead.retain(|member| {
        complete && !has_left(&swept, member.link) && !link_directory(paths, member.link).is_there()
    });
    let mut ledger = Ledger::open(paths);
    for swept in swept {
        ledger.record(plan.id, &plan.name, What::LeftoversEnded(swept));
    }
    tidy(paths, &dead);
    logs::retain::retain(paths, clock::wall_ms());
    (plan.close_sessions)(paths);
}

/// What a sweep found.
#[derive(Default)]
pub struct Leftovers {
    /// What it ended, or could not end.
    pub swept: Vec<LeftoversEnded>,
    /// It could look at every process. Otherwise a link may have processes that are not in `swept`.
    pub complete: bool,
}

/// Ends all processes of links whose owners are dead, and removes the directories. One link can be spared.
pub fn end_leftovers(paths: &Paths, spare: Option<LinkId>) -> Leftovers {
    let dead = sweep_dead(paths).unwrap_or_default();
    let recorded: Vec<(Tag, Vec<Identity>)> = dead
        .iter()
        .filter_map(|link| Some((link.tag.clone()?, link.members.clone())))
        .collect();
    let Ok(realm) = identity::realm() else {
        return Leftovers::default();
    };
    let found = sweep::find(&realm, &recorded, &|link| Some(link) == spare);
    found.remove_hollow();
    let mut swept: Vec<LeftoversEnded> = found.strays.iter().map(end).collect();
    for link in dead {
        let gone = found.complete && !has_left(&swept, link.id);
        swept.extend(bury(link, gone));
    }
    crate::warm::sweep(paths);
    Leftovers {
        swept,
        complete: found.complete,
    }
}

/// Whether a process or a container of this link is left.
fn has_left(swept: &[LeftoversEnded], link: LinkId) -> bool {
    let mut of_link = swept.iter().filter(|swept| swept.of == link);
    of_link.any(|swept| !swept.left.is_empty())
}

fn link_directory(paths: &Paths, link: LinkId) -> Location {
    paths.run().join(link.to_string())
}

/// Ends the containers of a dead link. Takes its directory away if its processes are `gone` and no container is left; else the
/// next sweep needs it to find them. A directory that cannot be removed now is left to the next sweep, too.
fn bury(link: Dead, gone: bool) -> Option<LeftoversEnded> {
    let swept = end_containers(link.path(), link.id, limits::GUARD_KILL_MS);
    if gone && note::all(link.path()).is_empty() {
        drop(link.remove());
    }
    swept
}

/// Ends the containers that a link's directory names, whose keeper is dead; what became of them, if there are any.
pub fn end_containers(directory: &Location, id: LinkId, within_ms: u64) -> Option<LeftoversEnded> {
    let mut notes = note::all(directory);
    let mut swept = LeftoversEnded {
        of: id,
        owner: notes.first()?.owner,
        by: vec!["cid".into()],
        ended: Vec::new(),
        left: Vec::new(),
    };
    for note in &mut notes {
        match note.settle(within_ms) {
            Some((container, Fate::Gone)) => swept.ended.push(Seen::container(&container)),
            Some((container, Fate::Left)) => swept.left.push(Seen::container(&container)),
            None => {}
        }
    }
    (!swept.ended.is_empty() || !swept.left.is_empty()).then_some(swept)
}

/// Ends what is left of one link whose guard and keeper are dead and are not our children; how many.
pub fn end_link(plan: &Plan, entry: Option<&Entry>) -> u32 {
    // The processes on the card are ended first, because the scan of all processes for the others takes longest.
    let named = entry
        .and_then(Entry::read)
        .and_then(|card| Some((card.tag()?, card.members)))
        .filter(|(tag, _)| tag.link == plan.id && !identity::alive(tag.owner))
        .map_or(0, |(tag, members)| {
            sweep::end_by_tag(&tag, &members, limits::GUARD_KILL_MS)
                .ended
                .len() as u32
        });
    let found = sweep::find(&plan.origin.realm, &[], &|link| link != plan.id);
    found.remove_hollow();
    let others: u32 = found
        .strays
        .iter()
        .map(|stray| end(stray).ended.len() as u32)
        .sum();
    named + others
}

/// What was left of one link.
pub struct Swept {
    /// The server process, if a card named one.
    pub pid: Option<i32>,
    /// How many were ended.
    pub ended: u32,
    /// The processes that could not be ended.
    pub left: Vec<Seen>,
    /// Every process could be looked at. Otherwise the link may have processes that are not in `left`.
    pub complete: bool,
}

/// Ends what is left of one link whose keeper is dead. Its guard may do the same at this moment, which does no harm.
/// If all of them are dead, its directory is removed as well.
pub fn end_one(paths: &Paths, id: LinkId, server: &str) -> Swept {
    let mut swept = Swept {
        pid: None,
        ended: 0,
        left: Vec::new(),
        complete: false,
    };
    let listed = list(paths);
    let listed_all = listed.is_ok();
    let card = listed.into_iter().flatten().find(|listed| listed.id == id);
    let card = card.and_then(|listed| listed.card);
    let recorded: Vec<(Tag, Vec<Identity>)> = card
        .and_then(|card| {
            swept.pid = card.server.as_ref().map(|seen| seen.who.pid);
            Some((card.tag()?, card.members))
        })
        .into_iter()
        .collect();
    let Ok(realm) = identity::realm() else {
        return swept;
    };
    let mut ledger = Ledger::open(paths);
    let mut tell = |told: LeftoversEnded| {
        swept.ended += told.ended.len() as u32;
        swept.left.extend(told.left.clone());
        ledger.record(id, server, What::LeftoversEnded(told));
    };
    let found = sweep::find(&realm, &recorded, &|link| link != id);
    found.remove_hollow();
    let mut gone = found.complete;
    for stray in &found.strays {
        let told = end(stray);
        gone &= told.left.is_empty();
        tell(told);
    }
    let left = bury_one(paths, id, gone, &mut tell);
    swept.left.extend(left);
    swept.complete = found.complete && listed_all;
    swept
}

/// Ends the containers of one link and removes its directory, see [`bury`]. While another process has its lock, that process may be doing
/// the same, or be on its way out: it is waited for. Which containers are left because the lock never became free.
fn bury_one(
    paths: &Paths,
    id: LinkId,
    gone: bool,
    tell: &mut dyn FnMut(LeftoversEnded),
) -> Vec<Seen> {
    let directory = link_directory(paths, id);
    let began = clock::now();
    while let Ok(remains) = remains(paths, id) {
        match remains {
            Remains::Gone => break,
            Remains::Dead(dead) => {
                bury(*dead, gone).into_iter().for_each(tell);
                return Vec::new();
            }
            Remains::Held => {
                let most_ms = if note::all(&directory).is_empty() {
                    limits::LEASE_OURS_MS
                } else {
                    limits::GUARD_KILL_MS
                };
                if clock::now().ms_since(began) >= most_ms {
                    break;
                }
                clock::nap(HELD_NAP_MS);
            }
        }
    }
    let ids = note::all(&directory)
        .into_iter()
        .filter_map(|note| note.id());
    ids.map(|id| Seen::container(&id)).collect()
}

fn end(stray: &Stray) -> LeftoversEnded {
    let Outcome { ended, left } = sweep::end(stray, limits::GUARD_KILL_MS);
    LeftoversEnded {
        of: stray.tag.link,
        owner: stray.tag.owner,
        by: stray.by.iter().map(ToString::to_string).collect(),
        ended,
        left,
    }
}
