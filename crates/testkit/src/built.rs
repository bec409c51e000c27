//! Where the testkit's own programs are.
//!
//! Cargo builds the binaries of the package under test, not those of its dependencies. So the first call in each test process
//! builds them, which takes a fraction of a second when they are fresh.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// If this variable names a directory with the programs, nothing is built (packagers, machines without cargo).
const VARIABLE: &str = "MAINSTAY_TESTKIT_BIN";

/// The program under test: the one that cargo built for this test, or the one that the variable `MAINSTAY_UNDER_TEST` names (an
/// installed one, a stand-in).
pub fn under_test(built: &str) -> PathBuf {
    env::var_os("MAINSTAY_UNDER_TEST").map_or_else(|| built.into(), PathBuf::from)
}

/// The unruly server.
pub fn unruly() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| folder().join("unruly"))
}

/// The puppet: a client process that the test controls.
pub fn puppet() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| folder().join("puppet"))
}

/// The example of a host program that uses the library.
pub fn host() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match env::var_os(VARIABLE) {
        Some(folder) => Path::new(&folder).join("host"),
        None => build(
            concat!(env!("CARGO_MANIFEST_DIR"), "/../mainstay/Cargo.toml"),
            &["--example", "host"],
        )
        .join("examples/host"),
    })
}

fn folder() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    PATH.get_or_init(|| {
        env::var_os(VARIABLE).map_or_else(|| build(manifest, &["--bins"]), PathBuf::from)
    })
}

/// Builds into the target directory and profile that the calling program itself came from.
fn build(manifest: &str, what: &[&str]) -> PathBuf {
    let me = env::current_exe().expect("a running program has a path");
    let mut profile = me.parent().expect("a program is in a directory");
    if profile.ends_with("deps") || profile.ends_with("examples") {
        profile = profile.parent().expect("deps is in a profile's directory");
    }
    let triple = profile
        .parent()
        .expect("a profile is in a target's directory");
    let target = triple
        .parent()
        .expect("a triple is in the target directory");
    let name = profile.file_name().and_then(|name| name.to_str());
    #[expect(
        clippy::disallowed_methods,
        reason = "asks cargo for the programs, once for each test process"
    )]
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--locked", "--offline"])
        .args(what)
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(target)
        .args([
            "--profile",
            if name == Some("debug") {
                "dev"
            } else {
                name.unwrap_or("dev")
            },
        ])
        .stdin(Stdio::null());
    // Without these variables, because a nested build must not take itself for a part of the outer one.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let of_package = name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_BIN_");
        if of_package || name.starts_with("CARGO_MANIFEST_") || name == "CARGO_CRATE_NAME" {
            cargo.env_remove(name);
        }
    }
    let status = cargo.status().expect("cargo can be run");
    assert!(
        status.success(),
        "the testkit's programs could not be built; build them with `cargo build -p mainstay-testkit`, or set {VARIABLE}"
    );
    profile.to_path_buf()
}
