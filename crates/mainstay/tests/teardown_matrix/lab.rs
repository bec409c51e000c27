//! Tier `scope` where nobody has a user manager for us: the same test once more, as a user without any rights, next to a
//! private manager (`private-systemd` in `crates/testkit/scripts`). The one outside starts it and reads what it has seen.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use mainstay_core::tier::Tier;
use mainstay_os::tier::cgroup;
use mainstay_testkit::built;
use serde_json::{Value, json};

use crate::Results;
use crate::cell::Outcome;

/// Names the directory of the lab to the one inside.
const INSIDE: &str = "MAINSTAY_MATRIX_LAB";

/// What the one inside has seen, in that directory.
const SEEN: &str = "seen/results.json";

/// A user without any rights, who need not exist.
const SOMEBODY: &str = "41007";

/// The tier that is played inside.
pub const TIER: Tier = Tier::Scope;

/// Whether there can be a lab here; if not, why.
pub fn affordable() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("a private systemd user manager needs root".into());
    }
    if !Path::new("/lib/systemd/systemd").exists() {
        return Err("there is no systemd".into());
    }
    cgroup::own().map(drop)
}

/// The lab's directory, if we are inside.
pub fn inside() -> Option<PathBuf> {
    std::env::var_os(INSIDE).map(Into::into)
}

/// Has `test` of this program played inside; what it has seen.
pub fn play(mainstay: &Path, test: &str) -> Results {
    let lab = Lab::furnish(mainstay);
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../testkit/scripts/private-systemd"
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "the test program starts a copy of itself, no server"
    )]
    let played = Command::new(script)
        .args(["--uid", SOMEBODY])
        .arg(lab.0.join("test"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, &lab.0)
        .env("MAINSTAY_UNDER_TEST", lab.0.join("mainstay"))
        .env("MAINSTAY_TESTKIT_BIN", &lab.0)
        .current_dir("/")
        .output()
        .expect("the script can be started");
    let said = String::from_utf8_lossy(&played.stderr).into_owned();
    assert!(played.status.success(), "the lab failed: {said}");
    let seen = fs::read(lab.0.join(SEEN)).expect("the one inside has written what it saw");
    let seen: Value = serde_json::from_slice(&seen).expect("it writes JSON");
    seen.as_object().into_iter().flatten().map(read).collect()
}

/// Writes down what was seen, for the one outside.
pub fn hand_over(lab: &Path, results: &Results) {
    let seen: Value = results.iter().map(write).collect();
    fs::write(lab.join(SEEN), seen.to_string()).expect("the lab takes a file");
}

fn write((name, result): (&String, &Result<Outcome, String>)) -> (String, Value) {
    let told = match result {
        Ok(outcome) => json!({"word": outcome.word, "rungs": outcome.rungs}),
        Err(problem) => json!({"problem": problem}),
    };
    (name.clone(), told)
}

fn read((name, told): (&String, &Value)) -> (String, Result<Outcome, String>) {
    let text = |key: &str| told[key].as_str().map(ToOwned::to_owned);
    let result = match (text("word"), text("rungs")) {
        (Some(word), Some(rungs)) => Ok(Outcome { word, rungs }),
        (_, _) => Err(text("problem").unwrap_or_default()),
    };
    (name.clone(), result)
}

/// A directory with copies of all programs that everybody may execute, wherever the build is. Dropping it removes it.
struct Lab(PathBuf);

impl Lab {
    fn furnish(mainstay: &Path) -> Self {
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
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("what is ours can be given");
}
