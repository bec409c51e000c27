//! Our dependencies: licences, sources, versions, and a sentence for each.
//!
//! Versions and sources come from every committed lock file, for every platform. Licences come from what cargo has downloaded for
//! this platform, so of the workspace only. There is no network here, so advisories are looked up by hand. This test checks that
//! it was done for every version.
//! guards: Every dependency has an allowed licence, a reviewed version and a sentence that says why it is used.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::files::{below, root};

/// Licences that only require to be named.
const ALLOWED: [&str; 5] = ["Apache-2.0", "BSD-3-Clause", "ISC", "MIT", "Unicode-3.0"];

/// The one registry that all packages come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// A crate that exists in two versions, and why that cannot be avoided.
type Twice = (&'static str, &'static str);

const TWICE: [Twice; 2] = [
    (
        "getrandom",
        "ring asks for 0.2; the other is proptest's, which is only in tests, or jobserver's, which is only in builds",
    ),
    (
        "windows-sys",
        "ring asks for 0.52, and is built for no Windows here",
    ),
];

/// Every version that was looked up in the advisory database.
const REVIEWED: &str = "crates/testkit/tests/reviewed-versions.txt";

/// The workspace's own lock file.
const OURS: &str = "Cargo.lock";

/// Every lock file, with the crates that it has twice.
const LOCKS: [(&str, &[Twice]); 3] = [
    (OURS, &TWICE),
    (
        "crates/testkit/interop/rmcp/Cargo.lock",
        &[("syn", "its macros are of different ages; only in builds")],
    ),
    ("fuzz/Cargo.lock", &TWICE),
];

#[test]
fn every_licence_is_on_the_list() {
    let refused: Vec<String> = packages()
        .iter()
        .filter_map(|package| {
            let licence = package["license"].as_str().unwrap_or("no licence");
            let allowed = Licence::parse(licence).is_some_and(|licence| licence.allowed());
            (!allowed).then(|| format!("{} ({licence})", package["name"]))
        })
        .collect();
    assert!(refused.is_empty(), "not on the list: {refused:?}");
}

#[test]
fn everything_comes_from_the_registry_and_once() {
    for (lock, twice) in LOCKS {
        let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for package in locked(lock) {
            let source = package.source.as_deref();
            assert!(
                package.own() || source == Some(REGISTRY),
                "{lock}: {} comes from {source:?}",
                package.name
            );
            versions
                .entry(package.name)
                .or_default()
                .insert(package.version);
        }
        assert!(versions.len() > 20, "{lock} was not understood");
        let found: Vec<_> = versions
            .iter()
            .filter(|(_, versions)| versions.len() > 1)
            .map(|(name, _)| name.as_str())
            .collect();
        let known: Vec<_> = twice.iter().map(|(name, _)| *name).collect();
        assert_eq!(found, known, "two versions of one crate in {lock}");
    }
}

/// A new version, or another package under an old one, has to be looked up before it is built.
#[test]
fn every_version_was_looked_up_in_the_advisory_database() {
    let reviewed = fs::read_to_string(root().join(REVIEWED)).unwrap();
    let reviewed: BTreeSet<String> = reviewed
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(ToOwned::to_owned)
        .collect();
    let used: BTreeSet<String> = LOCKS
        .iter()
        .flat_map(|(lock, _)| locked(lock))
        .filter(|package| !package.own())
        .map(|package| {
            let checksum = package.checksum.unwrap_or_default();
            format!("{} {} {checksum}", package.name, package.version)
        })
        .collect();
    let missing: Vec<_> = used.difference(&reviewed).collect();
    let gone: Vec<_> = reviewed.difference(&used).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "look them up as SECURITY.md says, then correct {REVIEWED}\nnot looked up: {missing:#?}\nnot used any more: {gone:#?}"
    );
}

#[test]
fn every_lock_file_is_checked() {
    let found: BTreeSet<PathBuf> = below(Path::new(""), "Cargo.lock").into_iter().collect();
    let known: BTreeSet<PathBuf> = LOCKS.iter().map(|(lock, _)| lock.into()).collect();
    assert_eq!(found, known);
}

/// An outdated lock file cannot be built with `--locked`.
#[test]
fn every_lock_file_has_our_crates_current_dependencies() {
    let packages = ours();
    for (lock, _) in LOCKS.iter().filter(|(lock, _)| *lock != OURS) {
        for Locked { name, uses, .. } in locked(lock) {
            let Some(package) = packages.iter().find(|package| package["name"] == *name) else {
                continue;
            };
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let needed = dependencies
                .filter(|dependency| {
                    dependency["kind"].is_null() && dependency["optional"] == false
                })
                .map(|dependency| dependency["name"].as_str().unwrap());
            for dependency in needed {
                assert!(
                    uses.contains(dependency),
                    "{lock}: {name} uses {dependency}"
                );
            }
        }
    }
}

#[test]
fn every_direct_dependency_has_its_sentence() {
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in ours() {
        let by = package["name"].as_str().unwrap();
        let by = by.strip_prefix("mainstay-").unwrap_or(by);
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            let tests = if dependency["kind"] == "dev" {
                " (tests)"
            } else {
                ""
            };
            if !name.starts_with("mainstay") {
                let users = used.entry(name.into()).or_default();
                users.insert(format!("{by}{tests}"));
            }
        }
    }
    let page = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let told: BTreeMap<String, BTreeSet<String>> = page.lines().filter_map(row).collect();
    assert_eq!(used, told, "used / told in docs/dependencies.md");
}

/// A row of the page: a dependency and its users. The sentence is there too.
fn row(line: &str) -> Option<(String, BTreeSet<String>)> {
    let mut cells = line.strip_prefix("| `")?.split(" | ");
    let name = cells.next()?.strip_suffix('`')?;
    let users = cells.next()?.split(", ").map(Into::into).collect();
    let sentence = cells.next()?;
    assert!(sentence.len() > 40, "{name} has no sentence");
    Some((name.into(), users))
}

#[test]
fn licence_expressions_are_read_as_they_are_meant() {
    for (text, allowed) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("MIT/Apache-2.0", true),
        ("Unlicense OR MIT", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("MIT AND GPL-3.0", false),
        ("GPL-3.0 OR (MIT AND GPL-2.0)", false),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ("GPL-2.0 WITH Classpath-exception-2.0", false),
    ] {
        let licence = Licence::parse(text).unwrap();
        assert_eq!(licence.allowed(), allowed, "{text}");
    }
    for nonsense in ["", "MIT OR", "(MIT", "MIT MIT", "OR"] {
        assert!(Licence::parse(nonsense).is_none(), "{nonsense}");
    }
}

/// Every package of the build on this platform.
fn packages() -> Vec<Value> {
    #[expect(clippy::disallowed_methods, reason = "asks cargo what is in the build")]
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--format-version", "1"])
        .args(["--filter-platform", &host()])
        .current_dir(root())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn ours() -> Vec<Value> {
    let mut packages = packages();
    packages.retain(|package| package["source"].is_null());
    packages
}

/// The platform for which cargo has downloaded packages: this one.
fn host() -> String {
    #[expect(clippy::disallowed_methods, reason = "asks cargo where it runs")]
    let output = Command::new(env!("CARGO")).arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.unwrap().to_owned()
}

struct Locked {
    name: String,
    version: String,
    source: Option<String>,
    checksum: Option<String>,
    uses: BTreeSet<String>,
}

impl Locked {
    /// Whether it is of this repository.
    fn own(&self) -> bool {
        let named = self.name.starts_with("mainstay") || self.name == "interop-rmcp";
        self.source.is_none() && named
    }
}

/// Every package of a lock file.
fn locked(lock: &str) -> Vec<Locked> {
    let text = fs::read_to_string(root().join(lock)).unwrap();
    text.split("[[package]]")
        .skip(1)
        .map(|block| {
            let field = |name: &str| {
                let line = block.lines().find_map(|line| line.strip_prefix(name))?;
                Some(line.strip_prefix(" = ")?.trim_matches('"').to_owned())
            };
            // A name, and its version if there are two.
            let uses = block.lines().filter_map(|line| {
                let words = line.strip_prefix(" \"")?.strip_suffix("\",")?;
                words.split(' ').next().map(ToOwned::to_owned)
            });
            Locked {
                name: field("name").unwrap(),
                version: field("version").unwrap(),
                source: field("source"),
                checksum: field("checksum"),
                uses: uses.collect(),
            }
        })
        .collect()
}

/// Every lock file below a folder that is not built or downloaded.
/// An SPDX expression.
enum Licence {
    Named(String),
    Any(Vec<Self>),
    All(Vec<Self>),
}

impl Licence {
    fn parse(text: &str) -> Option<Self> {
        // The old form of OR, and parentheses as separate words.
        let spaced = text
            .replace('/', " OR ")
            .replace('(', " ( ")
            .replace(')', " ) ");
        let mut words = spaced.split_whitespace().peekable();
        let licence = Self::any(&mut words)?;
        words.next().is_none().then_some(licence)
    }

    fn any<'w>(words: &mut Peekable<impl Iterator<Item = &'w str>>) -> Option<Self> {
        let mut parts = vec![Self::all(words)?];
        while words.next_if_eq(&"OR").is_some() {
            parts.push(Self::all(words)?);
        }
        Some(Self::Any(parts))
    }

    fn all<'w>(words: &mut Peekable<impl Iterator<Item = &'w str>>) -> Option<Self> {
        let mut parts = vec![Self::one(words)?];
        while words.next_if_eq(&"AND").is_some() {
            parts.push(Self::one(words)?);
        }
        Some(Self::All(parts))
    }

    fn one<'w>(words: &mut Peekable<impl Iterator<Item = &'w str>>) -> Option<Self> {
        match words.next()? {
            "(" => {
                let inner = Self::any(words)?;
                words.next_if_eq(&")").map(|_| inner)
            }
            ")" | "OR" | "AND" | "WITH" => None,
            name => {
                // An exception only ever adds permissions.
                if words.next_if_eq(&"WITH").is_some() {
                    words.next()?;
                }
                Some(Self::Named(name.to_owned()))
            }
        }
    }

    fn allowed(&self) -> bool {
        match self {
            Self::Named(name) => ALLOWED.contains(&name.as_str()),
            Self::Any(parts) => parts.iter().any(Self::allowed),
            Self::All(parts) => parts.iter().all(Self::allowed),
        }
    }
}
