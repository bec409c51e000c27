//! Files that hold a secret: which other users can read or change them.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use rustix::process::geteuid;

/// Bits that let group or others read.
const READ: u32 = 0o044;
/// Bits that let group or others write.
const WRITE: u32 = 0o022;

/// Which other users can access a secret file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Group or others can read it.
    Read(u32),
    /// Group or others can write it.
    Write(u32),
    /// It belongs to this user, which is neither ours nor root.
    Owner(u32),
}

impl fmt::Display for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(mode) => write!(f, "others than its owner can read it (mode {mode:o})"),
            Self::Write(mode) => write!(f, "others than its owner can write it (mode {mode:o})"),
            Self::Owner(uid) => write!(f, "it belongs to another user (uid {uid})"),
        }
    }
}

/// None if only we and root can access the file.
pub fn readers(found: &Metadata) -> Option<Readers> {
    let mode = found.mode() & 0o777;
    if mode & READ != 0 {
        return Some(Readers::Read(mode));
    }
    if mode & WRITE != 0 {
        return Some(Readers::Write(mode));
    }
    let ours = [geteuid().as_raw(), 0].contains(&found.uid());
    (!ours).then_some(Readers::Owner(found.uid()))
}
