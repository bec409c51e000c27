//! Looking at a config file, and the calls that replace it.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, RenameFlags, Stat, XattrFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::WriteError;
use crate::limits::FILE_BYTES_MAX;
use crate::refusal::Refusal;

/// A file as it was at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub bytes: Vec<u8>,
    stat: Stat,
    file: OwnedFd,
}

impl Snapshot {
    pub fn inode(&self) -> u64 {
        self.stat.st_ino
    }

    /// Whether this is the same file with the same bytes.
    pub fn same_as(&self, other: &Self) -> bool {
        let same = self.stat.st_dev == other.stat.st_dev && self.stat.st_ino == other.stat.st_ino;
        same && self.bytes == other.bytes
    }

    /// Whether another file may take its place.
    pub fn check_replaceable(&self, path: &Path) -> Result<(), WriteError> {
        let path = || path.to_owned();
        let me = geteuid().as_raw();
        if self.stat.st_uid != me {
            return Err(WriteError::OtherOwner {
                path: path(),
                owner: self.stat.st_uid,
                me,
            });
        }
        if self.stat.st_mode & 0o200 == 0 {
            return Err(WriteError::ReadOnly { path: path() });
        }
        #[allow(clippy::useless_conversion, reason = "it has 32 bits on arm64")]
        let names = u64::from(self.stat.st_nlink);
        if names > 1 {
            return Err(WriteError::SeveralNames {
                path: path(),
                names,
            });
        }
        Ok(())
    }
}

/// The bytes of a config or policy file: a regular file of bounded size. It waits for no FIFO.
pub fn read(path: &Path) -> Result<Vec<u8>, WriteError> {
    snapshot(&resolve(path)?).map(|snapshot| snapshot.bytes)
}

/// The file behind all symbolic links.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, WriteError> {
    std::fs::canonicalize(path).map_err(|error| {
        let path = path.to_owned();
        if error.kind() != io::ErrorKind::NotFound {
            WriteError::Unreadable { path, error }
        } else if std::fs::symlink_metadata(&path).is_ok() {
            WriteError::DanglingLink { path }
        } else {
            WriteError::Missing { path }
        }
    })
}

pub(super) fn snapshot(path: &Path) -> Result<Snapshot, WriteError> {
    let flags =
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT => WriteError::Missing { path: path.into() },
        Errno::LOOP => WriteError::NotAFile {
            path: path.into(),
            is: "a symbolic link",
        },
        Errno::NXIO => WriteError::NotAFile {
            path: path.into(),
            is: "a socket or device",
        },
        error => WriteError::unreadable(path, error.into()),
    })?;
    let stat = rustix::fs::fstat(&file).map_err(|error| WriteError::io("look at", path, error))?;
    let is = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory"),
        FileType::Fifo => Some("a FIFO"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        FileType::Symlink => Some("a symbolic link"),
        FileType::Unknown => Some("no regular file"),
    };
    if let Some(is) = is {
        return Err(WriteError::NotAFile {
            path: path.into(),
            is,
        });
    }
    let too_large = |bytes: usize| WriteError::Refused {
        path: path.into(),
        refusal: Refusal::TooLarge { bytes },
    };
    let size = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
    if size > FILE_BYTES_MAX {
        return Err(too_large(size));
    }
    let failed = |error| WriteError::unreadable(path, error);
    let mut bytes = Vec::with_capacity(size);
    let reader = std::fs::File::from(file.try_clone().map_err(failed)?);
    let limit = FILE_BYTES_MAX as u64 + 1;
    reader.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(too_large(bytes.len()));
    }
    Ok(Snapshot { bytes, stat, file })
}

/// The name of the new file, beside the old one. Its ending is none that a client looks for.
pub(super) fn beside(target: &Path) -> Result<PathBuf, WriteError> {
    let name = target.file_name().ok_or_else(|| WriteError::NotAFile {
        path: target.into(),
        is: "a directory",
    })?;
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(".mainstay-new");
    Ok(target.with_file_name(beside))
}

pub(super) fn inode_of(path: &Path) -> Option<u64> {
    rustix::fs::lstat(path).ok().map(|stat| stat.st_ino)
}

pub(super) fn rename(from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
    rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags)
}

pub(super) fn sync_directory(of: &Path) -> Result<(), WriteError> {
    let directory = of.parent().unwrap_or(Path::new("/"));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty());
    opened
        .and_then(rustix::fs::fsync)
        .map_err(|error| WriteError::io("sync", directory, error))
}

/// Gives a new file the mode, the group and the extended attributes of an old one.
pub(super) fn copy_attributes(
    old: &Snapshot,
    new: &OwnedFd,
    path: &Path,
) -> Result<(), WriteError> {
    let failed = |error: Errno| WriteError::Attributes {
        path: path.into(),
        error: error.into(),
    };
    let made = rustix::fs::fstat(new).map_err(failed)?;
    if made.st_gid != old.stat.st_gid {
        let group = rustix::fs::Gid::from_raw(old.stat.st_gid);
        rustix::fs::fchown(new, None, Some(group)).map_err(failed)?;
    }
    rustix::fs::fchmod(new, Mode::from_raw_mode(old.stat.st_mode & 0o7777)).map_err(failed)?;
    copy_extended(old.file.as_fd(), new.as_fd()).map_err(failed)
}

/// The largest list of names, and the largest value, that the kernel gives.
const EXTENDED_BYTES_MAX: usize = 64 * 1024;

fn copy_extended(old: impl AsFd, new: impl AsFd) -> Result<(), Errno> {
    let mut names = vec![0; EXTENDED_BYTES_MAX];
    let length = match rustix::fs::flistxattr(&old, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut value = vec![0; EXTENDED_BYTES_MAX];
    for name in names[..length].split(|byte| *byte == 0) {
        if name.is_empty() {
            continue;
        }
        let copied = rustix::fs::fgetxattr(&old, name, &mut value[..]).and_then(|length| {
            rustix::fs::fsetxattr(&new, name, &value[..length], XattrFlags::empty())
        });
        match copied {
            Ok(()) => {}
            // The kernel sets labels itself; an unprivileged process may not.
            Err(_) if name.starts_with(b"security.") => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
