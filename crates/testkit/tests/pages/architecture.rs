//! ARCHITECTURE.md is true: its code map is complete, the tests that it names exist, and what it says is absent is absent.
//! guards: ARCHITECTURE.md names every folder of source files and only files and items that exist; keepers have one thread; no test sleeps.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::files::{below, read, root, rust_of_crates};

/// How long the page may be.
const MOST_BYTES: usize = 15_000;

#[test]
fn every_name_in_it_exists() {
    let page = page();
    let mut functions = 0;
    for Name { folder, path, test } in names(&page) {
        let file = root().join(folder).join(path);
        assert!(file.exists(), "{folder}/{path} does not exist");
        if let Some(test) = test {
            functions += 1;
            let text = read(&Path::new(folder).join(path));
            assert!(
                text.contains(&format!("fn {test}(")),
                "{folder}/{path} has no function {test}"
            );
        }
    }
    assert!(functions > 15, "the page was not understood");
}

#[test]
fn every_folder_is_on_the_map() {
    let page = page();
    let named: BTreeSet<PathBuf> = names(&page)
        .into_iter()
        .map(|Name { folder, path, .. }| Path::new(folder).join(path))
        .collect();
    for file in rust_of_crates("src") {
        let mut parts = file.components();
        let source: PathBuf = parts.by_ref().take(3).collect();
        let section = format!("### `{}`", source.display());
        assert!(page.lines().any(|line| line == section), "no {section}");
        let below: Vec<_> = parts.collect();
        if below.len() > 1 {
            let folder = source.join(below[0]);
            assert!(
                named.contains(&folder),
                "{} is not in the code map of ARCHITECTURE.md",
                folder.display()
            );
        }
    }
}

/// Documents name a source file by the end of its path, with or without `src/`.
#[test]
fn every_source_file_that_a_document_names_exists() {
    let sources: Vec<String> = below(Path::new(""), ".rs")
        .iter()
        .map(|file| format!("/{}", file.display()))
        .collect();
    let mut count = 0;
    for document in below(Path::new("docs"), ".md") {
        let text = read(&document);
        for name in text.split('`').skip(1).step_by(2) {
            let plain = name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "/_.-".contains(c));
            let source = Path::new(name).extension().is_some_and(|end| end == "rs");
            if !plain || !source {
                continue;
            }
            count += 1;
            let end = format!("/{}", name.replace("/src/", "/"));
            let exists = sources
                .iter()
                .any(|source| source.replace("/src/", "/").ends_with(&end));
            assert!(exists, "{}: there is no {name}", document.display());
        }
    }
    assert!(count > 50, "the pages were not understood");
}

#[test]
fn it_can_be_read_in_one_sitting() {
    let bytes = page().len();
    assert!(bytes <= MOST_BYTES, "{bytes} bytes");
}

#[test]
fn the_keeper_is_alone_in_its_process() {
    for file in rust_of_crates("src") {
        // Unit tests may have threads, also in their own file.
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
            // The HTTP front is no keeper: it serves many clients at a time, in one place that owns every task.
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

/// Crates that have no part in the state directory: they are below it, or edit the files of clients, or never ship.
const NO_STATE: [&str; 7] = [
    "protocol",
    "core",
    "http-core",
    "os",
    "report",
    "clients",
    "testkit",
];

/// `state.rs` opens everything below the state directory and checks owner, kind and size. These files open others.
const OPENS_OTHER_FILES: [(&str, &str); 20] = [
    (
        "mainstay/src/cli/metrics.rs",
        "the file that the user names",
    ),
    ("store/src/state.rs", "the one way to them"),
    (
        "store/src/paths.rs",
        "looks at what is above the state directory",
    ),
    ("observe/src/trace/home.rs", "looks at a home directory"),
    (
        "keeper/src/lease/directory.rs",
        "asks the kernel for the name of a descriptor",
    ),
    (
        "store/src/config/serving.rs",
        "a token file and the passwd file",
    ),
    ("store/src/cache/key.rs", "looks at the server's program"),
    ("http/src/serve/page.rs", "/proc"),
    ("http/src/resolve.rs", "/etc"),
    ("http/src/tls.rs", "certificates of the system"),
    (
        "mainstay/src/cli/adopt/program.rs",
        "copies the program into the user's bin directory",
    ),
    ("mainstay/src/cli/tap.rs", "a recording that the user names"),
    (
        "mainstay/src/cli/timeline.rs",
        "a recording that the user names",
    ),
    (
        "mainstay/src/cli/doctor/checks.rs",
        "looks at modes before they are mended, and at /proc",
    ),
    (
        "keeper/src/code_changes.rs",
        "looks at the server's program",
    ),
    ("keeper/src/server.rs", "/dev/null"),
    ("keeper/src/recording.rs", "a recording that the user names"),
    ("demo/src", "a home of its own"),
    (
        "observe/src/trace/servers.rs",
        "looks at the size of servers' programs",
    ),
    (
        "observe/src/reap",
        "looks at /proc and at clients' files, and writes timers of the user",
    ),
];

#[test]
fn one_module_opens_what_is_below_the_state_directory() {
    let source = Path::new("crates");
    for file in rust_of_crates("src") {
        let name = file.strip_prefix(source).unwrap();
        let below = NO_STATE.iter().any(|folder| name.starts_with(folder));
        let of_tests = [
            "tests.rs",
            "store/src/scratch.rs",
            "mainstay/src/reference.rs",
        ];
        let is_test = of_tests.iter().any(|end| name.ends_with(end))
            || name.parent().is_some_and(|of| of.ends_with("tests"))
            || name.starts_with("mainstay/src/reference");
        if is_test
            || below
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
    // In two pieces, so that this file does not match itself.
    let absent = [concat!("#[", "ignore"), concat!("thread::", "sleep")];
    for file in rust_of_crates("src")
        .into_iter()
        .chain(rust_of_crates("tests"))
    {
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

/// Every file and folder on the page: in the code map relative to the section's folder, elsewhere relative to `crates`.
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
            // Names from the root (`bench/`, `docs/…/`) are no part of the map.
            if (source || path.ends_with('/')) && !root().join(path).exists() {
                let folder = folder.unwrap_or("crates");
                found.push(Name { folder, path, test });
            }
        }
    }
    found
}

fn page() -> String {
    read(Path::new("ARCHITECTURE.md"))
}
