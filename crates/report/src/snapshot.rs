//! Texts that tests compare with files in `snapshots/`. `MAINSTAY_BLESS=1 cargo test -p mainstay-report` writes the files.

use std::fs;
use std::path::Path;

/// Fails if the text is not that of the file.
pub fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/snapshots/{name}.txt"));
    if std::env::var_os("MAINSTAY_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "{} differs from:\n{text}", path.display());
}
