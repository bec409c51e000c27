//! The memory cap of a tree, enforced by the kernel if the tree's leaf has the memory controller.
//!
//! A leaf has that controller only if every cgroup above it delegates it. A user manager does so for its scopes.
//! Below our own cgroup the kernel allows it only while no process (we, the client) is in the cgroup that would
//! delegate it; the root is an exception. So a refusal is normal. It returns the reason, and the caller uses
//! [`Tree::memory_above`] instead.

use std::fs;
use std::io;
use std::path::Path;

use crate::tier::cgroup;
use crate::tier::refusal::Refusal;
use crate::tree::Tree;

/// How many cgroups above a leaf may have to delegate the controller: our directory, and our own cgroup.
const ABOVE_MAX: usize = 2;

/// Sets `memory.max` of the tree's leaf. Beyond it the kernel kills the whole leaf, never a single process of it.
/// Returns the reason if the cap cannot be set.
pub fn limit_memory(tree: &Tree, bytes: u64) -> Result<(), Refusal> {
    limit(tree.leaf().ok_or(Refusal::NoLeaf)?, bytes)
}

/// Whether a leaf has the memory controller or could get it. Changes nothing.
pub fn possible(leaf: &Path) -> Result<(), Refusal> {
    if leaf.join("memory.max").exists() {
        return Ok(());
    }
    delegating(leaf).map(drop)
}

/// The same for scopes that a manager will make in this slice. The slice itself may not exist yet.
pub(crate) fn possible_in(slice: &Path) -> Result<(), Refusal> {
    let there = slice.ancestors().find(|dir| dir.is_dir());
    let dir = there.unwrap_or(slice);
    if names_memory(&dir.join("cgroup.controllers")) {
        Ok(())
    } else {
        Err(no_controller(dir))
    }
}

fn limit(leaf: &Path, bytes: u64) -> Result<(), Refusal> {
    if !leaf.join("memory.max").exists() {
        for dir in delegating(leaf)? {
            let file = dir.join("cgroup.subtree_control");
            cgroup::write(&file, "+memory").map_err(|error| refusal(&file, &error))?;
        }
    }
    // `memory.oom.group` and `memory.swap.max` first, so that the cap is exact from its first moment: the kernel
    // kills the whole leaf and does not swap instead. Old kernels have no `memory.oom.group`, machines without swap
    // no `memory.swap.max`.
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

/// The cgroups that would have to delegate the controller to a leaf, topmost first; or why they cannot.
fn delegating(leaf: &Path) -> Result<Vec<&Path>, Refusal> {
    // The slices belong to the manager, so only the scope's own slice is considered.
    let above = if leaf.extension().is_some_and(|kind| kind == "scope") {
        1
    } else {
        ABOVE_MAX
    };
    let mut delegating = Vec::new();
    for dir in leaf.ancestors().skip(1).take(above) {
        delegating.insert(0, dir);
        if !names_memory(&dir.join("cgroup.controllers")) {
            continue;
        }
        // The kernel's rule, checked in advance: a cgroup with processes of its own delegates nothing. The root may.
        let root = !dir.join("cgroup.type").exists();
        let crowded = !root && !cgroup::procs(dir).is_empty();
        if crowded && !names_memory(&dir.join("cgroup.subtree_control")) {
            return Err(Refusal::Crowded(dir.to_owned()));
        }
        return Ok(delegating);
    }
    Err(no_controller(delegating.first().copied().unwrap_or(leaf)))
}

fn names_memory(file: &Path) -> bool {
    fs::read_to_string(file)
        .is_ok_and(|text| text.split_ascii_whitespace().any(|word| word == "memory"))
}

fn no_controller(dir: &Path) -> Refusal {
    let ours = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if on_version_1(&ours) {
        return Refusal::MemoryOnVersion1;
    }
    Refusal::NoMemoryController(dir.to_owned())
}

/// Whether `/proc/self/cgroup` shows memory in a hierarchy of cgroup version 1.
fn on_version_1(text: &str) -> bool {
    text.lines()
        .filter_map(|line| line.split(':').nth(1))
        .any(|controllers| controllers.split(',').any(|word| word == "memory"))
}

fn refusal(file: &Path, error: &io::Error) -> Refusal {
    let why = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "not writable for us".into(),
        Some(libc::EROFS) => "read-only".into(),
        Some(libc::EBUSY) => "processes live in that cgroup".into(),
        Some(_) | None => error.to_string(),
    };
    Refusal::Cap {
        file: file.to_owned(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Plain files with the kernel's names. They show which files are read and written, and in which order, but not
    /// what the kernel does then.
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
        // There is no kernel behind the files, so no `memory.max` appears.
        let why = limit(&mock.leaf(), 1).unwrap_err();
        assert!(why.to_string().contains("memory.max"), "{why}");
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
        assert!(matches!(why, Refusal::Crowded(_)), "{why}");
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
    fn memory_controller_of_cgroup_v1_is_recognised() {
        assert!(on_version_1("4:memory:/x\n0::/\n"));
        assert!(on_version_1("4:cpu,memory:/x\n"));
        assert!(!on_version_1("0::/memory\n"));
        assert!(!on_version_1("1:name=memory:/\n0::/\n"));
    }
}
