//! Backups of one config file, and the lock that keeps two writes of it apart. The lock file holds the path of the config. Files are 0600 in a directory of 0700, because configs hold secrets.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::WriteError;
use crate::limits::{BACKUPS_MAX, PATH_BYTES_MAX};

/// How much of a path is in the name of its backups.
const NAME_BYTES_MAX: usize = 120;

/// The backups of one file.
#[derive(Debug)]
pub(super) struct Backups {
    directory: OwnedFd,
    path: PathBuf,
    name: String,
    /// Held until the write ends, also by SIGKILL.
    _lock: OwnedFd,
}

impl Backups {
    /// `config` is the path that the caller knows, `target` the file behind all links.
    pub fn open(path: &Path, config: &Path, target: &Path) -> Result<Self, WriteError> {
        let failed = |error: std::io::Error| WriteError::Backup {
            path: path.into(),
            error,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let stat = rustix::fs::fstat(&directory).map_err(|error| failed(error.into()))?;
        if stat.st_uid != geteuid().as_raw() {
            return Err(WriteError::OtherOwner {
                path: path.into(),
                owner: stat.st_uid,
                me: geteuid().as_raw(),
            });
        }
        let name = name_of(target);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&directory, format!("{name}.lock"), flags, own_mode())
            .map_err(|error| failed(error.into()))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(WriteError::Busy {
                    path: target.into(),
                });
            }
            Err(error) => return Err(failed(error.into())),
        }
        let config = config.as_os_str().as_encoded_bytes();
        rustix::io::pwrite(&lock, config, 0)
            .and_then(|_| rustix::fs::ftruncate(&lock, config.len() as u64))
            .map_err(|error| failed(error.into()))?;
        Ok(Self {
            directory,
            path: path.into(),
            name,
            _lock: lock,
        })
    }

    /// Keeps bytes unless a first backup is there.
    pub fn keep_first(&self, bytes: &[u8]) -> Result<PathBuf, WriteError> {
        let file = format!("{}.first", self.name);
        let there = rustix::fs::statat(
            &self.directory,
            &file,
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        );
        match there {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                Ok(self.path.join(file))
            }
            Ok(_) | Err(_) => self.keep("first", bytes),
        }
    }

    /// Keeps bytes under this ending, in place of those that were there.
    pub fn keep(&self, ending: &str, bytes: &[u8]) -> Result<PathBuf, WriteError> {
        let file = format!("{}.{ending}", self.name);
        let new = format!("{file}.new");
        let failed = |error: std::io::Error| WriteError::Backup {
            path: self.path.join(&file),
            error,
        };
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::TRUNC
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.directory, &new, flags, own_mode())
            .map_err(|error| failed(error.into()))?;
        let mut opened = std::fs::File::from(opened);
        opened.write_all(bytes).map_err(failed)?;
        opened.sync_all().map_err(failed)?;
        rustix::fs::renameat_with(
            &self.directory,
            &new,
            &self.directory,
            &file,
            RenameFlags::empty(),
        )
        .and_then(|()| rustix::fs::fsync(&self.directory))
        .map_err(|error| failed(error.into()))?;
        Ok(self.path.join(file))
    }
}

/// The paths of all configs that were locked for a write, whether they changed or not. What cannot be read is left out.
pub fn written_before(backups: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(backups) else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let locks = paths.filter(|path| path.extension().is_some_and(|ending| ending == "lock"));
    let configs = locks.take(BACKUPS_MAX).filter_map(|lock| {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = std::fs::OpenOptions::new();
        let options = options.read(true).custom_flags(flags.bits().cast_signed());
        let mut bytes = Vec::new();
        let file = options.open(lock).ok()?;
        file.take(PATH_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let config = PathBuf::from(OsString::from_vec(bytes));
        config.is_absolute().then_some(config)
    });
    let mut configs: Vec<PathBuf> = configs.collect();
    configs.sort();
    configs
}

fn own_mode() -> Mode {
    Mode::RUSR | Mode::WUSR
}

/// A file name for a path: readable, and different for different paths.
fn name_of(target: &Path) -> String {
    let path = target.to_string_lossy();
    let plain = |c: char| if c == '/' || c.is_control() { '+' } else { c };
    let mut start = path.len().saturating_sub(NAME_BYTES_MAX);
    while !path.is_char_boundary(start) {
        start += 1;
    }
    let end: String = path[start..]
        .trim_start_matches('/')
        .chars()
        .map(plain)
        .collect();
    // FNV-1a: it keeps two long paths apart, no more.
    let hash = target
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{end}-{hash:016x}")
}
