//! The words of the code and of the documents: which are not used, and how many there may be.
//! guards: No file has a word that hides which process, user or message is meant, and the documents stay short enough to be read.

use std::path::{Path, PathBuf};

use crate::files::{below, read};

/// One phrase per line. The list is a file of its own, so that this file is checked like any other.
const BANNED: &str = include_str!("banned-words.txt");

/// Endings of the files that people write.
const KINDS: [&str; 6] = [".md", ".rs", ".mjs", ".py", ".sh", ".toml"];

/// Scripts without an ending.
const SCRIPTS: [&str; 9] = [
    ".ci/run",
    "crates/testkit/scripts/podman-check",
    "crates/testkit/scripts/private-systemd",
    "packaging/build",
    "packaging/check-macos",
    "packaging/cross-arm64",
    "packaging/test",
    "packaging/test-arm64",
    "packaging/tools",
];

/// Pages below `docs` that a program writes, or whose tables it writes.
const GENERATED: [&str; 7] = [
    "docs/reference",
    "docs/benchmarks.md",
    "docs/clients.md",
    "docs/conformance.md",
    "docs/interop.md",
    "docs/never-worse.md",
    "docs/teardown-matrix.md",
];

/// Words of all other pages below `docs` together.
const MOST_WORDS: usize = 25_000;

#[test]
fn no_file_has_a_banned_word() {
    let phrases: Vec<&str> = BANNED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let mut files: Vec<PathBuf> = SCRIPTS.iter().map(PathBuf::from).collect();
    for kind in KINDS {
        files.extend(below(Path::new(""), kind));
    }
    assert!(files.len() > 800, "only {} files", files.len());
    let mut found = Vec::new();
    for file in files {
        for (line, phrase) in banned(&read(&file), &phrases) {
            found.push(format!("{}:{line}: {phrase}", file.display()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_documents_are_short_enough() {
    let mut count = 0;
    for page in below(Path::new("docs"), ".md") {
        if !GENERATED.iter().any(|part| page.starts_with(part)) {
            let text = read(&page);
            let words = text.split_whitespace();
            // The bar of a table and an arrow of a diagram are no words.
            count += words
                .filter(|word| word.contains(char::is_alphanumeric))
                .count();
        }
    }
    println!("{count} words below docs that people wrote");
    assert!(count > 10_000, "the pages were not found");
    assert!(count <= MOST_WORDS, "{count} words");
}

#[test]
fn a_banned_word_is_found_wherever_it_stands() {
    let text = "One line.\nIt names\npear's colour, in\nPlums: `eaten_by_apple_tree`.\nA pineapple spears.";
    let found = banned(text, &["apple", "pear", "in plums"]);
    assert_eq!(found, [(4, "apple"), (3, "pear"), (3, "in plums")]);
}

#[test]
fn the_keyword_of_a_loop_is_no_word() {
    let text =
        "    for plum in plums.iter() {\n        // for any in plums\n        for plum in plums:\n";
    assert_eq!(banned(text, &["in plums"]), [(2, "in plums")]);
}

/// Each banned phrase of a text with its line. Letters make a word, so an underscore ends one.
fn banned<'b>(text: &str, phrases: &[&'b str]) -> Vec<(usize, &'b str)> {
    let mut words = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let code = content.trim();
        let content = if code.starts_with("for ") && code.ends_with(['{', ':']) {
            content.replacen(" in ", " ", 1)
        } else {
            content.to_owned()
        };
        let split = content.split(|c: char| !c.is_alphabetic());
        words.extend(
            split
                .filter(|word| !word.is_empty())
                .map(|word| (line, word.to_lowercase())),
        );
    }
    let mut found = Vec::new();
    for phrase in phrases {
        let parts: Vec<&str> = phrase.split(' ').collect();
        for window in words.windows(parts.len()) {
            if window.iter().map(|(_, word)| word).eq(parts.iter()) {
                found.push((window[0].0, *phrase));
            }
        }
    }
    found
}
