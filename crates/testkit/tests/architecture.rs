//! ARCHITECTURE.md says the truth: its code map is complete, the tests that it names exist, and what it says is absent is.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_name_in_it_exists() {
    let page = page();
    let mut functions = 0;
    for Name { folder, path, test } in names(&page) {
        let file = root().join(folder).join(path);
        assert!(file.exists(), "{folder}/{path} does not exist");
        if let Some(test) = test {
            functions += 1;
            let text = fs::read_to_string(&file).unwrap();
            assert!(
                text.contains(&format!("fn {test}(")),
                "{folder}/{path} has no function {test}"
            );
        }
    }
    assert!(functions > 20, "the page was not understood");
}

#[test]
fn every_invariant_names_its_guard() {
    let page = page();
    let (_, invariants) = page.split_once("## Invariants").unwrap();
    let numbered: Vec<String> = paragraphs(invariants);
    for (number, text) in (1..).zip(&numbered) {
        assert!(text.starts_with(&format!("{number}. ")), "{text}");
        let guarded = text.contains(".rs") || text.contains("by lint");
        assert!(guarded, "no test guards this: {text}");
    }
    assert!(numbered.len() > 20, "the page was not understood");
}

#[test]
fn every_file_is_on_the_map() {
    let page = page();
    let named: BTreeSet<PathBuf> = names(&page)
        .into_iter()
        .map(|Name { folder, path, .. }| Path::new(folder).join(path))
        .collect();
    for file in sources("src") {
        let on_the_map = file
            .ancestors()
            .take_while(|part| !part.ends_with("src"))
            .any(|part| named.contains(part));
        assert!(
            on_the_map,
            "{} is not in the code map of ARCHITECTURE.md",
            file.display()
        );
    }
}

#[test]
fn unsafe_and_std_stay_where_they_belong() {
    for (file, words) in [
        ("crates/core/src/lib.rs", "#![no_std]"),
        ("crates/core/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("crates/mainstay/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("crates/mainstay/src/main.rs", "#![forbid(unsafe_code)]"),
    ] {
        assert!(read(Path::new(file)).contains(words), "{file}: {words}");
    }
}

#[test]
fn the_keeper_is_alone_in_its_process() {
    for file in sources("src") {
        // Unit tests may have threads, in a file of their own as well.
        let is_test =
            file.ends_with("tests.rs") || file.parent().is_some_and(|of| of.ends_with("tests"));
        if file.starts_with("crates/testkit") || is_test {
            continue;
        }
        let text = read(&file);
        let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for word in [
            "tokio::process",
            "tokio::spawn",
            "spawn_local",
            "spawn_blocking",
            "thread::spawn",
            "thread::scope",
            "thread::Builder",
        ] {
            // The HTTP front is no keeper: it serves many at a time, in one place that owns every task.
            let front = word == "spawn_local" && file.ends_with("serve/tasks.rs");
            assert!(
                front || !shipped.contains(word),
                "{}: {word}",
                file.display()
            );
        }
    }
    let manifest = read(Path::new("Cargo.toml"));
    let tokio = manifest.lines().find(|line| line.starts_with("tokio = "));
    for feature in ["multi-thread", "process", "full"] {
        assert!(
            tokio.is_none_or(|tokio| !tokio.contains(feature)),
            "tokio: {feature}"
        );
    }
}

/// Everything below the state directory is opened by `state.rs`, which checks owner, kind and size. These files open others.
const OPENS_OTHER_FILES: [(&str, &str); 16] = [
    ("state.rs", "the one way to them"),
    ("paths.rs", "looks at what is above the state directory"),
    ("trace/home.rs", "looks at a home directory"),
    (
        "lease/place.rs",
        "asks the kernel for the name of a descriptor",
    ),
    ("config/serving.rs", "a token file and the passwd file"),
    ("recollection/key.rs", "looks at the server's program"),
    ("serve/page.rs", "/proc"),
    ("http/resolve.rs", "/etc"),
    ("http/tls.rs", "certificates of the system"),
    ("cli/tap.rs", "a recording that the user names"),
    ("cli/timeline.rs", "a recording that the user names"),
    (
        "cli/doctor/checks.rs",
        "looks at modes before they are mended, and at /proc",
    ),
    ("keeper/code.rs", "looks at the server's program"),
    ("keeper/server.rs", "/dev/null"),
    ("keeper/recording.rs", "a recording that the user names"),
    ("demo", "a home of its own"),
];

#[test]
fn one_module_opens_what_is_below_the_state_directory() {
    let source = Path::new("crates/mainstay/src");
    for file in sources("src") {
        let Ok(name) = file.strip_prefix(source) else {
            continue;
        };
        let of_tests = ["tests.rs", "scratch.rs", "reference.rs"];
        let is_test = of_tests.iter().any(|end| name.ends_with(end))
            || name.parent().is_some_and(|of| of.ends_with("tests"))
            || name.starts_with("reference");
        if is_test
            || OPENS_OTHER_FILES
                .iter()
                .any(|(home, _)| name.starts_with(home))
        {
            continue;
        }
        let text = read(&file);
        let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for word in [
            "File::open",
            "File::create",
            "File::options",
            "OpenOptions::new",
            "DirBuilder",
            "read_dir",
            "std::fs;",
            "std::fs::{self",
            "fs::open",
            "openat",
        ] {
            assert!(
                !shipped.contains(word),
                "{} has `{word}`: files below the state directory are opened by state.rs; for others, say why in the list",
                file.display()
            );
        }
    }
}

#[test]
fn tests_wait_for_conditions() {
    // In two pieces, so that this file does not find itself.
    let absent = [concat!("#[", "ignore"), concat!("thread::", "sleep")];
    for file in sources("src").into_iter().chain(sources("tests")) {
        let text = read(&file);
        for word in absent {
            assert!(!text.contains(word), "{}: {word}", file.display());
        }
    }
}

/// A file or folder that the page names.
struct Name<'p> {
    folder: &'p str,
    path: &'p str,
    test: Option<&'p str>,
}

/// Every name on the page: in the code map relative to the section's folder, elsewhere relative to `crates`.
fn names(page: &str) -> Vec<Name<'_>> {
    let mut folder = None;
    let mut found = Vec::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            folder = Some(title.trim_matches('`'));
            continue;
        }
        if line.starts_with("## ") {
            folder = None;
        }
        for token in line.split('`').skip(1).step_by(2) {
            let (path, test) = match token.split_once("::") {
                Some((path, test)) => (path, Some(test)),
                None => (token, None),
            };
            let source = Path::new(path).extension().is_some_and(|end| end == "rs");
            let in_section = folder.filter(|_| source || path.ends_with('/'));
            let elsewhere = (folder.is_none() && source).then_some("crates");
            // What is named from the root (`bench/`, `docs/…/`) is no part of the map.
            if let Some(folder) = in_section.or(elsewhere)
                && !root().join(path).exists()
            {
                found.push(Name { folder, path, test });
            }
        }
    }
    found
}

/// The numbered paragraphs.
fn paragraphs(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with(|c: char| c.is_ascii_digit()) {
            found.push(line.into());
        } else if line.starts_with("   ") {
            let last = found.last_mut().unwrap();
            last.push(' ');
            last.push_str(line.trim());
        }
    }
    found
}

/// Every source file in this folder of each crate, relative to the root.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = PathBuf::from("crates").join(entry.unwrap().file_name());
        collect(&name.join(folder), &mut found);
    }
    assert!(!found.is_empty());
    found
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(root().join(folder)) else {
        return;
    };
    for entry in entries {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

fn page() -> String {
    read(Path::new("ARCHITECTURE.md"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
