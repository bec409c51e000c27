//! A directory for one test, removed at its end. Only in tests.
//!
//! A child has copies of all our descriptors until it executes its program, so a lock that one test gives back stays taken while
//! another test starts a process. The tests of this program share one process; hence those that start a process have no other
//! test with a directory beside them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::new_without_default,
    reason = "a directory is made on purpose only"
)]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The directory.
pub struct Scratch {
    path: PathBuf,
    _place: Place,
}

/// Which tests run: several with directories, or one that starts processes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Present {
    Beside(u32),
    Alone,
}

static PRESENT: Mutex<Present> = Mutex::new(Present::Beside(0));
static CHANGED: Condvar = Condvar::new();

/// A test among the others, or alone.
pub struct Place(());

impl Place {
    /// Beside others; a test may have several.
    fn beside() -> Self {
        Self::take(|present| match present {
            Present::Beside(count) => Some(Present::Beside(count + 1)),
            Present::Alone => None,
        })
    }

    /// For a test that starts processes.
    pub fn alone() -> Self {
        Self::take(|present| (present == Present::Beside(0)).then_some(Present::Alone))
    }

    fn take(next: impl Fn(Present) -> Option<Present>) -> Self {
        let mut present = present();
        loop {
            if let Some(next) = next(*present) {
                *present = next;
                return Self(());
            }
            present = CHANGED
                .wait(present)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn present() -> MutexGuard<'static, Present> {
    PRESENT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut present = present();
        *present = match *present {
            Present::Beside(count) => Present::Beside(count.saturating_sub(1)),
            Present::Alone => Present::Beside(0),
        };
        CHANGED.notify_all();
    }
}

impl Scratch {
    /// For a test that starts no process.
    pub fn new() -> Self {
        Self::at(Place::beside())
    }

    /// For a test that starts processes; it can have only this one.
    pub fn with_children() -> Self {
        Self::at(Place::alone())
    }

    fn at(place: Place) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "mainstay-unit-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self {
            path,
            _place: place,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// This directory, or one below it, as a place of ours.
    pub fn location(&self) -> crate::state::Location {
        crate::state::Location::root(self.path().into(), rustix::process::geteuid().as_raw())
    }

    /// Paths with this directory as home, made.
    pub fn paths(&self) -> crate::paths::Paths {
        let paths = crate::paths::Paths::below(self.path.clone()).unwrap();
        paths.make().unwrap();
        paths
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).ok();
    }
}

/// Makes a file, or what looks like one.
/// Puts something where a file of ours should be.
pub type Put = fn(&Path);

/// Files that hold a careless reader up.
pub const HOSTILE: [(&str, Put); 7] = [
    ("garbage", |path| fs::write(path, "\u{0}\u{7f}{[").unwrap()),
    ("nothing", |path| fs::write(path, "").unwrap()),
    ("other JSON", |path| fs::write(path, "[[1], {}]").unwrap()),
    ("fifty megabytes", |path| {
        let mut file = File::create(path).unwrap();
        file.set_len(50 << 20).unwrap();
        file.write_all(b"{\"v\":1,").unwrap();
    }),
    ("a link to a file that never ends", |path| {
        symlink("/dev/zero", path).unwrap();
    }),
    ("a link to itself", |path| symlink(path, path).unwrap()),
    ("a pipe without a writer", |path| {
        let mode = rustix::fs::Mode::from(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }),
];
