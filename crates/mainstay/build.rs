//! Says which commit a release was built from. Only a build in release mode looks, so that a commit rebuilds nothing else.
//!
//! The date is that of the commit: two builds of one commit are equal. A source tree without git's files, and a machine without
//! git, give a program that does not know its commit.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=MAINSTAY_TARGET={target}");
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let here = Path::new(&here);
    if let Some(commit) = packaged(here) {
        println!("cargo::rustc-env=MAINSTAY_COMMIT={commit}");
    } else if let Some((commit, date)) = checked_out(here) {
        println!("cargo::rustc-env=MAINSTAY_COMMIT={commit}");
        println!("cargo::rustc-env=MAINSTAY_DATE={date}");
    }
}

/// The commit that cargo has written into a package, shortened.
fn packaged(here: &Path) -> Option<String> {
    let text = std::fs::read_to_string(here.join(".cargo_vcs_info.json")).ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    let commit = rest.split('"').nth(1)?.get(..10)?;
    commit
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| commit.to_owned())
}

/// Commit and date of a checkout of this project, not of another one that this source tree happens to lie in.
fn checked_out(here: &Path) -> Option<(String, String)> {
    let top = git(here, &["rev-parse", "--show-toplevel"])?;
    let root = here.parent()?.parent()?.canonicalize().ok()?;
    if Path::new(&top).canonicalize().ok()? != root {
        return None;
    }
    // This file of git's changes with each commit and each checkout.
    let moves = git(here, &["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={}", here.join(moves).display());
    let text = git(here, &["log", "-1", "--abbrev=10", "--format=%h %cs"])?;
    let (commit, date) = text.split_once(' ')?;
    Some((commit.to_owned(), date.to_owned()))
}

#[expect(clippy::disallowed_methods, reason = "git, while the program is built")]
fn git(here: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(here).args(words).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
