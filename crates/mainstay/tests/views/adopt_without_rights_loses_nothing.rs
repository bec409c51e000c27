//! `adopt` and `release` of a user who may not read or write some of the config files: those are named with the reason, and the others are changed.
//! guards: A config file that its user may not read or write keeps its bytes, and does not stop the others.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mainstay_testkit::skip;

use crate::support::configs::{fixture, put};
use crate::support::home::{Home, Outcome};

/// A user who need not exist.
const UNPRIVILEGED: u32 = 41_007;

/// A HOME of that user with the files of two clients: the one that is tried, and one that nothing is wrong with.
struct Theirs {
    home: Home,
    tried: PathBuf,
    well: PathBuf,
}

impl Theirs {
    fn new() -> Self {
        let home = Home::new();
        let tried = put(home.path(), "Codex", &fixture("codex.toml"));
        let well = put(home.path(), "Gemini CLI", &fixture("gemini.json"));
        give(home.path());
        Self { home, tried, well }
    }

    #[expect(clippy::disallowed_methods, reason = "the command under test")]
    fn mainstay(&self, words: &[&str]) -> Outcome {
        let uid = UNPRIVILEGED.to_string();
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &uid, "--regid", &uid, "--clear-groups"])
            .arg(env!("CARGO_BIN_EXE_mainstay"))
            .args(words)
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir("/")
            .stdin(Stdio::null());
        self.home.outcome(&mut command)
    }

    /// The verb fails for the tried file with these words and a hint, and changes the other file.
    fn refused(&self, verb: &[&str], said: &str) {
        let (tried, well) = (look(&self.tried), look(&self.well));
        let told = self.mainstay(verb);
        assert_eq!(told.code, Some(1), "{told:?}");
        // As on a wide screen.
        let all = format!("{}{}", told.stdout, told.stderr).replace("\n  ", " ");
        assert!(all.contains(said), "{said}\n{all}");
        assert!(all.contains("hint: "), "{all}");
        assert!(all.contains("changed ~/.gemini/settings.json: "), "{all}");
        assert_eq!(look(&self.tried), tried, "{said}: the file is as it was");
        assert_ne!(look(&self.well), well, "the other file has changed");
        let beside = self.tried.with_file_name(".config.toml.mainstay-new");
        assert!(!beside.exists(), "no new file is left beside it");
    }

    /// Both verbs, while the path has this mode.
    fn try_with(&self, path: &Path, mode: u32, said: &str) {
        let before = fs::metadata(path).unwrap().permissions();
        let bare = look(&self.tried);
        allow(path, mode);
        self.refused(&["adopt", "--yes"], said);
        fs::set_permissions(path, before.clone()).unwrap();
        let told = self.mainstay(&["adopt", "--yes"]);
        assert_eq!(told.code, Some(0), "{told:?}");
        allow(path, mode);
        self.refused(&["release", "--all", "--yes"], said);
        fs::set_permissions(path, before).unwrap();
        let told = self.mainstay(&["release", "--all", "--yes"]);
        assert_eq!(told.code, Some(0), "{told:?}");
        assert_eq!(look(&self.tried), bare);
        assert_eq!(look(&self.well).0, fixture("gemini.json"));
    }
}

/// Bytes, mode and owner of a file.
fn look(path: &Path) -> (Vec<u8>, u32, u32) {
    use std::os::unix::fs::MetadataExt as _;
    let meta = fs::metadata(path).unwrap();
    (fs::read(path).unwrap(), meta.mode(), meta.uid())
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn give(path: &Path) {
    chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path());
        }
    }
}

fn able() -> bool {
    skip::root_or_skip("only root can be another user")
}

#[test]
fn a_file_that_may_not_be_read_or_written() {
    if !able() {
        return;
    }
    let theirs = Theirs::new();
    let tried = theirs.tried.clone();
    theirs.try_with(
        &tried,
        0o000,
        "~/.codex/config.toml cannot be read: Permission denied",
    );
    theirs.try_with(&tried, 0o400, "~/.codex/config.toml is read-only");
    chown(&tried, Some(0), Some(0)).unwrap();
    theirs.refused(
        &["adopt", "--yes"],
        "~/.codex/config.toml belongs to user 0",
    );
    allow(&tried, 0o600);
    let told = theirs.mainstay(&["release", "--all", "--yes"]);
    assert!(
        told.stdout.contains("~/.codex/config.toml cannot be read"),
        "{told:?}"
    );
}

#[test]
fn a_directory_that_may_not_be_written_or_searched() {
    if !able() {
        return;
    }
    let theirs = Theirs::new();
    let directory = theirs.tried.parent().unwrap().to_owned();
    theirs.try_with(
        &directory,
        0o500,
        "no file can be made in ~/.codex: Permission denied",
    );
    theirs.try_with(
        &directory,
        0o000,
        "~/.codex/config.toml cannot be read: Permission denied",
    );
}

/// The program is copied first: without a place for it nothing is written.
#[test]
fn a_bin_directory_that_may_not_be_written() {
    if !able() {
        return;
    }
    let theirs = Theirs::new();
    fs::create_dir(theirs.home.path().join(".local")).unwrap();
    let (tried, well) = (look(&theirs.tried), look(&theirs.well));
    let told = theirs.mainstay(&["adopt", "--yes"]);
    assert_ne!(told.code, Some(0), "{told:?}");
    assert!(
        told.stderr.contains("permission denied\nhint: "),
        "{told:?}"
    );
    assert_eq!((look(&theirs.tried), look(&theirs.well)), (tried, well));
}
