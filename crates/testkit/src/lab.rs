//! A test that runs once more, as a user without any rights, next to a private systemd user manager (`scripts/private-systemd`). The outer test
//! process starts the inner one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mainstay_os::tier::cgroup;

use crate::built;

/// The variable with the directory of the lab, for the inner process.
const INSIDE: &str = "MAINSTAY_TEST_LAB";

/// A user without any rights. The user need not exist.
pub const UNPRIVILEGED: u32 = 41_007;

/// Whether there can be a lab here, and if not, why.
pub fn affordable() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("a private systemd user manager needs root".into());
    }
    if !Path::new("/lib/systemd/systemd").exists() {
        return Err("there is no systemd".into());
    }
    cgroup::own()
        .map(drop)
        .map_err(|refusal| refusal.to_string())
}

/// The lab's directory, if we are the inner process.
pub fn inside() -> Option<PathBuf> {
    std::env::var_os(INSIDE).map(Into::into)
}

/// A directory with copies of all programs that every user may execute, wherever the build is. Dropping it removes it.
#[derive(Debug)]
pub struct Lab(PathBuf);

impl Lab {
    /// A fresh one, with a directory `seen` that the inner process may write.
    pub fn furnish(mainstay: &Path) -> Self {
        let lab = Self(std::env::temp_dir().join(format!("mainstay-lab-{}", std::process::id())));
        let seen = lab.0.join("seen");
        fs::create_dir_all(&seen).expect("the temporary directory takes a directory");
        allow(&lab.0, 0o755);
        allow(&seen, 0o777);
        let test = std::env::current_exe().expect("a running program has a path");
        for (program, name) in [
            (test.as_path(), "test"),
            (mainstay, "mainstay"),
            (built::unruly(), "unruly"),
            (built::puppet(), "puppet"),
        ] {
            fs::copy(program, lab.0.join(name)).expect("a program can be copied");
            allow(&lab.0.join(name), 0o755);
        }
        lab
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Runs this test of the calling program inside.
    pub fn run(&self, test: &str) -> Output {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/private-systemd");
        #[expect(
            clippy::disallowed_methods,
            reason = "the test program starts a copy of itself, no server"
        )]
        let mut command = Command::new(script);
        command
            .args(["--uid", &UNPRIVILEGED.to_string()])
            .arg(self.0.join("test"))
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(INSIDE, &self.0)
            .env("MAINSTAY_UNDER_TEST", self.0.join("mainstay"))
            .env("MAINSTAY_TESTKIT_BIN", &self.0)
            .current_dir("/");
        command.output().expect("the script can be started")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("what is ours can be given");
}
