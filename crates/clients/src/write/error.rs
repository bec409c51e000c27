//! Why a file was not written. In every case the file holds what it held, or what the client wrote since.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::explain::{Explain, Explanation};
use crate::refusal::Refusal;

/// Why a file was not written.
#[derive(Debug)]
pub enum WriteError {
    /// There is no such file.
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A symbolic link leads to no file.
    DanglingLink {
        /// The link.
        path: PathBuf,
    },
    /// Something else stands in place of a file.
    NotAFile {
        /// Its place.
        path: PathBuf,
        /// What it is.
        is: &'static str,
    },
    /// It cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It belongs to another user.
    OtherOwner {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Who we are.
        me: u32,
    },
    /// Its owner may not write it.
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// It has several names, of which one would keep the old bytes.
    SeveralNames {
        /// The file.
        path: PathBuf,
        /// How many.
        names: u64,
    },
    /// No file can be made in its directory.
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Group, mode or attributes of the file cannot be given to a new one.
    Attributes {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// No backup can be kept.
    Backup {
        /// Its place.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Another mainstay is writing it.
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The client wrote it again and again meanwhile.
    KeepsChanging {
        /// The file.
        path: PathBuf,
        /// How often it was tried.
        attempts: u32,
    },
    /// There is no plan for it.
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        refusal: Refusal,
    },
    /// A call failed.
    Io {
        /// What was done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A step was asked for after the end.
    OutOfOrder,
}

impl WriteError {
    pub(super) fn io(doing: &'static str, path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Io {
            doing,
            path: path.into(),
            error: error.into(),
        }
    }

    pub(super) fn unreadable(path: &Path, error: io::Error) -> Self {
        Self::Unreadable {
            path: path.into(),
            error,
        }
    }

    pub(super) fn directory(target: &Path, error: impl Into<io::Error>) -> Self {
        Self::Directory {
            path: target.parent().unwrap_or(target).into(),
            error: error.into(),
        }
    }
}

impl Explain for WriteError {
    fn explain(&self) -> Explanation {
        let (what, why, hint) = match self {
            Self::Missing { path } => (
                format!("{} does not exist", path.display()),
                "there is nothing to edit".into(),
                "add a server in the client first".into(),
            ),
            Self::DanglingLink { path } => (
                format!("{} is a symbolic link to no file", path.display()),
                "there is nothing to edit".into(),
                "make the file that it points to, or remove the link".into(),
            ),
            Self::NotAFile { path, is } => (
                format!("{} is {is}", path.display()),
                "a config must be a regular file".into(),
                "move it away".into(),
            ),
            Self::Unreadable { path, error } => (
                format!("{} cannot be read", path.display()),
                error.to_string(),
                "check its permissions and those of the directories above it".into(),
            ),
            Self::OtherOwner { path, owner, me } => (
                format!("{} belongs to user {owner}", path.display()),
                format!("this is user {me}, and files of others are not changed"),
                "run it as the owner, without sudo".into(),
            ),
            Self::ReadOnly { path } => (
                format!("{} is read-only", path.display()),
                "its owner took the right to write away".into(),
                format!(
                    "allow it (`chmod u+w {}`), or edit where it is made",
                    path.display()
                ),
            ),
            Self::SeveralNames { path, names } => (
                format!("{} has {names} names (hard links)", path.display()),
                "the others would keep the old bytes".into(),
                "replace the hard links with symbolic links".into(),
            ),
            Self::Directory { path, error } => (
                format!("no file can be made in {}", path.display()),
                error.to_string(),
                "the new file is made beside the old one: allow writing in that directory".into(),
            ),
            Self::Attributes { path, error } => (
                format!(
                    "a new file cannot have group and attributes of {}",
                    path.display()
                ),
                error.to_string(),
                "edit it by hand".into(),
            ),
            Self::Backup { path, error } => (
                format!("no backup can be kept at {}", path.display()),
                error.to_string(),
                "make room, or allow writing there; nothing was changed".into(),
            ),
            Self::Busy { path } => (
                format!("{} is being edited", path.display()),
                "another mainstay is writing it".into(),
                "wait until it has ended".into(),
            ),
            Self::KeepsChanging { path, attempts } => (
                format!("{} keeps changing", path.display()),
                format!("a client wrote it during each of {attempts} attempts"),
                "quit the client, then try again".into(),
            ),
            Self::Refused { path, refusal } => {
                let Explanation { what, why, hint } = refusal.explain();
                (format!("{}: {what}", path.display()), why, hint)
            }
            Self::Io { doing, path, error } => (
                format!("cannot {doing} {}", path.display()),
                error.to_string(),
                "the config is as it was; try again when the cause is gone".into(),
            ),
            Self::OutOfOrder => (
                "this write has ended".into(),
                "a step was asked for after its end".into(),
                "begin a new one".into(),
            ),
        };
        Explanation { what, why, hint }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.explain().fmt(f)
    }
}

impl std::error::Error for WriteError {}
