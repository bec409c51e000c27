//! The page of invariants is made of the `//! guards:` line of each file with tests. `MAINSTAY_BLESS=1` writes it again.
//! guards: Every file of tests says in one line which invariant it guards.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::files::{compare, read, rust_of_crates};

const MARK: &str = "//! guards: ";

/// The sections of the page, each with the folders whose files it lists.
const SECTIONS: [(&str, &[&str]); 9] = [
    (
        "No process is left",
        &[
            "crates/mainstay/tests/containment",
            "crates/mainstay/tests/teardown_matrix",
            "crates/mainstay/tests/never_worse",
            "crates/os",
        ],
    ),
    (
        "Servers that die, hang or change",
        &["crates/mainstay/tests/servers", "crates/core/src/server"],
    ),
    (
        "Clients and their messages",
        &[
            "crates/mainstay/tests/clients",
            "crates/core/src/link",
            "crates/core/src/record",
            "crates/core/src/relay",
            "crates/core/src/senders.rs",
            "crates/core/tests",
            "crates/protocol",
            "crates/keeper",
        ],
    ),
    ("Load", &["crates/mainstay/tests/load"]),
    (
        "HTTP",
        &[
            "crates/mainstay/tests/http",
            "crates/http-core",
            "crates/http",
        ],
    ),
    (
        "Commands and verdicts",
        &[
            "crates/mainstay/tests/views",
            "crates/mainstay/src",
            "crates/core/src/verdict",
            "crates/core/src/reap.rs",
            "crates/report",
        ],
    ),
    ("Config files of clients", &["crates/clients"]),
    ("Files of mainstay", &["crates/store"]),
    ("The tests themselves", &["crates/testkit"]),
];

#[test]
fn every_invariant_is_on_the_page() {
    compare(
        "docs/reference/invariants.md",
        &page(),
        "cargo test -p mainstay-testkit --test pages invariants",
    );
}

#[test]
fn every_file_of_tests_names_its_invariant() {
    for file in files() {
        let is_of_tests =
            file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests");
        let text = read(&file);
        let has_tests = text.contains("#[test]\n") || text.contains("\nfn main() ");
        if is_of_tests && has_tests {
            assert!(
                guards(&text).is_some(),
                "{} has no line `{MARK}…`",
                file.display()
            );
        }
    }
}

fn page() -> String {
    let mut page = String::from(
        "# Invariants\n\nWhat always holds, each with the file of tests that guards it. CI runs all of them. A line here is the line \
         `//! guards:` of that file.\n",
    );
    let mut files = files();
    for (title, folders) in SECTIONS {
        write!(page, "\n## {title}\n\n| invariant | tests |\n|---|---|\n").unwrap();
        for folder in folders {
            let (here, others) = files.into_iter().partition(|file| file.starts_with(folder));
            files = others;
            let here: Vec<PathBuf> = here;
            assert!(!here.is_empty(), "{folder} has no file");
            for file in here {
                if let Some(invariant) = guards(&read(&file)) {
                    writeln!(page, "| {invariant} | {} |", link(&file)).unwrap();
                }
            }
        }
    }
    files.retain(|file| guards(&read(file)).is_some());
    assert!(files.is_empty(), "in no section: {files:?}");
    page
}

/// A link to the file, named as in ARCHITECTURE.md: without `crates/`.
fn link(file: &Path) -> String {
    let name = file.strip_prefix("crates").unwrap().display();
    format!("[`{name}`](../../crates/{name})")
}

/// What the file guards. A file says it once, in one line.
fn guards(text: &str) -> Option<&str> {
    let mut lines = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix(MARK));
    let invariant = lines.next()?;
    assert!(lines.next().is_none(), "twice: {invariant}");
    assert!(invariant.ends_with('.'), "no sentence: {invariant}");
    assert!(!invariant.contains('|'), "no cell of a table: {invariant}");
    Some(invariant)
}

fn files() -> Vec<PathBuf> {
    let mut files = rust_of_crates("src");
    files.extend(rust_of_crates("tests"));
    files
}
