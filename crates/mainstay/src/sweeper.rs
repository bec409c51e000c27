//! Ending what was left behind: by earlier pairs, wholly killed, or by our own link's last one.

use mainstay_core::event::{Seen, Sweep, What};
use mainstay_core::ids::{Identity, LinkId, Tag};
use mainstay_core::limits;
use mainstay_os::sweep::{self, Outcome, Stray};
use mainstay_os::{adopter, clock, identity, role, title};

use crate::config::Config;
use crate::container::engine::Fate;
use crate::container::note;
use crate::debts::pay::{self, Zeal};
use crate::debts::{self, Keyring};
use crate::keeper::plan::Plan;
use crate::lease::tidy::tidy;
use crate::ledger::append::Ledger;
use crate::paths::Paths;
use crate::registry::entry::Entry;
use crate::registry::list;
use crate::registry::sweep::{Dead, Remains, remains, sweep_dead};
use crate::state::Location;

/// Between two looks at a lock that another process has.
const HELD_NAP_MS: u32 = 1;

/// Sweeps for a starting link.
pub fn sweep(plan: &Plan) {
    let mut ledger = Ledger::open(&plan.paths);
    for swept in end_leftovers(&plan.paths, Some(plan.id)) {
        ledger.record(plan.id, &plan.name, What::Sweep(swept));
    }
    tidy(&plan.paths);
    pay_debts(&plan.paths);
}

/// Has a process of its own close the HTTP sessions of dead bridges, if there are any, so that nobody waits for it. For
/// commands that start no server; one thread is all that this process may have yet. Where nobody reaps orphans it would
/// stay as a zombie: there the next `run`, `serve` or `debts pay` pays.
pub fn pay_debts_aside(paths: &Paths) {
    if !debts::is_due(paths) || !adopter::judge(adopter::INIT).reaps {
        return;
    }
    let started = role::start_detached(|| {
        role::own_session();
        role::release_stdio();
        role::close_all_but(&mut []);
        role::be_patient();
        title::set(c"mcp-sweep");
        pay_debts(paths);
        0
    });
    // No process for it: then the next command pays.
    drop(started);
}

/// Closes the HTTP sessions of dead bridges, as far as that can be done from here. Most starts find none.
fn pay_debts(paths: &Paths) {
    if !debts::is_due(paths) {
        return;
    }
    let keyring = Keyring {
        config: Config::load(paths).unwrap_or_default(),
        ..Keyring::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    if let Ok(runtime) = runtime {
        runtime.block_on(pay::pay(paths, &keyring, Zeal::Sweep));
    }
}

/// Ends everything whose owners are dead, and takes their directories away; what was found. A link may be spared.
pub fn end_leftovers(paths: &Paths, spare: Option<LinkId>) -> Vec<Sweep> {
    let dead = sweep_dead(paths).unwrap_or_default();
    let recorded: Vec<(Tag, Vec<Identity>)> = dead
        .iter()
        .filter_map(|link| Some((link.tag.clone()?, link.members.clone())))
        .collect();
    let Ok(realm) = identity::realm() else {
        return Vec::new();
    };
    let found = sweep::find(&realm, &recorded, &|link| Some(link) == spare);
    found.remove_hollow();
    let mut swept: Vec<Sweep> = found.strays.iter().map(end).collect();
    swept.extend(dead.into_iter().filter_map(bury));
    crate::warm::sweep(paths);
    swept
}

/// Ends the containers of a dead link and takes its directory away, unless one of them is left: it is tried again by the next
/// sweep, as is a directory that cannot be removed now.
fn bury(link: Dead) -> Option<Sweep> {
    let swept = end_containers(link.path(), link.id, limits::GUARD_KILL_MS);
    if note::all(link.path()).is_empty() {
        drop(link.remove());
    }
    swept
}

/// Ends the containers that a link's directory names, whose keeper is dead; what became of them, if there are any.
pub fn end_containers(directory: &Location, id: LinkId, within_ms: u64) -> Option<Sweep> {
    let mut notes = note::all(directory);
    let mut swept = Sweep {
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
    // Whom the card names is ended first: to look for the others among all processes takes longer than all the rest.
    let named = entry
        .and_then(Entry::read)
        .and_then(|card| Some((card.tag()?, card.members)))
        .filter(|(tag, _)| tag.link == plan.id && !identity::alive(tag.owner))
        .map_or(0, |(tag, members)| {
            sweep::end_by_tag(&tag, &members, limits::GUARD_KILL_MS)
                .ended
                .len() as u32
        });
    let found = sweep::find(&plan.realm, &[], &|link| link != plan.id);
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
    /// Who could not be.
    pub left: Vec<Seen>,
}

/// Ends what is left of one link whose keeper is dead, for somebody who has the right to; its guard may be at it, too.
/// If all of them are dead, its directory goes as well.
pub fn end_one(paths: &Paths, id: LinkId, server: &str) -> Swept {
    let mut swept = Swept {
        pid: None,
        ended: 0,
        left: Vec::new(),
    };
    let listed = list(paths).unwrap_or_default();
    let card = listed.into_iter().find(|listed| listed.id == id);
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
    let mut tell = |told: Sweep| {
        swept.ended += told.ended.len() as u32;
        swept.left.extend(told.left.clone());
        ledger.record(id, server, What::Sweep(told));
    };
    let found = sweep::find(&realm, &recorded, &|link| link != id);
    found.remove_hollow();
    for stray in &found.strays {
        tell(end(stray));
    }
    let left = bury_one(paths, id, &mut tell);
    swept.left.extend(left);
    swept
}

/// Ends the containers of one link and takes its directory away. While another process has its lock, that process may be doing
/// the same, or be on its way out: it is waited for. Which containers are left because the lock never became free.
fn bury_one(paths: &Paths, id: LinkId, tell: &mut dyn FnMut(Sweep)) -> Vec<Seen> {
    let directory = paths.run().join(id.to_string());
    let began = clock::now();
    while let Ok(remains) = remains(paths, id) {
        match remains {
            Remains::Gone => break,
            Remains::Dead(dead) => {
                bury(*dead).into_iter().for_each(tell);
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
