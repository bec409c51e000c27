//! Our own crates: which may use which, how large each may be, and where `std` and `unsafe` are.
//! guards: Crates depend on each other in one direction, none is too large, and only `os` ships `unsafe`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::files::{below, read, root};

/// Each crate with those that it may use, from the bottom up: a crate uses only what stands above it in this list.
const LAYERS: [(&str, &[&str]); 14] = [
    ("protocol", &[]),
    ("core", &["protocol"]),
    ("http-core", &["protocol"]),
    ("os", &["protocol", "core"]),
    ("report", &["protocol", "core"]),
    ("clients", &["protocol", "http-core", "os"]),
    (
        "store",
        &["protocol", "http-core", "os", "report", "clients"],
    ),
    (
        "keeper",
        &["protocol", "core", "os", "report", "clients", "store"],
    ),
    ("http", &["protocol", "http-core", "os", "report", "store"]),
    (
        "observe",
        &[
            "protocol", "core", "os", "report", "clients", "store", "keeper",
        ],
    ),
    (
        "demo",
        &[
            "protocol", "core", "os", "report", "store", "keeper", "observe",
        ],
    ),
    (
        "mainstay",
        &[
            "protocol",
            "core",
            "http-core",
            "os",
            "report",
            "clients",
            "store",
            "keeper",
            "http",
            "observe",
            "demo",
        ],
    ),
    ("testkit", &["protocol", "core", "http-core", "os"]),
    ("bench", &["os", "testkit"]),
];

/// Lines of a crate without its tests.
const MOST_LINES: usize = 15_000;

/// Crates that only decide: no clock, no input or output, and so no `std`.
const PURE: [&str; 3] = ["protocol", "core", "http-core"];

/// Crates that may have `unsafe`: the one that is shipped, and those that never are.
const MAY_BE_UNSAFE: [&str; 3] = ["os", "testkit", "bench"];

#[test]
fn our_crates_point_one_way() {
    for (number, (name, allowed)) in LAYERS.iter().enumerate() {
        let before: Vec<&str> = LAYERS[..number].iter().map(|(name, _)| *name).collect();
        for used in *allowed {
            assert!(before.contains(used), "{name} is listed before {used}");
        }
        let manifest = Manifest::of(name);
        let uses: BTreeSet<&str> = manifest.uses.iter().map(String::as_str).collect();
        let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
        assert_eq!(uses, allowed, "used by {name} / allowed");
        for used in &manifest.uses_in_tests {
            let is_below = allowed.contains(used.as_str());
            assert!(is_below || used == "testkit", "tests of {name} use {used}");
        }
    }
}

#[test]
fn every_crate_has_its_layer() {
    let workspace = read(Path::new("Cargo.toml"));
    let members = workspace
        .lines()
        .find_map(|line| line.strip_prefix("members = "))
        .unwrap();
    let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    let known: Vec<String> = LAYERS.iter().map(|(name, _)| folder(name)).collect();
    assert_eq!(members, known, "members of the workspace / layers");
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            members.contains(&format!("crates/{name}").as_str()),
            "{name}"
        );
    }
}

/// A line counts if it is in a `.rs` file below `src` that is built for users: neither in a file or folder named `tests`, nor in
/// one that its parent declares below `#[cfg(test)]`, nor from `#[cfg(test)] mod tests {` on. Blank lines and comments count.
#[test]
fn no_crate_is_too_large() {
    for (name, _) in LAYERS {
        let lines = lines_without_tests(Path::new(&folder(name)));
        assert!(lines > 100, "{name} was not understood: {lines} lines");
        assert!(
            lines <= MOST_LINES,
            "{name} has {lines} lines without its tests"
        );
    }
}

#[test]
fn unsafe_and_std_stay_where_they_belong() {
    for (name, _) in LAYERS {
        let root = Path::new(&folder(name)).join("src");
        if !MAY_BE_UNSAFE.contains(&name) {
            assert!(
                read(&root.join("lib.rs")).contains("#![forbid(unsafe_code)]"),
                "{name}"
            );
        }
        if PURE.contains(&name) {
            assert!(read(&root.join("lib.rs")).contains("#![no_std]"), "{name}");
        }
    }
    let main = read(Path::new("crates/mainstay/src/main.rs"));
    assert!(main.contains("#![forbid(unsafe_code)]"));
}

/// What a manifest says about our own crates, each by the name of its folder.
struct Manifest {
    uses: BTreeSet<String>,
    uses_in_tests: BTreeSet<String>,
}

impl Manifest {
    fn of(name: &str) -> Self {
        let mut manifest = Self {
            uses: BTreeSet::new(),
            uses_in_tests: BTreeSet::new(),
        };
        let mut section = String::new();
        for line in read(&Path::new(&folder(name)).join("Cargo.toml")).lines() {
            if line.starts_with('[') {
                line.clone_into(&mut section);
                assert!(!line.contains("target."), "{name}: {line} is not read here");
                continue;
            }
            let Some(rest) = line.strip_prefix("mainstay") else {
                continue;
            };
            let end = rest.find(['.', ' ', '=']).unwrap();
            let used = rest[..end].strip_prefix('-').unwrap_or("mainstay");
            match section.as_str() {
                "[dependencies]" => manifest.uses.insert(used.into()),
                "[dev-dependencies]" => manifest.uses_in_tests.insert(used.into()),
                other => panic!("{name}: {line} in {other}"),
            };
        }
        manifest
    }
}

fn lines_without_tests(folder: &Path) -> usize {
    let files = below(&folder.join("src"), ".rs");
    let only_in_tests: BTreeSet<PathBuf> = files
        .iter()
        .flat_map(|file| declared_for_tests(file))
        .collect();
    let shipped = files.iter().filter(|file| {
        let mut above = file.ancestors();
        !above
            .any(|part| only_in_tests.contains(&part.with_extension("")) || part.ends_with("tests"))
    });
    shipped
        .map(|file| before_tests(&read(file)).lines().count())
        .sum()
}

/// A file up to its unit tests.
fn before_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap()
}

/// The modules that a file declares for tests only, as paths without an ending.
fn declared_for_tests(file: &Path) -> Vec<PathBuf> {
    let stem = file.file_stem().unwrap();
    let is_root = ["mod", "lib", "main"].iter().any(|name| stem == *name);
    let folder = if is_root {
        file.parent().unwrap().to_owned()
    } else {
        file.with_extension("")
    };
    let text = read(file);
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let name = line.trim_start_matches("pub ").strip_prefix("mod ");
        let Some(name) = name.and_then(|rest| rest.strip_suffix(';')) else {
            continue;
        };
        let attributes = lines[..number]
            .iter()
            .rev()
            .take_while(|line| line.starts_with("#["));
        if attributes
            .into_iter()
            .any(|line| line.starts_with("#[cfg(test)") || line.starts_with("#[cfg(any(test,"))
        {
            found.push(folder.join(name));
        }
    }
    found
}

fn folder(name: &str) -> String {
    match name {
        "bench" => "bench".into(),
        name => format!("crates/{name}"),
    }
}
