//! The page of every state and every event says what the link does. `MAINSTAY_BLESS=1` writes it anew.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::PathBuf;

use mainstay_testkit::world::matrix;

const HEAD: &str =
    "<!-- Generated: `MAINSTAY_BLESS=1 cargo test -p mainstay-testkit --test life_matrix`. -->\n\n";

#[test]
fn every_state_and_every_event_is_on_the_page() {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/life-matrix.md");
    let page = format!("{HEAD}{}", matrix::page());
    if std::env::var_os("MAINSTAY_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/reference/life-matrix.md is not up to date: look, then MAINSTAY_BLESS=1 cargo test -p mainstay-testkit --test life_matrix"
    );
}
