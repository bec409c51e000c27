//! The memory cap of a tree: the kernel's own, where its leaf has the memory controller.
//!
//! A leaf has that controller only if every cgroup above it hands it down. A user manager does so for its scopes.
//! Below our own cgroup it can be had only where the kernel lets us: not while processes (we, the client) live in the
//! very cgroup that would hand it down, the root excepted. So a refusal is normal, is said in words, and leaves the
//! caller with [`Tree::memory_above`].

use std::fs;
use std::io;
use std::path::Path;

use crate::measure::keyed;
use crate::tier::cgroup;
use crate::tree::Tree;

/// The cgroups above a leaf that may have to hand the controller down: the nest, and our own.
const ABOVE_MAX: usize = 2;

impl Tree {
    /// Has the kernel hold the tree to so many bytes: beyond them it kills the whole leaf, nobody alone. Says why it
    /// does not.
    pub fn limit_memory(&self, bytes: u64) -> Result<(), String> {
        limit(self.leaf().ok_or(NO_LEAF)?, bytes)
    }

    /// How many members the kernel has killed for lack of memory, by the leaf's own count; to be read before the
    /// leaf is removed with the last member. None without a leaf that counts.
    pub fn oom_kills(&self) -> Option<u64> {
        keyed(&self.leaf()?.join("memory.events"), "oom_kill")
    }
}

/// Why a tree without a leaf has no cap.
pub const NO_LEAF: &str = "the tree is in no cgroup of its own";

/// Whether a leaf has the memory controller or would get it if it were asked for; nothing is changed.
pub fn possible(leaf: &Path) -> Result<(), String> {
    if leaf.join("memory.max").exists() {
        return Ok(());
    }
    givers(leaf).map(drop)
}

/// The same of scopes that a manager will make in this slice, which it may have to make first.
pub(crate) fn possible_in(slice: &Path) -> Result<(), String> {
    let there = slice.ancestors().find(|dir| dir.is_dir());
    let dir = there.unwrap_or(slice);
    if names_memory(&dir.join("cgroup.controllers")) {
        Ok(())
    } else {
        Err(absent(dir))
    }
}

fn limit(leaf: &Path, bytes: u64) -> Result<(), String> {
    if !leaf.join("memory.max").exists() {
        for giver in givers(leaf)? {
            let file = giver.join("cgroup.subtree_control");
            cgroup::write(&file, "+memory").map_err(|error| refusal(&file, &error))?;
        }
    }
    // First whoever must not be killed alone, and the way out into swap: then the cap is what it says from its
    // first moment. Old kernels have no group, machines without swap no swap.max.
    for (name, value) in [("memory.oom.group", "1"), ("memory.swap.max", "0")] {
        let file = leaf.join(name);
        match cgroup::write(&file, value) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(refusal(&file, &error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    let file = leaf.join("memory.max");
    cgroup::write(&file, &bytes.to_string()).map_err(|error| refusal(&file, &error))
}

/// The cgroups that would have to hand the controller down to a leaf, topmost first; or why they cannot.
fn givers(leaf: &Path) -> Result<Vec<&Path>, String> {
    // A manager's slices are the manager's: we ask for no more than our own one's consent.
    let above = if leaf.extension().is_some_and(|kind| kind == "scope") {
        1
    } else {
        ABOVE_MAX
    };
    let mut givers = Vec::new();
    for dir in leaf.ancestors().skip(1).take(above) {
        givers.insert(0, dir);
        if !names_memory(&dir.join("cgroup.controllers")) {
            continue;
        }
        // The kernel's rule, asked for in advance: who has processes of its own hands nothing down. The root may.
        let root = !dir.join("cgroup.type").exists();
        let crowded = !root && !cgroup::procs(dir).is_empty();
        if crowded && !names_memory(&dir.join("cgroup.subtree_control")) {
            return Err(format!(
                "{} cannot hand the memory controller down while processes live in it",
                dir.display()
            ));
        }
        return Ok(givers);
    }
    Err(absent(givers.first().copied().unwrap_or(leaf)))
}

fn names_memory(file: &Path) -> bool {
    fs::read_to_string(file)
        .is_ok_and(|text| text.split_ascii_whitespace().any(|word| word == "memory"))
}

fn absent(dir: &Path) -> String {
    let ours = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if on_version_1(&ours) {
        return "the memory controller is in cgroup version 1 on this machine".into();
    }
    format!("{} has no memory controller to hand down", dir.display())
}

/// Whether `/proc/self/cgroup` shows memory in a hierarchy of the first version.
fn on_version_1(text: &str) -> bool {
    text.lines()
        .filter_map(|line| line.split(':').nth(1))
        .any(|controllers| controllers.split(',').any(|word| word == "memory"))
}

fn refusal(file: &Path, error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "not writable for us".into(),
        Some(libc::EROFS) => "read-only".into(),
        Some(libc::EBUSY) => "processes live in that cgroup".into(),
        Some(_) | None => error.to_string(),
    };
    format!("no memory cap: {} ({why})", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Plain files with the kernel's names: which are read and written, and in which order of tiers, not what the kernel
    /// does then.
    struct Mock(PathBuf);

    impl Mock {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let dir =
                std::env::temp_dir().join(format!("mainstay-cap-{}-{name}", std::process::id()));
            let mock = Self(dir);
            fs::create_dir_all(mock.0.join("own/mainstay/leaf")).unwrap();
            for (file, text) in files {
                fs::write(mock.0.join("own").join(file), text).unwrap();
            }
            mock
        }

        fn leaf(&self) -> PathBuf {
            self.0.join("own/mainstay/leaf")
        }

        fn read(&self, file: &str) -> String {
            fs::read_to_string(self.0.join("own").join(file)).unwrap()
        }
    }

    impl Drop for Mock {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn a_leaf_with_the_controller_is_capped_as_a_group_and_without_swap() {
        let mock = Mock::new(
            "there",
            &[
                ("mainstay/leaf/memory.max", ""),
                ("mainstay/leaf/memory.oom.group", ""),
                ("mainstay/leaf/memory.swap.max", ""),
            ],
        );
        assert_eq!(possible(&mock.leaf()), Ok(()));
        assert_eq!(limit(&mock.leaf(), 1 << 29), Ok(()));
        assert_eq!(mock.read("mainstay/leaf/memory.max"), "536870912");
        assert_eq!(mock.read("mainstay/leaf/memory.oom.group"), "1");
        assert_eq!(mock.read("mainstay/leaf/memory.swap.max"), "0");
    }

    #[test]
    fn the_controller_is_handed_down_from_our_own_cgroup() {
        let mock = Mock::new(
            "down",
            &[
                ("cgroup.controllers", "cpu memory pids\n"),
                ("cgroup.subtree_control", ""),
                ("mainstay/cgroup.controllers", "\n"),
                ("mainstay/cgroup.subtree_control", ""),
            ],
        );
        assert_eq!(possible(&mock.leaf()), Ok(()));
        assert_eq!(mock.read("cgroup.subtree_control"), "", "only a question");
        // No kernel is behind it, so no memory.max appears.
        let why = limit(&mock.leaf(), 1).unwrap_err();
        assert!(why.contains("memory.max"), "{why}");
        assert_eq!(mock.read("cgroup.subtree_control"), "+memory");
        assert_eq!(mock.read("mainstay/cgroup.subtree_control"), "+memory");
    }

    #[test]
    fn a_crowded_cgroup_is_not_asked() {
        let mock = Mock::new(
            "crowd",
            &[
                ("cgroup.controllers", "memory\n"),
                ("cgroup.subtree_control", ""),
                ("cgroup.type", "domain\n"),
                ("cgroup.procs", "42\n"),
            ],
        );
        let why = possible(&mock.leaf()).unwrap_err();
        assert!(why.ends_with("while processes live in it"), "{why}");
        assert_eq!(limit(&mock.leaf(), 1), Err(why));
        assert_eq!(mock.read("cgroup.subtree_control"), "");
    }

    #[test]
    fn a_slice_that_is_not_there_yet_will_have_what_its_parent_has() {
        let mock = Mock::new("slice", &[("cgroup.controllers", "memory pids\n")]);
        let own = mock.0.join("own");
        assert_eq!(possible_in(&own.join("app.slice/x.slice")), Ok(()));
        fs::write(own.join("cgroup.controllers"), "pids\n").unwrap();
        assert!(possible_in(&own.join("app.slice/x.slice")).is_err());
    }

    #[test]
    fn a_controller_of_the_first_version_is_told_apart() {
        assert!(on_version_1("4:memory:/x\n0::/\n"));
        assert!(on_version_1("4:cpu,memory:/x\n"));
        assert!(!on_version_1("0::/memory\n"));
        assert!(!on_version_1("1:name=memory:/\n0::/\n"));
    }
}
