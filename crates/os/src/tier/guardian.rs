//! The guardian: the last one to act, when every process of a link was killed at once.
//!
//! It runs as a service of the systemd user manager, which starts it again whenever it is killed. It holds no state
//! but names: each leaf in its slice says who owns it. A leaf whose keeper is gone is ended, at once if the keeper's
//! guard is gone too, else after a second, because a living guard acts by itself. It wakes only when a leaf comes or
//! an owner goes, and leaves when there has been no leaf for a while. Where there are more owners than it may have
//! descriptors, it looks at the others every second: a keeper is gone only if the kernel says so.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use mainstay_core::clock::Moment;
use mainstay_core::ids::{Identity, Realm, Tag};
use mainstay_core::limits;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock, inotify};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::cgroup::{self, Leaf, timespec};
use super::scope::{GUARDIAN, LEAVING};
use crate::identity::{self, Handle};
use crate::{census, clock};

/// Watches over the slice that this process is in, until nothing has been in it for a while.
pub fn run() -> Result<(), String> {
    run_for(limits::GUARDIAN_IDLE_MS)
}

/// The same, with another time to stay without any leaf.
pub fn run_for(idle_ms: u64) -> Result<(), String> {
    let own = cgroup::own()?;
    if own.file_name().is_none_or(|name| name != GUARDIAN) {
        return Err(format!(
            "the guardian is started by the systemd user manager, as {GUARDIAN}"
        ));
    }
    let slice = own.parent().ok_or("no slice")?.to_owned();
    watch(&slice, idle_ms)
        .map_err(|error| format!("{} cannot be watched: {error}", slice.display()))
}

/// Descriptors that are never held for anybody: ours, and those of a look.
const DESCRIPTORS_KEPT: u64 = 16;

/// How many owners may be waited for at once: two descriptors each.
fn room() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Refused nowhere: it asks for what we may have. We start nobody who would inherit it.
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    )
    .ok();
    getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |most| {
            (most.saturating_sub(DESCRIPTORS_KEPT) / 2) as usize
        })
}

/// One leaf and those who answer for it.
struct Ward {
    leaf: PathBuf,
    keeper: Identity,
    guard: Option<Handle>,
    fate: Fate,
}

/// How it stands with a leaf.
enum Fate {
    /// Its keeper lives.
    Kept(Handle),
    /// Its keeper was not seen to be dead, and nobody tells when it is: to be looked at then.
    Unwatched(Moment),
    /// Its keeper is gone, its guard lives and has until then.
    Guarded(Moment),
    /// It was ended, or is to be; looked after again then, should it still be there.
    Ended(Moment),
}

impl Ward {
    fn new(leaf: PathBuf, tag: &Tag) -> Self {
        Self {
            leaf,
            keeper: tag.owner,
            guard: None,
            fate: Fate::Unwatched(Moment::default()),
        }
    }

    /// Waits for the end of a keeper that nobody waited for yet, if there is `room` for its handle.
    fn attend(&mut self, now: Moment, room: bool) {
        let again = Fate::Unwatched(now.after_ms(limits::GUARDIAN_AGAIN_MS));
        let handle = if room {
            Handle::open(self.keeper)
        } else if identity::alive(self.keeper) {
            self.fate = again;
            return;
        } else {
            Err(io::ErrorKind::NotFound.into())
        };
        self.fate = match handle {
            Ok(keeper) if !keeper.ended() => {
                self.guard = guard_of(self.keeper);
                Fate::Kept(keeper)
            }
            // Gone before we watched: whether a guard lives we cannot know, and to end a leaf twice does no harm.
            Ok(_) => Fate::Ended(Moment::default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Fate::Ended(Moment::default()),
            Err(_) => again,
        };
    }

    /// Looks again, and ends the leaf if it is time.
    fn judge(&mut self, now: Moment, room: bool) {
        if matches!(self.fate, Fate::Unwatched(at) if at <= now) {
            self.attend(now, room);
        }
        self.guard.take_if(|guard| guard.ended());
        match &self.fate {
            Fate::Unwatched(_) => return,
            Fate::Kept(keeper) if !keeper.ended() => return,
            Fate::Kept(_) if self.guard.is_some() => {
                self.fate = Fate::Guarded(now.after_ms(limits::GUARDIAN_GUARD_MS));
                return;
            }
            Fate::Guarded(until) if *until > now && self.guard.is_some() => return,
            Fate::Ended(again) if *again > now => return,
            Fate::Kept(_) | Fate::Guarded(_) | Fate::Ended(_) => {}
        }
        // Gone already, or refused: there is nothing else that we could do, but try again.
        if let Ok(leaf) = Leaf::open(self.leaf.clone()) {
            drop(leaf.kill());
        }
        self.fate = Fate::Ended(now.after_ms(limits::GUARDIAN_AGAIN_MS));
    }

    /// When to look again if nothing happens.
    fn due(&self) -> Option<Moment> {
        match &self.fate {
            Fate::Kept(_) => None,
            Fate::Unwatched(at) | Fate::Guarded(at) | Fate::Ended(at) => Some(*at),
        }
    }

    /// Whose end to wait for.
    fn handle(&self) -> Option<&Handle> {
        match &self.fate {
            Fate::Kept(keeper) => Some(keeper),
            Fate::Guarded(_) => self.guard.as_ref(),
            Fate::Unwatched(_) | Fate::Ended(_) => None,
        }
    }
}

/// The keeper's parent is its guard, as long as both live; whoever adopts it later is taken for one, which costs a second
/// at most.
fn guard_of(keeper: Identity) -> Option<Handle> {
    census::stat(keeper.pid)
        .and_then(|stat| identity::of(stat.ppid))
        .and_then(Handle::open)
        .ok()
}

/// Watches over the leaves in a directory, until there has been none for a while.
pub fn watch(slice: &Path, idle_ms: u64) -> io::Result<()> {
    let realm = identity::realm()?;
    let room = room();
    let news = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(
        &news,
        slice,
        inotify::WatchFlags::CREATE | inotify::WatchFlags::DELETE,
    )?;
    let mut wards: BTreeMap<String, Ward> = BTreeMap::new();
    let mut idle_since = clock::now();
    loop {
        drain(&news)?;
        let now = clock::now();
        let looked = refresh(&mut wards, slice, &realm);
        let mut held = wards
            .values()
            .filter(|ward| ward.handle().is_some())
            .count();
        for ward in wards.values_mut() {
            let before = ward.handle().is_some();
            ward.judge(now, held < room);
            held += usize::from(!before && ward.handle().is_some());
        }
        let until = if wards.is_empty() && looked.is_ok() {
            let until = idle_since.after_ms(idle_ms);
            if until <= now {
                if leave(slice, &realm)? {
                    return Ok(());
                }
                idle_since = now;
                continue;
            }
            Some(until)
        } else {
            idle_since = now;
            let again = looked
                .err()
                .map(|_| now.after_ms(limits::GUARDIAN_AGAIN_MS));
            wards.values().filter_map(Ward::due).chain(again).min()
        };
        sleep(&news, &wards, until.map(|until| until - now));
    }
}

/// Decides to go, unless somebody holds the door or a leaf has come.
fn leave(slice: &Path, realm: &Realm) -> io::Result<bool> {
    let door = File::open(slice)?;
    if flock(door.as_fd(), FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(false);
    }
    if !leaves(slice, realm)?.is_empty() {
        return Ok(false);
    }
    // From here on no keeper counts on us: the door is shut until we are gone, the name says it after that.
    rustix::thread::set_name(&std::ffi::CString::new(LEAVING)?)?;
    std::mem::forget(door);
    Ok(true)
}

/// Forgets leaves that are gone and welcomes new ones; a slice that cannot be looked at now has lost none.
fn refresh(wards: &mut BTreeMap<String, Ward>, slice: &Path, realm: &Realm) -> io::Result<()> {
    let found = leaves(slice, realm)?;
    wards.retain(|name, _| found.contains_key(name));
    for (name, tag) in found {
        let leaf = slice.join(&name);
        wards.entry(name).or_insert_with(|| Ward::new(leaf, &tag));
    }
    Ok(())
}

/// The leaves in the slice whose owner's pid has a meaning here.
fn leaves(slice: &Path, realm: &Realm) -> io::Result<BTreeMap<String, Tag>> {
    let found = match cgroup::list(slice) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        found => found?,
    };
    let found = found.into_iter().filter_map(|dir| {
        let name = dir.file_name()?.to_str()?.to_owned();
        let tag = cgroup::tag_of(&name)?;
        (tag.realm == *realm).then_some((name, tag))
    });
    Ok(found.collect())
}

/// Waits for a leaf to come or go, an owner to end, or the time.
fn sleep(news: &OwnedFd, wards: &BTreeMap<String, Ward>, ns: Option<u64>) {
    let mut fds = vec![PollFd::new(news, PollFlags::IN)];
    for ward in wards.values() {
        if let Some(handle) = ward.handle() {
            fds.push(PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN));
        }
    }
    let timeout = ns.map(timespec);
    // A signal only makes us look again.
    poll(&mut fds, timeout.as_ref()).ok();
}

fn drain(news: &OwnedFd) -> io::Result<()> {
    let mut buffer = [0u8; 4096];
    loop {
        match rustix::io::read(news, &mut buffer) {
            Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ward(guard: Option<Handle>, fate: Fate) -> Ward {
        Ward {
            leaf: "/nowhere".into(),
            keeper: identity::me().unwrap(),
            guard,
            fate,
        }
    }

    fn me() -> Handle {
        Handle::open(identity::me().unwrap()).unwrap()
    }

    #[test]
    fn a_living_guard_is_given_time_and_a_dead_one_is_not() {
        let start = Moment(5_000_000_000);
        let until = start.after_ms(limits::GUARDIAN_GUARD_MS);
        let mut kept = ward(Some(me()), Fate::Kept(me()));
        kept.judge(start, true);
        assert!(matches!(kept.fate, Fate::Kept(_)));

        let mut guarded = ward(Some(me()), Fate::Guarded(until));
        guarded.judge(start, true);
        assert!(matches!(guarded.fate, Fate::Guarded(at) if at == until));
        assert_eq!(guarded.due(), Some(until));
        guarded.judge(until, true);
        assert!(matches!(guarded.fate, Fate::Ended(_)));

        let mut alone = ward(None, Fate::Guarded(until));
        alone.judge(start, true);
        assert!(
            matches!(alone.fate, Fate::Ended(at) if at == start.after_ms(limits::GUARDIAN_AGAIN_MS))
        );
    }
}
