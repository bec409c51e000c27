//! Where things are: the state directory and the config file.
//!
//! Clients start servers with six variables (`HOME LOGNAME PATH SHELL TERM USER`), people call `ps` from a login shell with many
//! more. Both must look at the same files, so only HOME counts, and without it the home directory of the uid in `/etc/passwd`
//! (read by hand: a static binary has no NSS).
//!
//! A home that is not ours, or that cannot be written to, is not used: with `sudo`, and in services with a borrowed HOME, what is
//! there are another user's words. Then the state is kept in `mainstay` below the runtime directory, else in `mainstay-UID` below
//! the temporary directory, and a warning says why. The rule makes nothing, so that each command finds the same directory.
//!
//! Invariants: whatever is opened below the state directory is opened by [`crate::state`]; the parents of the state directory
//! belong to us or to root; the config file counts only in a home that belongs to us or to root.

use std::env;
use std::error::Error;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mainstay_report::{Exit, Report, plain};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::state::Location;

/// Below the home directory.
const STATE: [&str; 3] = [".local", "state", "mainstay"];
/// Below the home directory.
const CONFIG: &str = ".config/mainstay/config.toml";
/// Below the runtime directory; below the temporary directory the uid follows.
const ELSEWHERE: &str = "mainstay";
/// Where the user's runtime directories are, if no variable says so.
const RUNTIME: &str = "/run/user";
const CACHE: &str = "cache";
const OLD_CACHE: &str = "record";

/// The paths of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    home: Home,
    state: Location,
    /// Why the state is not kept below the home directory, if it is not.
    detour: Option<PlaceError>,
}

/// Why a directory cannot hold the state.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PlaceError {
    /// HOME is not set, and the passwd file has no home for this uid.
    NoHome(u32),
    /// HOME is this relative path.
    RelativeHome(PathBuf),
    /// HOME is not a directory.
    HomeIsNoDirectory(PathBuf),
    /// HOME belongs to another user.
    HomeOfOther { home: PathBuf, owner: u32, uid: u32 },
    /// HOME does not exist.
    HomeMissing(PathBuf),
    /// HOME cannot be looked at, for a reason of the kernel's.
    HomeUnreadable { home: PathBuf, why: String },
    /// It is not a directory.
    NotADirectory(PathBuf),
    /// It belongs to this user, who is neither the user nor root.
    Foreign { path: PathBuf, owner: u32 },
    /// It cannot be looked at, for a reason of the kernel's.
    Unreadable { path: PathBuf, why: String },
    /// It cannot be written to, for a reason of the kernel's.
    NotWritable { path: PathBuf, why: String },
    /// Another user could replace what is in it.
    Unsafe(PathBuf),
    /// Neither the home directory nor the place instead of it.
    Neither(Box<(PlaceError, PlaceError)>),
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHome(uid) => write!(
                f,
                "HOME is not set, and uid {uid} has no home directory in /etc/passwd"
            ),
            Self::RelativeHome(home) => {
                write!(f, "HOME is not an absolute path: `{}`", home.display())
            }
            Self::HomeIsNoDirectory(home) => {
                write!(f, "HOME is {}, which is not a directory", home.display())
            }
            Self::HomeOfOther { home, owner, uid } => write!(
                f,
                "HOME is {}, which belongs to uid {owner}, but this is uid {uid}",
                home.display()
            ),
            Self::HomeMissing(home) => {
                write!(f, "the home directory {} does not exist", home.display())
            }
            Self::HomeUnreadable { home, why } => write!(f, "HOME is {}: {why}", home.display()),
            Self::NotADirectory(path) => write!(f, "{} is not a directory", path.display()),
            Self::Foreign { path, owner } => {
                write!(f, "{} belongs to uid {owner}", path.display())
            }
            Self::Unreadable { path, why } => write!(f, "{}: {why}", path.display()),
            Self::NotWritable { path, why } => {
                write!(f, "{} cannot be written to: {why}", path.display())
            }
            Self::Unsafe(path) => write!(f, "{} is not safe to keep them in", path.display()),
            Self::Neither(both) => write!(f, "{}; {}", both.0, both.1),
        }
    }
}

impl Error for PlaceError {}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Home {
    /// It belongs to us or to root.
    Trusted(PathBuf),
    /// There is none, or it is another user's.
    Refused,
}

impl Paths {
    /// The paths of the user; an error if there is no usable state directory.
    pub fn find() -> Result<Self, Report> {
        match Self::find_or_nowhere() {
            (paths, None) => Ok(paths),
            (_, Some(report)) => Err(report),
        }
    }

    /// The same for commands that work without state: if no directory is usable, the reason, and paths at which nothing can be made
    /// or read.
    pub fn find_or_nowhere() -> (Self, Option<Report>) {
        let uid = rustix::process::geteuid().as_raw();
        let home = match env::var_os("HOME").filter(|home| !home.is_empty()) {
            Some(home) => absolute(PathBuf::from(home)),
            None => passwd_home(Path::new("/etc/passwd"), uid),
        };
        Self::choose(home, uid)
    }

    /// The paths of another user, whose home is this, or is in the passwd file. Only with that user's rights over files.
    pub fn of_user(home: Option<PathBuf>, uid: u32) -> Result<Self, Report> {
        let home = match home {
            Some(home) => Ok(home),
            None => passwd_home(Path::new("/etc/passwd"), uid),
        };
        match Self::choose(home, uid) {
            (paths, None) => Ok(paths),
            (_, Some(report)) => Err(report),
        }
    }

    /// The paths below a given home directory, whatever it is like.
    pub fn below(home: PathBuf) -> Result<Self, Report> {
        let home = absolute(home).map_err(|why| unusable(&why))?;
        let uid = rustix::process::geteuid().as_raw();
        Ok(Self {
            state: Location::root(home.join(STATE.join("/")), uid),
            home: Home::Trusted(home),
            detour: None,
        })
    }

    /// The paths of a user without a home: nothing can be made or read there.
    pub fn nowhere() -> Self {
        Self {
            home: Home::Refused,
            state: Location::root("/dev/null/mainstay".into(), u32::MAX),
            detour: None,
        }
    }

    /// Whether there is a place for the state.
    pub fn has_place(&self) -> bool {
        self.state != Self::nowhere().state
    }

    fn choose(home: Result<PathBuf, PlaceError>, uid: u32) -> (Self, Option<Report>) {
        let (home, why) = match home.and_then(|home| trusted_home(home, uid)) {
            Ok(home) => match state_in(&home, uid) {
                Ok(state) => {
                    let state = Location::root(state, uid);
                    let (home, detour) = (Home::Trusted(home), None);
                    return (
                        Self {
                            home,
                            state,
                            detour,
                        },
                        None,
                    );
                }
                Err(why) => (Home::Trusted(home), why),
            },
            Err(why) => (Home::Refused, why),
        };
        match elsewhere(uid) {
            Ok(state) => {
                let (state, detour) = (Location::root(state, uid), Some(why));
                (
                    Self {
                        home,
                        state,
                        detour,
                    },
                    None,
                )
            }
            Err(others) => {
                let report = unusable(&PlaceError::Neither(Box::new((why, others))));
                (
                    Self {
                        home,
                        ..Self::nowhere()
                    },
                    Some(report),
                )
            }
        }
    }

    /// That the state is kept elsewhere, and why, if it is.
    pub fn detour(&self) -> Option<Report> {
        let why = self.detour.as_ref()?;
        let place = format!("events and links are kept in {}", self.state.display());
        Some(
            Report::new(Exit::State, place)
                .because(why)
                .hint("set HOME to a directory of yours that you can write to"),
        )
    }

    /// The home directory, if it belongs to us or to root.
    pub fn home(&self) -> Option<&Path> {
        match &self.home {
            Home::Trusted(home) => Some(home),
            Home::Refused => None,
        }
    }

    /// Everything that mainstay writes is below this directory.
    pub fn state(&self) -> Location {
        self.state.clone()
    }

    /// The event files.
    pub fn events(&self) -> Location {
        self.state.join("events")
    }

    /// The logs of servers: some files per link.
    pub fn logs(&self) -> Location {
        self.state.join("logs")
    }

    /// One directory per link.
    pub fn run(&self) -> Location {
        self.state.join("run")
    }

    /// The sockets of servers that are kept for a client; missing if there are none.
    pub fn warm(&self) -> Location {
        self.state.join("warm")
    }

    /// The cache: one file per configuration, with the handshake and the lists of its server.
    pub fn cache(&self) -> Location {
        self.state.join(CACHE)
    }

    /// The cache of earlier versions. [`Paths::make`] renames it to [`Paths::cache`].
    pub fn old_cache(&self) -> Location {
        self.state.join(OLD_CACHE)
    }

    /// One directory per lease.
    pub fn lease(&self) -> Location {
        self.state.join("lease")
    }

    /// One file per HTTP session that must still be closed.
    pub fn sessions(&self) -> Location {
        self.state.join("sessions")
    }

    /// The same of earlier versions, which may still run. It is read, and nothing new is written there.
    pub fn old_sessions(&self) -> Location {
        self.state.join("debts")
    }

    /// One file per `trace-signals` that runs.
    pub fn traced(&self) -> Location {
        self.state.join("traced")
    }

    /// Backups of clients' config files.
    pub fn backups(&self) -> Location {
        self.state.join("backups")
    }

    /// The config file, which need not exist; none without a home that can be trusted.
    pub fn config_file(&self) -> Option<PathBuf> {
        Some(self.home()?.join(CONFIG))
    }

    /// Makes the state directories, or says what is in the way.
    pub fn make(&self) -> Result<(), Report> {
        self.rename_old_cache();
        for location in [
            self.state(),
            self.events(),
            self.run(),
            self.cache(),
            self.lease(),
            self.sessions(),
        ] {
            self.make_one(&location)?;
        }
        Ok(())
    }

    /// Keeps the cache of an earlier version: without it, the next start of each server would be as slow as the first.
    /// It fails if there is no old cache or if there is a new one already, and then nothing is renamed. Files that a process
    /// of the earlier version writes later are never read; `mainstay cache clear` removes them.
    fn rename_old_cache(&self) {
        if let Ok(state) = self.state.open() {
            state.rename_directory(OLD_CACHE, CACHE).ok();
        }
    }

    /// Makes one of them, or says what is in the way.
    pub fn make_one(&self, location: &Location) -> Result<(), Report> {
        location.make().map(drop).map_err(|error| {
            let path = location.path();
            let report = Report::new(Exit::State, format!("cannot use {}", path.display()))
                .because(plain(&error));
            let there = nearest_existing(&path).display();
            let kind = error.kind();
            if kind == io::ErrorKind::PermissionDenied {
                report.hint(format!("`ls -ld {there}` shows whose it is; or set HOME"))
            } else if kind == io::ErrorKind::ReadOnlyFilesystem {
                report.hint("set HOME to a directory that you can write to")
            } else if matches!(
                kind,
                io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists
            ) {
                report.hint(format!("move it out of the way: {there}"))
            } else {
                report
            }
        })
    }
}

fn unusable(why: &PlaceError) -> Report {
    Report::new(Exit::State, "there is no place for events and links")
        .because(why)
        .hint("set HOME to a directory of yours that you can write to")
}

fn absolute(home: PathBuf) -> Result<PathBuf, PlaceError> {
    if home.is_absolute() {
        return Ok(home);
    }
    Err(PlaceError::RelativeHome(home))
}

/// A home directory that belongs to the user or to root: whatever another user has put into his own is not obeyed.
fn trusted_home(home: PathBuf, uid: u32) -> Result<PathBuf, PlaceError> {
    match fs::metadata(&home) {
        Ok(found) if !found.is_dir() => Err(PlaceError::HomeIsNoDirectory(home)),
        Ok(found) if !trusted(&found, uid) => Err(PlaceError::HomeOfOther {
            home,
            owner: found.uid(),
            uid,
        }),
        Ok(_) => Ok(home),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(PlaceError::HomeMissing(home)),
        Err(error) => Err(PlaceError::HomeUnreadable {
            home,
            why: plain(&error),
        }),
    }
}

/// The state directory below a home, if it is ours and can be written to, or if it can be made.
fn state_in(home: &Path, uid: u32) -> Result<PathBuf, PlaceError> {
    let [local, state, last] = STATE;
    let mut path = home.to_path_buf();
    for name in [local, state] {
        let next = path.join(name);
        let Some(found) = look(&next)? else {
            writable(&path)?;
            return Ok(home.join(STATE.join("/")));
        };
        if !trusted(&found, uid) {
            return Err(foreign(&next, &found));
        }
        // A link of the user's own, to a directory that is the user's as well.
        let found = if found.is_symlink() {
            fs::metadata(&next).map_err(|error| unreadable(&next, &error))?
        } else {
            found
        };
        if !found.is_dir() {
            return Err(PlaceError::NotADirectory(next));
        }
        if !trusted(&found, uid) {
            return Err(foreign(&next, &found));
        }
        path = next;
    }
    usable(path.join(last), uid)
}

/// A place for the state that is not below the home directory.
fn elsewhere(uid: u32) -> Result<PathBuf, PlaceError> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    let runtime = runtime.map_or_else(|| Path::new(RUNTIME).join(uid.to_string()), PathBuf::from);
    let private = fs::symlink_metadata(&runtime).is_ok_and(|found| {
        let for_others = found.mode() & 0o077;
        found.is_dir() && found.uid() == uid && for_others == 0
    });
    if private
        && runtime.is_absolute()
        && let Ok(path) = usable(runtime.join(ELSEWHERE), uid)
    {
        return Ok(path);
    }
    let temp = env::temp_dir();
    let found = fs::metadata(&temp).map_err(|error| unreadable(&temp, &error))?;
    if !found.is_dir() {
        return Err(PlaceError::NotADirectory(temp));
    }
    let others_may_rename = found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0;
    if !temp.is_absolute() || !trusted(&found, uid) || others_may_rename {
        return Err(PlaceError::Unsafe(temp));
    }
    usable(temp.join(format!("{ELSEWHERE}-{uid}")), uid)
}

/// A directory of ours that can be written to, or that can be made. A link is refused, wherever it leads.
fn usable(path: PathBuf, uid: u32) -> Result<PathBuf, PlaceError> {
    let Some(found) = look(&path)? else {
        writable(path.parent().unwrap_or(Path::new("/")))?;
        return Ok(path);
    };
    if !found.is_dir() {
        return Err(PlaceError::NotADirectory(path));
    }
    if found.uid() != uid {
        return Err(foreign(&path, &found));
    }
    writable(&path)?;
    Ok(path)
}

fn look(path: &Path) -> Result<Option<Metadata>, PlaceError> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
    }
}

fn writable(path: &Path) -> Result<(), PlaceError> {
    accessat(
        CWD,
        path,
        Access::WRITE_OK | Access::EXEC_OK,
        AtFlags::EACCESS,
    )
    .map_err(|error| PlaceError::NotWritable {
        path: path.into(),
        why: plain(&error.into()),
    })
}

/// Only the user and root can put anything there.
fn trusted(found: &Metadata, uid: u32) -> bool {
    found.uid() == uid || found.uid() == 0
}

fn foreign(path: &Path, found: &Metadata) -> PlaceError {
    PlaceError::Foreign {
        path: path.into(),
        owner: found.uid(),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> PlaceError {
    PlaceError::Unreadable {
        path: path.into(),
        why: plain(error),
    }
}

/// The last part of a path that is there.
fn nearest_existing(path: &Path) -> &Path {
    path.ancestors()
        .find(|part| part.symlink_metadata().is_ok())
        .unwrap_or(path)
}

/// The home directory of a uid by a passwd file.
fn passwd_home(file: &Path, uid: u32) -> Result<PathBuf, PlaceError> {
    let text = fs::read(file).unwrap_or_default();
    let home = text.split(|&b| b == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&b| b == b':').collect();
        let line_uid: u32 = std::str::from_utf8(fields.get(2)?).ok()?.parse().ok()?;
        let home = *fields.get(5)?;
        (line_uid == uid && !home.is_empty())
            .then(|| PathBuf::from(std::ffi::OsStr::from_bytes(home)))
    });
    home.ok_or(PlaceError::NoHome(uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn the_passwd_file_answers_by_uid() {
        let scratch = Scratch::new();
        let file = scratch.path().join("passwd");
        fs::write(
            &file,
            "root:x:0:0:root:/root:/bin/sh\nbroken\n\nann:x:1001:100::/home/ann:/bin/sh\nbob:x:1002:100:::/bin/sh\n",
        )
        .unwrap();
        assert_eq!(
            passwd_home(&file, 1001).unwrap(),
            PathBuf::from("/home/ann")
        );
        for uid in [1002, 1003] {
            let why = passwd_home(&file, uid).unwrap_err().to_string();
            assert!(why.contains("HOME is not set"), "{why}");
        }
    }

    #[test]
    fn the_cache_of_an_earlier_version_is_renamed_once() {
        let scratch = Scratch::new();
        let paths = Paths::below(scratch.path().into()).unwrap();
        let old = paths.old_cache().make().unwrap();
        old.replace("a", b"earlier").unwrap();
        paths.make().unwrap();
        assert_eq!(paths.cache().names().unwrap(), ["a"]);
        assert!(!paths.old_cache().is_there());
        // A process of the earlier version still writes: its files stay apart, and ours stay.
        paths
            .old_cache()
            .make()
            .unwrap()
            .replace("a", b"later")
            .unwrap();
        paths.make().unwrap();
        let cache = paths.cache().open().unwrap();
        assert_eq!(cache.read("a", 100).unwrap(), b"earlier");
        assert_eq!(paths.old_cache().names().unwrap(), ["a"]);
    }

    #[test]
    fn only_a_directory_of_ours_becomes_the_cache() {
        let scratch = Scratch::new();
        let paths = Paths::below(scratch.path().into()).unwrap();
        paths.state().make().unwrap();
        let elsewhere = scratch.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, paths.old_cache()).unwrap();
        paths.make().unwrap();
        assert!(paths.old_cache().is_symlink());
        assert!(!paths.cache().is_symlink());
    }

    #[test]
    fn our_directories_are_ours_alone() {
        let scratch = Scratch::new();
        let paths = Paths::below(scratch.path().into()).unwrap();
        paths.make().unwrap();
        fs::set_permissions(paths.run(), Permissions::from_mode(0o755)).unwrap();
        paths.make().unwrap();
        for directory in [paths.state(), paths.events(), paths.run(), paths.cache()] {
            assert_eq!(fs::metadata(directory).unwrap().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        if !mainstay_testkit::skip::root_or_skip("only root can give a directory away") {
            return;
        }
        let scratch = Scratch::new();
        let paths = scratch.paths();
        chown(paths.events(), Some(12_345), None).unwrap();
        let report = paths.make().unwrap_err().to_string();
        let events = paths.events().display();
        assert_eq!(
            report,
            format!(
                "error: cannot use {events}: it belongs to uid 12345, not to uid 0\nhint: `ls -ld {events}` shows whose it is; or set HOME"
            )
        );
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let scratch = Scratch::new();
        let local = scratch.path().join(".local");
        fs::write(&local, "a file").unwrap();
        let why = state_in(scratch.path(), uid()).unwrap_err().to_string();
        assert_eq!(why, format!("{} is not a directory", local.display()));
    }

    #[test]
    fn a_state_directory_must_be_a_real_one_of_ours() {
        let scratch = Scratch::new();
        let home = scratch.path().join("home");
        let state = home.join(".local/state/mainstay");
        fs::create_dir_all(state.parent().unwrap()).unwrap();
        assert_eq!(state_in(&home, uid()), Ok(state.clone()));
        symlink(scratch.path(), &state).unwrap();
        let why = state_in(&home, uid()).unwrap_err().to_string();
        assert_eq!(why, format!("{} is not a directory", state.display()));
        fs::remove_file(&state).unwrap();
        // The user's own link above it is the user's own choice.
        let moved = scratch.path().join("moved");
        fs::rename(home.join(".local"), &moved).unwrap();
        symlink(&moved, home.join(".local")).unwrap();
        assert_eq!(state_in(&home, uid()), Ok(state.clone()));
        if !mainstay_testkit::skip::root_or_skip("only root can give a directory away") {
            return;
        }
        for path in [&state, &moved.join("state"), &moved] {
            fs::create_dir_all(path).unwrap();
            chown(path, Some(65_534), None).unwrap();
            let why = state_in(&home, uid()).unwrap_err().to_string();
            assert!(why.ends_with(" belongs to uid 65534"), "{why}");
            chown(path, Some(0), None).unwrap();
        }
        chown(&home, Some(65_534), None).unwrap();
        let why = trusted_home(home.clone(), 0).unwrap_err().to_string();
        assert!(
            why.contains("belongs to uid 65534, but this is uid 0"),
            "{why}"
        );
        assert_eq!(trusted_home(home.clone(), 65_534), Ok(home));
    }

    #[test]
    fn a_home_that_cannot_be_used_is_told() {
        let why = absolute("somewhere".into()).unwrap_err().to_string();
        assert!(why.contains("not an absolute path"), "{why}");
        let scratch = Scratch::new();
        let why = trusted_home(scratch.path().join("gone"), uid())
            .unwrap_err()
            .to_string();
        assert!(why.contains("does not exist"), "{why}");
        let why = trusted_home("/dev/null".into(), uid())
            .unwrap_err()
            .to_string();
        assert_eq!(why, "HOME is /dev/null, which is not a directory");
    }
}
