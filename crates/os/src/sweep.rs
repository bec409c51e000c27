//! Finds what dead owners left behind, and ends it.
//!
//! A stray is proven in one of four ways: by a tag in the name of a leaf, by a tag in a process's environment, by the
//! mark of a recorded tag if its environment has no tag, or by an identity that a card recorded. A descendant of a
//! proven process is proven too. It counts only if the tag's realm is ours (same boot, same pid and time namespaces)
//! and its owner, pid *and* start time, is dead. Every other process is spared, because unsure means spare. We spare
//! ourselves and our ancestors too, whatever their environment says.
//!
//! The strays are not our children. We signal through pidfds, wait for the ends, and leave the reaping to their
//! parents.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::{Identity, LinkId, Realm, TAG_VARIABLE, Tag};
use rustix::process::Signal;

use crate::identity::{self, Handle};
use crate::tier::cgroup::{self, Leaf};
use crate::tree::HELD_MAX;
use crate::{census, clock, mark, procfs};

/// What one dead owner left behind.
#[derive(Clone, Debug)]
pub struct Stray {
    /// The tag of the dead owner.
    pub tag: Tag,
    /// How it was found: `leaf`, `tag`, `card`.
    pub by: Vec<&'static str>,
    /// The processes that were seen alive.
    pub members: Vec<Seen>,
    recorded: Vec<Identity>,
    leaves: Vec<PathBuf>,
    tagged: Vec<i32>,
}

/// The result of ending a stray.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The processes that were ended.
    pub ended: Vec<Seen>,
    /// The processes that could not be ended.
    pub left: Vec<Seen>,
}

/// The result of a search for strays.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The strays that exist.
    pub strays: Vec<Stray>,
    /// No process was left out because descriptors or memory had run out. Otherwise a link without a stray may still
    /// have processes.
    pub complete: bool,
    empty_leaves: Vec<PathBuf>,
}

impl Found {
    /// Removes the leaves of dead owners that have no process in them.
    pub fn remove_hollow(&self) {
        for path in &self.empty_leaves {
            // A scope is removed by its manager. A refusal leaves an empty directory, which does no harm.
            if let Ok(leaf) = Leaf::open(path.clone()) {
                drop(leaf.remove());
            }
        }
    }
}

/// Looks for strays, and changes nothing: by leaf names, by tags in the environments of our own user's processes, and
/// by recorded cards. Links for which `skip` is true are left out.
pub fn find(
    realm: &Realm,
    recorded: &[(Tag, Vec<Identity>)],
    skip: &dyn Fn(LinkId) -> bool,
) -> Found {
    find_among(census::pids, realm, recorded, skip)
}

/// The same for a report about the processes of this list, which is that of [`census::pids`]. It asks for the mark first, which costs a sixth of
/// reading an environment. A stray that has removed its mark and is in no leaf is missed here; the next [`find`] finds it.
pub fn find_for_report(
    pids: &[i32],
    realm: &Realm,
    recorded: &[(Tag, Vec<Identity>)],
    skip: &dyn Fn(LinkId) -> bool,
) -> Found {
    let all = !mark::is_usual();
    let may_be_tagged = |pid: &i32| all || mark::may_be_on(*pid);
    let list = || Ok(pids.iter().copied().filter(may_be_tagged).collect());
    find_among(list, realm, recorded, skip)
}

fn find_among(
    list: impl FnOnce() -> io::Result<Vec<i32>>,
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
    let mut empty_leaves = Vec::new();
    for (tag, path) in cgroup::search() {
        if !orphaned(&tag) {
            continue;
        }
        match Leaf::open(path.clone()) {
            Ok(leaf) if !leaf.populated() => empty_leaves.push(path),
            // Gone meanwhile, or another user's.
            Err(error)
                if cgroup::is_going(&error) || error.kind() == io::ErrorKind::PermissionDenied => {}
            Ok(_) | Err(_) => entry(&mut found, &tag, "leaf").leaves.push(path),
        }
    }
    // The next sweep finds what cannot be read now.
    let mut note = |pid, tag: &Tag| {
        if orphaned(tag) {
            entry(&mut found, tag, "tag").tagged.push(pid);
        }
    };
    let mut complete = list()
        .and_then(|pids| tagged(&pids, recorded, &mut note))
        .is_ok();
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
        let members = spared().and_then(|spared| scan(tag, recorded, leaves, tagged, &spared));
        complete &= members.is_ok();
        stray.members = members.unwrap_or_default();
    }
    // A populated leaf has members, even if each of them was gone when we looked at it.
    strays.retain(|stray| !stray.members.is_empty() || !stray.leaves.is_empty());
    Found {
        strays,
        complete,
        empty_leaves,
    }
}

/// Ends a stray, if its owner is still dead and the realm is still ours.
pub fn end(stray: &Stray, confirm_ms: u64) -> Outcome {
    let ours = identity::realm().is_ok_and(|realm| realm == stray.tag.realm);
    if !ours || identity::alive(stray.tag.owner) {
        return Outcome {
            ended: Vec::new(),
            left: stray.members.clone(),
        };
    }
    kill_all(
        &stray.tag,
        &stray.members,
        &stray.recorded,
        &stray.leaves,
        confirm_ms,
    )
}

/// Ends all processes that a tag names. The caller has the right to but is not their ancestor: a side guard, or a
/// guard that came later. Finds them by leaf, by environment, and by recorded identities, and repeats until a scan
/// finds none. It does not check whether the owner lives. A tag of another realm names no process here.
pub fn end_by_tag(tag: &Tag, recorded: &[Identity], confirm_ms: u64) -> Outcome {
    if identity::realm().is_ok_and(|realm| realm != tag.realm) {
        return Outcome::default();
    }
    let leaf = Leaf::of(tag).map(|leaf| leaf.path().to_owned());
    let leaves: Vec<PathBuf> = leaf.into_iter().collect();
    kill_all(tag, &[], recorded, &leaves, confirm_ms)
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

/// Scans in a row that find no process.
const QUIET_SCANS: usize = 2;

/// Scans in a row that find no process but may have missed one. A fork-and-exit chain can hide from one scan, hardly
/// from this many.
const INCOMPLETE_SCANS: usize = 20;

/// Kills and scans again, until a scan finds no process. Processes that are already named are killed before the first
/// full scan, which takes time: an identity stays proven, even if its process has changed. A scan that failed because
/// no descriptor was left does not count as a scan that found no process.
fn kill_all(
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
    let mut pass = |scan_tagged: &mut dyn FnMut(&BTreeSet<i32>) -> io::Result<TaggedScan>| {
        let spared = spared()?;
        let tagged_scan = scan_tagged(&spared);
        let members = scan(tag, &named, leaves, &[], &spared);
        kill_leaves(leaves, &spared)?;
        let TaggedScan { killed, whole } = tagged_scan?;
        let mut members = members?;
        members.extend(killed);
        io::Result::Ok((kill_members(&members, &mut met, deadline)?, whole))
    };
    // Even if it fails, the full scans follow.
    pass(&mut |_| Ok(TaggedScan::default())).ok();
    let (mut quiet, mut incomplete) = (0, 0);
    let mut zombies = BTreeSet::new();
    while quiet < QUIET_SCANS && incomplete < INCOMPLETE_SCANS {
        match pass(&mut |spared| kill_tagged(tag, spared, &mut zombies)) {
            Ok((KillScan { of: 0, .. }, true)) => quiet += 1,
            Ok((KillScan { of: 0, .. }, false)) => incomplete += 1,
            Ok((KillScan { refused, of }, _)) if refused == of => break,
            Ok(_) => (quiet, incomplete) = (0, 0),
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
            // Fails only while a process is in it.
            drop(leaf.remove());
        }
    }
    // An exiting process has no environment any more, so no scan finds it; and we could not hold a pidfd of each
    // until its end.
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
    // A process that no scan has reached is still there.
    let missed = |seen: &&Seen| !left.contains(seen) && identity::alive(seen.who);
    let missed: Vec<Seen> = proven.iter().filter(missed).cloned().collect();
    left.extend(missed);
    Outcome { ended, left }
}

/// Kills all processes of a leaf at once.
fn kill_leaves(leaves: &[PathBuf], spared: &BTreeSet<i32>) -> io::Result<()> {
    for path in leaves {
        let Some(leaf) = procfs::none_if_gone(Leaf::open(path.clone()))? else {
            continue;
        };
        // None of our processes is ever in a leaf, unless we ourselves run inside of one.
        if leaf.populated() && !leaf.members()?.iter().any(|pid| spared.contains(pid)) {
            drop(leaf.kill());
        }
    }
    Ok(())
}

/// The result of one killing scan.
struct KillScan {
    /// How many we may not kill.
    refused: usize,
    /// How many were found.
    of: usize,
}

/// Kills them, records that they were met, and waits for their ends.
fn kill_members(
    members: &[Seen],
    met: &mut BTreeMap<Identity, Seen>,
    deadline: Moment,
) -> io::Result<KillScan> {
    let mut refused = 0;
    let mut held: Vec<Handle> = Vec::new();
    for seen in members {
        let mut opened = procfs::none_if_gone(Handle::open(seen.who));
        if opened.is_err() && !held.is_empty() {
            // Killing comes before waiting: the next scan checks those that are exiting.
            held.clear();
            opened = procfs::none_if_gone(Handle::open(seen.who));
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
    Ok(KillScan {
        refused,
        of: members.len(),
    })
}

/// The processes that a scan found and killed.
#[derive(Default)]
struct TaggedScan {
    killed: Vec<Seen>,
    /// The scan cannot have missed a process.
    whole: bool,
}

/// One scan of our own user's processes. A process with the tag is killed when it is found, with all its descendants,
/// newest first, because at the end of the scan a process of a fork-and-exit chain would be gone. `zombies` are those
/// that earlier scans have met.
fn kill_tagged(
    tag: &Tag,
    spared: &BTreeSet<i32>,
    zombies: &mut BTreeSet<Identity>,
) -> io::Result<TaggedScan> {
    let uid = rustix::process::geteuid().as_raw();
    let mut killed: BTreeMap<i32, Seen> = BTreeMap::new();
    let mut whole = true;
    for pid in census::pids()?.into_iter().rev() {
        match census::uid(pid) {
            // It was on the list and is gone. It may have had a child that lives.
            None => whole = false,
            Some(owner) if owner != uid || spared.contains(&pid) => {}
            Some(_) if has_tag(pid, tag)? => {
                let has_tag = || has_tag(pid, tag);
                let who = procfs::none_if_gone(identity::of(pid))?;
                let held = who.map(|who| held(who, has_tag)).transpose()?.flatten();
                let Some((seen, handle)) = held else {
                    whole = false;
                    continue;
                };
                let mut found = BTreeMap::from([(pid, seen)]);
                below(pid, spared, &mut found)?;
                // A refused or vanished process is seen again when all found ones are killed.
                drop(handle.signal(Signal::KILL));
                for seen in found.values().filter(|seen| seen.who != handle.who) {
                    if let Ok(handle) = Handle::open(seen.who) {
                        drop(handle.signal(Signal::KILL));
                    }
                }
                killed.append(&mut found);
            }
            Some(_) => match procfs::none_if_gone(census::stat(pid))? {
                // Its tag cannot be read any more, and it may have had a child after the list was made.
                Some(stat) if stat.exiting() => whole &= !zombies.insert(stat.who()),
                Some(_) => {}
                None => whole = false,
            },
        }
    }
    let killed = killed.into_values().collect();
    Ok(TaggedScan { killed, whole })
}

/// A process, if it is alive and `proof` holds while we hold its pidfd. No descriptor stays open: from here on its
/// identity is enough, so we do not run out of descriptors however many processes there are.
fn proven(who: Identity, proof: impl FnOnce() -> io::Result<bool>) -> io::Result<Option<Seen>> {
    Ok(held(who, proof)?.map(|(seen, _)| seen))
}

/// The same, with a handle on it.
fn held(
    who: Identity,
    proof: impl FnOnce() -> io::Result<bool>,
) -> io::Result<Option<(Seen, Handle)>> {
    let Some(handle) = procfs::none_if_gone(Handle::open(who))? else {
        return Ok(None);
    };
    let Some(stat) = procfs::none_if_gone(census::stat(who.pid))? else {
        return Ok(None);
    };
    let alive = !stat.dead() || !handle.ended();
    let seen = Seen {
        who,
        comm: stat.comm,
    };
    Ok((alive && proof()?).then_some((seen, handle)))
}

/// One scan for all processes that are proven to belong to a tag.
fn scan(
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
        let Some(leaf) = procfs::none_if_gone(Leaf::open(path.clone()))? else {
            continue;
        };
        for pid in leaf.members()? {
            if let Some(who) = procfs::none_if_gone(identity::of(pid))? {
                add(who, &|| leaf.seen_to_hold(pid))?;
            }
        }
    }
    for &pid in tagged {
        if let Some(who) = procfs::none_if_gone(identity::of(pid))? {
            add(who, &|| has_tag(pid, tag))?;
        }
    }
    for &who in named {
        add(who, &|| Ok(true))?;
    }
    // Descendants of a member that have lost the tag.
    let above: Vec<i32> = members.keys().copied().collect();
    for pid in above {
        below(pid, spared, &mut members)?;
    }
    Ok(members.into_values().collect())
}

/// Adds the descendants of a member, except those that another living owner claims.
pub(crate) fn below(
    pid: i32,
    spared: &BTreeSet<i32>,
    members: &mut BTreeMap<i32, Seen>,
) -> io::Result<()> {
    for child in procfs::none_if_gone(census::children(pid))?.unwrap_or_default() {
        if spared.contains(&child) || members.contains_key(&child) {
            continue;
        }
        let claimed = tag_of(child)?.is_some_and(|tag| identity::alive(tag.owner));
        let Some(who) = procfs::none_if_gone(identity::of(child))? else {
            continue;
        };
        let still = || {
            let stat = procfs::none_if_gone(census::stat(child))?;
            Ok(stat.is_some_and(|stat| stat.ppid == pid))
        };
        if !claimed && let Some(seen) = proven(who, still)? {
            members.insert(child, seen);
            below(child, spared, members)?;
        }
    }
    Ok(())
}

/// Calls `tell` for each process of our own user with a tag in its environment, or else with the mark of a recorded
/// tag. Few processes have one, so their user is asked for last.
fn tagged(
    pids: &[i32],
    recorded: &[(Tag, Vec<Identity>)],
    tell: &mut dyn FnMut(i32, &Tag),
) -> io::Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    let mut variables = census::Variables::named(TAG_VARIABLE);
    for &pid in pids {
        let value = procfs::none_if_gone(variables.of(pid))?.flatten();
        let tag = value.and_then(|text| text.parse().ok());
        let marked = || recorded.iter().find(|(tag, _)| mark::is_on(pid, tag));
        let Some(tag) = tag.or_else(|| marked().map(|(tag, _)| tag.clone())) else {
            continue;
        };
        if census::uid(pid) == Some(uid) {
            tell(pid, &tag);
        }
    }
    Ok(())
}

/// Whether a process belongs to a tag: by its environment, or by its mark if the environment has no tag.
fn has_tag(pid: i32, tag: &Tag) -> io::Result<bool> {
    Ok(match tag_of(pid)? {
        Some(found) => found == *tag,
        None => mark::is_on(pid, tag),
    })
}

fn tag_of(pid: i32) -> io::Result<Option<Tag>> {
    let value = procfs::none_if_gone(census::read_variable(pid, TAG_VARIABLE))?;
    Ok(value.flatten().and_then(|text| text.parse().ok()))
}

/// Ourselves and our ancestors.
pub(crate) fn spared() -> io::Result<BTreeSet<i32>> {
    let mut spared = BTreeSet::new();
    let mut pid = std::process::id() as i32;
    while pid > 0 && spared.insert(pid) {
        pid = procfs::none_if_gone(census::stat(pid))?.map_or(0, |stat| stat.ppid);
    }
    Ok(spared)
}
