//! Watches source files: which of them have changed since the last read.
//!
//! Every given path is watched from its parent directory, because editors save by renaming, and build tools remove
//! and create files. A directory is also watched with everything below it, as entries come and go. A path that does
//! not exist yet is watched from its nearest existing parent. Symbolic links are followed if they were given, but not
//! below.
//!
//! Invariants: a given path is never ignored, whatever its name; noise below it always is. The number of watches is
//! bounded, and a shortage is reported. Changes that the kernel could not report one by one are reported as "more".
//! This module does not know when a series of changes is over.

mod noise;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use noise::noise;

/// Directories that are watched at most.
pub const WATCHES_MAX: usize = 8_192;
/// Changed paths that are named at most; beyond it there are just "more".
const NAMED_MAX: usize = 256;
/// Events that one read takes; more wait for the next.
const EVENTS_MAX: usize = 16_384;

/// How often arming looks for a parent that comes and goes meanwhile. Each repetition takes another change by another
/// process.
const ARM_TRIES: usize = 16;

/// What changed since the last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The changed paths.
    pub paths: BTreeSet<PathBuf>,
    /// More paths changed than are named.
    pub more: bool,
    /// More can be read at once, before waiting for the descriptor again.
    pub again: bool,
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && !self.more
    }

    fn name(&mut self, path: PathBuf) {
        if self.paths.len() < NAMED_MAX {
            self.paths.insert(path);
        } else if !self.paths.contains(&path) {
            self.more = true;
        }
    }
}

/// Watches files; readable when something may have changed.
#[derive(Debug)]
pub struct FileWatcher {
    inotify: OwnedFd,
    targets: Vec<Target>,
    /// The directories behind each watch: several names if links lead to the same one.
    places: BTreeMap<i32, Vec<PathBuf>>,
    watches_max: usize,
    short: Option<String>,
}

/// One path that was given.
#[derive(Debug)]
struct Target {
    path: PathBuf,
    /// Its target, if links led there.
    real: PathBuf,
    there: bool,
}

/// What is asked of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// Entries that come and go.
    Names,
    /// Also what is written.
    Contents,
}

impl FileWatcher {
    /// Watches these; a relative path is relative to our own directory.
    pub fn open(paths: &[PathBuf]) -> io::Result<Self> {
        Self::open_within(WATCHES_MAX, paths)
    }

    fn open_within(watches_max: usize, paths: &[PathBuf]) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mut targets = Vec::with_capacity(paths.len());
        for path in paths {
            let path = std::path::absolute(path)?;
            targets.push(Target {
                real: path.clone(),
                path,
                there: false,
            });
        }
        let mut watcher = Self {
            inotify,
            targets,
            places: BTreeMap::new(),
            watches_max,
            short: None,
        };
        for index in 0..watcher.targets.len() {
            watcher.arm(index, None);
        }
        Ok(watcher)
    }

    /// Why not everything is watched, if so.
    pub fn short(&self) -> Option<&str> {
        self.short.as_deref()
    }

    /// What changed since the last read. Never blocks.
    pub fn read(&mut self) -> Changes {
        let mut changes = Changes::default();
        let (events, again) = self.events();
        changes.again = again;
        for event in events {
            self.take(&event, &mut changes);
        }
        changes
    }

    fn events(&self) -> (Vec<Event>, bool) {
        let mut buffer = [MaybeUninit::uninit(); 4_096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        while events.len() < EVENTS_MAX {
            match reader.next() {
                Ok(event) => events.push(Event::of(&event)),
                Err(Errno::INTR) => {}
                Err(_) => return (events, false),
            }
        }
        // Events in the reader's buffer must not be lost with it.
        while !reader.is_buffer_empty()
            && let Ok(event) = reader.next()
        {
            events.push(Event::of(&event));
        }
        (events, true)
    }

    fn take(&mut self, event: &Event, changes: &mut Changes) {
        if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            changes.more = true;
            // Directories may have come that were not reported.
            for index in 0..self.targets.len() {
                self.arm(index, None);
            }
            return;
        }
        let Some(places) = self.places.get(&event.watch).cloned() else {
            return;
        };
        for place in places {
            match &event.name {
                Some(name) => {
                    let path = place.join(OsStr::from_bytes(name));
                    self.changed(&path, event.flags, changes);
                }
                None if event.flags.intersects(LOST) => self.lost(&place, changes),
                None => {}
            }
        }
    }

    /// A watched directory itself is gone.
    fn lost(&mut self, place: &Path, changes: &mut Changes) {
        self.forget_below(place);
        for index in 0..self.targets.len() {
            if self.targets[index].path.starts_with(place) {
                self.moved_under(index, changes);
            }
        }
    }

    /// An entry of a watched directory has changed.
    fn changed(&mut self, path: &Path, flags: ReadFlags, changes: &mut Changes) {
        let came = flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        let went = flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM);
        let is_dir = flags.contains(ReadFlags::ISDIR);
        if went && is_dir {
            self.forget_below(path);
        }
        for index in 0..self.targets.len() {
            let target = &self.targets[index];
            if path == target.path || path == target.real {
                changes.name(target.path.clone());
                if came || went {
                    self.arm(index, Some(changes));
                }
            } else if target.path.starts_with(path) {
                if went {
                    self.moved_under(index, changes);
                } else if came {
                    self.arm(index, Some(changes));
                }
            } else if let Ok(within) = path.strip_prefix(&target.path)
                && !within.iter().any(|name| noise(name.as_bytes()))
            {
                if !is_dir {
                    changes.name(path.to_owned());
                } else if came {
                    self.watch_below(path, Some(changes));
                } else if flags.contains(ReadFlags::MOVED_FROM) {
                    // If a directory is removed, each file in it is reported; if it is moved away, only the directory
                    // is.
                    changes.name(path.to_owned());
                }
            }
        }
    }

    /// A directory above a target is gone, perhaps to come back before we look.
    fn moved_under(&mut self, index: usize, changes: &mut Changes) {
        let target = &self.targets[index];
        if target.there {
            changes.name(target.path.clone());
        }
        self.arm(index, Some(changes));
    }

    /// Sets the watches of one target as things are now. If it came or went meanwhile, that is a change.
    fn arm(&mut self, index: usize, changes: Option<&mut Changes>) {
        let path = self.targets[index].path.clone();
        let kind = fs::metadata(&path);
        let is_dir = kind.as_ref().is_ok_and(fs::Metadata::is_dir);
        // The parent may come while we look: then there is a nearer one now.
        for _ in 0..ARM_TRIES {
            let Some(parent) = nearest(&path) else { break };
            let depth = if is_dir || path.parent() != Some(parent) {
                Depth::Names
            } else {
                Depth::Contents
            };
            self.watch(parent, depth);
            if nearest(&path) == Some(parent) {
                break;
            }
        }
        // Again, now that nothing can come unseen.
        let kind = fs::metadata(&path);
        let there = kind.is_ok();
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if kind.is_ok_and(|kind| kind.is_dir()) {
            self.watch_below(&path, None);
        } else {
            if let Some(parent) = path.parent().filter(|_| there) {
                self.watch(parent, Depth::Contents);
            }
            if let Some(parent) = real.parent().filter(|_| real != path) {
                self.watch(parent, Depth::Contents);
            }
        }
        let target = &mut self.targets[index];
        let was = std::mem::replace(&mut target.there, there);
        target.real = real;
        if was != there
            && let Some(changes) = changes
        {
            changes.name(path);
        }
    }

    /// Watches a directory with everything below it that is no noise. Files are named only if `changes` is given.
    fn watch_below(&mut self, dir: &Path, mut changes: Option<&mut Changes>) {
        let mut queue = vec![dir.to_owned()];
        while let Some(dir) = queue.pop() {
            // Watched first, then read: an entry that comes in between is seen twice rather than never.
            if !self.watch(&dir, Depth::Contents) {
                continue;
            }
            let Ok(entries) = fs::read_dir(&dir) else {
                continue;
            };
            for entry in entries.filter_map(Result::ok) {
                if noise(entry.file_name().as_bytes()) {
                    continue;
                }
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    queue.push(entry.path());
                } else if let Some(changes) = changes.as_deref_mut() {
                    changes.name(entry.path());
                }
            }
        }
    }

    /// Watches one directory; false if that is impossible.
    fn watch(&mut self, dir: &Path, depth: Depth) -> bool {
        let flags = match depth {
            Depth::Names => NAMES,
            Depth::Contents => NAMES.union(CONTENTS),
        };
        let known = || {
            let mut places = self.places.values().flatten();
            places.any(|place| place == dir)
        };
        if self.places.len() >= self.watches_max && !known() {
            self.set_short(format!(
                "more than {} directories: {} and others are not watched",
                self.watches_max,
                dir.display()
            ));
            return false;
        }
        match inotify::add_watch(&self.inotify, dir, flags) {
            Ok(watch) => {
                let places = self.places.entry(watch).or_default();
                if !places.iter().any(|place| place == dir) {
                    places.push(dir.to_owned());
                }
                true
            }
            // Gone meanwhile; if it was a target, its parent's watch reports that.
            Err(Errno::NOENT | Errno::NOTDIR) => false,
            Err(Errno::NOSPC) => {
                self.set_short(format!(
                    "no more inotify watches: {} and others are not watched (raise fs.inotify.max_user_watches)",
                    dir.display()
                ));
                false
            }
            Err(error) => {
                let why = io::Error::from(error);
                self.set_short(format!("{} is not watched ({why})", dir.display()));
                false
            }
        }
    }

    fn set_short(&mut self, why: String) {
        self.short.get_or_insert(why);
    }

    /// Removes the watches under this name.
    fn forget_below(&mut self, path: &Path) {
        let inotify = &self.inotify;
        self.places.retain(|&watch, places| {
            places.retain(|place| !place.starts_with(path));
            if places.is_empty() {
                // Refused if the kernel has forgotten it already.
                inotify::remove_watch(inotify, watch).ok();
            }
            !places.is_empty()
        });
    }
}

impl AsFd for FileWatcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl AsRawFd for FileWatcher {
    fn as_raw_fd(&self) -> RawFd {
        self.inotify.as_raw_fd()
    }
}

/// One event, copied out of the buffer.
struct Event {
    watch: i32,
    flags: ReadFlags,
    name: Option<Vec<u8>>,
}

impl Event {
    fn of(event: &inotify::Event<'_>) -> Self {
        Self {
            watch: event.wd(),
            flags: event.events(),
            name: event.file_name().map(|name| name.to_bytes().to_vec()),
        }
    }
}

const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK)
    // The same directory may be watched for two reasons.
    .union(WatchFlags::MASK_ADD);
const CONTENTS: WatchFlags = WatchFlags::MODIFY.union(WatchFlags::CLOSE_WRITE);
const LOST: ReadFlags = ReadFlags::IGNORED
    .union(ReadFlags::DELETE_SELF)
    .union(ReadFlags::MOVE_SELF)
    .union(ReadFlags::UNMOUNT);

/// The nearest parent of a path that is a directory now.
fn nearest(path: &Path) -> Option<&Path> {
    path.ancestors().skip(1).find(|dir| dir.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_limit_is_reported_and_the_other_directories_are_watched() {
        let name = format!("mainstay-watches-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        for n in 0..6 {
            fs::create_dir_all(dir.join(format!("src/{n}"))).unwrap();
        }
        let mut watcher = FileWatcher::open_within(4, &[dir.join("src")]).unwrap();
        let why = watcher.short().unwrap();
        assert!(why.starts_with("more than 4 directories: "), "{why}");
        assert_eq!(watcher.places.len(), 4);
        for n in 0..6 {
            fs::write(dir.join(format!("src/{n}/x.py")), "x").unwrap();
        }
        // The parent and the directory itself are two of the four.
        assert_eq!(watcher.read().paths.len(), 2);
        // A removed directory makes room.
        fs::remove_dir_all(dir.join("src")).unwrap();
        watcher.read();
        assert_eq!(watcher.places.len(), 1);
        fs::remove_dir_all(&dir).unwrap();
    }
}
