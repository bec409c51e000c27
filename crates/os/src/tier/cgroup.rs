//! The cgroup tier: a cgroup2 leaf of our own for each tree, ended by one write to `cgroup.kill`.
//!
//! A leaf is made *below our own cgroup* (`<own>/mainstay/<leaf>`), so that a server stays inside the limits of its
//! client, and so that a tree inside a tree is ended with the outer one. Only the server is in the leaf, never one of
//! our own processes: we must survive `cgroup.kill` to report what happened.
//!
//! It knows names, files and pids. It never decides whether a leaf should be ended.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mainstay_protocol::clock::Moment;
use mainstay_protocol::ids::Tag;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::refusal::Refusal;
use crate::{clock, procfs};

/// The directory below our own cgroup that holds the leaves.
pub const NEST: &str = "mainstay";

/// Directories that a search for leaves reads at most.
const SEARCH_MAX: usize = 4_096;

/// How often making a leaf is tried while other processes remove its parent directory.
const MAKE_TRIES: usize = 64;

/// One tree's cgroup.
#[derive(Debug)]
pub struct Leaf {
    path: PathBuf,
    dir: File,
    kill: File,
    ours: bool,
}

impl Leaf {
    /// Makes the leaf for a tag below our own cgroup, or returns why that is impossible. An existing leaf (of an
    /// earlier generation of the same link) is used.
    pub fn create(tag: &Tag) -> Result<Self, Refusal> {
        let own = own()?;
        let nest = own.join(NEST);
        let path = nest.join(tag.leaf());
        // The last process to leave removes the parent directory, perhaps between our two steps, and this may happen
        // more than once: hence the tries.
        let mut made = Ok(());
        for _ in 0..MAKE_TRIES {
            made = make(&nest).and_then(|()| make(&path));
            if !made.as_ref().is_err_and(is_going) {
                break;
            }
        }
        if let Err(error) = made {
            return Err(refusal(&own, &error));
        }
        // Entering a leaf needs write access to `cgroup.procs` of the common ancestor, which is our own cgroup.
        let procs = own.join("cgroup.procs");
        let entered = accessat(CWD, &procs, Access::WRITE_OK, AtFlags::EACCESS);
        let leaf = Self::open(path.clone()).map(|mut leaf| {
            leaf.ours = true;
            leaf
        });
        match (entered, leaf) {
            (Ok(()), Ok(leaf)) => Ok(leaf),
            (Err(error), leaf) => {
                drop(leaf);
                Err(refusal(&procs, &error.into()))
            }
            (Ok(()), Err(error)) => {
                // Best effort: an empty directory that stays behind does no harm.
                drop(fs::remove_dir(&path));
                Err(if error.kind() == io::ErrorKind::NotFound {
                    Refusal::NoCgroupKill
                } else {
                    refusal(&path.join("cgroup.kill"), &error)
                })
            }
        }
    }

    /// Opens an existing leaf, with the right to kill it.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let dir = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_PATH)
            .open(&path)?;
        let kill = OpenOptions::new()
            .write(true)
            .open(path.join("cgroup.kill"))?;
        Ok(Self {
            path,
            dir,
            kill,
            ours: false,
        })
    }

    /// The leaf with the tag's name, below our own cgroup or where the search finds it.
    pub fn of(tag: &Tag) -> Option<Self> {
        if let Ok(own) = own()
            && let Ok(leaf) = Self::open(own.join(NEST).join(tag.leaf()))
        {
            return Some(leaf);
        }
        let mut leaves: Vec<Self> = search()
            .into_iter()
            .filter(|(found, _)| found == tag)
            .filter_map(|(_, path)| Self::open(path).ok())
            .collect();
        // An earlier generation's scope may still be there while it ends.
        let best = leaves.iter().position(Self::populated).unwrap_or(0);
        (best < leaves.len()).then(|| leaves.swap_remove(best))
    }

    /// The directory of the leaf.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves a process into the leaf.
    pub fn add(&self, pid: i32) -> io::Result<()> {
        write(&self.path.join("cgroup.procs"), &pid.to_string())
    }

    /// Sends SIGKILL to every member at once, also to those that are just being forked. Returns before they are gone.
    pub fn kill(&self) -> io::Result<()> {
        (&self.kill).write_all(b"1")
    }

    /// Whether a living process is in it or below it. A leaf that is gone is empty; one that cannot be read is not.
    pub fn populated(&self) -> bool {
        self.events()
            .map_or_else(|error| !is_going(&error), |(_, populated)| populated)
    }

    /// The members' pids, also of cgroups below it. An error only if we had no resources to look.
    pub fn members(&self) -> io::Result<Vec<i32>> {
        let mut found = Vec::new();
        let mut queue = vec![self.path.clone()];
        while let Some(dir) = queue.pop() {
            found.extend(procfs::none_if_gone(pids(&dir))?.unwrap_or_default());
            queue.extend(procfs::none_if_gone(list(&dir))?.unwrap_or_default());
        }
        Ok(found)
    }

    /// Whether this process is in it or below it now.
    pub fn holds(&self, pid: i32) -> bool {
        self.seen_to_hold(pid).unwrap_or(false)
    }

    /// The same; an error only if we had no resources to look.
    pub(crate) fn seen_to_hold(&self, pid: i32) -> io::Result<bool> {
        let text =
            procfs::none_if_gone(procfs::text(format!("/proc/{pid}/cgroup")))?.unwrap_or_default();
        let name = self.path.file_name().and_then(OsStr::to_str);
        // The name is unique, because it contains the tag.
        Ok(within(&text).is_some_and(|within| within.split('/').any(|part| Some(part) == name)))
    }

    /// Waits until no living process is in it, woken by the kernel. False if the deadline came first.
    pub fn wait_empty(&self, deadline: Moment) -> bool {
        loop {
            // The file is read after it was opened and before we poll: the poll sees a change in between.
            let file = match self.events() {
                Ok((_, false)) => return true,
                Ok((file, true)) => Some(file),
                Err(error) if is_going(&error) => return true,
                Err(_) => None,
            };
            let left = deadline - clock::now();
            if left == 0 {
                return false;
            }
            // A signal also makes us look again, no more.
            match &file {
                Some(file) => {
                    poll(
                        &mut [PollFd::new(file, PollFlags::PRI)],
                        Some(&timespec(left)),
                    )
                    .ok();
                }
                None => clock::nap(1),
            }
        }
    }

    /// Removes the leaf with all empty cgroups below it, and the parent directory if no other leaf is in it. A scope
    /// is removed by the manager that made it, which would not notice if we did.
    pub fn remove(&self) -> io::Result<()> {
        if self.path.extension() == Some(OsStr::new("scope")) {
            return Ok(());
        }
        remove(&self.path)
    }

    fn events(&self) -> io::Result<(File, bool)> {
        let mut file = File::open(self.path.join("cgroup.events"))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let populated = text.lines().any(|line| line == "populated 1");
        Ok((file, populated))
    }
}

impl AsFd for Leaf {
    /// The directory, as `CLONE_INTO_CGROUP` wants it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // The kernel refuses to remove a leaf with a process in it, so this can never lose a tree.
        if self.ours {
            drop(self.remove());
        }
    }
}

/// Our own cgroup's directory, or why there is none.
pub fn own() -> Result<PathBuf, Refusal> {
    let text = procfs::text("/proc/self/cgroup")
        .map_err(|error| Refusal::unreadable("/proc/self/cgroup", &error))?;
    visible(within(&text).ok_or(Refusal::NotInCgroup2)?)
}

/// The cgroup2 directory of another process.
pub fn of_process(pid: i32) -> Option<PathBuf> {
    let text = procfs::text(format!("/proc/{pid}/cgroup")).ok()?;
    visible(within(&text)?).ok()
}

/// The directory of a cgroup, from its name in `/proc/PID/cgroup`.
pub fn visible(within: &str) -> Result<PathBuf, Refusal> {
    let mounts = procfs::text("/proc/self/mountinfo")
        .map_err(|error| Refusal::unreadable("/proc/self/mountinfo", &error))?;
    locate(&mounts, within, &|dir| dir.join("cgroup.procs").exists())
}

/// All leaves whose name contains a tag, as far as we can see them: below our own topmost writable cgroup and below
/// our user's slice. The names are not judged here.
pub fn search() -> Vec<(Tag, PathBuf)> {
    let Ok(own) = own() else {
        return Vec::new();
    };
    let uid = rustix::process::geteuid().as_raw();
    let mut top = own.clone();
    let mut slice = None;
    for dir in own.ancestors() {
        if !dir.join("cgroup.procs").exists() {
            break;
        }
        if fs::metadata(dir).is_ok_and(|meta| meta.uid() == uid) {
            dir.clone_into(&mut top);
        }
        slice = Some(dir.join(format!("user.slice/user-{uid}.slice")));
    }
    let mut queue = vec![top];
    if let Some(slice) = slice
        && !slice.starts_with(&queue[0])
    {
        queue.push(slice);
    }
    let mut found = Vec::new();
    let mut looked = 0;
    while let Some(dir) = queue.pop()
        && looked < SEARCH_MAX
    {
        looked += 1;
        for dir in below(&dir) {
            let name = dir.file_name().and_then(OsStr::to_str);
            if let Some(tag) = name.and_then(tag_of) {
                found.push((tag, dir.clone()));
            }
            queue.push(dir);
        }
    }
    found
}

/// The tag in a leaf's name. A scope's name may end with the number of its generation (see [`super::scope`]).
pub fn tag_of(name: &str) -> Option<Tag> {
    let plain = name.strip_suffix(".scope").and_then(|name| {
        let (plain, generation) = name.split_once('.')?;
        generation.parse::<u32>().ok().map(|_| plain)
    });
    Tag::from_leaf(plain.unwrap_or(name))
}

/// The pids in one cgroup, not in those below it.
pub fn procs(dir: &Path) -> Vec<i32> {
    pids(dir).unwrap_or_default()
}

fn pids(dir: &Path) -> io::Result<Vec<i32>> {
    let text = procfs::text(dir.join("cgroup.procs"))?;
    let pids = text.lines().filter_map(|line| line.parse().ok());
    // A process outside our pid namespace is shown as 0.
    Ok(pids.filter(|&pid| pid > 0).collect())
}

/// The cgroups directly below one.
pub fn below(dir: &Path) -> Vec<PathBuf> {
    list(dir).unwrap_or_default()
}

/// The same, or why they cannot be listed.
pub fn list(dir: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(fs::read_dir(dir)?
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect())
}

/// Removes an empty cgroup with everything below it, and its parent directory if that is empty then.
pub fn remove(path: &Path) -> io::Result<()> {
    for dir in below(path) {
        remove(&dir)?;
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    if let Some(nest) = path.parent()
        && nest.file_name() == Some(OsStr::new(NEST))
    {
        // Fails while another leaf is in it, as it should.
        drop(fs::remove_dir(nest));
    }
    Ok(())
}

/// Nanoseconds as a `Timespec`.
pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as _,
    }
}

/// Whether the error says that the cgroup was removed, or is being removed.
pub(crate) fn is_going(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

fn make(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Writes to an existing file.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all(text.as_bytes())
}

fn refusal(path: &Path, error: &io::Error) -> Refusal {
    let whose = match fs::metadata(path).map(|meta| meta.uid()) {
        Ok(0) => "is owned by root",
        Ok(uid) if uid != rustix::process::geteuid().as_raw() => "is owned by another user",
        Ok(_) | Err(_) => "is not writable",
    };
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Refusal::NotWritable {
            path: path.to_owned(),
            why: whose,
        },
        Some(libc::EROFS) => Refusal::NotWritable {
            path: path.to_owned(),
            why: "is read-only",
        },
        Some(_) | None => Refusal::LeafFailed {
            path: path.to_owned(),
            why: error.to_string(),
        },
    }
}

/// The cgroup2 line of a process's cgroup file.
fn within(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// The directory of a cgroup: below the first cgroup2 mount that shows it.
fn locate(mounts: &str, within: &str, there: &dyn Fn(&Path) -> bool) -> Result<PathBuf, Refusal> {
    let mounts: Vec<Mount> = mounts.lines().filter_map(mount).collect();
    if mounts.is_empty() {
        return Err(Refusal::NoCgroup2);
    }
    if Path::new(within)
        .components()
        .any(|part| part.as_os_str() == "..")
    {
        return Err(Refusal::OutsideOfNamespace(within.to_owned()));
    }
    // In a container that sees only a part of the tree, the mount shows the part below its root. A mount may also be
    // hidden by a later one.
    mounts
        .iter()
        .filter_map(|mount| {
            let below = Path::new(within).strip_prefix(&mount.root).ok()?;
            Some(mount.dir.join(below))
        })
        .find(|dir| there(dir))
        .ok_or_else(|| Refusal::Invisible(within.to_owned()))
}

struct Mount {
    root: PathBuf,
    dir: PathBuf,
}

/// One line of mountinfo, if it mounts cgroup2.
fn mount(line: &str) -> Option<Mount> {
    let (place, kind) = line.split_once(" - ")?;
    if kind.split(' ').next()? != "cgroup2" {
        return None;
    }
    let mut fields = place.split(' ').skip(3);
    let root = PathBuf::from(unescape(fields.next()?));
    let dir = PathBuf::from(unescape(fields.next()?));
    Some(Mount { root, dir })
}

/// Mountinfo writes spaces and similar bytes as `\040`.
fn unescape(field: &str) -> std::ffi::OsString {
    let bytes = field.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let code = (byte == b'\\')
            .then(|| field.get(at + 1..at + 4))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(code.unwrap_or(byte));
        at += if code.is_some() { 4 } else { 1 };
    }
    OsStr::from_bytes(&plain).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity;
    use mainstay_protocol::ids::LinkId;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    #[test]
    fn our_own_cgroup_is_found_on_a_hybrid_and_on_a_unified_system() {
        let all = |_: &Path| true;
        assert_eq!(within("4:memory:/x\n0::/\n"), Some("/"));
        assert_eq!(within("4:memory:/x\n"), None);
        assert_eq!(
            locate(HYBRID, "/", &all).unwrap(),
            Path::new("/sys/fs/cgroup/unified")
        );
        let unified = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw";
        assert_eq!(
            locate(unified, "/user.slice/user-1000.slice/session-2.scope", &all).unwrap(),
            Path::new("/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope")
        );
    }

    #[test]
    fn a_container_that_sees_a_part_of_the_tree_is_understood() {
        let all = |_: &Path| true;
        let part = "30 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw";
        assert_eq!(
            locate(part, "/docker/abc/init", &all).unwrap(),
            Path::new("/sys/fs/cgroup/init")
        );
        assert!(locate(part, "/elsewhere", &all).is_err());
        assert!(locate(HYBRID, "/../other", &all).is_err());
    }

    #[test]
    fn hidden_mount_is_skipped() {
        let both = format!("{HYBRID}\n47 46 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
        let there = |dir: &Path| dir == Path::new("/sys/fs/cgroup/x");
        assert_eq!(
            locate(&both, "/x", &there).unwrap(),
            Path::new("/sys/fs/cgroup/x")
        );
    }

    #[test]
    fn missing_cgroup2_is_reported() {
        assert_eq!(locate("", "/", &|_| true).unwrap_err(), Refusal::NoCgroup2);
    }

    #[test]
    fn removing_the_last_leaf_does_not_block_new_leaves() {
        const ROUNDS: usize = 300;
        // The owner lives, so that no sweep removes them.
        let (realm, owner) = (identity::realm().unwrap(), identity::me().unwrap());
        let tag = |link: u32| Tag {
            realm: realm.clone(),
            owner,
            link: LinkId(link),
        };
        // If this user may not make a leaf, there is nothing to test.
        let Ok(first) = Leaf::create(&tag(0)) else {
            return;
        };
        drop(first);
        std::thread::scope(|scope| {
            for link in 1..=3 {
                let tag = tag(link);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let made = Leaf::create(&tag);
                        assert!(made.is_ok(), "in round {round}: {made:?}");
                    }
                });
            }
        });
    }

    #[test]
    fn the_tag_is_read_from_every_generations_name() {
        let leaf = "mainstay-0a1b2c3d-4026531836-42-9001-0000beef";
        let tag: Tag = "0a1b2c3d:4026531836:42:9001:0000beef".parse().unwrap();
        for name in [
            leaf.to_owned(),
            format!("{leaf}.scope"),
            format!("{leaf}.7.scope"),
        ] {
            assert_eq!(tag_of(&name), Some(tag.clone()), "{name}");
        }
        for name in [
            format!("{leaf}.x.scope"),
            format!("{leaf}.7"),
            "mainstay-guardian.service".into(),
        ] {
            assert_eq!(tag_of(&name), None, "{name}");
        }
    }

    #[test]
    fn escaped_blanks_in_a_mount_point_are_read() {
        assert_eq!(unescape(r"/a\040b\134c"), OsStr::new(r"/a b\c"));
        assert_eq!(unescape(r"/a\0"), OsStr::new(r"/a\0"));
    }
}
