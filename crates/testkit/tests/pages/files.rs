//! The files of the repository, with paths relative to its root.

use std::fs;
use std::path::{Path, PathBuf};

const LEFT_BY_BUILDS: [&str; 5] = ["target", "node_modules", ".git", "corpus", "artifacts"];

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Every file below this folder whose name ends so, sorted. What builds leave is no part of the repository.
pub fn below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(root().join(folder)) else {
        return found;
    };
    for entry in entries {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = folder.join(&name);
        if entry.file_type().unwrap().is_dir() {
            if !LEFT_BY_BUILDS.contains(&name.as_str()) {
                found.extend(below(&path, ending));
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Every Rust file in this folder (`src` or `tests`) of each crate.
pub fn rust_of_crates(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = PathBuf::from("crates").join(entry.unwrap().file_name());
        found.extend(below(&name.join(folder), ".rs"));
    }
    found.sort();
    assert!(!found.is_empty());
    found
}

/// Compares a generated page with the file; `MAINSTAY_BLESS=1` writes the file first.
pub fn compare(path: &str, page: &str, command: &str) {
    let page = format!("<!-- Generated: `MAINSTAY_BLESS=1 {command}`. -->\n\n{page}");
    let file = root().join(path);
    if std::env::var_os("MAINSTAY_BLESS").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == page,
        "{path} is not up to date: look, then MAINSTAY_BLESS=1 {command}"
    );
}
