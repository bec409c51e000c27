//! Access to files as another user: root must do in a user's home only what that user could do.
//!
//! Only the file-system user and group ids change, for one call; root's rights over files are gone meanwhile. Only
//! while this process has one thread.

use std::io;

/// A user and group for file access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl User {
    /// The user that this process runs as.
    pub fn me() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    /// Runs `touch` with the file access of this user.
    pub fn with<T>(self, touch: impl FnOnce() -> T) -> T {
        let me = Self::me();
        if self == me {
            return touch();
        }
        set(self);
        let touched = touch();
        set(me);
        touched
    }
}

/// Gives up all supplementary groups, because they would be rights that the assumed user does not have.
pub fn drop_groups() -> io::Result<()> {
    // SAFETY: an empty list needs no memory.
    if unsafe { libc::setgroups(0, std::ptr::null()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn set(user: User) {
    // SAFETY: plain integers. Root is never refused. Another user keeps its ids, which is less than was asked for.
    unsafe {
        libc::setfsgid(user.gid);
        libc::setfsuid(user.uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    /// As root: a new file belongs to the assumed user, and root's own files cannot be written.
    #[test]
    fn files_are_made_and_refused_as_for_that_user() {
        let me = User::me();
        let path = std::env::temp_dir().join(format!("mainstay-assume-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        if me.uid == 0 {
            let other = User {
                uid: 12_345,
                gid: 12_345,
            };
            std::os::unix::fs::chown(&path, Some(other.uid), Some(other.gid)).unwrap();
            let file = path.join("file");
            other.with(|| fs::write(&file, "x")).unwrap();
            let meta = fs::metadata(&file).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (other.uid, other.gid));
            assert!(other.with(|| fs::write("/mainstay-assume", "x")).is_err());
        }
        assert!(me.with(|| fs::metadata(&path)).is_ok());
        fs::remove_dir_all(&path).unwrap();
    }
}
