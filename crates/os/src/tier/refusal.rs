//! Why a tier, or the memory cap of a tree, cannot be had here.
//!
//! A refusal is normal: the caller uses the next tier, or watches the memory itself, and passes the text on to events
//! and views.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::dbus;

/// Why a tier, or the memory cap of a tree, cannot be had here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The tree is in no cgroup of its own.
    NoLeaf,
    /// The memory controller is in a hierarchy of cgroup version 1.
    MemoryOnVersion1,
    /// This cgroup has no memory controller.
    NoMemoryController(PathBuf),
    /// Processes live in this cgroup, so it cannot delegate.
    Crowded(PathBuf),
    /// A file of the memory controller was not written.
    Cap {
        /// The file.
        file: PathBuf,
        /// What the kernel said.
        why: String,
    },
    /// A file in `/proc` was not read.
    Unreadable {
        /// The file.
        file: &'static str,
        /// What the kernel said.
        why: String,
    },
    /// This process is in no cgroup2.
    NotInCgroup2,
    /// No cgroup2 is mounted.
    NoCgroup2,
    /// Our cgroup, by this name, is outside of our cgroup namespace.
    OutsideOfNamespace(String),
    /// No mounted cgroup2 shows the cgroup with this name.
    Invisible(String),
    /// A cgroup is not ours to write.
    NotWritable {
        /// Its directory, or a file in it.
        path: PathBuf,
        /// Why not.
        why: &'static str,
    },
    /// A leaf could not be made or opened.
    LeafFailed {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        why: String,
    },
    /// The kernel is older than `cgroup.kill`.
    NoCgroupKill,
    /// The path of our own program is not known.
    OwnProgram(String),
    /// The guardian could not compare start times with those of this time namespace.
    TimeNamespace,
    /// There is no user manager.
    NoManager(String),
    /// The user manager does not answer.
    SilentManager(String),
    /// The user manager made no scope.
    NoScope(String),
    /// A job of the user manager failed.
    JobFailed {
        /// The unit that was to be started.
        unit: String,
        /// The manager's word for the result.
        result: String,
    },
    /// The user manager's cgroups are not visible from here.
    ManagerInvisible(String),
    /// The server was not seen in its scope.
    NotInScope,
    /// `cgroup.kill` of the scope cannot be written.
    ScopeNotWritable(String),
    /// The guardian was not started.
    NoGuardian(String),
    /// The guardian was started and has ended.
    GuardianEnded,
}

impl Refusal {
    /// The user manager answered the request for a scope with an error, or not at all.
    pub(super) fn scope(error: &dbus::Error) -> Self {
        Self::NoScope(error.to_string())
    }

    /// A file in `/proc` was not read.
    pub(super) fn unreadable(file: &'static str, error: &io::Error) -> Self {
        Self::Unreadable {
            file,
            why: error.to_string(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLeaf => f.write_str("the tree is in no cgroup of its own"),
            Self::MemoryOnVersion1 => {
                f.write_str("the memory controller is in cgroup version 1 on this machine")
            }
            Self::NoMemoryController(dir) => {
                write!(f, "{} has no memory controller to hand down", dir.display())
            }
            Self::Crowded(dir) => write!(
                f,
                "{} cannot hand the memory controller down while processes live in it",
                dir.display()
            ),
            Self::Cap { file, why } => write!(f, "no memory cap: {} ({why})", file.display()),
            Self::Unreadable { file, why } => write!(f, "{file} cannot be read ({why})"),
            Self::NotInCgroup2 => f.write_str("this process is in no cgroup2"),
            Self::NoCgroup2 => f.write_str("no cgroup2 is mounted"),
            Self::OutsideOfNamespace(name) => {
                write!(f, "our cgroup {name} is outside of its namespace")
            }
            Self::Invisible(name) => {
                write!(f, "the cgroup {name} is not visible in the mounted cgroup2")
            }
            Self::NotWritable { path, why } => {
                write!(f, "no writable cgroup2 ({} {why})", path.display())
            }
            Self::LeafFailed { path, why } => write!(f, "no leaf below {} ({why})", path.display()),
            Self::NoCgroupKill => f.write_str("no cgroup.kill (it needs Linux 5.14)"),
            Self::OwnProgram(why) => write!(f, "our own program cannot be found ({why})"),
            Self::TimeNamespace => {
                f.write_str("in a time namespace the guardian could not tell whether we live")
            }
            Self::NoManager(why) => write!(f, "no systemd user manager ({why})"),
            Self::SilentManager(why) => write!(f, "no systemd user manager that answers ({why})"),
            Self::NoScope(why) => write!(f, "the user manager made no scope ({why})"),
            Self::JobFailed { unit, result } => {
                write!(f, "the user manager could not start {unit} ({result})")
            }
            Self::ManagerInvisible(root) => write!(
                f,
                "the user manager's cgroups are not visible from here ({root})"
            ),
            Self::NotInScope => f.write_str("the server was not seen in its scope"),
            Self::ScopeNotWritable(why) => {
                write!(f, "the scope's cgroup.kill cannot be written ({why})")
            }
            Self::NoGuardian(why) => write!(f, "no guardian ({why})"),
            Self::GuardianEnded => f.write_str("the guardian ended at once"),
        }
    }
}

impl std::error::Error for Refusal {}
