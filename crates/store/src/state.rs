//! The one way to files below the state directory.
//!
//! A [`Location`] names a directory; opening it gives a [`Directory`], a handle that was checked. Everything below is reached through
//! such a handle by one name, never by a path. It does not know what is in the files.
//!
//! Invariants: a directory is a real one and belongs to the user that the location names, else it is not opened, not changed and not
//! chmodded; a file is a regular one of that user, that no other user can write to, and no larger than its caller allows; no symbolic
//! link is followed; no open waits (a FIFO is refused like other special files); our directories are 0700, our files 0600.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// The mode of our directories.
pub const DIRECTORY_MODE: u32 = 0o700;
/// The mode of our files.
pub const FILE_MODE: u32 = 0o600;
/// Files that are still being written begin with this.
pub const NEW: &str = ".new-";
/// Files of ours have at most this many names: one, and a second one while a lease is being marked.
const LINKS_MOST: u64 = 2;

/// Where a directory of ours is. It is checked whenever it is opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    root: PathBuf,
    below: PathBuf,
    owner: u32,
}

impl Location {
    /// A state directory, which must belong to this user. Whether its parents can be trusted is the caller's question.
    pub fn root(path: PathBuf, owner: u32) -> Self {
        Self {
            root: path,
            below: PathBuf::new(),
            owner,
        }
    }

    /// A directory in it.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> Self {
        Self {
            below: self.below.join(name),
            ..self.clone()
        }
    }

    /// The directory that it is in, and its name there; none for a state directory itself.
    pub fn split(&self) -> Option<(Self, &str)> {
        let above = Self {
            below: self.below.parent()?.into(),
            ..self.clone()
        };
        Some((above, self.below.file_name()?.to_str()?))
    }

    /// Its path, for people and for other programs; nothing here is opened by it.
    pub fn path(&self) -> PathBuf {
        // To join an empty path would add a slash.
        let parts = self.below.components();
        self.root.components().chain(parts).collect()
    }

    /// The same, to be printed.
    pub fn display(&self) -> String {
        self.path().display().to_string()
    }

    /// Opens it, if it is there and ours.
    pub fn open(&self) -> io::Result<Directory> {
        let mut directory = Directory::at(CWD, &self.root, &self.root, self.owner)?;
        for part in self.parts()? {
            directory = directory.open_directory(part)?;
        }
        Ok(directory)
    }

    /// Opens it, and makes what is missing.
    pub fn make(&self) -> io::Result<Directory> {
        match self.open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
        if let Some(parent) = self.root.parent() {
            let mut parents = fs::DirBuilder::new();
            parents
                .recursive(true)
                .mode(DIRECTORY_MODE)
                .create(parent)?;
        }
        make_directory(CWD, &self.root)?;
        let mut directory = Directory::at(CWD, &self.root, &self.root, self.owner)?;
        for part in self.parts()? {
            directory = directory.make_directory(part)?;
        }
        Ok(directory)
    }

    /// The names in it; none if it does not exist.
    pub fn names(&self) -> io::Result<Vec<String>> {
        match self.open() {
            Ok(directory) => directory.names(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Removes it with all that is in it.
    pub fn remove_all(&self) -> io::Result<()> {
        let (above, name) = self.split().ok_or(io::ErrorKind::InvalidInput)?;
        above.open()?.remove_all(name)
    }

    /// Removes it if it is empty.
    pub fn remove_empty(&self) -> io::Result<()> {
        let (above, name) = self.split().ok_or(io::ErrorKind::InvalidInput)?;
        above.open()?.remove_empty(name)
    }

    /// True if something has this path, ours or not.
    pub fn is_there(&self) -> bool {
        !matches!(self.open(), Err(error) if error.kind() == io::ErrorKind::NotFound)
    }

    fn parts(&self) -> io::Result<Vec<&str>> {
        let part = |part| match part {
            Component::Normal(name) => name.to_str().ok_or(io::ErrorKind::InvalidInput.into()),
            Component::Prefix(_)
            | Component::RootDir
            | Component::CurDir
            | Component::ParentDir => Err(io::ErrorKind::InvalidInput.into()),
        };
        self.below.components().map(part).collect()
    }
}

/// Tests look at what is there by its path.
#[cfg(any(test, feature = "samples"))]
impl AsRef<Path> for Location {
    fn as_ref(&self) -> &Path {
        self
    }
}

#[cfg(any(test, feature = "samples"))]
impl std::ops::Deref for Location {
    type Target = Path;

    fn deref(&self) -> &Path {
        Box::leak(self.path().into_boxed_path())
    }
}

/// A directory of ours, open.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    owner: u32,
}

/// The metadata of a name, without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Whether it is a regular file.
    pub is_file: bool,
    /// Its size.
    pub bytes: u64,
    /// When it was last changed, in milliseconds since 1970.
    pub changed_ms: u64,
    /// Which file it is: device and inode.
    pub which: (u64, u64),
}

impl Directory {
    /// A directory that another process of ours has opened and checked.
    pub fn lent(fd: OwnedFd, at: &Location) -> Self {
        Self {
            fd,
            path: at.path(),
            owner: at.owner,
        }
    }

    fn at(parent: impl AsFd, name: &Path, path: &Path, owner: u32) -> io::Result<Self> {
        let flags = OFlags::RDONLY
            | OFlags::DIRECTORY
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(refused(
                    io::ErrorKind::NotADirectory,
                    "it is not a directory",
                ));
            }
            result => result?,
        };
        let stat = rustix::fs::fstat(&fd)?;
        check_owner(&stat, owner)?;
        let mode = stat.st_mode & 0o777;
        if mode & !DIRECTORY_MODE != 0 {
            let ours = owner == rustix::process::geteuid().as_raw();
            let mended = ours && rustix::fs::fchmod(&fd, Mode::from(DIRECTORY_MODE)).is_ok();
            if !mended && mode & 0o022 != 0 {
                return Err(invalid("other users can write to it"));
            }
        }
        Ok(Self {
            fd,
            path: path.into(),
            owner,
        })
    }

    /// Its path, for people and for other programs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads through the descriptor: for sockets, whose addresses have 108 bytes at most, and for watches.
    pub fn through(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// Another handle on the same directory, with a description of its own.
    pub fn again(&self) -> io::Result<Self> {
        Self::at(&self.fd, Path::new("."), &self.path, self.owner)
    }

    /// Another handle that shares the description.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
            path: self.path.clone(),
            owner: self.owner,
        })
    }

    /// A directory in it.
    pub fn open_directory(&self, name: &str) -> io::Result<Self> {
        Self::at(&self.fd, plain(name)?, &self.path.join(name), self.owner)
    }

    /// Opens a directory in it, and makes it if it is missing.
    pub fn make_directory(&self, name: &str) -> io::Result<Self> {
        match self.open_directory(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
        make_directory(&self.fd, plain(name)?)?;
        self.open_directory(name)
    }

    /// A new directory in it; fails if the name is taken.
    pub fn new_directory(&self, name: &str) -> io::Result<Self> {
        rustix::fs::mkdirat(&self.fd, plain(name)?, Mode::from(DIRECTORY_MODE))?;
        self.open_directory(name)
    }

    /// The names in it, in no order. A name that is not UTF-8 is none of ours.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            if let Ok(name) = entry?.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// The metadata of a name.
    pub fn look(&self, name: &str) -> io::Result<FileInfo> {
        let stat = rustix::fs::statat(&self.fd, plain(name)?, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileInfo::of(&stat))
    }

    /// The metadata of the directory itself.
    pub fn look_at_itself(&self) -> io::Result<FileInfo> {
        Ok(FileInfo::of(&rustix::fs::fstat(&self.fd)?))
    }

    /// Whether anything has this name.
    pub fn has(&self, name: &str) -> bool {
        self.look(name).is_ok()
    }

    /// Opens a file for reading; one that is larger than this is refused.
    pub fn open(&self, name: &str, limit_bytes: u64) -> io::Result<File> {
        self.open_as(name, OFlags::RDONLY, limit_bytes)
    }

    /// Opens a file for reading and writing that must be there: for locks.
    pub fn open_to_write(&self, name: &str) -> io::Result<File> {
        self.open_as(name, OFlags::RDWR, u64::MAX)
    }

    /// Opens a file for appending that must be there. It can be read, too.
    pub fn append(&self, name: &str) -> io::Result<File> {
        self.open_as(name, OFlags::RDWR | OFlags::APPEND, u64::MAX)
    }

    /// Makes a file for appending; fails with `AlreadyExists` if the name is taken.
    pub fn append_new(&self, name: &str) -> io::Result<File> {
        self.create_as(name, OFlags::APPEND)
    }

    /// Makes a file for reading and writing; fails with `AlreadyExists` if the name is taken.
    pub fn create(&self, name: &str) -> io::Result<File> {
        self.create_as(name, OFlags::empty())
    }

    /// Makes a file for reading and writing, and replaces what had the name.
    pub fn create_anew(&self, name: &str) -> io::Result<File> {
        match self.create(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove(name)?;
                self.create(name)
            }
            result => result,
        }
    }

    /// The contents of a file; one that is larger than this is refused.
    pub fn read(&self, name: &str, limit_bytes: u64) -> io::Result<Vec<u8>> {
        read_all(&self.open(name, limit_bytes)?, limit_bytes)
    }

    /// Puts a file in the place of another, whole: a reader sees the old one or the new one.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = format!("{NEW}{name}");
        let mut file = self.create_anew(&new)?;
        let written = file.write_all(bytes).and_then(|()| self.rename(&new, name));
        if written.is_err() {
            self.remove(&new).ok();
        }
        written
    }

    /// Gives something in it another name, in place of what has that name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(
            &self.fd,
            plain(from)?,
            &self.fd,
            plain(to)?,
        )?)
    }

    /// Renames a directory of ours in it. Fails with `AlreadyExists` if the new name is taken.
    pub fn rename_directory(&self, from: &str, to: &str) -> io::Result<()> {
        // Opened first, because that checks its owner and that it is no symbolic link.
        self.open_directory(from)?;
        Ok(rustix::fs::renameat_with(
            &self.fd,
            plain(from)?,
            &self.fd,
            plain(to)?,
            rustix::fs::RenameFlags::NOREPLACE,
        )?)
    }

    /// Gives a file a second name; fails with `AlreadyExists` if that is taken.
    pub fn link(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::linkat(
            &self.fd,
            plain(from)?,
            &self.fd,
            plain(to)?,
            AtFlags::empty(),
        )?)
    }

    /// Removes a file, or anything else that is no directory.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(
            &self.fd,
            plain(name)?,
            AtFlags::empty(),
        )?)
    }

    /// Removes a directory that is empty.
    pub fn remove_empty(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(
            &self.fd,
            plain(name)?,
            AtFlags::REMOVEDIR,
        )?)
    }

    /// Removes a directory with all that is in it; symbolic links go, what they lead to stays.
    pub fn remove_all(&self, name: &str) -> io::Result<()> {
        fs::remove_dir_all(self.through().join(plain(name)?))
    }

    /// Has everything in it written to the disk.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    fn open_as(&self, name: &str, how: OFlags, limit_bytes: u64) -> io::Result<File> {
        let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&self.fd, plain(name)?, flags, Mode::empty()) {
            // A symbolic link, a socket or a FIFO without a reader, a directory.
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => {
                return Err(invalid("it is not a regular file"));
            }
            result => result?,
        };
        let stat = rustix::fs::fstat(&fd)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(invalid("it is not a regular file"));
        }
        check_owner(&stat, self.owner)?;
        // The group of a user's own may: the directory is closed to it.
        if stat.st_mode & 0o002 != 0 {
            return Err(invalid("other users can write to it"));
        }
        #[allow(clippy::useless_conversion, reason = "it has 32 bits on arm64")]
        if u64::from(stat.st_nlink) > LINKS_MOST {
            return Err(invalid("it has other names beside this one"));
        }
        if stat.st_size as u64 > limit_bytes {
            return Err(too_large(limit_bytes));
        }
        Ok(fd.into())
    }

    fn create_as(&self, name: &str, how: OFlags) -> io::Result<File> {
        let flags = how
            | OFlags::RDWR
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, plain(name)?, flags, Mode::from(FILE_MODE))?;
        Ok(fd.into())
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Directory {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl From<Directory> for OwnedFd {
    fn from(directory: Directory) -> Self {
        directory.fd
    }
}

impl FileInfo {
    fn of(stat: &Stat) -> Self {
        let ms = stat.st_mtime.saturating_mul(1_000) + stat.st_mtime_nsec as i64 / 1_000_000;
        Self {
            is_file: FileType::from_raw_mode(stat.st_mode).is_file(),
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            changed_ms: u64::try_from(ms).unwrap_or(0),
            which: (stat.st_dev, stat.st_ino),
        }
    }

    /// What is known of an open file.
    pub fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::of(&rustix::fs::fstat(file)?))
    }
}

/// What an open file holds from where it stands; more than this is refused.
pub fn read_all(file: &File, limit_bytes: u64) -> io::Result<Vec<u8>> {
    // Most files fit: they are read by one call, and not by many that double what they ask for.
    let mut bytes = Vec::with_capacity(4096);
    file.take(limit_bytes.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(too_large(limit_bytes));
    }
    Ok(bytes)
}

/// What a file holds that is not below the state directory: one that the user names. Symbolic links are followed, because they are
/// the user's; it must be a regular file of bounded size, so that nothing keeps us waiting.
pub fn read_named(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(invalid("it is not a regular file"));
    }
    if stat.st_size as u64 > limit_bytes {
        return Err(too_large(limit_bytes));
    }
    read_all(&fd.into(), limit_bytes)
}

fn make_directory(parent: impl AsFd, name: &Path) -> io::Result<()> {
    match rustix::fs::mkdirat(parent, name, Mode::from(DIRECTORY_MODE)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// One name, and no way out of the directory.
fn plain(name: &str) -> io::Result<&Path> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(Path::new(name))
}

fn check_owner(stat: &Stat, owner: u32) -> io::Result<()> {
    if stat.st_uid == owner {
        return Ok(());
    }
    let text = format!("it belongs to uid {}, not to uid {owner}", stat.st_uid);
    Err(refused(io::ErrorKind::PermissionDenied, &text))
}

fn too_large(limit_bytes: u64) -> io::Error {
    invalid(&format!("it is larger than {limit_bytes} bytes"))
}

fn invalid(text: &str) -> io::Error {
    refused(io::ErrorKind::InvalidData, text)
}

fn refused(kind: io::ErrorKind, text: &str) -> io::Error {
    io::Error::new(kind, text.to_owned())
}

#[cfg(test)]
mod tests {
    //! guards: Only a plain file that belongs to us and is not too large is opened in the state directory.

    use super::*;
    use crate::scratch::Scratch;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    use std::os::unix::net::UnixListener;

    const LIMIT_BYTES: u64 = 16;

    fn location(scratch: &Scratch) -> Location {
        Location::root(
            scratch.path().join("state"),
            rustix::process::geteuid().as_raw(),
        )
    }

    #[test]
    fn what_is_made_is_private_and_what_is_loose_is_mended() {
        let scratch = Scratch::new();
        let below = location(&scratch).join("run").join("7");
        assert!(!below.is_there());
        let directory = below.make().unwrap();
        directory.replace("card", b"one").unwrap();
        directory.replace("card", b"two").unwrap();
        assert_eq!(directory.read("card", LIMIT_BYTES).unwrap(), b"two");
        assert_eq!(directory.names().unwrap(), ["card"]);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&below.path()), DIRECTORY_MODE);
        assert_eq!(mode(&below.path().join("card")), FILE_MODE);
        fs::set_permissions(below.path(), fs::Permissions::from_mode(0o777)).unwrap();
        below.open().unwrap();
        assert_eq!(mode(&below.path()), DIRECTORY_MODE);
    }

    #[test]
    fn what_is_no_plain_file_of_ours_is_refused_at_once() {
        let scratch = Scratch::new();
        let directory = location(&scratch).make().unwrap();
        let at = |name: &str| directory.path().join(name);
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::from(FILE_MODE), 0).unwrap();
        fs::write(at("target"), "x").unwrap();
        fs::set_permissions(at("target"), fs::Permissions::from_mode(FILE_MODE)).unwrap();
        symlink(at("target"), at("link")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        fs::write(at("large"), [b'x'; 17]).unwrap();
        fs::write(at("loose"), "x").unwrap();
        fs::set_permissions(at("loose"), fs::Permissions::from_mode(0o666)).unwrap();
        fs::write(at("named"), "x").unwrap();
        for name in ["second", "third"] {
            fs::hard_link(at("named"), at(name)).unwrap();
        }
        for name in [
            "fifo",
            "link",
            "directory",
            "socket",
            "large",
            "loose",
            "named",
        ] {
            let error = directory.read(name, LIMIT_BYTES).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{name}: {error}");
        }
        for name in ["fifo", "link", "directory", "socket"] {
            let error = directory.append(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{name}: {error}");
        }
        for name in ["../state/target", "..", ".", "", "/etc/passwd"] {
            let error = directory.read(name, LIMIT_BYTES).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(directory.read("target", LIMIT_BYTES).unwrap(), b"x");
        let error = read_named(&at("fifo"), LIMIT_BYTES).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(read_named(&at("link"), LIMIT_BYTES).unwrap(), b"x");
    }

    #[test]
    fn a_link_in_place_of_a_directory_is_refused() {
        let scratch = Scratch::new();
        let elsewhere = scratch.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(&elsewhere, scratch.path().join("state")).unwrap();
        for result in [
            location(&scratch).open(),
            location(&scratch).join("run").make(),
        ] {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::NotADirectory);
        }
        assert_eq!(fs::metadata(&elsewhere).unwrap().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[test]
    fn what_another_user_owns_is_neither_read_nor_changed() {
        if !mainstay_testkit::skip::root_or_skip("only root can give a file away") {
            return;
        }
        let scratch = Scratch::new();
        let location = location(&scratch);
        let directory = location.make().unwrap();
        directory.replace("card", b"x").unwrap();
        chown(directory.path().join("card"), Some(65_534), None).unwrap();
        let error = directory.read("card", LIMIT_BYTES).unwrap_err();
        assert_eq!(error.to_string(), "it belongs to uid 65534, not to uid 0");
        chown(location.path(), Some(65_534), None).unwrap();
        fs::set_permissions(location.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let error = location.open().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        let error = location.join("run").make().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        assert_eq!(fs::metadata(location.path()).unwrap().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(location.path()).unwrap().count(), 1);
    }
}
