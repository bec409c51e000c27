//! Where adopted entries point: a program that stays.
//!
//! A package runner (`npx`, `uvx`) starts programs from a cache that it empties, and `cargo` rebuilds its target directory. An entry that names
//! such a path would fail one day, in every client. So a program that is in no directory for installed programs is copied into the user's bin directory first.
//!
//! Invariants: a file that is not mainstay is never replaced; a newer mainstay is never replaced by an older one; the copy appears as a whole.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use mainstay_report::{Exit, Report, plain};
use memchr::memmem;

use super::scope::Here;

/// Every program of mainstay has this text with its version, so that another one can be read without starting it.
static MARK: &[u8] =
    concat!("mainstay-program-version=", env!("CARGO_PKG_VERSION"), ";").as_bytes();
const MARK_KEY_BYTES: usize = "mainstay-program-version=".len();
/// The longest version.
const VERSION_BYTES_MAX: usize = 64;
/// The largest file that is searched for a version.
const PROGRAM_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The program that entries name, and what must be done for it to be there.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    need: Need,
}

#[derive(Debug, PartialEq, Eq)]
enum Need {
    /// It is there and stays.
    Nothing,
    /// A newer version is there, and is used.
    Newer(String),
    /// This program is copied there.
    Copy(InPlaceOf),
}

#[derive(Debug, PartialEq, Eq)]
enum InPlaceOf {
    Nothing,
    Link,
    Version(String),
}

impl Program {
    /// Looks what is where; it changes nothing.
    pub fn choose(here: &Here, wanted: Option<&Path>) -> Result<Self, Report> {
        if let Some(wanted) = wanted {
            return given(wanted);
        }
        let own = std::env::current_exe().map_err(|error| {
            Report::new(Exit::Failed, "cannot find out which program this is")
                .because(plain(&error))
                .hint("name it: --program PATH")
        })?;
        let bin = bin_directory(here);
        if stays(&own, &bin, here.home()) {
            return Ok(Self {
                path: own,
                need: Need::Nothing,
            });
        }
        let path = bin.join("mainstay");
        let need = Self::need(&own, &path, &bin, here)?;
        Ok(Self { path, need })
    }

    /// What is to be done for this program to be at a path.
    fn need(own: &Path, path: &Path, bin: &Path, here: &Here) -> Result<Need, Report> {
        let blocked = |why: String| {
            Report::new(
                Exit::Failed,
                format!("mainstay cannot be installed as {}", here.show(path)),
            )
            .because(why)
            .hint("move that away, or name a program that stays: --program PATH")
        };
        let found = match fs::symlink_metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Need::Copy(InPlaceOf::Nothing));
            }
            Err(error) => return Err(blocked(plain(&error))),
        };
        if found.is_symlink() {
            // A link into a cache or a build directory is as short-lived as what it points to.
            return Ok(match fs::canonicalize(path) {
                Ok(target) if target != own && stays(&target, bin, here.home()) => Need::Nothing,
                Ok(_) | Err(_) => Need::Copy(InPlaceOf::Link),
            });
        }
        if !found.is_file() {
            return Err(blocked("a directory or a special file is there".into()));
        }
        let bytes = read(path).map_err(|error| blocked(plain(&error)))?;
        let Some(version) = version_of(&bytes) else {
            return Err(blocked("another program is there".into()));
        };
        let ours = env!("CARGO_PKG_VERSION");
        if is_newer(&version, ours) {
            return Ok(Need::Newer(version));
        }
        let same = version == ours && read(own).is_ok_and(|own| own == bytes);
        Ok(if same {
            Need::Nothing
        } else {
            Need::Copy(InPlaceOf::Version(version))
        })
    }

    /// The path that entries name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What will be done, for people; none if nothing is.
    pub fn sentence(&self, here: &Here) -> Option<String> {
        let path = here.show(&self.path);
        let ours = env!("CARGO_PKG_VERSION");
        let why = "because the program that you started is where package runners or builds put files that they remove";
        match &self.need {
            Need::Nothing => None,
            Need::Newer(version) => Some(format!(
                "{path} is mainstay {version}, newer than this {ours}: the configs will name it."
            )),
            Need::Copy(InPlaceOf::Nothing) => {
                Some(format!("mainstay will be copied to {path}, {why}."))
            }
            Need::Copy(InPlaceOf::Link) => Some(format!(
                "The link {path} will become a copy of mainstay, {why}."
            )),
            Need::Copy(InPlaceOf::Version(version)) => Some(format!(
                "{path} (mainstay {version}) will be replaced by this mainstay {ours}; servers that run now are not disturbed."
            )),
        }
    }

    /// Does it.
    pub fn install(&self, here: &Here) -> Result<(), Report> {
        match &self.need {
            Need::Nothing | Need::Newer(_) => return Ok(()),
            Need::Copy(_) => {}
        }
        copy_own(&self.path).map_err(|error| {
            Report::new(
                Exit::Failed,
                format!(
                    "mainstay cannot be copied to {}; no config was changed",
                    here.show(&self.path)
                ),
            )
            .because(plain(&error))
            .hint("allow writing there, or name a program that stays: --program PATH")
        })
    }
}

fn given(wanted: &Path) -> Result<Program, Report> {
    let bad = |why: &str| {
        Report::new(
            Exit::Usage,
            format!("{} cannot be named in configs", wanted.display()),
        )
        .because(why)
        .hint("--program wants the absolute path of a mainstay program")
    };
    if !wanted.is_absolute() {
        return Err(bad("it is not an absolute path"));
    }
    match fs::metadata(wanted) {
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => Ok(Program {
            path: wanted.to_owned(),
            need: Need::Nothing,
        }),
        Ok(_) => Err(bad("it is no executable file")),
        Err(error) => Err(bad(&plain(&error))),
    }
}

/// The user's own directory for programs.
fn bin_directory(here: &Here) -> PathBuf {
    let named = here.around.variables.get("XDG_BIN_HOME").map(PathBuf::from);
    let named = named.filter(|path| path.is_absolute());
    named.unwrap_or_else(|| here.home().join(".local/bin"))
}

/// Whether a program is in a directory for installed programs.
fn stays(program: &Path, bin: &Path, home: &Path) -> bool {
    let Some(directory) = program.parent() else {
        return false;
    };
    let of_user = [".cargo/bin", "bin", ".nix-profile/bin"].map(|name| home.join(name));
    let of_machine = ["/usr/bin", "/usr/local/bin", "/bin"].map(Path::new);
    directory == bin
        || of_user.iter().any(|known| directory == known)
        || of_machine.contains(&directory)
        || program.starts_with("/opt")
        || is_of_a_package_manager(program)
}

/// Where package managers keep what the user has installed for all projects, below any prefix: npm -g, uv tool, pipx. The caches of
/// `npx` and `uvx` and a project's own `node_modules` have other paths.
fn is_of_a_package_manager(program: &Path) -> bool {
    let names: Vec<_> = program.iter().collect();
    let kept = [("lib", "node_modules"), ("uv", "tools"), ("pipx", "venvs")];
    names
        .windows(2)
        .any(|pair| kept.iter().any(|&(a, b)| pair == [a, b]))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.len() > PROGRAM_BYTES_MAX {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    fs::read(path)
}

/// The version of a mainstay program, from its bytes.
fn version_of(program: &[u8]) -> Option<String> {
    let key = std::hint::black_box(MARK).get(..MARK_KEY_BYTES)?;
    let mut places = memmem::find_iter(program, key);
    places.find_map(|place| {
        let rest = program.get(place + key.len()..)?;
        let rest = &rest[..rest.len().min(VERSION_BYTES_MAX)];
        let version = str::from_utf8(&rest[..memchr::memchr(b';', rest)?]).ok()?;
        version
            .starts_with(|c: char| c.is_ascii_digit())
            .then(|| version.to_owned())
    })
}

fn is_newer(version: &str, than: &str) -> bool {
    let numbers = |version: &str| -> Vec<u64> {
        let plain = version.split(['-', '+']).next().unwrap_or_default();
        plain
            .split('.')
            .map(|part| part.parse().unwrap_or(0))
            .collect()
    };
    numbers(version) > numbers(than)
}

/// Puts a copy of this program at a path, as a whole.
fn copy_own(path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    // The file that runs, also if its name is gone by now.
    let mut own = fs::File::open("/proc/self/exe")?;
    let new = directory.join(format!(".mainstay-{}.new", std::process::id()));
    let copied = (|| {
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(&new)?;
        io::copy(&mut own, &mut file)?;
        file.flush()?;
        file.sync_all()?;
        drop(file);
        fs::rename(&new, path)
    })();
    if copied.is_err() {
        // What could not be made whole is of no use.
        fs::remove_file(&new).ok();
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_for_programs_stay() {
        let (home, bin) = (Path::new("/home/ann"), Path::new("/home/ann/.local/bin"));
        for (program, expected) in [
            ("/home/ann/.local/bin/mainstay", true),
            ("/home/ann/.cargo/bin/mainstay", true),
            ("/usr/local/bin/mainstay", true),
            ("/opt/mainstay/bin/mainstay", true),
            ("/usr/lib/node_modules/mainstay/bin/mainstay", true),
            (
                "/home/ann/.nvm/versions/node/v22.1.0/lib/node_modules/x/node_modules/y/bin/mainstay",
                true,
            ),
            (
                "/home/ann/.local/share/uv/tools/mainstay/bin/mainstay",
                true,
            ),
            (
                "/home/ann/.local/share/pipx/venvs/mainstay/bin/mainstay",
                true,
            ),
            ("/home/ann/shop/node_modules/mainstay/bin/mainstay", false),
            (
                "/home/ann/.npm/_npx/0a1b/node_modules/x/bin/mainstay",
                false,
            ),
            ("/home/ann/.cache/uv/archive-v0/abc/bin/mainstay", false),
            ("/home/ann/src/mainstay/target/release/mainstay", false),
            ("/tmp/mainstay", false),
            ("/nix/store/abc-mainstay/bin/mainstay", false),
        ] {
            assert_eq!(stays(Path::new(program), bin, home), expected, "{program}");
        }
    }

    #[test]
    fn a_version_is_read_from_the_bytes_of_a_program() {
        let program = [b"\x7fELF...mainstay-program-version=", MARK, b"..."].concat();
        assert_eq!(
            version_of(&program).as_deref(),
            Some(env!("CARGO_PKG_VERSION"))
        );
        assert_eq!(version_of(b"#!/bin/sh\necho mainstay"), None);
        assert!(is_newer("0.10.0", "0.9.9") && !is_newer("0.1.0", "0.1.0"));
        assert!(!is_newer("0.1.0-beta", "0.1.0") && is_newer("1.0.0-rc.1", "0.9.0"));
    }
}
