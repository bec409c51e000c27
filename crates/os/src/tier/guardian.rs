//! The guardian: it acts when every process of a link was killed at once.
//!
//! It runs as a service of the systemd user manager, which starts it again whenever it is killed. It holds no state
//! but names: the name of each leaf in its slice contains the owner. A leaf whose keeper is gone is ended: at once if
//! the keeper's guard is gone too, otherwise after a second, because a living guard acts by itself. The guardian
//! wakes only when a leaf comes or an owner ends, and exits when there has been no leaf for a while. If there are
//! more owners than descriptors, it checks the others every second: a keeper is gone only if the kernel says so.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use mainstay_protocol::clock::Moment;
use mainstay_protocol::ids::{Identity, Realm, Tag};
use mainstay_protocol::limits;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock, inotify};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::cgroup::{self, Leaf, timespec};
use super::refusal::Refusal;
use super::scope::{GUARDIAN, LEAVING};
use crate::identity::{self, Handle};
use crate::{census, clock};

/// Why the guardian cannot do its work.
#[derive(Debug)]
pub enum Error {
    /// Our own cgroup is not known.
    NoCgroup(Refusal),
    /// The systemd user manager has not started this process as its unit.
    NotAUnit,
    /// The slice cannot be watched.
    Watch {
        /// Its directory.
        slice: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCgroup(refusal) => refusal.fmt(f),
            Self::NotAUnit => write!(
                f,
                "the guardian is started by the systemd user manager, as {GUARDIAN}"
            ),
            Self::Watch { slice, error } => {
                write!(f, "{} cannot be watched: {error}", slice.display())
            }
        }
    }
}

impl std::error::Error for Error {}

/// Watches the slice that this process is in, until no leaf has been in it for a while.
pub fn run() -> Result<(), Error> {
    run_for(limits::GUARDIAN_IDLE_MS)
}

/// The same, with another idle time.
pub fn run_for(idle_ms: u64) -> Result<(), Error> {
    let own = cgroup::own().map_err(Error::NoCgroup)?;
    if own.file_name().is_none_or(|name| name != GUARDIAN) {
        return Err(Error::NotAUnit);
    }
    let slice = own.parent().ok_or(Error::NotAUnit)?.to_owned();
    watch(&slice, idle_ms).map_err(|error| Error::Watch { slice, error })
}

/// Descriptors that are not used for owners: our own, and those of a scan.
const DESCRIPTORS_KEPT: u64 = 16;

/// How many owners can be watched at once: two descriptors each.
fn room() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Never refused, because it asks for what we may have. We start no process that would inherit it.
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

/// One leaf, its keeper and its guard.
struct WatchedLeaf {
    leaf: PathBuf,
    keeper: Identity,
    guard: Option<Handle>,
    state: State,
}

/// The state of a leaf.
enum State {
    /// Its keeper lives.
    Kept(Handle),
    /// Its keeper was not seen dead, but cannot be watched. It is checked again at this time.
    Unwatched(Moment),
    /// Its keeper is gone, but its guard lives and has until this time.
    Guarded(Moment),
    /// It was ended, or is to be. If it is still there at this time, it is ended again.
    Ended(Moment),
}

impl WatchedLeaf {
    fn new(leaf: PathBuf, tag: &Tag) -> Self {
        Self {
            leaf,
            keeper: tag.owner,
            guard: None,
            state: State::Unwatched(Moment::default()),
        }
    }

    /// Starts to watch a keeper that is not watched yet, if there is `room` for its handle.
    fn watch_keeper(&mut self, now: Moment, room: bool) {
        let again = State::Unwatched(now.after_ms(limits::GUARDIAN_AGAIN_MS));
        let handle = if room {
            Handle::open(self.keeper)
        } else if identity::alive(self.keeper) {
            self.state = again;
            return;
        } else {
            Err(io::ErrorKind::NotFound.into())
        };
        self.state = match handle {
            Ok(keeper) if !keeper.ended() => {
                self.guard = guard_of(self.keeper);
                State::Kept(keeper)
            }
            // Gone before we watched it. Whether a guard lives we cannot know; ending a leaf twice does no harm.
            Ok(_) => State::Ended(Moment::default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                State::Ended(Moment::default())
            }
            Err(_) => again,
        };
    }

    /// Checks again, and ends the leaf if it is time.
    fn check(&mut self, now: Moment, room: bool) {
        if matches!(self.state, State::Unwatched(at) if at <= now) {
            self.watch_keeper(now, room);
        }
        self.guard.take_if(|guard| guard.ended());
        match &self.state {
            State::Unwatched(_) => return,
            State::Kept(keeper) if !keeper.ended() => return,
            State::Kept(_) if self.guard.is_some() => {
                self.state = State::Guarded(now.after_ms(limits::GUARDIAN_GUARD_MS));
                return;
            }
            State::Guarded(until) if *until > now && self.guard.is_some() => return,
            State::Ended(again) if *again > now => return,
            State::Kept(_) | State::Guarded(_) | State::Ended(_) => {}
        }
        // If the leaf is gone or refuses, all that we can do is to try again.
        if let Ok(leaf) = Leaf::open(self.leaf.clone()) {
            drop(leaf.kill());
        }
        self.state = State::Ended(now.after_ms(limits::GUARDIAN_AGAIN_MS));
    }

    /// When to check again if nothing happens.
    fn due(&self) -> Option<Moment> {
        match &self.state {
            State::Kept(_) => None,
            State::Unwatched(at) | State::Guarded(at) | State::Ended(at) => Some(*at),
        }
    }

    /// The process whose end to wait for.
    fn handle(&self) -> Option<&Handle> {
        match &self.state {
            State::Kept(keeper) => Some(keeper),
            State::Guarded(_) => self.guard.as_ref(),
            State::Unwatched(_) | State::Ended(_) => None,
        }
    }
}

/// The keeper's parent is its guard as long as both live. A later adopter is taken for the guard, which costs a
/// second at most.
fn guard_of(keeper: Identity) -> Option<Handle> {
    census::stat(keeper.pid)
        .and_then(|stat| identity::of(stat.ppid))
        .and_then(Handle::open)
        .ok()
}

/// Watches the leaves in a directory, until there has been none for a while.
pub fn watch(slice: &Path, idle_ms: u64) -> io::Result<()> {
    let realm = identity::realm()?;
    let room = room();
    let news = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(
        &news,
        slice,
        inotify::WatchFlags::CREATE | inotify::WatchFlags::DELETE,
    )?;
    let mut leaves_watched: BTreeMap<String, WatchedLeaf> = BTreeMap::new();
    let mut idle_since = clock::now();
    loop {
        drain(&news)?;
        let now = clock::now();
        let scanned = refresh(&mut leaves_watched, slice, &realm);
        let mut held = leaves_watched
            .values()
            .filter(|watched| watched.handle().is_some())
            .count();
        for watched in leaves_watched.values_mut() {
            let before = watched.handle().is_some();
            watched.check(now, held < room);
            held += usize::from(!before && watched.handle().is_some());
        }
        let until = if leaves_watched.is_empty() && scanned.is_ok() {
            let until = idle_since.after_ms(idle_ms);
            if until <= now {
                if may_exit(slice, &realm)? {
                    return Ok(());
                }
                idle_since = now;
                continue;
            }
            Some(until)
        } else {
            idle_since = now;
            let again = scanned
                .err()
                .map(|_| now.after_ms(limits::GUARDIAN_AGAIN_MS));
            leaves_watched
                .values()
                .filter_map(WatchedLeaf::due)
                .chain(again)
                .min()
        };
        sleep(&news, &leaves_watched, until.map(|until| until - now));
    }
}

/// Decides to exit, unless a keeper holds the lock or a leaf has come.
fn may_exit(slice: &Path, realm: &Realm) -> io::Result<bool> {
    let lock = File::open(slice)?;
    if flock(lock.as_fd(), FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(false);
    }
    if !leaves(slice, realm)?.is_empty() {
        return Ok(false);
    }
    // From here on no keeper relies on us: the lock is held until we are gone, and our name says it after that.
    rustix::thread::set_name(&std::ffi::CString::new(LEAVING)?)?;
    std::mem::forget(lock);
    Ok(true)
}

/// Drops leaves that are gone and adds new ones. If the slice cannot be read now, no leaf is dropped.
fn refresh(
    leaves_watched: &mut BTreeMap<String, WatchedLeaf>,
    slice: &Path,
    realm: &Realm,
) -> io::Result<()> {
    let found = leaves(slice, realm)?;
    leaves_watched.retain(|name, _| found.contains_key(name));
    for (name, tag) in found {
        let leaf = slice.join(&name);
        leaves_watched
            .entry(name)
            .or_insert_with(|| WatchedLeaf::new(leaf, &tag));
    }
    Ok(())
}

/// The leaves in the slice whose owner's pid is valid in our realm.
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

/// Waits for a leaf to come or go, an owner to end, or the time-out.
fn sleep(news: &OwnedFd, leaves_watched: &BTreeMap<String, WatchedLeaf>, ns: Option<u64>) {
    let mut fds = vec![PollFd::new(news, PollFlags::IN)];
    for watched in leaves_watched.values() {
        if let Some(handle) = watched.handle() {
            fds.push(PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN));
        }
    }
    let timeout = ns.map(timespec);
    // A signal only makes us check again.
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

    fn watched(guard: Option<Handle>, state: State) -> WatchedLeaf {
        WatchedLeaf {
            leaf: "/nowhere".into(),
            keeper: identity::me().unwrap(),
            guard,
            state,
        }
    }

    fn me() -> Handle {
        Handle::open(identity::me().unwrap()).unwrap()
    }

    #[test]
    fn a_living_guard_is_given_time_and_a_dead_one_is_not() {
        let start = Moment(5_000_000_000);
        let until = start.after_ms(limits::GUARDIAN_GUARD_MS);
        let mut kept = watched(Some(me()), State::Kept(me()));
        kept.check(start, true);
        assert!(matches!(kept.state, State::Kept(_)));

        let mut guarded = watched(Some(me()), State::Guarded(until));
        guarded.check(start, true);
        assert!(matches!(guarded.state, State::Guarded(at) if at == until));
        assert_eq!(guarded.due(), Some(until));
        guarded.check(until, true);
        assert!(matches!(guarded.state, State::Ended(_)));

        let mut alone = watched(None, State::Guarded(until));
        alone.check(start, true);
        assert!(
            matches!(alone.state, State::Ended(at) if at == start.after_ms(limits::GUARDIAN_AGAIN_MS))
        );
    }
}
