//! A file that is made for us, and removed again.
//!
//! Invariants: another process never sees a part of a file at the path. A file that another process made or changed meanwhile stays.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::backup::Backups;
use super::{WriteError, file};

/// Makes a file where none is. Its directory must be there.
pub fn create(path: &Path, backups: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let backups = Backups::open(backups, path, path)?;
    let beside = file::beside(path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let made = match rustix::fs::open(&beside, flags, mode) {
        Err(Errno::EXIST) => {
            // We hold the lock, so a killed write left it.
            let left = file::snapshot(&beside)?;
            backups.keep("left", &left.bytes)?;
            drop_file(&beside)?;
            rustix::fs::open(&beside, flags, mode)
        }
        made => made,
    };
    let made = made.map_err(|error| WriteError::directory(path, error))?;
    let mut made = std::fs::File::from(made);
    let written = made
        .write_all(bytes)
        .and_then(|()| made.sync_all())
        .map_err(|error| WriteError::io("write", &beside, error))
        .and_then(|()| {
            file::rename(&beside, path, RenameFlags::NOREPLACE)
                .map_err(|error| WriteError::io("make", path, error))
        });
    if written.is_err() {
        drop_file(&beside)?;
    }
    written?;
    file::sync_directory(path)
}

/// Removes a file of which `may` says that its bytes may go, and gives the backup that has them.
pub fn remove(
    path: &Path,
    backups: &Path,
    may: &dyn Fn(&[u8]) -> bool,
) -> Result<PathBuf, WriteError> {
    let target = file::resolve(path)?;
    let backups = Backups::open(backups, path, &target)?;
    let old = file::snapshot(&target)?;
    old.check_replaceable(&target)?;
    let changed = || WriteError::KeepsChanging {
        path: target.clone(),
        attempts: 1,
    };
    if !may(&old.bytes) {
        return Err(changed());
    }
    backups.keep_first(&old.bytes)?;
    let kept = backups.keep("last", &old.bytes)?;
    let beside = file::beside(&target)?;
    file::rename(&target, &beside, RenameFlags::empty())
        .map_err(|error| WriteError::directory(&target, error))?;
    if file::snapshot(&beside)?.bytes != old.bytes {
        // The client wrote in the last moment. Its bytes go back, unless it has made the file anew since.
        let back = file::rename(&beside, &target, RenameFlags::NOREPLACE);
        if back.is_err() {
            backups.keep("left", &file::snapshot(&beside)?.bytes)?;
            drop_file(&beside)?;
        }
        return Err(changed());
    }
    drop_file(&beside)?;
    file::sync_directory(&target)?;
    Ok(kept)
}

fn drop_file(path: &Path) -> Result<(), WriteError> {
    std::fs::remove_file(path).map_err(|error| WriteError::io("remove", path, error))
}
