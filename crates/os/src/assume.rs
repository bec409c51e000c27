//! Touching files as another user: what root does in a user's home must be what that user could do.
//!
//! Only the file-system identity changes, for one call, and with it root's rights over files go. Only while this process
//! has one thread.

use std::io;

/// A user, as files know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Its uid.
    pub uid: u32,
    /// Its gid.
    pub gid: u32,
}

impl User {
    /// Who we are.
    pub fn me() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    /// Does something with files as this user.
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

/// Gives up all further groups: they would be rights that the assumed user does not have.
pub fn drop_groups() -> io::Result<()> {
    // SAFETY: an empty list needs no memory.
    if unsafe { libc::setgroups(0, std::ptr::null()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn set(user: User) {
    // SAFETY: plain integers. Root is never refused; somebody else stays who it is, which is less than was asked for.
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

    /// As root: a file belongs to the assumed user, and root's own files are closed to it.
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
