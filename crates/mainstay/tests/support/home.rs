//! Shared by the tests of whole commands: a home directory for each test, and the command with few variables.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_os::{census, identity};
use mainstay_protocol::event::{Detached, Seen};
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::tier::Tier;
use mainstay_store::paths::Paths;
use mainstay_store::registry::{Card, card};
use mainstay_testkit::quiet::Quiet;
use mainstay_testkit::wait::{children_executed, until};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// A home directory, removed when it is dropped.
pub struct Home {
    path: PathBuf,
    _quiet: Quiet,
}

impl Home {
    /// A fresh one, beside those of other tests.
    pub fn new() -> Self {
        Self::with(Quiet::shared().unwrap())
    }

    /// A fresh one while no other test of this user has one. For tests whose processes another start would sweep.
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

    /// Its paths, with their directories created.
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

    /// The command with HOME and PATH only.
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

    /// Runs a command to its end. The output shows the home directory as `~`.
    pub fn outcome(&self, command: &mut Command) -> Outcome {
        // A link whose lock the test has released is dead from here on.
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

/// The expected outcome of a command.
pub fn outcome(stdout: &str, stderr: &str, code: i32) -> Outcome {
    Outcome {
        stdout: stdout.into(),
        stderr: stderr.into(),
        code: Some(code),
    }
}

/// A card of a link without processes.
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
        traffic: None,
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

/// A shell in place of a keeper, with a server below it that has one child.
pub struct FakeTree {
    shell: Child,
    pub keeper: i32,
    pub server: i32,
    pub child: i32,
}

impl FakeTree {
    #[expect(clippy::disallowed_methods, reason = "real processes to look at")]
    pub fn start(variables: &[(&str, &str)]) -> Self {
        // The shells print the pids once all processes exist. Both shells go on when our end of their pipe is closed.
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
        // The child was forked, but may not have executed its program yet.
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

impl FakeTree {
    /// Marks all of them, as a keeper marks its tree.
    pub fn mark(&self, mark: u64) {
        for pid in [self.keeper, self.server, self.child] {
            let limit = Rlimit {
                current: Some(mark),
                maximum: None,
            };
            prlimit(Pid::from_raw(pid), Resource::Rttime, limit).unwrap();
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
