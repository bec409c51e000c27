//! Bad input of any kind: a clear error, exit code 1 or 2, and not one byte is lost.
//! guards: A config file that cannot be changed is named with the reason, and keeps its bytes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use crate::support::configs::{fixture, place, put};
use crate::support::home::{Home, outcome};

/// Everything below a directory but our own files: its name and its bytes.
fn tree(path: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if path.ends_with(".local") {
            continue;
        }
        if path.is_dir() {
            all.push((name, None));
            all.extend(tree(&path));
        } else {
            all.push((name, fs::read(&path).ok()));
        }
    }
    all.sort();
    all
}

/// Adopts Claude Code's file, which must fail with these words and change nothing.
fn refused(home: &Home, said: &str) {
    let before = tree(home.path());
    let told = home.mainstay(&["adopt", "claude", "--yes"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    let all = format!("{}{}", told.stdout, told.stderr).replace("\n  ", " ");
    assert!(all.contains(said), "{said}\n{all}");
    assert!(all.contains("hint: "), "{all}");
    assert!(tree(home.path()) == before, "{said}: a file has changed");
}

#[test]
fn an_unknown_client_a_client_without_a_file_and_no_client_at_all() {
    let home = Home::new();
    let told = home.mainstay(&["adopt", "clade"]);
    let said = "error: no client called `clade` is known\nhint: did you mean `claude`?\n";
    assert_eq!(told, outcome("", said, 2));
    let told = home.mainstay(&["adopt", "claude"]);
    assert_eq!(told.code, Some(1));
    assert!(
        told.stderr
            .starts_with("error: Claude Code has no config file here: looked for ~/.claude.json\n"),
        "{}",
        told.stderr
    );
    let told = home.mainstay(&["adopt"]);
    assert_eq!(told.code, Some(1));
    assert!(
        told.stderr
            .starts_with("error: no client has a config file here: "),
        "{}",
        told.stderr
    );
    assert_eq!(home.mainstay(&["release"]).code, Some(2));
    let told = home.mainstay(&["release", "--all"]);
    assert_eq!(
        told,
        outcome("", "nothing to do: no client has a config file here\n", 0)
    );
    assert!(tree(home.path()).is_empty());
}

#[test]
fn an_unknown_server() {
    let home = Home::new();
    put(home.path(), "Claude Code", &fixture("claude_code.json"));
    let told = home.mainstay(&["adopt", "--server", "clok", "--yes"]);
    let said = "error: no config has a server called `clok`\nhint: did you mean `clock`?\n";
    assert_eq!(told, outcome("", said, 1));
}

#[test]
fn broken_files_are_left_as_they_are() {
    let home = Home::new();
    put(
        home.path(),
        "Claude Code",
        b"{ \"mcpServers\": { \"a\": { \"command\": \"npx\" ",
    );
    refused(&home, "~/.claude.json: line 1, column");
    put(home.path(), "Claude Code", b"{ \"mcpServers\": 7 }");
    refused(&home, "`mcpServers` holds no servers");
    put(home.path(), "Claude Code", b"{ \"mcpServers\": {} }\0");
    refused(&home, "is NUL");
    let large = [b"{\"x\":\"".to_vec(), vec![b'x'; 50 << 20], b"\"}".to_vec()].concat();
    put(home.path(), "Claude Code", &large);
    refused(&home, "the file has 52428808 bytes");
}

#[test]
fn what_is_no_file_or_not_ours_is_left_alone() {
    let home = Home::new();
    let path = place(home.path(), "Claude Code");
    fs::create_dir(&path).unwrap();
    refused(&home, "~/.claude.json is a directory");
    fs::remove_dir(&path).unwrap();
    symlink("nowhere", &path).unwrap();
    refused(&home, "~/.claude.json is a symbolic link to no file");
    fs::remove_file(&path).unwrap();
    put(home.path(), "Claude Code", &fixture("claude_code.json"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    refused(&home, "~/.claude.json is read-only");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(&path, home.path().join("other")).unwrap();
    refused(&home, "~/.claude.json has 2 names");
    fs::remove_file(home.path().join("other")).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(&path, Some(65_534), None).unwrap();
        refused(&home, "~/.claude.json belongs to user 65534");
    }
}

#[test]
fn one_broken_file_does_not_stop_the_others() {
    let home = Home::new();
    put(home.path(), "Zed", b"{");
    let path = put(home.path(), "Codex", &fixture("codex.toml"));
    let told = home.mainstay(&["adopt", "--yes"]);
    assert_eq!(told.code, Some(1));
    assert!(
        told.stdout
            .contains("changed ~/.codex/config.toml: 2 servers"),
        "{}",
        told.stdout
    );
    let failed = "\nnot changed: ~/.config/zed/settings.json: line 1, column 1: ";
    assert!(told.stdout.contains(failed), "{}", told.stdout);
    assert_ne!(fs::read(&path).unwrap(), fixture("codex.toml"));
    let told = home.mainstay(&["release", "--all", "--yes"]);
    assert_eq!(told.code, Some(1));
    assert!(told.stdout.contains(failed), "{}", told.stdout);
    assert_eq!(fs::read(path).unwrap(), fixture("codex.toml"));
    let told = home.mainstay(&["release", "--all", "--yes"]);
    assert_eq!(told.code, Some(1));
    let said = "nothing is left to release, except perhaps in what cannot be read:\nnot changed: ~/.config/zed/settings.json: line 1, column 1: ";
    assert!(told.stderr.starts_with(said), "{}", told.stderr);
}

/// A client that writes its file again and again while it is adopted: none of its writes is lost.
#[test]
fn a_client_that_writes_at_the_same_time_loses_nothing() {
    let home = Home::new();
    let path = put(home.path(), "Claude Code", &fixture("claude_code.json"));
    let mut command = home.command(&["adopt", "claude", "--yes", "--json"]);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let text = String::from_utf8(fixture("claude_code.json")).unwrap();
    let with =
        |count: u32| text.replace("\"numStartups\": 42", &format!("\"numStartups\": {count}"));
    let mut count = 42;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        // As clients do it: all from memory, to a new file, renamed.
        count += 1;
        let new = home.path().join("new");
        fs::write(&new, with(count)).unwrap();
        fs::rename(&new, &path).unwrap();
    };
    // Either it found its moment, or it gave up.
    assert!(matches!(status.code(), Some(0 | 1)), "{status}");
    assert_eq!(home.mainstay(&["release", "--all", "--yes"]).code, Some(0));
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        with(count),
        "the last write is there"
    );
}
