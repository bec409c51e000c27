//! Adopted entries name a program in a directory for installed programs: a copy is made if there is none.
//! guards: No config names a program in a cache or a build directory, and no other program is replaced.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::support::configs::{fixture, put};
use crate::support::home::Home;

fn adopt(home: &Home, words: &[&str]) -> crate::support::home::Outcome {
    put(home.path(), "Codex", &fixture("codex.toml"));
    home.mainstay(&[&["adopt", "--yes"], words].concat())
}

fn config(home: &Home) -> String {
    fs::read_to_string(home.path().join(".codex/config.toml")).unwrap()
}

fn names(home: &Home, program: &Path) -> bool {
    config(home).contains(&format!("command = \"{}\"", program.display()))
}

fn program(version: &str) -> String {
    format!("#!/bin/sh\n# mainstay-program-version={version};\n")
}

#[test]
fn a_copy_is_made_and_works() {
    let home = Home::new();
    let told = adopt(&home, &[]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    let copy = home.path().join(".local/bin/mainstay");
    assert!(names(&home, &copy));
    assert_eq!(
        fs::metadata(&copy).unwrap().permissions().mode() & 0o777,
        0o755
    );
    let built = env!("CARGO_BIN_EXE_mainstay");
    assert_eq!(fs::read(&copy).unwrap(), fs::read(built).unwrap());
    // The same program again: nothing to copy. From its own place: nothing to say.
    let again = adopt(&home, &[]);
    assert!(!again.stdout.contains("will be"), "{}", again.stdout);
    let left = fs::read_dir(home.path().join(".local/bin")).unwrap();
    assert_eq!(left.count(), 1);
}

#[test]
fn the_directory_that_a_variable_names_is_used() {
    let home = Home::new();
    let bin = home.path().join("programs");
    put(home.path(), "Codex", &fixture("codex.toml"));
    let mut command = home.command(&["adopt", "--yes"]);
    let told = home.outcome(command.env("XDG_BIN_HOME", &bin));
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert!(names(&home, &bin.join("mainstay")));
}

#[test]
fn older_ones_are_replaced_newer_ones_are_used_others_are_refused() {
    let home = Home::new();
    let path = home.path().join(".local/bin/mainstay");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, program("0.0.1")).unwrap();
    let told = adopt(&home, &[]);
    assert!(
        told.stdout
            .contains("~/.local/bin/mainstay (mainstay 0.0.1) will be replaced"),
        "{}",
        told.stdout
    );
    assert_ne!(fs::read(&path).unwrap(), program("0.0.1").as_bytes());

    fs::write(&path, program("99.0.0")).unwrap();
    let told = adopt(&home, &[]);
    assert!(
        told.stdout.contains("is mainstay 99.0.0, newer than this"),
        "{}",
        told.stdout
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), program("99.0.0"));
    assert!(names(&home, &path));

    fs::write(&path, "#!/bin/sh\necho another program\n").unwrap();
    let told = adopt(&home, &[]);
    assert_eq!(told.code, Some(125));
    assert_eq!(
        told.stderr,
        "error: mainstay cannot be installed as ~/.local/bin/mainstay: another program is there\n\
         hint: move that away, or name a program that stays: --program PATH\n"
    );
    assert_eq!(
        config(&home),
        String::from_utf8(fixture("codex.toml")).unwrap()
    );
}

#[test]
fn a_link_into_a_build_directory_becomes_a_copy() {
    let home = Home::new();
    let path = home.path().join(".local/bin/mainstay");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(env!("CARGO_BIN_EXE_mainstay"), &path).unwrap();
    let told = adopt(&home, &[]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    assert!(names(&home, &path));
}

#[test]
fn a_program_can_be_named() {
    let home = Home::new();
    let built = env!("CARGO_BIN_EXE_mainstay");
    let told = adopt(&home, &["--program", built]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert!(names(&home, Path::new(built)));
    assert!(!home.path().join(".local/bin").exists());
    for wrong in ["mainstay", "/no/such/mainstay", "/etc/passwd"] {
        assert_eq!(adopt(&home, &["--program", wrong]).code, Some(2), "{wrong}");
    }
}

#[test]
fn no_config_is_changed_if_the_copy_fails() {
    let home = Home::new();
    fs::create_dir_all(home.path().join(".local")).unwrap();
    fs::write(home.path().join(".local/bin"), "a file").unwrap();
    let told = adopt(&home, &[]);
    assert_eq!(told.code, Some(125), "{}", told.stderr);
    assert!(
        told.stderr.contains("no config was changed")
            || told.stderr.contains("cannot be installed"),
        "{}",
        told.stderr
    );
    assert_eq!(
        config(&home),
        String::from_utf8(fixture("codex.toml")).unwrap()
    );
}

#[test]
fn words_for_editing_by_hand() {
    let home = Home::new();
    put(home.path(), "Zed", &fixture("zed.json"));
    let told = home.mainstay(&["adopt", "--print", "zed"]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert!(
        told.stdout.contains("~/.config/zed/settings.json"),
        "{}",
        told.stdout
    );
    let args = r#"args: ["run", "--name", "files", "--", OLD COMMAND, OLD ARGUMENTS…]"#;
    assert!(told.stdout.contains(args), "{}", told.stdout);
    assert!(
        !home.path().join(".local").exists(),
        "looking writes nothing"
    );
}
