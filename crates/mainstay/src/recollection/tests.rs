use std::ffi::{CString, OsString};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::UNIX_EPOCH;

use mainstay_core::message::{lists::Which, remembered::Learned};

use super::*;
use crate::scratch::Scratch;

const SECRET: &str = "sk-very-secret";

fn recollection(directory: &Path, token: &str) -> Recollection {
    Recollection::of(
        directory,
        "demo",
        &Configuration {
            argv: &["server", "--key", SECRET].map(OsString::from),
            cwd: Path::new("/"),
            env: &[CString::new(format!("TOKEN={token}")).unwrap()],
        },
    )
}

fn sample() -> Remembered {
    let mut remembered = Remembered::default();
    remembered.learn_discover(br#"{"supportedVersions":["2026-07-28"],"n":1.0}"#);
    remembered.learn_opening(u64::MAX, br#"{ "protocolVersion" : "2025-06-18" }"#);
    remembered.learn_list(
        Some(u64::MAX),
        Which::Tools,
        br#"{"tools":[{"name":"\u0061"}]}"#,
    );
    remembered.learn_opening(7, br#"{"protocolVersion":"2025-11-25"}"#);
    remembered.learn_list(Some(7), Which::Templates, br#"{"resourceTemplates":[]}"#);
    remembered.learn_list(None, Which::Prompts, br#"{"prompts":[]}"#);
    remembered.from_disk()
}

fn names(directory: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn what_was_saved_is_loaded_to_the_byte() {
    let scratch = Scratch::new();
    let directory = scratch.path().join("record");
    let ours = recollection(&directory, SECRET);
    assert_eq!(ours.load(), Remembered::default());
    ours.save(&sample()).unwrap();
    assert_eq!(ours.load(), sample());
    assert!(!ours.load().changed());
    let mut legacy = Remembered::default();
    legacy.learn_legacy();
    ours.save(&legacy).unwrap();
    assert!(ours.load().is_legacy());
    let other = recollection(&directory, "other");
    assert_ne!(ours.path(), other.path());
    assert_eq!(other.load(), Remembered::default());
}

#[test]
fn a_record_is_private_and_holds_no_secret() {
    let scratch = Scratch::new();
    let directory = scratch.path().join("record");
    let ours = recollection(&directory, SECRET);
    ours.save(&sample()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&directory), DIRECTORY_MODE);
    assert_eq!(mode(ours.path()), FILE_MODE);
    assert_eq!(names(&directory), [ours.path().file_name().unwrap()]);
    let text = fs::read_to_string(ours.path()).unwrap();
    assert!(!text.contains(SECRET) && !text.contains("TOKEN"), "{text}");
    assert!(
        text.starts_with(r#"{"version":1,"server":"demo","#),
        "{text}"
    );
}

#[test]
fn a_torn_file_at_any_byte_is_as_good_as_none() {
    let scratch = Scratch::new();
    let ours = recollection(scratch.path(), "x");
    ours.save(&sample()).unwrap();
    let whole = fs::read(ours.path()).unwrap();
    // Without the last byte only the newline is missing.
    for length in 0..whole.len() - 1 {
        fs::write(ours.path(), &whole[..length]).unwrap();
        assert_eq!(ours.load(), Remembered::default(), "{length} bytes");
    }
    ours.save(&sample()).unwrap();
    assert_eq!(ours.load(), sample());
}

#[test]
fn what_cannot_be_believed_is_as_good_as_none_and_replaced() {
    let scratch = Scratch::new();
    let ours = recollection(scratch.path(), "x");
    ours.save(&sample()).unwrap();
    let whole = fs::read_to_string(ours.path()).unwrap();
    let huge = " ".repeat(RECORD_FILE_BYTES as usize) + &whole;
    for (what, text) in [
        ("version", whole.replace(r#""version":1"#, r#""version":2"#)),
        ("digest", whole.replace("ffffffffffffffff", "no digest")),
        ("missing", whole.replace(r#""legacy":false,"#, "")),
        (
            "type",
            whole.replace(r#""openings":["#, r#""openings":[7,"#),
        ),
        ("junk", "\u{0}\u{0}\u{0}".into()),
        ("huge", huge),
    ] {
        fs::write(ours.path(), text).unwrap();
        assert_eq!(ours.load(), Remembered::default(), "{what}");
        ours.save(&sample()).unwrap();
        assert_eq!(ours.load(), sample(), "{what}");
    }
    fs::set_permissions(ours.path(), fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(ours.load(), Remembered::default(), "anybody could write it");
    let elsewhere = scratch.path().join("elsewhere");
    ours.save(&sample()).unwrap();
    fs::rename(ours.path(), &elsewhere).unwrap();
    symlink(&elsewhere, ours.path()).unwrap();
    assert_eq!(ours.load(), Remembered::default(), "a link");
    fs::remove_file(ours.path()).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, ours.path(), rustix::fs::Mode::from(0o600)).unwrap();
    assert_eq!(ours.load(), Remembered::default(), "a pipe");
    ours.save(&sample()).unwrap();
    assert_eq!(ours.load(), sample());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(ours.path(), Some(12_345), None).unwrap();
        assert_eq!(ours.load(), Remembered::default(), "somebody else's");
    }
}

#[test]
fn a_result_that_would_split_a_line_is_not_believed() {
    let scratch = Scratch::new();
    let ours = recollection(scratch.path(), "x");
    ours.save(&sample()).unwrap();
    let text = fs::read_to_string(ours.path()).unwrap();
    fs::write(
        ours.path(),
        text.replace(r#"{"prompts":[]}"#, "{\n\"prompts\":[]}"),
    )
    .unwrap();
    let mut loaded = ours.load();
    assert_eq!(loaded.list(None, Which::Prompts), None);
    let learned = loaded.learn_list(None, Which::Prompts, br#"{"prompts":[]}"#);
    assert_eq!(learned, Learned::New);
    assert_eq!(loaded.openings(), sample().openings());
}

#[test]
fn to_read_is_to_use() {
    let scratch = Scratch::new();
    let ours = recollection(scratch.path(), "x");
    ours.save(&sample()).unwrap();
    let old = || {
        let file = File::options().write(true).open(ours.path()).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
    };
    old();
    ours.load();
    let other = recollection(scratch.path(), "y");
    other.save(&sample()).unwrap();
    assert_eq!(ours.load(), sample());
    old();
    other.save(&sample()).unwrap();
    assert_eq!(ours.load(), Remembered::default(), "unused since 1970");
}

#[test]
fn a_place_that_cannot_be_written_is_an_error_and_nothing_else() {
    let nowhere = crate::paths::Paths::nowhere().record();
    let ours = recollection(&nowhere, "x");
    assert_eq!(ours.load(), Remembered::default());
    assert!(ours.save(&sample()).is_err());
    let scratch = Scratch::new();
    let ours = recollection(scratch.path(), "x");
    fs::create_dir(ours.path()).unwrap();
    assert!(ours.save(&sample()).is_err());
    assert_eq!(ours.load(), Remembered::default());
    assert_eq!(names(scratch.path()).len(), 1, "nothing is left behind");
}

#[test]
fn a_visitor_sees_names_and_sizes() {
    let scratch = Scratch::new();
    let directory = scratch.path();
    for token in ["x", "y"] {
        recollection(directory, token).save(&sample()).unwrap();
    }
    let torn = recollection(directory, "z");
    fs::write(torn.path(), "torn").unwrap();
    fs::write(directory.join(".new-7"), "x").unwrap();
    let all = all(directory).unwrap();
    let servers: Vec<Option<&str>> = all.iter().map(|kept| kept.server.as_deref()).collect();
    assert_eq!(servers, [None, Some("demo"), Some("demo")]);
    let sum: u64 = all.iter().map(|kept| kept.bytes).sum();
    assert_eq!(extent(directory).unwrap(), (3, sum + 1));
}
