//! Changes of real files are seen, however an editor or a build tool makes them, and noise is not.
//!
//! The kernel has queued an event before the call that caused it returns, so no test waits.
//! guards: `--watch` sees every change of a watched file, however an editor saves it, and ignores noise.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_os::watch_files::FileWatcher;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "mainstay-files-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        Self(dir.canonicalize().unwrap())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn write(&self, path: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }

    fn watch(&self, paths: &[&str]) -> Watch<'_> {
        let paths: Vec<PathBuf> = paths.iter().map(|path| self.at(path)).collect();
        let watcher = FileWatcher::open(&paths).unwrap();
        assert_eq!(watcher.short(), None);
        Watch {
            watcher,
            root: &self.0,
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

struct Watch<'a> {
    watcher: FileWatcher,
    root: &'a Path,
}

impl Watch<'_> {
    /// Changed paths below the scratch directory.
    fn seen(&mut self) -> Vec<String> {
        let changes = self.watcher.read();
        assert!(!changes.more && !changes.again);
        let names: BTreeSet<PathBuf> = changes.paths;
        names
            .iter()
            .map(|path| {
                let path = path.strip_prefix(self.root).unwrap();
                path.to_str().unwrap().to_owned()
            })
            .collect()
    }

    fn readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.watcher, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }
}

#[test]
fn a_file_is_seen_however_it_is_saved() {
    let scratch = Scratch::new();
    scratch.write("server.py");
    scratch.write("other.py");
    let mut watch = scratch.watch(&["server.py"]);
    assert!(!watch.readable());
    scratch.write("server.py");
    assert!(watch.readable());
    assert_eq!(watch.seen(), ["server.py"]);
    assert!(!watch.readable());
    // By renaming a new one over it, twice: the watch is not on a single inode.
    for _ in 0..2 {
        scratch.write("server.py.new");
        fs::rename(scratch.at("server.py.new"), scratch.at("server.py")).unwrap();
        assert_eq!(watch.seen(), ["server.py"]);
    }
    // With a backup moved away first, as vim may do.
    fs::rename(scratch.at("server.py"), scratch.at("server.py~")).unwrap();
    scratch.write("server.py");
    assert_eq!(watch.seen(), ["server.py"]);
    scratch.write("other.py");
    assert_eq!(watch.seen(), Vec::<String>::new());
    fs::remove_file(scratch.at("server.py")).unwrap();
    assert_eq!(watch.seen(), ["server.py"]);
}

#[test]
fn a_directory_is_seen_with_what_comes_below_it() {
    let scratch = Scratch::new();
    scratch.write("src/a/one.py");
    let mut watch = scratch.watch(&["src"]);
    scratch.write("src/a/one.py");
    scratch.write("src/two.py");
    scratch.write("beside.py");
    assert_eq!(watch.seen(), ["src/a/one.py", "src/two.py"]);
    // New directories, with files that existed before we could watch them, and later ones.
    scratch.write("src/b/c/three.py");
    assert_eq!(watch.seen(), ["src/b/c/three.py"]);
    scratch.write("src/b/c/four.py");
    assert_eq!(watch.seen(), ["src/b/c/four.py"]);
    // Moved in from outside, moved within, moved out.
    scratch.write("outside/d/five.py");
    fs::rename(scratch.at("outside/d"), scratch.at("src/d")).unwrap();
    assert_eq!(watch.seen(), ["src/d/five.py"]);
    fs::rename(scratch.at("src/d"), scratch.at("src/e")).unwrap();
    assert_eq!(watch.seen(), ["src/d", "src/e/five.py"]);
    scratch.write("src/e/five.py");
    assert_eq!(watch.seen(), ["src/e/five.py"]);
    fs::rename(scratch.at("src/e"), scratch.at("outside/e")).unwrap();
    assert_eq!(watch.seen(), ["src/e"]);
    scratch.write("outside/e/five.py");
    assert_eq!(watch.seen(), Vec::<String>::new());
    fs::remove_dir_all(scratch.at("src/b")).unwrap();
    assert_eq!(watch.seen(), ["src/b/c/four.py", "src/b/c/three.py"]);
}

#[test]
fn noise_is_ignored_unless_it_was_given() {
    let scratch = Scratch::new();
    scratch.write("src/node_modules/lib/index.js");
    scratch.write("src/.git/HEAD");
    let mut watch = scratch.watch(&["src", "src/server.log", "src/target/out"]);
    scratch.write("src/node_modules/lib/index.js");
    scratch.write("src/node_modules/new/index.js");
    scratch.write("src/.git/HEAD");
    scratch.write("src/__pycache__/server.cpython-311.pyc");
    for name in [
        ".server.py.swp",
        "server.py~",
        "4913",
        ".#server.py",
        "x.log",
    ] {
        scratch.write(&format!("src/{name}"));
    }
    assert_eq!(watch.seen(), Vec::<String>::new());
    scratch.write("src/server.log");
    scratch.write("src/target/out/server.js");
    assert_eq!(watch.seen(), ["src/server.log", "src/target/out"]);
    scratch.write("src/target/out/server.js");
    assert_eq!(watch.seen(), ["src/target/out/server.js"]);
    scratch.write("src/target/other.js");
    assert_eq!(watch.seen(), Vec::<String>::new());
}

#[test]
fn missing_path_is_seen_when_it_appears() {
    let scratch = Scratch::new();
    let mut watch = scratch.watch(&["a/b/server.py", "dist"]);
    scratch.write("elsewhere.py");
    fs::create_dir(scratch.at("a")).unwrap();
    assert_eq!(watch.seen(), Vec::<String>::new());
    scratch.write("a/b/server.py");
    assert_eq!(watch.seen(), ["a/b/server.py"]);
    scratch.write("a/b/server.py");
    assert_eq!(watch.seen(), ["a/b/server.py"]);
    // A build that begins by removing everything, again and again.
    for _ in 0..3 {
        scratch.write("dist/index.js");
        assert!(watch.seen().contains(&"dist".to_owned()));
        scratch.write("dist/index.js");
        assert_eq!(watch.seen(), ["dist/index.js"]);
        fs::remove_dir_all(scratch.at("dist")).unwrap();
        assert_eq!(watch.seen(), ["dist", "dist/index.js"]);
    }
    // The same between two reads.
    scratch.write("dist/index.js");
    watch.seen();
    fs::remove_dir_all(scratch.at("dist")).unwrap();
    scratch.write("dist/index.js");
    assert!(!watch.seen().is_empty());
    scratch.write("dist/index.js");
    assert_eq!(watch.seen(), ["dist/index.js"]);
}

#[test]
fn replaced_parent_is_followed() {
    let scratch = Scratch::new();
    scratch.write("a/server.py");
    scratch.write("new/server.py");
    let mut watch = scratch.watch(&["a/server.py"]);
    fs::rename(scratch.at("a"), scratch.at("old")).unwrap();
    fs::rename(scratch.at("new"), scratch.at("a")).unwrap();
    assert_eq!(watch.seen(), ["a/server.py"]);
    scratch.write("old/server.py");
    assert_eq!(watch.seen(), Vec::<String>::new());
    scratch.write("a/server.py");
    assert_eq!(watch.seen(), ["a/server.py"]);
}

#[test]
fn links_are_followed_where_they_were_given() {
    let scratch = Scratch::new();
    scratch.write("real/server.py");
    scratch.write("tree/x.py");
    symlink(scratch.at("real/server.py"), scratch.at("server.py")).unwrap();
    symlink(scratch.at("tree"), scratch.at("src")).unwrap();
    let mut watch = scratch.watch(&["server.py", "src"]);
    scratch.write("real/server.py");
    assert_eq!(watch.seen(), ["server.py"]);
    scratch.write("tree/x.py");
    assert_eq!(watch.seen(), ["src/x.py"]);
    // A loop does no harm.
    symlink(scratch.at("tree"), scratch.at("tree/loop")).unwrap();
    assert_eq!(watch.seen(), ["src/loop"]);
    // Another version behind the same name.
    scratch.write("real/server2.py");
    symlink(scratch.at("real/server2.py"), scratch.at("link.new")).unwrap();
    fs::rename(scratch.at("link.new"), scratch.at("server.py")).unwrap();
    assert_eq!(watch.seen(), ["server.py"]);
    scratch.write("real/server2.py");
    assert_eq!(watch.seen(), ["server.py"]);
}

#[test]
fn more_than_can_be_named_is_still_a_change() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("src")).unwrap();
    let mut watcher = FileWatcher::open(&[scratch.at("src")]).unwrap();
    for n in 0..400 {
        scratch.write(&format!("src/{n}.py"));
    }
    let changes = watcher.read();
    assert!(changes.more && !changes.is_empty());
    assert!(changes.paths.len() < 400);
    assert!(watcher.read().is_empty());
}

#[test]
fn an_overflow_is_a_change_and_nothing_stays_unwatched() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("src")).unwrap();
    let mut watcher = FileWatcher::open(&[scratch.at("src")]).unwrap();
    let queued: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let (one, two) = (scratch.at("src/one.py"), scratch.at("src/two.py"));
    fs::write(&one, "x").unwrap();
    for _ in 0..queued {
        fs::rename(&one, &two).unwrap();
        fs::rename(&two, &one).unwrap();
    }
    // No event reports this one.
    fs::create_dir(scratch.at("src/late")).unwrap();
    let mut more = false;
    loop {
        let changes = watcher.read();
        more |= changes.more;
        if !changes.again {
            break;
        }
    }
    assert!(more);
    scratch.write("src/late/three.py");
    assert!(
        watcher
            .read()
            .paths
            .contains(&scratch.at("src/late/three.py"))
    );
}
