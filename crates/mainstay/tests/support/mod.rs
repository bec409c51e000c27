//! What the whole-command tests share: a home directory of their own, and the command with few variables.
#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay::paths::Paths;
use mainstay::registry::{Card, card};
use mainstay_core::event::{Detached, Seen};
use mainstay_core::ids::LinkId;
use mainstay_core::tier::Tier;
use mainstay_os::{census, identity};
use mainstay_testkit::quiet::Quiet;
use mainstay_testkit::wait::{children_executed, until};

pub mod keepers;

/// A home directory, removed at the end.
pub struct Home {
    path: PathBuf,
    _quiet: Quiet,
}

impl Home {
    /// A fresh one, beside those of other tests.
    pub fn new() -> Self {
        Self::with(Quiet::shared().unwrap())
    }

    /// A fresh one while no other test of this user has one: for a test whose processes the next start would sweep away.
    pub fn alone() -> Self {
        Self::with(Quiet::alone().unwrap())
    }

    fn with(quiet: Quiet) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "mainstay-home-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self {
            path,
            _quiet: quiet,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its paths, made.
    pub fn paths(&self) -> Paths {
        let paths = Paths::below(self.path.clone()).unwrap();
        paths.make().unwrap();
        paths
    }

    /// Writes the config file.
    pub fn config(&self, text: &str) {
        let file = self.paths().config_file().unwrap();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// The command with HOME and PATH and nothing else.
    #[expect(clippy::disallowed_methods, reason = "the command under test")]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
        command
            .args(words)
            .env_clear()
            .env("HOME", &self.path)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null());
        command
    }

    /// Runs the command to its end.
    pub fn mainstay(&self, words: &[&str]) -> Outcome {
        self.outcome(&mut self.command(words))
    }

    /// Runs a command to its end; the home directory is shown as `~`.
    pub fn outcome(&self, command: &mut Command) -> Outcome {
        // A link whose lock the test has given back is dead from here on.
        children_executed();
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| {
            String::from_utf8(bytes)
                .unwrap()
                .replace(self.path.to_str().unwrap(), "~")
        };
        Outcome {
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            code: output.status.code(),
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.path).ok();
    }
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
    pub code: Option<i32>,
}

impl Outcome {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// What a command should have said.
pub fn outcome(stdout: &str, stderr: &str, code: i32) -> Outcome {
    Outcome {
        stdout: stdout.into(),
        stderr: stderr.into(),
        code: Some(code),
    }
}

/// A card of a link that nobody serves.
pub fn card(id: u32, name: &str) -> Card {
    Card {
        v: card::VERSION,
        id: LinkId(id),
        name: name.into(),
        argv: vec!["server".into()],
        cwd: "/".into(),
        state: "ready".into(),
        generation: 1,
        started_at: "2026-11-15T22:31:07.123Z".into(),
        realm: identity::realm().unwrap(),
        shim: None,
        guard: None,
        keeper: None,
        server: None,
        client: None,
        tier: Some(Tier::Subreaper),
        why_not: Vec::new(),
        leaf: None,
        detached: Detached::Yes,
        ladder_ms: 60_000,
        restart_ms: 60_000,
        lease: None,
        members: Vec::new(),
    }
}

/// A process as a card names it.
pub fn seen(pid: i32) -> Seen {
    let stat = mainstay_os::census::stat(pid).unwrap();
    Seen {
        who: stat.who(),
        comm: stat.comm,
    }
}

/// A keeper's place, taken by a shell: below it a server with one child.
pub struct FakeTree {
    shell: Child,
    pub keeper: i32,
    pub server: i32,
    pub child: i32,
}

impl FakeTree {
    #[expect(clippy::disallowed_methods, reason = "real processes to look at")]
    pub fn start(variables: &[(&str, &str)]) -> Self {
        // The pids are told when all of them are there; both shells go on when our end of their pipe is closed.
        let script = "sh -c 'sleep 1000 & echo $$ $!; read line; kill $!; wait' <&3 & \
                      exec 3<&-; read line; wait";
        let script = format!("exec 3<&0; {script}");
        let mut shell = Command::new("sh")
            .args(["-c", &script])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let pids: Vec<i32> = line
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        // It was forked, but may not have become what it is yet.
        until("the child sleeps", || {
            let environ = fs::read(format!("/proc/{}/environ", pids[1])).ok()?;
            let stat = census::stat(pids[1]).ok()?;
            (stat.comm == "sleep" && !environ.is_empty()).then_some(())
        });
        Self {
            keeper: shell.id() as i32,
            server: pids[0],
            child: pids[1],
            shell,
        }
    }
}

impl Drop for FakeTree {
    /// Both shells wait for a line, and each gets its end of the pipe closed.
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        self.shell.wait().ok();
    }
}
