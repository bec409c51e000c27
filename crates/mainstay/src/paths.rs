//! Where things are: everything below one directory of the user's home.
//!
//! Clients start servers with six variables (`HOME LOGNAME PATH SHELL TERM USER`), people call `ps` from a login
//! shell with many more. Both must look at the same files, so `XDG_*` is not read at all: only HOME counts, and
//! without it the home directory of the uid in `/etc/passwd` (read by hand: a static binary has no NSS).
//!
//! Invariants: our directories are 0700, our files 0600, both owned by us.

use std::env;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::exit::Exit;
use crate::report::{Report, plain};

/// Below the home directory.
const STATE: &str = ".local/state/mainstay";
/// Below the home directory.
const CONFIG: &str = ".config/mainstay/config.toml";
/// The mode of our directories.
pub const DIRECTORY_MODE: u32 = 0o700;
/// The mode of our files.
pub const FILE_MODE: u32 = 0o600;

/// The paths of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    home: PathBuf,
}

impl Paths {
    /// The paths of the user who runs us.
    pub fn find() -> Result<Self, Report> {
        let uid = rustix::process::geteuid().as_raw();
        match env::var_os("HOME").filter(|home| !home.is_empty()) {
            Some(home) => Self::below(PathBuf::from(home)),
            None => Self::below(passwd_home(Path::new("/etc/passwd"), uid)?),
        }
    }

    /// The paths of another user, by the passwd file.
    pub fn of_uid(uid: u32) -> Result<Self, Report> {
        Self::below(passwd_home(Path::new("/etc/passwd"), uid)?)
    }

    /// The paths below a given home directory.
    pub fn below(home: PathBuf) -> Result<Self, Report> {
        if home.is_absolute() {
            return Ok(Self { home });
        }
        Err(Report::new(
            Exit::State,
            format!("HOME is not an absolute path: `{}`", home.display()),
        )
        .hint("set HOME to your home directory"))
    }

    /// The paths of somebody who has no home: nothing can be made or read there.
    pub fn nowhere() -> Self {
        Self {
            home: PathBuf::from("/dev/null"),
        }
    }

    /// The home directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Everything that mainstay writes is below this directory.
    pub fn state(&self) -> PathBuf {
        self.home.join(STATE)
    }

    /// The event files.
    pub fn events(&self) -> PathBuf {
        self.state().join("events")
    }

    /// One directory per link.
    pub fn run(&self) -> PathBuf {
        self.state().join("run")
    }

    /// The doors of servers that are kept for a client; not there while there are none.
    pub fn warm(&self) -> PathBuf {
        self.state().join("warm")
    }

    /// One file per configuration: what its server said when it was opened.
    pub fn record(&self) -> PathBuf {
        self.state().join("record")
    }

    /// One directory per lease.
    pub fn lease(&self) -> PathBuf {
        self.state().join("lease")
    }
    /// One file per debt: HTTP sessions that must be closed.
    pub fn debts(&self) -> PathBuf {
        self.state().join("debts")
    }

    /// The config file; it need not exist.
    pub fn config_file(&self) -> PathBuf {
        self.home.join(CONFIG)
    }

    /// Makes the state directories, or says what is in the way.
    pub fn make(&self) -> Result<(), Report> {
        let state = self.state();
        if !state.exists() {
            self.refuse_foreign_home()?;
        }
        for directory in [
            state,
            self.events(),
            self.run(),
            self.record(),
            self.lease(),
            self.debts(),
        ] {
            make_directory(&directory)?;
        }
        Ok(())
    }

    /// With plain `sudo` HOME may still be the user's, and root's files there would lock the user out.
    fn refuse_foreign_home(&self) -> Result<(), Report> {
        let Ok(home) = fs::metadata(&self.home) else {
            return Err(Report::new(
                Exit::State,
                format!("the home directory {} does not exist", self.home.display()),
            )
            .hint("create it, or set HOME to a directory that you can write to"));
        };
        let through_sudo = env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
        if rustix::process::geteuid().is_root()
            && home.uid() != 0
            && through_sudo == Some(home.uid())
        {
            return Err(Report::new(
                Exit::State,
                format!(
                    "HOME is {}, which belongs to uid {}, but this is root",
                    self.home.display(),
                    home.uid()
                ),
            )
            .hint("run it as yourself, or with `sudo -H`"));
        }
        Ok(())
    }
}

/// Makes one of our directories with its parents; an existing one must be ours.
/// What is in a directory; nothing if there is none.
pub(crate) fn entries(directory: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn make_directory(path: &Path) -> Result<(), Report> {
    let trouble = |error: &io::Error| {
        let report = Report::new(
            Exit::State,
            format!("cannot make the directory {}", path.display()),
        )
        .because(plain(error));
        let there = nearest_existing(path).display();
        let kind = error.kind();
        if kind == io::ErrorKind::PermissionDenied {
            report.hint(format!("make {there} writable, or set HOME"))
        } else if kind == io::ErrorKind::ReadOnlyFilesystem {
            report.hint("set HOME to a directory that you can write to")
        } else if kind == io::ErrorKind::NotADirectory || kind == io::ErrorKind::AlreadyExists {
            report.hint(format!("move the file out of the way: {there}"))
        } else {
            report
        }
    };
    // Every start asks, and nearly always it is there.
    let found = if let Ok(found) = fs::metadata(path)
        && found.is_dir()
    {
        found
    } else {
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(path)
            .map_err(|error| trouble(&error))?;
        fs::metadata(path).map_err(|error| trouble(&error))?
    };
    let uid = rustix::process::geteuid().as_raw();
    if found.uid() != uid {
        return Err(Report::new(
            Exit::State,
            format!(
                "{} belongs to uid {}, but this is uid {uid}",
                path.display(),
                found.uid()
            ),
        )
        .hint(format!(
            "give it back with `sudo chown -R {uid} {}`",
            path.display()
        )));
    }
    if found.mode() & 0o777 != DIRECTORY_MODE {
        fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE))
            .map_err(|error| trouble(&error))?;
    }
    Ok(())
}

/// The last part of a path that is there.
fn nearest_existing(path: &Path) -> &Path {
    path.ancestors()
        .find(|part| part.symlink_metadata().is_ok())
        .unwrap_or(path)
}

/// The home directory of a uid by a passwd file.
fn passwd_home(file: &Path, uid: u32) -> Result<PathBuf, Report> {
    let text = fs::read(file).unwrap_or_default();
    let home = text.split(|&b| b == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&b| b == b':').collect();
        let line_uid: u32 = std::str::from_utf8(fields.get(2)?).ok()?.parse().ok()?;
        let home = *fields.get(5)?;
        (line_uid == uid && !home.is_empty())
            .then(|| PathBuf::from(std::ffi::OsStr::from_bytes(home)))
    });
    home.ok_or_else(|| {
        Report::new(
            Exit::State,
            format!("HOME is not set, and uid {uid} has no home directory in /etc/passwd"),
        )
        .hint("set HOME to a directory that you can write to")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

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
            let report = passwd_home(&file, uid).unwrap_err();
            assert!(report.problem().contains("HOME is not set"), "{report}");
        }
    }

    #[test]
    fn our_directories_are_ours_alone() {
        let scratch = Scratch::new();
        let paths = Paths::below(scratch.path().into()).unwrap();
        paths.make().unwrap();
        fs::set_permissions(paths.run(), Permissions::from_mode(0o755)).unwrap();
        paths.make().unwrap();
        for directory in [paths.state(), paths.events(), paths.run(), paths.record()] {
            assert_eq!(
                fs::metadata(directory).unwrap().mode() & 0o777,
                DIRECTORY_MODE
            );
        }
    }

    #[test]
    fn a_directory_of_somebody_else_is_refused() {
        // Only root can give a directory away; for others there is nothing to see here.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let scratch = Scratch::new();
        let paths = scratch.paths();
        std::os::unix::fs::chown(paths.events(), Some(12_345), None).unwrap();
        let report = paths.make().unwrap_err().to_string();
        assert_eq!(
            report,
            format!(
                "error: {0} belongs to uid 12345, but this is uid 0\nhint: give it back with `sudo chown -R 0 {0}`",
                paths.events().display()
            )
        );
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let scratch = Scratch::new();
        let local = scratch.path().join(".local");
        fs::write(&local, "a file").unwrap();
        let paths = Paths::below(scratch.path().into()).unwrap();
        let report = paths.make().unwrap_err().to_string();
        assert!(report.contains("cannot make the directory"), "{report}");
        assert!(
            report.contains(&format!(
                "hint: move the file out of the way: {}",
                local.display()
            )),
            "{report}"
        );
    }

    #[test]
    fn a_missing_or_relative_home_is_told() {
        let report = Paths::below("somewhere".into()).unwrap_err();
        assert!(report.problem().contains("not an absolute path"));
        let scratch = Scratch::new();
        let paths = Paths::below(scratch.path().join("gone")).unwrap();
        let report = paths.make().unwrap_err();
        assert!(report.problem().contains("does not exist"), "{report}");
    }
}
