//! guards: A cache file is used only for the same command, environment and directory.

use super::*;
use crate::scratch::Scratch;
use std::os::unix::fs::symlink;
use std::time::{Duration, UNIX_EPOCH};

/// A configuration that can be changed bit by bit.
struct Sample {
    scratch: Scratch,
    argv: Vec<OsString>,
    cwd: PathBuf,
    env: Vec<CString>,
}

impl Sample {
    /// `node server.js --flag` in `work`, with a node in the only directory of PATH.
    fn new() -> Self {
        let scratch = Scratch::new();
        let (bin, cwd) = (scratch.path().join("bin"), scratch.path().join("work"));
        fs::create_dir(&bin).unwrap();
        fs::create_dir(&cwd).unwrap();
        let mut sample = Self {
            argv: ["node", "server.js", "--flag"].map(OsString::from).into(),
            env: vec![variable("A=1"), variable("TOKEN=secret")],
            cwd,
            scratch,
        };
        sample.env.push(sample.path_variable("bin"));
        sample.program("bin/node", "interpreter");
        fs::write(sample.cwd.join("server.js"), "script").unwrap();
        sample
    }

    fn program(&self, name: &str, text: &str) {
        let file = self.scratch.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn path_variable(&self, directory: &str) -> CString {
        let directory = self.scratch.path().join(directory);
        variable(&format!("PATH=/nowhere:{}", directory.display()))
    }

    fn key(&self) -> String {
        Configuration {
            argv: &self.argv,
            cwd: &self.cwd,
            env: &self.env,
        }
        .key()
    }

    /// Asserts that a change makes another key.
    fn changes(&mut self, what: &str, change: impl FnOnce(&mut Self)) {
        let before = self.key();
        change(self);
        assert_ne!(self.key(), before, "{what}");
    }

    /// Asserts that a change makes no other key.
    fn keeps(&mut self, what: &str, change: impl FnOnce(&mut Self)) {
        let before = self.key();
        change(self);
        assert_eq!(self.key(), before, "{what}");
    }
}

fn variable(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn age(file: &Path) {
    change(file, Duration::ZERO);
}

/// Gives a file this time of change, since the epoch.
fn change(file: &Path, time: Duration) {
    let file = fs::File::options().write(true).open(file).unwrap();
    file.set_modified(UNIX_EPOCH + time).unwrap();
}

#[test]
fn it_is_hex_and_stays_the_same() {
    let mut sample = Sample::new();
    let key = sample.key();
    assert_eq!(key.len(), KEY_DIGITS);
    assert!(key.bytes().all(|b| b.is_ascii_hexdigit()), "{key}");
    sample.keeps("nothing", |_| {});
    assert!(!key.contains("secret"));
}

#[test]
fn it_is_the_same_in_every_build() {
    let key = Configuration {
        argv: &["no-such-command", "x"].map(OsString::from),
        cwd: Path::new("/nowhere"),
        env: &["TERM=xterm", "B=2", "A=1", "PATH=/nowhere"].map(variable),
    }
    .key();
    assert_eq!(key, "9723468d9d8547a3ba6808880077a23f");
}

#[test]
fn every_ingredient_changes_it() {
    let mut sample = Sample::new();
    sample.changes("an argument", |s| s.argv[2] = "--other".into());
    sample.changes("one more argument", |s| s.argv.push(OsString::new()));
    sample.changes("where an argument ends", |s| {
        s.argv.truncate(1);
        s.argv.push("server.js--other".into());
    });
    sample.argv = ["node", "server.js"].map(OsString::from).into();
    sample.changes("a value", |s| s.env[1] = variable("TOKEN=other"));
    sample.changes("a name", |s| s.env[1] = variable("TOKEM=other"));
    sample.changes("one more variable", |s| s.env.push(variable("B=")));
    sample.changes("a variable that only looks like noise", |s| {
        s.env.push(variable("SSH_PASSWORD=x"));
    });
    sample.changes("the script", |s| {
        fs::write(s.cwd.join("server.js"), "longer script").unwrap();
    });
    sample.changes("the age of the script", |s| age(&s.cwd.join("server.js")));
    sample.changes("less than a second of the age of the script", |s| {
        change(&s.cwd.join("server.js"), Duration::from_nanos(1));
    });
    sample.changes("the program", |s| s.program("bin/node", "new interpreter"));
    sample.changes("the age of the program", |s| {
        age(&s.scratch.path().join("bin/node"));
    });
    sample.changes("less than a second of the age of the program", |s| {
        let node = s.scratch.path().join("bin/node");
        change(&node, Duration::from_nanos(1));
    });
    sample.changes("another program in PATH", |s| {
        fs::create_dir(s.scratch.path().join("bin2")).unwrap();
        s.program("bin2/node", "new interpreter");
        s.env[2] = s.path_variable("bin2");
    });
    sample.changes("no program in PATH", |s| {
        s.env[2] = variable("PATH=/nowhere");
    });
    sample.changes("the directory", |s| {
        let other = s.scratch.path().join("work2");
        fs::rename(&s.cwd, &other).unwrap();
        s.cwd = other;
    });
    sample.changes("the command", |s| s.argv[0] = "./node".into());
}

#[test]
fn noise_does_not_change_it() {
    let mut sample = Sample::new();
    sample.keeps("the order of variables", |s| s.env.reverse());
    for name in NOISE {
        // PATH is looked through, and has its own tests.
        if name != "PATH" {
            sample.keeps(name, |s| s.env.push(variable(&format!("{name}=7"))));
        }
    }
    for name in behaviour::all().flat_map(|one| one.session_variables) {
        sample.keeps(name, |s| s.env.push(variable(&format!("{name}=7"))));
    }
    for prefix in NOISE_PREFIXES {
        sample.keeps(prefix, |s| s.env.push(variable(&format!("{prefix}X=7"))));
    }
    sample.keeps("a file that is not the script", |s| {
        fs::write(s.cwd.join("other.js"), "x").unwrap();
    });
}

#[test]
fn a_directory_of_path_by_another_name_is_the_same() {
    let mut sample = Sample::new();
    sample.keeps("a link to the directory", |s| {
        symlink("bin", s.scratch.path().join("shell-7")).unwrap();
        let at = s
            .env
            .iter()
            .position(|v| v.as_bytes().starts_with(b"PATH="));
        s.env[at.unwrap()] = s.path_variable("shell-7");
    });
}

#[test]
fn a_link_in_a_virtual_environment_is_not_its_interpreter() {
    let mut sample = Sample::new();
    let root = sample.scratch.path().to_owned();
    for venv in ["venv-a", "venv-b"] {
        fs::create_dir(root.join(venv)).unwrap();
        symlink(root.join("bin/node"), root.join(venv).join("node")).unwrap();
    }
    sample.env[2] = sample.path_variable("venv-a");
    sample.changes("another environment", |s| {
        s.env[2] = s.path_variable("venv-b");
    });
}

#[test]
fn only_an_interpreter_has_a_script() {
    let sample = Sample::new();
    for (command, is_one) in [
        ("node", true),
        ("/usr/bin/python3.12", true),
        ("python-3", true),
        ("bash", true),
        ("server", false),
        ("3", false),
        ("", false),
    ] {
        let argv = [command, "-x", "server.js"].map(OsString::from);
        assert_eq!(script(&argv, &sample.cwd).is_some(), is_one, "{command}");
    }
    assert_eq!(script(&[], &sample.cwd), None);
    assert!(INTERPRETERS.is_sorted());
}
