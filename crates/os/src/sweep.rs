//! What dead owners left behind: finding it by name, and ending it.
//!
//! A stray is proven by a tag, in the name of a leaf or in a process's environment, by the mark of a tag that a card
//! recorded, if it has no tag in its environment, or by an identity that a card recorded; whoever is below a proven process is proven with it. It counts only if the tag's realm is ours (same
//! boot, same namespaces of pids and of times) and its owner, pid *and* start time, is dead. Nobody else is ever touched: unsure means
//! spare. We ourselves and whoever we descend from are spared too, whatever their environment says.
//!
//! Here nobody is our child: we signal through pidfds, wait for them, and leave the reaping to whoever owns it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use mainstay_core::clock::Moment;
use mainstay_core::event::Seen;
use mainstay_core::ids::{Identity, LinkId, Realm, TAG_VARIABLE, Tag};
use rustix::process::Signal;

use crate::identity::{self, Handle};
use crate::tier::cgroup::{self, Leaf};
use crate::tree::HELD_MAX;
use crate::{census, clock, made_up, mark};

/// What one dead owner left behind.
#[derive(Clone, Debug)]
pub struct Stray {
    /// Whose it was.
    pub tag: Tag,
    /// How it was found: `leaf`, `tag`, `card`.
    pub by: Vec<&'static str>,
    /// Who was seen alive.
    pub members: Vec<Seen>,
    recorded: Vec<Identity>,
    leaves: Vec<PathBuf>,
    tagged: Vec<i32>,
}

/// How an end came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Who was ended.
    pub ended: Vec<Seen>,
    /// Who could not be.
    pub left: Vec<Seen>,
}

/// What a look for strays has found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Those who are there.
    pub strays: Vec<Stray>,
    hollow: Vec<PathBuf>,
}

impl Found {
    /// Removes the leaves of dead owners that nobody is in.
    pub fn remove_hollow(&self) {
        for path in &self.hollow {
            // A scope is removed by its manager; refusals leave an empty directory, which harms nobody.
            if let Ok(leaf) = Leaf::open(path.clone()) {
                drop(leaf.remove());
            }
        }
    }
}

/// Looks for strays, and changes nothing: by leaf names, by tags in the environment of our own user's processes, and by
/// what cards recorded. Links for which `skip` is true are not looked at.
pub fn find(
    realm: &Realm,
    recorded: &[(Tag, Vec<Identity>)],
    skip: &dyn Fn(LinkId) -> bool,
) -> Found {
    let mut owners: BTreeMap<Identity, bool> = BTreeMap::new();
    let mut orphaned = |tag: &Tag| {
        tag.realm == *realm
            && !skip(tag.link)
            && *owners
                .entry(tag.owner)
                .or_insert_with(|| !identity::alive(tag.owner))
    };
    let mut found: BTreeMap<String, Stray> = BTreeMap::new();
    let mut hollow = Vec::new();
    for (tag, path) in cgroup::search() {
        if !orphaned(&tag) {
            continue;
        }
        match Leaf::open(path.clone()) {
            Ok(leaf) if !leaf.populated() => hollow.push(path),
            // Gone meanwhile, or another user's.
            Err(error)
                if cgroup::is_going(&error) || error.kind() == io::ErrorKind::PermissionDenied => {}
            Ok(_) | Err(_) => entry(&mut found, &tag, "leaf").leaves.push(path),
        }
    }
    // What cannot be looked at now is found by the next sweep.
    tagged(recorded, &mut |pid, tag| {
        if orphaned(tag) {
            entry(&mut found, tag, "tag").tagged.push(pid);
        }
    })
    .ok();
    for (tag, identities) in recorded {
        let alive: Vec<_> = identities
            .iter()
            .copied()
            .filter(|&who| identity::alive(who))
            .collect();
        if !alive.is_empty() && orphaned(tag) {
            entry(&mut found, tag, "card").recorded.extend(alive);
        }
    }
    let mut strays: Vec<Stray> = found.into_values().collect();
    for stray in &mut strays {
        let Stray {
            tag,
            recorded,
            leaves,
            tagged,
            ..
        } = &*stray;
        let members = spared().and_then(|spared| look(tag, recorded, leaves, tagged, &spared));
        stray.members = members.unwrap_or_default();
    }
    // A leaf that is populated has members, also if none of them stood still for our look.
    strays.retain(|stray| !stray.members.is_empty() || !stray.leaves.is_empty());
    Found { strays, hollow }
}

/// Ends a stray, if its owner is still dead and the realm still ours.
pub fn end(stray: &Stray, confirm_ms: u64) -> Outcome {
    let ours = identity::realm().is_ok_and(|realm| realm == stray.tag.realm);
    if !ours || identity::alive(stray.tag.owner) {
        return Outcome {
            ended: Vec::new(),
            left: stray.members.clone(),
        };
    }
    hunt(
        &stray.tag,
        &stray.members,
        &stray.recorded,
        &stray.leaves,
        confirm_ms,
    )
}

/// Ends everybody that a tag names, for somebody who has the right to but is not their ancestor: a side guard, or a
/// guard that came later. By leaf, by environment, and by identities that were recorded; repeated until nobody is found
/// any more. Whether the owner lives is not asked; a tag of another realm names nobody here.
pub fn end_by_tag(tag: &Tag, recorded: &[Identity], confirm_ms: u64) -> Outcome {
    if identity::realm().is_ok_and(|realm| realm != tag.realm) {
        return Outcome::default();
    }
    let leaf = Leaf::of(tag).map(|leaf| leaf.path().to_owned());
    let leaves: Vec<PathBuf> = leaf.into_iter().collect();
    hunt(tag, &[], recorded, &leaves, confirm_ms)
}

fn entry<'a>(found: &'a mut BTreeMap<String, Stray>, tag: &Tag, by: &'static str) -> &'a mut Stray {
    let stray = found.entry(tag.to_string()).or_insert_with(|| Stray {
        tag: tag.clone(),
        by: Vec::new(),
        members: Vec::new(),
        recorded: Vec::new(),
        leaves: Vec::new(),
        tagged: Vec::new(),
    });
    if !stray.by.contains(&by) {
        stray.by.push(by);
    }
    stray
}

/// Looks in a row that find nobody.
const QUIET_LOOKS: usize = 2;

/// Looks in a row that find nobody and may have missed somebody: a fork-and-exit chain can hide from one, hardly from this many.
const SPOILT_LOOKS: usize = 20;

/// Kills and looks again, until nobody is found any more. Whoever is named already is killed before the first whole look,
/// which takes its time: an identity stays proven, whatever its process has become. A look that could not be taken, for
/// want of descriptors, has not found nobody.
fn hunt(
    tag: &Tag,
    proven: &[Seen],
    recorded: &[Identity],
    leaves: &[PathBuf],
    confirm_ms: u64,
) -> Outcome {
    let deadline = clock::now().after_ms(confirm_ms);
    let mut named: Vec<Identity> = proven.iter().map(|seen| seen.who).collect();
    named.extend(recorded);
    let mut met: BTreeMap<Identity, Seen> = BTreeMap::new();
    let mut pass = |sight: &mut dyn FnMut(&BTreeSet<i32>) -> io::Result<Sighted>| {
        let spared = spared()?;
        let sighted = sight(&spared);
        let members = look(tag, &named, leaves, &[], &spared);
        kill_leaves(leaves, &spared)?;
        let Sighted { struck, whole } = sighted?;
        let mut members = members?;
        members.extend(struck);
        io::Result::Ok((strike(&members, &mut met, deadline)?, whole))
    };
    // Whatever comes of it, the whole looks follow.
    pass(&mut |_| Ok(Sighted::default())).ok();
    let (mut quiet, mut spoilt) = (0, 0);
    let mut zombies = BTreeSet::new();
    while quiet < QUIET_LOOKS && spoilt < SPOILT_LOOKS {
        match pass(&mut |spared| strike_tagged(tag, spared, &mut zombies)) {
            Ok((Struck { of: 0, .. }, true)) => quiet += 1,
            Ok((Struck { of: 0, .. }, false)) => spoilt += 1,
            Ok((Struck { refused, of }, _)) if refused == of => break,
            Ok(_) => (quiet, spoilt) = (0, 0),
            Err(_) => {
                quiet = 0;
                clock::nap(1);
            }
        }
        if clock::now() >= deadline {
            break;
        }
    }
    for path in leaves {
        if let Ok(leaf) = Leaf::open(path.clone())
            && leaf.wait_empty(deadline)
        {
            // Fails only while somebody is in it.
            drop(leaf.remove());
        }
    }
    // Whoever is on its way out has no environment any more and is found by no look; not all could be held until their end.
    for seen in met.values() {
        if let Ok(handle) = Handle::open(seen.who)
            && handle.signal(Signal::KILL).is_ok()
        {
            handle.wait_ended((deadline - clock::now()).div_ceil(1_000_000));
        }
    }
    let (mut left, ended): (Vec<Seen>, Vec<Seen>) = met
        .into_values()
        .partition(|seen| identity::alive(seen.who));
    // Whom we never got to is there all the same.
    let missed = |seen: &&Seen| !left.contains(seen) && identity::alive(seen.who);
    let missed: Vec<Seen> = proven.iter().filter(missed).cloned().collect();
    left.extend(missed);
    Outcome { ended, left }
}

/// Kills whoever is in a leaf, all at once.
fn kill_leaves(leaves: &[PathBuf], spared: &BTreeSet<i32>) -> io::Result<()> {
    for path in leaves {
        let Some(leaf) = made_up::seen(Leaf::open(path.clone()))? else {
            continue;
        };
        // Nobody of ours is ever in a leaf, unless we ourselves run inside of one.
        if leaf.populated() && !leaf.members()?.iter().any(|pid| spared.contains(pid)) {
            drop(leaf.kill());
        }
    }
    Ok(())
}

/// What one killing look came to.
struct Struck {
    /// Whom we may not kill.
    refused: usize,
    /// Everybody who was met.
    of: usize,
}

/// Kills them, notes that they were met, and waits for their ends.
fn strike(
    members: &[Seen],
    met: &mut BTreeMap<Identity, Seen>,
    deadline: Moment,
) -> io::Result<Struck> {
    let mut refused = 0;
    let mut held: Vec<Handle> = Vec::new();
    for seen in members {
        let mut opened = made_up::seen(Handle::open(seen.who));
        if opened.is_err() && !held.is_empty() {
            // To kill is more than to wait: those who are on their way out are looked at by the next look.
            held.clear();
            opened = made_up::seen(Handle::open(seen.who));
        }
        met.insert(seen.who, seen.clone());
        let Some(handle) = opened? else { continue };
        match handle.signal(Signal::KILL) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => refused += 1,
            Ok(()) | Err(_) if held.len() < HELD_MAX => held.push(handle),
            Ok(()) | Err(_) => {}
        }
    }
    for handle in &held {
        handle.wait_ended((deadline - clock::now()).div_ceil(1_000_000));
    }
    Ok(Struck {
        refused,
        of: members.len(),
    })
}

/// What was found, and killed, at sight.
#[derive(Default)]
struct Sighted {
    struck: Vec<Seen>,
    /// Nobody can have been missed.
    whole: bool,
}

/// One look at our own user's processes: whoever bears the tag is killed at sight, with all below it, the newest first. At the
/// end of the look a link of a fork-and-exit chain would be gone. `zombies` are those that earlier looks have met.
fn strike_tagged(
    tag: &Tag,
    spared: &BTreeSet<i32>,
    zombies: &mut BTreeSet<Identity>,
) -> io::Result<Sighted> {
    let uid = rustix::process::geteuid().as_raw();
    let mut struck: BTreeMap<i32, Seen> = BTreeMap::new();
    let mut whole = true;
    for pid in census::pids()?.into_iter().rev() {
        match census::uid(pid) {
            // It was on the list and is gone; it may have had a child that is not.
            None => whole = false,
            Some(owner) if owner != uid || spared.contains(&pid) => {}
            Some(_) if bears(pid, tag)? => {
                let bears = || bears(pid, tag);
                let who = made_up::seen(identity::of(pid))?;
                let held = who.map(|who| held(who, bears)).transpose()?.flatten();
                let Some((seen, handle)) = held else {
                    whole = false;
                    continue;
                };
                let mut found = BTreeMap::from([(pid, seen)]);
                below(pid, spared, &mut found)?;
                // Whoever refuses, or is gone, is seen when all are struck.
                drop(handle.signal(Signal::KILL));
                for seen in found.values().filter(|seen| seen.who != handle.who) {
                    if let Ok(handle) = Handle::open(seen.who) {
                        drop(handle.signal(Signal::KILL));
                    }
                }
                struck.append(&mut found);
            }
            Some(_) => match made_up::seen(census::stat(pid))? {
                Some(stat) if stat.dead() => whole &= !zombies.insert(stat.who()),
                Some(_) => {}
                None => whole = false,
            },
        }
    }
    let struck = struck.into_values().collect();
    Ok(Sighted { struck, whole })
}

/// A process, if it is alive and `proof` is true of it while it is held. No descriptor stays open: from here on it is
/// known by its identity, so that however many there are, we do not run out.
fn proven(who: Identity, proof: impl FnOnce() -> io::Result<bool>) -> io::Result<Option<Seen>> {
    Ok(held(who, proof)?.map(|(seen, _)| seen))
}

/// The same, with a handle on it.
fn held(
    who: Identity,
    proof: impl FnOnce() -> io::Result<bool>,
) -> io::Result<Option<(Seen, Handle)>> {
    let Some(handle) = made_up::seen(Handle::open(who))? else {
        return Ok(None);
    };
    let Some(stat) = made_up::seen(census::stat(who.pid))? else {
        return Ok(None);
    };
    let alive = !stat.dead() || !handle.ended();
    let seen = Seen {
        who,
        comm: stat.comm,
    };
    Ok((alive && proof()?).then_some((seen, handle)))
}

/// One look at everybody who is proven to belong to a tag.
fn look(
    tag: &Tag,
    named: &[Identity],
    leaves: &[PathBuf],
    tagged: &[i32],
    spared: &BTreeSet<i32>,
) -> io::Result<Vec<Seen>> {
    let mut members: BTreeMap<i32, Seen> = BTreeMap::new();
    let mut add = |who: Identity, proof: &dyn Fn() -> io::Result<bool>| {
        if !spared.contains(&who.pid)
            && !members.contains_key(&who.pid)
            && let Some(seen) = proven(who, proof)?
        {
            members.insert(who.pid, seen);
        }
        io::Result::Ok(())
    };
    for path in leaves {
        let Some(leaf) = made_up::seen(Leaf::open(path.clone()))? else {
            continue;
        };
        for pid in leaf.members()? {
            if let Some(who) = made_up::seen(identity::of(pid))? {
                add(who, &|| leaf.seen_to_hold(pid))?;
            }
        }
    }
    for &pid in tagged {
        if let Some(who) = made_up::seen(identity::of(pid))? {
            add(who, &|| bears(pid, tag))?;
        }
    }
    for &who in named {
        add(who, &|| Ok(true))?;
    }
    // Whoever lost the tag but is still below a member.
    let above: Vec<i32> = members.keys().copied().collect();
    for pid in above {
        below(pid, spared, &mut members)?;
    }
    Ok(members.into_values().collect())
}

/// Adds the descendants of a member, but nobody whom another living owner claims.
fn below(pid: i32, spared: &BTreeSet<i32>, members: &mut BTreeMap<i32, Seen>) -> io::Result<()> {
    for child in made_up::seen(census::children(pid))?.unwrap_or_default() {
        if spared.contains(&child) || members.contains_key(&child) {
            continue;
        }
        let claimed = tag_of(child)?.is_some_and(|tag| identity::alive(tag.owner));
        let Some(who) = made_up::seen(identity::of(child))? else {
            continue;
        };
        let still = || {
            let stat = made_up::seen(census::stat(child))?;
            Ok(stat.is_some_and(|stat| stat.ppid == pid))
        };
        if !claimed && let Some(seen) = proven(who, still)? {
            members.insert(child, seen);
            below(child, spared, members)?;
        }
    }
    Ok(())
}

/// Tells of each process of our own user that bears a tag in its environment, or else the mark of a recorded one. In stages:
/// whose it is costs little, its environment more.
fn tagged(recorded: &[(Tag, Vec<Identity>)], tell: &mut dyn FnMut(i32, &Tag)) -> io::Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    for pid in census::pids()? {
        if census::uid(pid) != Some(uid) {
            continue;
        }
        if let Some(tag) = tag_of(pid)? {
            tell(pid, &tag);
        } else if let Some((tag, _)) = recorded.iter().find(|(tag, _)| mark::is(pid, tag)) {
            tell(pid, tag);
        }
    }
    Ok(())
}

/// Whether a process belongs to a tag: by its environment, or by its mark if that says nothing.
fn bears(pid: i32, tag: &Tag) -> io::Result<bool> {
    Ok(match tag_of(pid)? {
        Some(found) => found == *tag,
        None => mark::is(pid, tag),
    })
}

fn tag_of(pid: i32) -> io::Result<Option<Tag>> {
    let value = made_up::seen(census::read_variable(pid, TAG_VARIABLE))?;
    Ok(value.flatten().and_then(|text| text.parse().ok()))
}

/// Ourselves and whoever we descend from.
fn spared() -> io::Result<BTreeSet<i32>> {
    let mut spared = BTreeSet::new();
    let mut pid = std::process::id() as i32;
    while pid > 0 && spared.insert(pid) {
        pid = made_up::seen(census::stat(pid))?.map_or(0, |stat| stat.ppid);
    }
    Ok(spared)
}
