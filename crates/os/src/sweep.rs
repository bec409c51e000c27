//! What dead owners left behind: finding it by name, and ending it.
//!
//! A stray is proven by a tag, in the name of a leaf or in a process's environment, or by an identity that a card
//! recorded; whoever is below a proven process is proven with it. It counts only if the tag's realm is ours (same
//! boot, same namespaces of pids and of times) and its owner, pid *and* start time, is dead. Nobody else is ever touched: unsure means
//! spare. We ourselves and whoever we descend from are spared too, whatever their environment says.
//!
//! Here nobody is our child: we signal through pidfds, wait for them, and leave the reaping to whoever owns it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use mainstay_core::clock::Moment;
use mainstay_core::event::Seen;
use mainstay_core::ids::{Identity, LinkId, Realm, TAG_VARIABLE, Tag};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;

use crate::identity::{self, Handle};
use crate::tier::cgroup::{self, Leaf, timespec};
use crate::{census, clock};

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

/// Looks for strays: by leaf names, by tags in the environment of our own user's processes, and by what cards
/// recorded. Links for which `skip` is true are not looked at. Empty leaves of dead owners are removed on the way.
pub fn find(
    realm: &Realm,
    recorded: &[(Tag, Vec<Identity>)],
    skip: &dyn Fn(LinkId) -> bool,
) -> Vec<Stray> {
    let mut owners: BTreeMap<Identity, bool> = BTreeMap::new();
    let mut orphaned = |tag: &Tag| {
        tag.realm == *realm
            && !skip(tag.link)
            && *owners
                .entry(tag.owner)
                .or_insert_with(|| !identity::alive(tag.owner))
    };
    let mut found: BTreeMap<String, Stray> = BTreeMap::new();
    for (tag, path) in cgroup::search() {
        if !orphaned(&tag) {
            continue;
        }
        match Leaf::open(path.clone()) {
            // A scope is removed by its manager; refusals leave an empty directory, which harms nobody.
            Ok(leaf) if !leaf.populated() => drop(leaf.remove()),
            Ok(_) | Err(_) => entry(&mut found, &tag, "leaf").leaves.push(path),
        }
    }
    for (pid, tag) in tagged(&|_| true) {
        if orphaned(&tag) {
            entry(&mut found, &tag, "tag").tagged.push(pid);
        }
    }
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
    let spared = spared();
    let mut strays: Vec<Stray> = found.into_values().collect();
    for stray in &mut strays {
        let Stray {
            tag,
            recorded,
            leaves,
            tagged,
            ..
        } = &*stray;
        let members = look(tag, recorded, leaves, tagged, &spared);
        stray.members = members.into_iter().map(|member| member.seen).collect();
    }
    // A leaf that is populated has members, also if none of them stood still for our look.
    strays.retain(|stray| !stray.members.is_empty() || !stray.leaves.is_empty());
    strays
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

/// Kills and looks again, until nobody is found any more. Whoever is proven already is killed before the first whole look,
/// which takes its time: an identity stays proven, whatever its process has become.
fn hunt(
    tag: &Tag,
    proven: &[Seen],
    recorded: &[Identity],
    leaves: &[PathBuf],
    confirm_ms: u64,
) -> Outcome {
    let deadline = clock::now().after_ms(confirm_ms);
    let spared = spared();
    let opened: Vec<Leaf> = leaves
        .iter()
        .filter_map(|path| Leaf::open(path.clone()).ok())
        .collect();
    let mut met: BTreeMap<Identity, Seen> = BTreeMap::new();
    let mut first: BTreeMap<i32, Member> = BTreeMap::new();
    for who in proven.iter().map(|seen| seen.who) {
        if !spared.contains(&who.pid)
            && let Some(member) = Member::hold(who, &|| true)
        {
            first.insert(who.pid, member);
        }
    }
    // Whoever they have made since.
    for seen in proven {
        if first.contains_key(&seen.who.pid) {
            below(seen.who.pid, &spared, &mut first);
        }
    }
    strike(first.values(), &mut met, deadline);
    // And whoever a leaf holds or a card recorded: to read everybody's environment takes longer than all the rest.
    let known = look(tag, recorded, leaves, &[], &spared);
    kill_leaves(&opened, &spared);
    strike(known.iter(), &mut met, deadline);
    let mut quiet = 0;
    let mut spoilt = 0;
    let mut zombies = BTreeSet::new();
    while quiet < QUIET_LOOKS && spoilt < SPOILT_LOOKS {
        let (struck, whole) = strike_tagged(tag, &spared, &mut zombies);
        let mut members = look(tag, recorded, leaves, &[], &spared);
        members.extend(struck);
        kill_leaves(&opened, &spared);
        let refused = strike(members.iter(), &mut met, deadline);
        if !members.is_empty() {
            if refused == members.len() {
                break;
            }
            (quiet, spoilt) = (0, 0);
        } else if whole {
            quiet += 1;
        } else {
            spoilt += 1;
        }
        if clock::now() >= deadline {
            break;
        }
    }
    for leaf in &opened {
        if leaf.wait_empty(deadline) {
            // Fails only while somebody is in it.
            drop(leaf.remove());
        }
    }
    let (left, ended) = met
        .into_values()
        .partition(|seen| identity::alive(seen.who));
    Outcome { ended, left }
}

/// Kills whoever is in a leaf, all at once.
fn kill_leaves(leaves: &[Leaf], spared: &BTreeSet<i32>) {
    for leaf in leaves {
        // Nobody of ours is ever in a leaf, unless we ourselves run inside of one.
        if leaf.populated() && !leaf.members().iter().any(|pid| spared.contains(pid)) {
            drop(leaf.kill());
        }
    }
}

/// Kills them, notes that they were met, and waits for their ends; how many we may not kill.
fn strike<'m>(
    members: impl Iterator<Item = &'m Member> + Clone,
    met: &mut BTreeMap<Identity, Seen>,
    deadline: Moment,
) -> usize {
    let mut refused = BTreeSet::new();
    for member in members.clone() {
        met.insert(member.seen.who, member.seen.clone());
        if let Err(error) = member.handle.signal(Signal::KILL)
            && error.raw_os_error() == Some(libc::EPERM)
        {
            refused.insert(member.seen.who);
        }
    }
    for member in members {
        if !refused.contains(&member.seen.who) {
            member.wait(deadline);
        }
    }
    refused.len()
}

/// Somebody whom the tag, a leaf or a card names, held by a pidfd.
struct Member {
    seen: Seen,
    handle: Handle,
}

impl Member {
    /// Holds a process, if `proof` is true of it while it is held.
    fn hold(who: Identity, proof: &dyn Fn() -> bool) -> Option<Self> {
        let handle = Handle::open(who).ok()?;
        let stat = census::stat(who.pid).ok()?;
        let alive = !stat.dead() || !handle.ended();
        (alive && proof()).then_some(Self {
            seen: Seen {
                who,
                comm: stat.comm,
            },
            handle,
        })
    }

    fn wait(&self, deadline: Moment) {
        loop {
            let left = deadline - clock::now();
            let mut fds = [PollFd::new(&self.handle, PollFlags::IN)];
            if poll(&mut fds, Some(&timespec(left))).is_ok_and(|n| n > 0) || left == 0 {
                return;
            }
        }
    }
}

/// One look at our own user's processes: whoever bears the tag is killed at sight, with all below it, the newest first. At the
/// end of the look a link of a fork-and-exit chain would be gone. Says also whether nobody can have been missed; `zombies`
/// are those that earlier looks have met.
fn strike_tagged(
    tag: &Tag,
    spared: &BTreeSet<i32>,
    zombies: &mut BTreeSet<Identity>,
) -> (Vec<Member>, bool) {
    let uid = rustix::process::geteuid().as_raw();
    let mut struck: BTreeMap<i32, Member> = BTreeMap::new();
    let mut whole = true;
    for pid in census::pids().unwrap_or_default().into_iter().rev() {
        match census::uid(pid) {
            // It was on the list and is gone; it may have had a child that is not.
            None => whole = false,
            Some(owner) if owner != uid || spared.contains(&pid) => {}
            Some(_) if tag_of(pid).as_ref() == Some(tag) => {
                let bears = || tag_of(pid).as_ref() == Some(tag);
                let who = identity::of(pid).ok();
                let Some(member) = who.and_then(|who| Member::hold(who, &bears)) else {
                    whole = false;
                    continue;
                };
                let mut found = BTreeMap::from([(pid, member)]);
                below(pid, spared, &mut found);
                for member in found.values() {
                    // Whoever refuses, or is gone, is seen when all are struck.
                    drop(member.handle.signal(Signal::KILL));
                }
                struck.append(&mut found);
            }
            Some(_) => match census::stat(pid) {
                Ok(stat) if stat.dead() => whole &= !zombies.insert(stat.who()),
                Ok(_) => {}
                Err(_) => whole = false,
            },
        }
    }
    (struck.into_values().collect(), whole)
}

/// One look at everybody who is proven to belong to a tag.
fn look(
    tag: &Tag,
    recorded: &[Identity],
    leaves: &[PathBuf],
    tagged: &[i32],
    spared: &BTreeSet<i32>,
) -> Vec<Member> {
    let mut members: BTreeMap<i32, Member> = BTreeMap::new();
    let mut add = |pid: i32, who: Option<Identity>, proof: &dyn Fn() -> bool| {
        if !spared.contains(&pid)
            && !members.contains_key(&pid)
            && let Some(who) = who.or_else(|| identity::of(pid).ok())
            && let Some(member) = Member::hold(who, proof)
        {
            members.insert(pid, member);
        }
    };
    for path in leaves {
        let Ok(leaf) = Leaf::open(path.clone()) else {
            continue;
        };
        for pid in leaf.members() {
            add(pid, None, &|| leaf.holds(pid));
        }
    }
    for &pid in tagged {
        add(pid, None, &|| tag_of(pid).as_ref() == Some(tag));
    }
    for &who in recorded {
        add(who.pid, Some(who), &|| true);
    }
    // Whoever lost the tag but is still below a member.
    let proven: Vec<i32> = members.keys().copied().collect();
    for pid in proven {
        below(pid, spared, &mut members);
    }
    members.into_values().collect()
}

/// Adds the descendants of a member, but nobody whom another living owner claims.
fn below(pid: i32, spared: &BTreeSet<i32>, members: &mut BTreeMap<i32, Member>) {
    for child in census::children(pid).unwrap_or_default() {
        if spared.contains(&child) || members.contains_key(&child) {
            continue;
        }
        let claimed = tag_of(child).is_some_and(|tag| identity::alive(tag.owner));
        let Ok(who) = identity::of(child) else {
            continue;
        };
        let still = || census::stat(child).is_ok_and(|stat| stat.ppid == pid);
        if !claimed && let Some(member) = Member::hold(who, &still) {
            members.insert(child, member);
            below(child, spared, members);
        }
    }
}

/// Processes of our own user whose environment bears a tag. In stages: whose it is costs little, its environment more.
fn tagged(wanted: &dyn Fn(&Tag) -> bool) -> Vec<(i32, Tag)> {
    let uid = rustix::process::geteuid().as_raw();
    census::pids()
        .unwrap_or_default()
        .into_iter()
        .filter(|&pid| census::uid(pid) == Some(uid))
        .filter_map(|pid| Some((pid, tag_of(pid)?)))
        .filter(|(_, tag)| wanted(tag))
        .collect()
}

fn tag_of(pid: i32) -> Option<Tag> {
    census::variable(pid, TAG_VARIABLE)?.parse().ok()
}

/// Ourselves and whoever we descend from.
fn spared() -> BTreeSet<i32> {
    let mut spared = BTreeSet::new();
    let mut pid = std::process::id() as i32;
    while pid > 0 && spared.insert(pid) {
        pid = census::stat(pid).map_or(0, |stat| stat.ppid);
    }
    spared
}
